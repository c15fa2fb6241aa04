//! A hook event, and the facts in it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use serde_json::value::RawValue;
use trackway_domain::{
    Time,
    observed::{Fact, Observation, PromptKey, Seen, SessionFacts, Source},
    spawn::prompt_hash,
    words::{Evidence, RunStatus},
};

use crate::{
    discover,
    lenient::{self, lenient},
    notification::{Notification, is_notification},
    redact::redacted,
    removal::removed,
    tool::{self, Input, Response, Tool},
    transcript::{Transcript, is_not_spawned},
    work_tree,
};

/// Characters in the name of a session or an agent.
const NAME_MAX: usize = 200;
/// How long before its session an agent's file beside it may have been written to last.
const BESIDE: Duration = Duration::from_hours(1);

/// What the client tells a hook.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Event {
    pub hook_event_name: String,
    pub session_id: String,
    #[serde(deserialize_with = "lenient::name")]
    pub transcript_path: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    pub cwd: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    pub prompt_id: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    pub source: Option<String>,
    pub prompt: Option<String>,
    pub tool_name: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    pub tool_use_id: Option<String>,
    pub tool_input: Option<Box<RawValue>>,
    pub tool_response: Option<Box<RawValue>>,
    pub error: Option<String>,
    pub agent_id: Option<String>,
    pub agent_type: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    pub agent_transcript_path: Option<String>,
    pub last_assistant_message: Option<String>,
    #[serde(deserialize_with = "null_is_false")]
    pub stop_hook_active: bool,
}

fn null_is_false<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<bool>::deserialize(deserializer)?.unwrap_or_default())
}

/// What is to be done about an event, besides writing its facts down.
#[derive(Debug, Default)]
pub struct Heard {
    pub facts: Vec<Seen>,
    /// Transcripts that should be read on now.
    pub read: Vec<Transcript>,
    /// Whether commits may have appeared.
    pub look_for_commits: bool,
}

impl Event {
    /// Reads what came in on standard input.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(bytes);
        let event: Self = serde_json::from_str(&text)
            .or_else(|error| serde_json::from_str(&lenient::mended(&text).ok_or(error)?))
            .map_err(|error| format!("not an event: {error}"))?;
        let named = |name: &str| (1..=NAME_MAX).contains(&name.chars().count()) && !name.contains(char::is_control);
        if !named(&event.session_id) {
            return Err("an event without a session".to_owned());
        }
        if event.agent_id.as_deref().is_some_and(|agent| !agent.is_empty() && !named(agent)) {
            return Err("an event of an agent without a proper id".to_owned());
        }
        Ok(event)
    }

    /// The agent it is about, when that is a subagent.
    pub fn agent(&self) -> Option<&str> {
        self.agent_id.as_deref().filter(|agent| !agent.is_empty())
    }

    pub fn is_stop(&self) -> bool {
        matches!(self.hook_event_name.as_str(), "Stop" | "SubagentStop")
    }

    /// Whether the client may write on in the transcripts and tell of nothing more: from 2.1 on it stops before its last
    /// words are written, and one that is killed does not even say that it ends.
    pub fn may_be_last(&self) -> bool {
        self.is_stop() || matches!(self.hook_event_name.as_str(), "StopFailure" | "SessionEnd")
    }

    /// The facts in it, as one observation.
    pub fn observation(&self, facts: Vec<Seen>) -> Observation {
        Observation { session: self.session_id.clone(), source: Source::Hook, facts, progress: None }
    }

    /// What it says.
    pub fn hear(&self, at: Time) -> Heard {
        let mut heard = Heard::default();
        match self.hook_event_name.as_str() {
            "SessionStart" => heard.facts.push(self.session(at)),
            "UserPromptSubmit" => self.prompt(at, &mut heard),
            "PreToolUse" | "PostToolUse" | "PostToolUseFailure" => self.tool(at, &mut heard),
            "SubagentStart" => self.subagent_start(at, &mut heard),
            "SubagentStop" | "Stop" | "StopFailure" => self.stop(at, &mut heard),
            "PreCompact" => heard.read = self.transcripts(),
            "SessionEnd" => {
                heard.facts.push(self.seen(at, Fact::SessionEnd));
                heard.read = self.transcripts();
            }
            _ => {}
        }
        heard
    }

    fn seen(&self, at: Time, fact: Fact) -> Seen {
        let prompt = PromptKey { id: self.prompt_id.clone(), line: None };
        let place = work_tree::place_of(self.cwd.as_deref(), &fact);
        Seen::new(at, self.agent(), &prompt, fact).seen_in(place)
    }

    fn session(&self, at: Time) -> Seen {
        let place = self.cwd.as_deref().map(work_tree::find).unwrap_or_default();
        let facts = SessionFacts {
            cwd: self.cwd.clone(),
            head: place.root.as_deref().filter(|_| self.hook_event_name == "SessionStart").and_then(work_tree::head),
            root: place.root,
            workspace: place.workspace,
            transcript_path: self.transcript_path.clone(),
            source: self.source.clone(),
            ..SessionFacts::default()
        };
        Seen::new(at, None, &PromptKey::default(), Fact::Session(Box::new(facts)))
    }

    fn prompt(&self, at: Time, heard: &mut Heard) {
        let Some(prompt) = self.prompt.as_deref().filter(|prompt| !prompt.trim().is_empty()) else { return };
        heard.facts.push(self.session(at));
        let hash = prompt_hash(prompt);
        if !is_notification(prompt) {
            heard.facts.push(self.seen(at, Fact::Prompt { text: redacted(prompt).into_owned(), hash }));
            return;
        }
        let told = Notification::read(prompt);
        let tool_use_id = told.as_ref().and_then(|told| told.tool_use_id).map(str::to_owned);
        heard.facts.push(self.seen(at, Fact::Notified { hash, tool_use_id: tool_use_id.clone() }));
        if let (Some(told), Some(tool_use_id)) = (told, tool_use_id) {
            heard.facts.extend(told.matched().map(|fact| self.seen(at, fact)));
            heard.facts.extend(told.result(tool_use_id).map(|fact| self.seen(at, fact)));
        }
    }

    fn tool(&self, at: Time, heard: &mut Heard) {
        let Some(name) = self.tool_name.as_deref() else { return };
        let Some(kind) = Tool::named(name) else { return };
        let before = self.hook_event_name == "PreToolUse";
        let failed = self.hook_event_name == "PostToolUseFailure";
        let input: Input = lenient(self.tool_input.as_deref());
        let response: Response = lenient(self.tool_response.as_deref());
        if kind == Tool::Shell {
            if !before {
                heard.facts.extend([self.session(at), self.seen(at, Fact::Shell)]);
                // Whatever the command is called: a script commits, too.
                heard.look_for_commits = true;
                let command = input.command.as_deref().filter(|_| !failed);
                if let (Some(id), Some(command)) = (self.tool_use_id.as_deref(), command) {
                    let removed = removed(id, command, self.cwd.as_deref());
                    heard.facts.extend(removed.into_iter().map(|file| self.seen(at, Fact::File(file))));
                }
            }
            return;
        }
        let Some(id) = self.tool_use_id.as_deref().filter(|id| !id.is_empty()) else {
            // A client that does not name its calls yet: the transcript does.
            if !before {
                heard.read = self.transcripts();
            }
            return;
        };
        match kind {
            Tool::Spawn => self.spawn(at, id, &input, &response, heard),
            Tool::File if !before && !failed => {
                if let Some(file) = tool::file(name, Some(id), &input, &response, None) {
                    heard.facts.extend([self.session(at), self.seen(at, Fact::File(file))]);
                    // By an agent's first call its meta.json is there, and says what started it.
                    heard.facts.extend(self.meta(at));
                }
            }
            Tool::File | Tool::Shell => {}
        }
    }

    fn spawn(&self, at: Time, id: &str, input: &Input, response: &Response, heard: &mut Heard) {
        let Some(spawn) = tool::spawn(id, input, None) else { return };
        heard.facts.extend([self.session(at), self.seen(at, Fact::Spawn(spawn))]);
        let tool_use_id = id.to_owned();
        match self.hook_event_name.as_str() {
            "PostToolUse" => {
                let status = response.status.clone().unwrap_or_else(|| "completed".to_owned());
                let result = Fact::SpawnResult { tool_use_id: tool_use_id.clone(), status, error: None };
                heard.facts.push(self.seen(at, result));
                let Some(agent) = response.agent_id.clone() else {
                    heard.read = self.transcripts();
                    return;
                };
                let fact = Fact::Match { tool_use_id, agent_id: agent.clone(), evidence: Evidence::PostToolUse };
                heard.facts.push(self.seen(at, fact));
                if response.is_async != Some(true) {
                    heard.read.extend(self.transcript_of(&agent));
                }
            }
            "PostToolUseFailure" => {
                let error = Some(redacted(self.error.as_deref().unwrap_or("failed")).into_owned());
                heard.facts.push(self.seen(at, Fact::SpawnResult { tool_use_id, status: "failed".to_owned(), error }));
            }
            _ => {}
        }
    }

    fn subagent_start(&self, at: Time, heard: &mut Heard) {
        let Some(agent) = self.agent() else { return };
        if is_not_spawned(agent) {
            return;
        }
        // A client of 2.0 warms agents up for a session that it then leaves for the one it resumes. As long as not a word
        // stands in its transcript, that there is one is for others to say.
        if !self.is_wordless() {
            heard.facts.push(self.session(at));
        }
        heard.facts.push(self.seen(
            at,
            Fact::SubagentStart { agent_type: self.agent_type.as_deref().map(|named| redacted(named).into_owned()) },
        ));
    }

    /// Whether nothing stands in the session's transcript yet.
    fn is_wordless(&self) -> bool {
        let length = |path: &String| Path::new(path).metadata().map_or(0, |file| file.len());
        self.transcript_path.as_ref().is_some_and(|path| length(path) == 0)
    }

    fn stop(&self, at: Time, heard: &mut Heard) {
        let subagent = self.hook_event_name == "SubagentStop";
        if subagent && self.agent().is_none() {
            // An old client does not say who stopped: its transcript does.
            heard.read = self.transcripts();
            return;
        }
        let message = self.last_assistant_message.as_deref().map(|message| redacted(message).into_owned());
        let fact = match (self.hook_event_name.as_str(), self.stop_hook_active) {
            ("StopFailure", _) => {
                let error = message.or_else(|| self.error.as_deref().map(|error| redacted(error).into_owned()));
                Fact::Rest { status: RunStatus::Failed, message: None, error }
            }
            // What it answers to the end-of-run prompt is not its final word.
            (_, true) => Fact::Rest { status: RunStatus::Completed, message: None, error: None },
            (_, false) => Fact::Rest { status: RunStatus::Completed, message, error: None },
        };
        heard.facts.push(self.seen(at, fact));
        match self.agent() {
            Some(agent) => {
                heard.facts.extend(self.meta(at));
                heard.read.extend(self.transcript_of(agent));
            }
            None => heard.read = self.transcripts(),
        }
    }

    /// What the agent's meta.json says, where it is there.
    fn meta(&self, at: Time) -> Vec<Seen> {
        let transcript = self.agent().and_then(|agent| self.transcript_of(agent));
        let known = transcript.filter(|transcript| transcript.path.with_extension("meta.json").exists());
        match (known, self.agent()) {
            (Some(transcript), Some(agent)) => crate::transcript::meta(&transcript.path, agent, at),
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
        let path = discover::real(&path);
        // A client of 2.0 may come to another session while an agent warms up: its file is of the one it began in.
        let began_in = discover::identify(&path).ok().flatten().map(|(transcript, _)| transcript.session);
        let session = began_in.unwrap_or_else(|| self.session_id.clone());
        Some(Transcript { path, session, agent: Some(agent.to_owned()) })
    }

    /// All transcripts of the session.
    pub fn transcripts(&self) -> Vec<Transcript> {
        let Some(own) = self.transcript_path.as_deref().map(Path::new).filter(|path| path.is_file()) else {
            return Vec::new();
        };
        let own = discover::real(own);
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

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Event::parse(&bytes).map(|event| event.hear(Time::from_micros(0)));
        }
    }

    #[test]
    fn half_a_character_and_a_nul_keep_nothing_out() {
        let event = Event::parse(
            br#"{"session_id":"s","hook_event_name":"UserPromptSubmit","cwd":"/p\u0000","prompt_id":"p\u00001","prompt":"cut \ud83d"}"#,
        )
        .unwrap();
        assert_eq!((event.cwd.as_deref(), event.prompt_id.as_deref()), (Some("/p"), Some("p1")));
        let heard = event.hear(Time::from_micros(0));
        assert!(matches!(&heard.facts[1].fact, Fact::Prompt { text, .. } if text == "cut \u{fffd}"), "{heard:?}");
    }

    #[test]
    fn odd_events_say_nothing() {
        for text in [
            r#"{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"Agent","tool_use_id":"t","tool_input":{"prompt":5}}"#,
            r#"{"session_id":"s","hook_event_name":"SubagentStart","agent_type":"x"}"#,
            r#"{"session_id":"s","hook_event_name":"Never"}"#,
            r#"{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":" "}"#,
        ] {
            assert!(Event::parse(text.as_bytes()).unwrap().hear(Time::from_micros(0)).facts.is_empty(), "{text}");
        }
        assert!(Event::parse(b"{}").is_err());
        assert!(Event::parse(br#"{"session_id":7}"#).is_err());
    }
}
