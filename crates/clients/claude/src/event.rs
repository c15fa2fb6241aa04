//! Hook events as the client writes them on standard input.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{json, value::RawValue};
use trackway_capture::{
    discovery::real,
    hook::{Answer, Happened, Header, HookEvent, Stop, ToolCall, ToolResult},
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

/// Characters in the name of a session or an agent.
const NAME_MAX: usize = 200;
/// How long before its session an agent's file beside it may have been written to last.
const BESIDE: Duration = Duration::from_hours(1);

/// The fields of all events.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    hook_event_name: String,
    session_id: String,
    #[serde(deserialize_with = "lenient::name")]
    transcript_path: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    cwd: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    prompt_id: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    source: Option<String>,
    prompt: Option<String>,
    tool_name: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    tool_use_id: Option<String>,
    tool_input: Option<Box<RawValue>>,
    tool_response: Option<Box<RawValue>>,
    error: Option<String>,
    agent_id: Option<String>,
    agent_type: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    agent_transcript_path: Option<String>,
    last_assistant_message: Option<String>,
    #[serde(deserialize_with = "null_is_false")]
    stop_hook_active: bool,
}

/// The fields by which the hook process finds the database.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Head {
    hook_event_name: String,
    session_id: String,
    #[serde(deserialize_with = "lenient::name")]
    cwd: Option<String>,
}

fn null_is_false<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<bool>::deserialize(deserializer)?.unwrap_or_default())
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let text = String::from_utf8_lossy(bytes);
    serde_json::from_str(&text)
        .or_else(|error| serde_json::from_str(&lenient::mended(&text).ok_or(error)?))
        .map_err(|error| format!("not an event: {error}"))
}

fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.chars().count()) && !name.contains(char::is_control)
}

/// Reads what is needed to find the database.
pub fn header(bytes: &[u8]) -> Result<Header, String> {
    let Head { hook_event_name, session_id, cwd } = read(bytes)?;
    if !is_name(&session_id) {
        return Err("an event without a session".to_owned());
    }
    Ok(Header { name: hook_event_name, cwd })
}

/// Reads an event, and looks for the files that it points at.
pub fn parse(bytes: &[u8]) -> Result<HookEvent, String> {
    let event: Event = read(bytes)?;
    if !is_name(&event.session_id) {
        return Err("an event without a session".to_owned());
    }
    if event.agent_id.as_deref().is_some_and(|agent| !agent.is_empty() && !is_name(agent)) {
        return Err("an event of an agent without a proper id".to_owned());
    }
    Ok(event.neutral())
}

/// An event upon which only the session's transcripts are read on.
pub fn read_on(event: &HookEvent) -> String {
    json!({
        "hook_event_name": "PreCompact",
        "session_id": event.session,
        "transcript_path": event.transcript_path,
        "cwd": event.cwd,
    })
    .to_string()
}

/// The answer as the client reads it from standard output.
pub fn rendered(event: &HookEvent, answer: &Answer) -> String {
    match answer {
        Answer::Context(text) => {
            json!({ "hookSpecificOutput": { "hookEventName": event.name, "additionalContext": text } })
        }
        Answer::Continue(reason) => json!({ "decision": "block", "reason": reason }),
    }
    .to_string()
}

impl Event {
    fn neutral(self) -> HookEvent {
        let (happened, read) = self.happened();
        let beside = match &happened {
            // By an agent's first call its file is there, and says what started it.
            Happened::ToolEnded(ToolCall::File(_), _)
            | Happened::SubagentStopped(_)
            | Happened::Stopped(_)
            | Happened::Failed { .. } => self.beside_agent(),
            _ => Vec::new(),
        };
        HookEvent {
            agent: self.agent().map(str::to_owned),
            name: self.hook_event_name,
            session: self.session_id,
            prompt_id: self.prompt_id,
            cwd: self.cwd,
            transcript_path: self.transcript_path,
            happened,
            beside,
            read,
        }
    }

    /// The agent it is about, when that is a subagent.
    fn agent(&self) -> Option<&str> {
        self.agent_id.as_deref().filter(|agent| !agent.is_empty())
    }

    /// What happened, and the transcripts that are to be read on.
    fn happened(&self) -> (Happened, Vec<Transcript>) {
        match self.hook_event_name.as_str() {
            "SessionStart" => (Happened::SessionStarted { source: self.source.clone() }, Vec::new()),
            "UserPromptSubmit" => (self.prompted().unwrap_or(Happened::Other), Vec::new()),
            "PreToolUse" | "PostToolUse" | "PostToolUseFailure" => self.tool(),
            "SubagentStart" => (self.subagent_started(), Vec::new()),
            "SubagentStop" => (Happened::SubagentStopped(self.stop()), self.transcripts_after_stop()),
            "Stop" => (Happened::Stopped(self.stop()), self.transcripts_after_stop()),
            "StopFailure" => {
                let said = self.last_assistant_message.as_deref().or(self.error.as_deref());
                let error = said.map(|error| redacted(error).into_owned());
                (Happened::Failed { error }, self.transcripts_after_stop())
            }
            "PreCompact" => (Happened::Compacting, self.transcripts()),
            "SessionEnd" => (Happened::SessionEnded, self.transcripts()),
            _ => (Happened::Other, Vec::new()),
        }
    }

    fn prompted(&self) -> Option<Happened> {
        let prompt = self.prompt.as_deref().filter(|prompt| !prompt.trim().is_empty())?;
        if !is_notification(prompt) {
            return Some(Happened::Prompted { text: prompt.to_owned() });
        }
        let told = Notification::read(prompt);
        let tool_use_id = told.as_ref().and_then(|told| told.tool_use_id).map(str::to_owned);
        let outcome = match (told, &tool_use_id) {
            (Some(told), Some(call)) => told.matched().into_iter().chain(told.result(call.clone())).collect(),
            _ => Vec::new(),
        };
        Some(Happened::Notified { hash: prompt_hash(prompt), tool_use_id, outcome })
    }

    fn tool(&self) -> (Happened, Vec<Transcript>) {
        let nothing = || (Happened::Other, Vec::new());
        let Some((name, kind)) = self.tool_name.as_deref().and_then(|name| Some((name, Tool::named(name)?))) else {
            return nothing();
        };
        let starts = self.hook_event_name == "PreToolUse";
        let failed = self.hook_event_name == "PostToolUseFailure";
        let input: Input = lenient(self.tool_input.as_deref());
        let response: Response = lenient(self.tool_response.as_deref());
        let error = failed.then(|| redacted(self.error.as_deref().unwrap_or("failed")).into_owned());
        let id = self.tool_use_id.as_deref();
        if kind == Tool::Shell {
            if starts {
                return nothing();
            }
            let call = id.map(str::to_owned).zip(input.command);
            let result = ToolResult { error, ..ToolResult::default() };
            return (Happened::ToolEnded(ToolCall::Command { tool: tool::SHELL, call }, result), Vec::new());
        }
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            // A client that does not name its calls yet: the transcript does.
            return (Happened::Other, if starts { Vec::new() } else { self.transcripts() });
        };
        if kind == Tool::File {
            let file = tool::file(name, Some(id), &input, &response, None).filter(|_| !starts && !failed);
            let ended = |file| Happened::ToolEnded(ToolCall::File(Box::new(file)), ToolResult::default());
            return file.map_or_else(nothing, |file| (ended(file), Vec::new()));
        }
        let Some(spawn) = tool::spawn(id, &input, None).map(ToolCall::Spawn) else { return nothing() };
        if starts {
            return (Happened::ToolStarted(spawn), Vec::new());
        }
        let read = match &response.agent_id {
            _ if failed => Vec::new(),
            Some(_) if response.is_async == Some(true) => Vec::new(),
            Some(agent) => self.transcript_of(agent).into_iter().collect(),
            None => self.transcripts(),
        };
        let agent = response.agent_id.filter(|_| !failed);
        (Happened::ToolEnded(spawn, ToolResult { error, status: response.status, agent }), read)
    }

    fn subagent_started(&self) -> Happened {
        if self.agent().is_some_and(agent_file::is_not_spawned) {
            return Happened::Other;
        }
        Happened::SubagentStarted {
            agent_type: self.agent_type.as_deref().map(|named| redacted(named).into_owned()),
            // A client of 2.0 starts agents ahead for a session that it then leaves for the one it resumes. As long as the
            // transcript is empty, other events must tell that the session exists.
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
            // Also for an old client, which does not say which subagent stopped: its transcript does.
            None => self.transcripts(),
        }
    }

    /// What the agent's file states, where it is there.
    fn beside_agent(&self) -> Vec<Fact> {
        let transcript = self.agent().and_then(|agent| self.transcript_of(agent));
        let known = transcript.filter(|transcript| transcript.path.with_extension("meta.json").exists());
        match (known, self.agent()) {
            (Some(transcript), Some(agent)) => agent_file::facts(&transcript.path, agent),
            _ => Vec::new(),
        }
    }

    /// The transcript of a subagent, where this version keeps it.
    fn transcript_of(&self, agent: &str) -> Option<Transcript> {
        let own = self.transcript_path.as_deref().map(Path::new)?;
        let said = self.agent_transcript_path.as_deref().filter(|_| self.agent() == Some(agent)).map(PathBuf::from);
        let beside = own.with_file_name(format!("agent-{agent}.jsonl"));
        let below = own.with_extension("").join("subagents").join(format!("agent-{agent}.jsonl"));
        let path = [said, Some(below), Some(beside)].into_iter().flatten().find(|path| path.is_file())?;
        let path = real(&path);
        // A client of 2.0 may come to another session while an agent warms up: its file is of the one it began in.
        let began_in = discover::identify(&path).ok().flatten().map(|(transcript, _)| transcript.session);
        let session = began_in.unwrap_or_else(|| self.session_id.clone());
        Some(Transcript { path, session, agent: Some(agent.to_owned()) })
    }

    /// All transcripts of the session.
    fn transcripts(&self) -> Vec<Transcript> {
        let Some(own) = self.transcript_path.as_deref().map(Path::new).filter(|path| path.is_file()) else {
            return Vec::new();
        };
        let own = real(own);
        let below = own.with_extension("").join("subagents");
        let beside = self.beside(&own);
        let mut found = vec![Transcript { path: own, session: self.session_id.clone(), agent: None }];
        if below.is_dir() {
            found.extend(discover::find(&below, &mut |_| true).transcripts);
        }
        found.extend(beside);
        found
    }

    /// Files of its agents beside a session's own, where version 2.0 keeps them, and the one in which 2.0.0 goes on with
    /// it. All sessions of a project are there, so that only those files are looked into that may be of this one.
    fn beside(&self, own: &Path) -> Vec<Transcript> {
        let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
        let since = changed(own).and_then(|at| at.checked_sub(BESIDE));
        let entries = own.parent().and_then(|folder| folder.read_dir().ok()).into_iter().flatten().flatten();
        let transcripts = entries
            .map(|entry| entry.path())
            .filter(|path| path != own && path.extension().is_some_and(|extension| extension == "jsonl"));
        let lately = transcripts.filter(|path| changed(path) >= since);
        let of_session = |path: PathBuf| {
            let (transcript, _) = discover::identify(&path).ok()??;
            (transcript.session == self.session_id).then_some(transcript)
        };
        lately.filter_map(of_session).collect()
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
        fn any_bytes_are_an_event_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = header(&bytes);
            let _ = parse(&bytes).map(|event| facts(&event));
        }
    }

    #[test]
    fn half_a_character_and_a_nul_keep_nothing_out() {
        let event = parse(
            br#"{"session_id":"s","hook_event_name":"UserPromptSubmit","cwd":"/p\u0000","prompt_id":"p\u00001","prompt":"cut \ud83d"}"#,
        )
        .unwrap();
        assert_eq!((event.cwd.as_deref(), event.prompt_id.as_deref()), (Some("/p"), Some("p1")));
        let facts = facts(&event);
        assert!(matches!(&facts[1], Fact::Prompt { text, .. } if text == "cut \u{fffd}"), "{facts:?}");
    }

    #[test]
    fn odd_events_say_nothing() {
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
