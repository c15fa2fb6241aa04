//! The table of hooked events, and the command that the hooks run.

use serde_json::{Map, Value, json};
use trackway_capture::{
    connection::{HookSettings, Version},
    program::is_own_name,
};
use trackway_domain::enums::Memory;

/// A hooked event of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub name: &'static str,
    /// The tools for which the event is hooked, if it is a tool event.
    pub matcher: Option<&'static str>,
    /// The client kills the command after this time.
    pub timeout_seconds: u32,
    /// The first client version that supports the event, found by testing client versions. An older version finds an
    /// unknown event name in the settings, and with `-p` reports no error. Version 2.1.69 and older ones then ignore
    /// the whole file, including permissions. Version 2.1.110 and newer ones ignore only the entry.
    pub since: Version,
}

const SPAWN_TOOLS: Option<&str> = Some("Task|Agent");
const RECORDED_TOOLS: Option<&str> = Some("Write|Edit|MultiEdit|NotebookEdit|Bash|Task|Agent");

const fn event(name: &'static str, matcher: Option<&'static str>, timeout_seconds: u32, since: Version) -> Event {
    Event { name, matcher, timeout_seconds, since }
}

/// All hooked events. The user waits for the hooks with the shortest timeouts; hooks that read the transcripts may take
/// longer.
pub const EVENTS: &[Event] = &[
    event("SessionStart", None, 10, Version(1, 0, 62)),
    event("UserPromptSubmit", None, 5, Version(1, 0, 54)),
    event("PreToolUse", SPAWN_TOOLS, 5, Version(1, 0, 38)),
    event("PostToolUse", RECORDED_TOOLS, 5, Version(1, 0, 38)),
    event("PostToolUseFailure", SPAWN_TOOLS, 5, Version(2, 0, 56)),
    event("SubagentStart", None, 5, Version(2, 0, 44)),
    event("SubagentStop", None, 10, Version(1, 0, 48)),
    event("Stop", None, 10, Version(1, 0, 38)),
    event("PreCompact", None, 30, Version(1, 0, 48)),
    event("SessionEnd", None, 5, Version(1, 0, 85)),
];

/// Renders hooks as entries of a Claude Code settings file.
pub trait HookEntries {
    /// The shell command of the hooks.
    fn command(&self) -> String;

    /// The hooked events that the client supports.
    fn events(&self) -> impl Iterator<Item = &'static Event>;

    /// The hooked events that the client does not support.
    fn unsupported_events(&self) -> impl Iterator<Item = &'static Event>;

    /// The entry of one event.
    fn group(&self, event: &Event) -> Value;

    /// The whole `hooks` object.
    fn hooks(&self) -> Value;
}

impl HookEntries for HookSettings {
    fn command(&self) -> String {
        let program = shell_quoted(&self.program);
        if self.memory == Memory::default() {
            format!("{program} hook")
        } else {
            format!("{program} hook --memory {}", self.memory)
        }
    }

    fn events(&self) -> impl Iterator<Item = &'static Event> {
        EVENTS.iter().filter(|event| supports(self, event))
    }

    fn unsupported_events(&self) -> impl Iterator<Item = &'static Event> {
        EVENTS.iter().filter(|event| !supports(self, event))
    }

    fn group(&self, event: &Event) -> Value {
        let mut group = Map::new();
        if let Some(matcher) = event.matcher {
            group.insert("matcher".to_owned(), json!(matcher));
        }
        let hook = json!({ "type": "command", "command": self.command(), "timeout": event.timeout_seconds });
        group.insert("hooks".to_owned(), json!([hook]));
        Value::Object(group)
    }

    fn hooks(&self) -> Value {
        self.events().map(|event| (event.name.to_owned(), json!([self.group(event)]))).collect::<Map<_, _>>().into()
    }
}

/// Whether the client that reads the settings supports an event.
fn supports(wanted: &HookSettings, event: &Event) -> bool {
    wanted.client.is_none_or(|client| client >= event.since)
}

/// Quotes a word for a POSIX shell, with which the client runs commands.
fn shell_quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "_@%+=:,./-".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Whether a command is a hook of Trackway: a binary called `trackway` at any path, with the argument `hook` and
/// possibly other arguments.
pub fn is_trackway_command(command: &str) -> bool {
    let words = shell_words(command);
    let is_assignment = |word: &&String| word.split_once('=').is_some_and(|(name, _)| !name.contains(['/', '\\']));
    let mut words = words.iter().skip_while(is_assignment);
    words.next().is_some_and(|program| is_own_name(program)) && words.any(|word| word == "hook")
}

/// The value of `--memory` in a hook command of Trackway.
pub fn memory_option(command: &str) -> Memory {
    let words = shell_words(command);
    let value = words.iter().enumerate().find_map(|(index, word)| match word.strip_prefix("--memory") {
        Some("") => words.get(index + 1).map(String::as_str),
        rest => rest.and_then(|rest| rest.strip_prefix('=')),
    });
    value.and_then(|word| word.parse().ok()).unwrap_or_default()
}

/// Splits a command into words like a shell.
fn shell_words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = command.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (None, character) if character.is_whitespace() => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (Some(open), character) if character == open => quote = None,
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (_, character) => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(program: &str, memory: Memory) -> HookSettings {
        HookSettings { program: program.to_owned(), memory, client: None }
    }

    #[test]
    fn command_is_quoted_and_omits_default_options() {
        assert_eq!(wanted("/usr/bin/trackway", Memory::Subagents).command(), "/usr/bin/trackway hook");
        assert_eq!(wanted("/a b/trackway", Memory::All).command(), "'/a b/trackway' hook --memory all");
        assert_eq!(wanted("/it's/trackway", Memory::Off).command(), r"'/it'\''s/trackway' hook --memory off");
    }

    #[test]
    fn recognizes_trackway_hook_commands() {
        for program in ["trackway", "/a b/trackway", "/it's/trackway", "C:\\bin\\trackway.exe", "/opt/trackway-0.2"] {
            for memory in [Memory::Off, Memory::Subagents, Memory::All] {
                assert!(is_trackway_command(&wanted(program, memory).command()), "{program}");
            }
        }
        for command in ["\"/a b/trackway\" hook", "A=1 trackway --db x hook", "/a\\ b/trackway hook --memory=off"] {
            assert!(is_trackway_command(command), "{command}");
        }
        for command in ["", "hook", "trackway status", "trackwayx hook", "echo trackway hook", "/trackway/x hook", "'"]
        {
            assert!(!is_trackway_command(command), "{command}");
        }
    }

    #[test]
    fn reads_memory_option_back_from_command() {
        for memory in [Memory::Off, Memory::Subagents, Memory::All] {
            assert_eq!(memory_option(&wanted("/a b/trackway", memory).command()), memory);
        }
        assert_eq!(memory_option("trackway hook --memory=off"), Memory::Off);
        assert_eq!(memory_option("trackway hook --memory"), Memory::Subagents);
    }

    #[test]
    fn omits_events_that_an_older_client_does_not_support() {
        let names = |client: &str| {
            let wanted = HookSettings { client: client.parse().ok(), ..wanted("trackway", Memory::All) };
            wanted.unsupported_events().map(|event| event.name).collect::<Vec<_>>()
        };
        assert_eq!(names("1.0.128 (Claude Code)"), ["PostToolUseFailure", "SubagentStart"]);
        assert_eq!(names("2.0.44 (Claude Code)"), ["PostToolUseFailure"]);
        assert_eq!(names("2.1.197 (Claude Code)"), [""; 0]);
        assert_eq!(names("no version"), [""; 0]);
        assert_eq!("2.2.0-beta.1".parse(), Ok(Version(2, 2, 0)));
    }
}
