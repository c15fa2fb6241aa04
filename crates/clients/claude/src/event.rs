//! Parses the hook events that the client writes to standard input.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{json, value::RawValue};
use trackway_capture::{
    discovery::canonical_path,
    hook::{Answer, EventHeader, EventKind, HookEvent, Stop, ToolCall, ToolResult},
    lenient::{self, lenient},
    redact::redacted,
    transcript::Transcript,
};
use trackway_domain::{observed::Fact, spawn::prompt_hash};

use crate::{
    agent_file, discover,
    notification::{Notification, is_notification},
    tool::{self, Input, Response, Tool},
};

/// The longest id of a session or an agent, in characters.
const ID_LENGTH_MAX: usize = 200;
/// A file beside the session's transcript belongs to the session only if it was changed at most this long before the
/// transcript.
const AGENT_FILE_AGE_MAX: Duration = Duration::from_hours(1);

/// The fields of all hook events.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    hook_event_name: String,
    session_id: String,
    #[serde(deserialize_with = "lenient::without_nul")]
    transcript_path: Option<String>,
    #[serde(deserialize_with = "lenient::without_nul")]
    cwd: Option<String>,
    #[serde(deserialize_with = "lenient::without_nul")]
    prompt_id: Option<String>,
    #[serde(deserialize_with = "lenient::without_nul")]
    source: Option<String>,
    prompt: Option<String>,
    tool_name: Option<String>,
    #[serde(deserialize_with = "lenient::without_nul")]
    tool_use_id: Option<String>,
    tool_input: Option<Box<RawValue>>,
    tool_response: Option<Box<RawValue>>,
    error: Option<String>,
    agent_id: Option<String>,
    agent_type: Option<String>,
    #[serde(deserialize_with = "lenient::without_nul")]
    agent_transcript_path: Option<String>,
    last_assistant_message: Option<String>,
    #[serde(deserialize_with = "null_is_false")]
    stop_hook_active: bool,
}

/// The fields from which the hook process finds the database.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HeaderFields {
    hook_event_name: String,
    session_id: String,
    #[serde(deserialize_with = "lenient::without_nul")]
    cwd: Option<String>,
}

fn null_is_false<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<bool>::deserialize(deserializer)?.unwrap_or_default())
}

fn parse_lenient<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let text = String::from_utf8_lossy(bytes);
    serde_json::from_str(&text)
        .or_else(|error| serde_json::from_str(&lenient::replace_lone_surrogates(&text).ok_or(error)?))
        .map_err(|error| format!("invalid hook event: {error}"))
}

fn is_valid_id(name: &str) -> bool {
    (1..=ID_LENGTH_MAX).contains(&name.chars().count()) && !name.contains(char::is_control)
}

/// Parses the fields from which the hook process finds the database.
pub fn header(bytes: &[u8]) -> Result<EventHeader, String> {
    let HeaderFields { hook_event_name, session_id, cwd } = parse_lenient(bytes)?;
    if !is_valid_id(&session_id) {
        return Err("the event has no valid session_id".to_owned());
    }
    Ok(EventHeader { name: hook_event_name, cwd })
}

/// Parses an event, and finds the files that it refers to.
pub fn parse(bytes: &[u8]) -> Result<HookEvent, String> {
    let event: Event = parse_lenient(bytes)?;
    if !is_valid_id(&event.session_id) {
        return Err("the event has no valid session_id".to_owned());
    }
    if event.agent_id.as_deref().is_some_and(|agent| !agent.is_empty() && !is_valid_id(agent)) {
        return Err("the event has an invalid agent_id".to_owned());
    }
    Ok(event.into_hook_event())
}

/// An event whose only effect is that the session's transcripts are read to their end.
pub fn catch_up_event(event: &HookEvent) -> String {
    json!({
        "hook_event_name": "PreCompact",
        "session_id": event.session,
        "transcript_path": event.transcript_path,
        "cwd": event.cwd,
    })
    .to_string()
}

/// Renders an answer as the client expects it on standard output.
pub fn render_answer(event: &HookEvent, answer: &Answer) -> String {
    match answer {
        Answer::Context(text) => {
            json!({ "hookSpecificOutput": { "hookEventName": event.name, "additionalContext": text } })
        }
        Answer::Continue(reason) => json!({ "decision": "block", "reason": reason }),
    }
    .to_string()
}

impl Event {
    fn into_hook_event(self) -> HookEvent {
        let (kind, transcripts_to_read) = self.kind_and_transcripts();
        let sidecar_facts = match &kind {
            // At an agent's first tool call, its meta file exists and names the call that started it.
            EventKind::ToolEnded(ToolCall::File(_), _)
            | EventKind::SubagentStopped(_)
            | EventKind::Stopped(_)
            | EventKind::Failed { .. } => self.sidecar_facts_of_agent(),
            _ => Vec::new(),
        };
        HookEvent {
            agent: self.agent().map(str::to_owned),
            name: self.hook_event_name,
            session: self.session_id,
            prompt_id: self.prompt_id,
            cwd: self.cwd,
            transcript_path: self.transcript_path,
            kind,
            sidecar_facts,
            transcripts_to_read,
        }
    }

    /// The id of the subagent, if the event is about one.
    fn agent(&self) -> Option<&str> {
        self.agent_id.as_deref().filter(|agent| !agent.is_empty())
    }

    /// The kind of the event, and the transcripts to read.
    fn kind_and_transcripts(&self) -> (EventKind, Vec<Transcript>) {
        match self.hook_event_name.as_str() {
            "SessionStart" => (EventKind::SessionStarted { source: self.source.clone() }, Vec::new()),
            "UserPromptSubmit" => (self.prompt_kind().unwrap_or(EventKind::Other), Vec::new()),
            "PreToolUse" | "PostToolUse" | "PostToolUseFailure" => self.tool_kind_and_transcripts(),
            "SubagentStart" => (self.subagent_start_kind(), Vec::new()),
            "SubagentStop" => (EventKind::SubagentStopped(self.stop()), self.transcripts_after_stop()),
            "Stop" => (EventKind::Stopped(self.stop()), self.transcripts_after_stop()),
            "StopFailure" => {
                let message = self.last_assistant_message.as_deref().or(self.error.as_deref());
                let error = message.map(|error| redacted(error).into_owned());
                (EventKind::Failed { error }, self.transcripts_after_stop())
            }
            "PreCompact" => (EventKind::Compacting, self.transcripts()),
            "SessionEnd" => (EventKind::SessionEnded, self.transcripts()),
            _ => (EventKind::Other, Vec::new()),
        }
    }

    fn prompt_kind(&self) -> Option<EventKind> {
        let prompt = self.prompt.as_deref().filter(|prompt| !prompt.trim().is_empty())?;
        if !is_notification(prompt) {
            return Some(EventKind::Prompted { text: prompt.to_owned() });
        }
        let notification = Notification::parse(prompt);
        let tool_use_id = notification.as_ref().and_then(|notification| notification.tool_use_id).map(str::to_owned);
        let outcome = match (notification, &tool_use_id) {
            (Some(notification), Some(call)) => {
                notification.match_fact().into_iter().chain(notification.spawn_result(call.clone())).collect()
            }
            _ => Vec::new(),
        };
        Some(EventKind::Notified { hash: prompt_hash(prompt), tool_use_id, outcome })
    }

    fn tool_kind_and_transcripts(&self) -> (EventKind, Vec<Transcript>) {
        let ignored = || (EventKind::Other, Vec::new());
        let Some((name, kind)) = self.tool_name.as_deref().and_then(|name| Some((name, Tool::from_name(name)?))) else {
            return ignored();
        };
        let is_start = self.hook_event_name == "PreToolUse";
        let failed = self.hook_event_name == "PostToolUseFailure";
        let input: Input = lenient(self.tool_input.as_deref());
        let response: Response = lenient(self.tool_response.as_deref());
        let error = failed.then(|| redacted(self.error.as_deref().unwrap_or("failed")).into_owned());
        let id = self.tool_use_id.as_deref();
        if kind == Tool::Shell {
            if is_start {
                return ignored();
            }
            let call = id.map(str::to_owned).zip(input.command);
            let result = ToolResult { error, ..ToolResult::default() };
            return (EventKind::ToolEnded(ToolCall::Command { tool: tool::SHELL, call }, result), Vec::new());
        }
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            // Old clients do not name the call. The transcript does.
            return (EventKind::Other, if is_start { Vec::new() } else { self.transcripts() });
        };
        if kind == Tool::File {
            let file = tool::file_facts(name, Some(id), &input, &response, None).filter(|_| !is_start && !failed);
            let ended = |file| EventKind::ToolEnded(ToolCall::File(Box::new(file)), ToolResult::default());
            return file.map_or_else(ignored, |file| (ended(file), Vec::new()));
        }
        let Some(spawn) = tool::spawn_facts(id, &input, None).map(ToolCall::Spawn) else { return ignored() };
        if is_start {
            return (EventKind::ToolStarted(spawn), Vec::new());
        }
        let transcripts_to_read = match &response.agent_id {
            _ if failed => Vec::new(),
            Some(_) if response.is_async == Some(true) => Vec::new(),
            Some(agent) => self.transcript_of(agent).into_iter().collect(),
            None => self.transcripts(),
        };
        let agent = response.agent_id.filter(|_| !failed);
        (EventKind::ToolEnded(spawn, ToolResult { error, status: response.status, agent }), transcripts_to_read)
    }

    fn subagent_start_kind(&self) -> EventKind {
        if self.agent().is_some_and(agent_file::is_not_spawned) {
            return EventKind::Other;
        }
        EventKind::SubagentStarted {
            agent_type: self.agent_type.as_deref().map(|named| redacted(named).into_owned()),
            // Version 2.0 starts agents in advance for a new session, and drops that session if the user resumes
            // another one. While the transcript is empty, only other events prove that the session exists.
            in_session: !self.is_transcript_empty(),
        }
    }

    fn is_transcript_empty(&self) -> bool {
        let length = |path: &String| Path::new(path).metadata().map_or(0, |file| file.len());
        self.transcript_path.as_ref().is_some_and(|path| length(path) == 0)
    }

    fn stop(&self) -> Stop {
        let message = self.last_assistant_message.as_deref().map(|message| redacted(message).into_owned());
        Stop { message, after_hook: self.stop_hook_active }
    }

    fn transcripts_after_stop(&self) -> Vec<Transcript> {
        match self.agent() {
            Some(agent) => self.transcript_of(agent).into_iter().collect(),
            // Old clients do not name the subagent that stopped, so read all transcripts of the session.
            None => self.transcripts(),
        }
    }

    /// The facts from the agent's meta file, if there is one.
    fn sidecar_facts_of_agent(&self) -> Vec<Fact> {
        let transcript = self.agent().and_then(|agent| self.transcript_of(agent));
        let with_meta_file = transcript.filter(|transcript| transcript.path.with_extension("meta.json").exists());
        match (with_meta_file, self.agent()) {
            (Some(transcript), Some(agent)) => agent_file::facts(&transcript.path, agent),
            _ => Vec::new(),
        }
    }

    /// The transcript of a subagent, at any of the paths that client versions use.
    fn transcript_of(&self, agent: &str) -> Option<Transcript> {
        let own = self.transcript_path.as_deref().map(Path::new)?;
        let reported = self.agent_transcript_path.as_deref().filter(|_| self.agent() == Some(agent)).map(PathBuf::from);
        let flat = own.with_file_name(format!("agent-{agent}.jsonl"));
        let nested = own.with_extension("").join("subagents").join(format!("agent-{agent}.jsonl"));
        let path = [reported, Some(nested), Some(flat)].into_iter().flatten().find(|path| path.is_file())?;
        let path = canonical_path(&path);
        // Version 2.0 may switch to another session while an agent warms up. The file belongs to the session in which
        // the agent started.
        let first_session = discover::identify(&path).ok().flatten().map(|(transcript, _)| transcript.session);
        let session = first_session.unwrap_or_else(|| self.session_id.clone());
        Some(Transcript { path, session, agent: Some(agent.to_owned()) })
    }

    fn transcripts(&self) -> Vec<Transcript> {
        let Some(own) = self.transcript_path.as_deref().map(Path::new).filter(|path| path.is_file()) else {
            return Vec::new();
        };
        let own = canonical_path(own);
        let nested = own.with_extension("").join("subagents");
        let flat = self.flat_transcripts(&own);
        let mut found = vec![Transcript { path: own, session: self.session_id.clone(), agent: None }];
        if nested.is_dir() {
            found.extend(discover::find_transcripts(&nested, &mut |_| true).transcripts);
        }
        found.extend(flat);
        found
    }

    /// Transcripts beside the session's own: version 2.0 of the client stores agent files there, and version 2.0.0
    /// continues a session in another file. The folder holds all sessions of a project, so this opens only recently
    /// changed files.
    fn flat_transcripts(&self, own: &Path) -> Vec<Transcript> {
        let changed_at = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
        let since = changed_at(own).and_then(|at| at.checked_sub(AGENT_FILE_AGE_MAX));
        let entries = own.parent().and_then(|folder| folder.read_dir().ok()).into_iter().flatten().flatten();
        let transcripts = entries
            .map(|entry| entry.path())
            .filter(|path| path != own && path.extension().is_some_and(|extension| extension == "jsonl"));
        let recently_changed = transcripts.filter(|path| changed_at(path) >= since);
        let of_session = |path: PathBuf| {
            let (transcript, _) = discover::identify(&path).ok()??;
            (transcript.session == self.session_id).then_some(transcript)
        };
        recently_changed.filter_map(of_session).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use trackway_domain::Time;

    use super::*;

    fn facts(event: &HookEvent) -> Vec<Fact> {
        event.facts(None, Time::from_micros(0)).into_iter().map(|seen| seen.fact).collect()
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = header(&bytes);
            let _ = parse(&bytes).map(|event| facts(&event));
        }
    }

    #[test]
    fn accepts_lone_surrogates_and_nul_characters() {
        let event = parse(
            br#"{"session_id":"s","hook_event_name":"UserPromptSubmit","cwd":"/p\u0000","prompt_id":"p\u00001","prompt":"cut \ud83d"}"#,
        )
        .unwrap();
        assert_eq!((event.cwd.as_deref(), event.prompt_id.as_deref()), (Some("/p"), Some("p1")));
        let facts = facts(&event);
        assert!(matches!(&facts[1], Fact::Prompt { text, .. } if text == "cut \u{fffd}"), "{facts:?}");
    }

    #[test]
    fn malformed_fields_yield_no_facts() {
        for text in [
            r#"{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"Agent","tool_use_id":"t","tool_input":{"prompt":5}}"#,
            r#"{"session_id":"s","hook_event_name":"SubagentStart","agent_type":"x"}"#,
            r#"{"session_id":"s","hook_event_name":"Never"}"#,
            r#"{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":" "}"#,
        ] {
            assert!(facts(&parse(text.as_bytes()).unwrap()).is_empty(), "{text}");
        }
        assert!(parse(b"{}").is_err());
        assert!(parse(br#"{"session_id":7}"#).is_err());
    }
}
