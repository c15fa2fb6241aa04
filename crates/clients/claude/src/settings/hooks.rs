//! The one table of the events that are hooked, and the command that is run for them.

use std::{fmt, str::FromStr};

use serde_json::{Map, Value, json};
use trackway_domain::words::Memory;

/// A version of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl FromStr for Version {
    type Err = ();

    /// As the client says it: `2.1.197 (Claude Code)`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let word = text.split_whitespace().next().ok_or(())?;
        let mut numbers = word.split(['.', '-', '+']).map(|number| number.parse().map_err(|_| ()));
        let mut next = || numbers.next().ok_or(())?;
        Ok(Self(next()?, next()?, next()?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// An event of the client that is hooked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub name: &'static str,
    /// The tools it is hooked for, where the client asks.
    pub matcher: Option<&'static str>,
    /// The client ends the command after this time.
    pub timeout_seconds: u32,
    /// The first client that knows it (read from the clients). One that finds a name it does not know drops, without
    /// a word in `-p`: up to 2.1.69 at least the whole file, permissions included; from 2.1.110 at the latest the entry.
    pub since: Version,
}

const SPAWNS: Option<&str> = Some("Task|Agent");
const CHANGES: Option<&str> = Some("Write|Edit|MultiEdit|NotebookEdit|Bash|Task|Agent");

const fn event(name: &'static str, matcher: Option<&'static str>, timeout_seconds: u32, since: Version) -> Event {
    Event { name, matcher, timeout_seconds, since }
}

/// Every event that is hooked. Those whose answer the client waits for with the user have the least time; reading the
/// rest of the transcripts may take longer.
pub const EVENTS: &[Event] = &[
    event("SessionStart", None, 10, Version(1, 0, 62)),
    event("UserPromptSubmit", None, 5, Version(1, 0, 54)),
    event("PreToolUse", SPAWNS, 5, Version(1, 0, 38)),
    event("PostToolUse", CHANGES, 5, Version(1, 0, 38)),
    event("PostToolUseFailure", SPAWNS, 5, Version(2, 0, 56)),
    event("SubagentStart", None, 5, Version(2, 0, 44)),
    event("SubagentStop", None, 10, Version(1, 0, 48)),
    event("Stop", None, 10, Version(1, 0, 38)),
    event("PreCompact", None, 30, Version(1, 0, 48)),
    event("SessionEnd", None, 5, Version(1, 0, 85)),
];

/// What is wanted in a settings file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The binary, as a path or a name.
    pub program: String,
    /// Whose runs end with the end-of-run prompt.
    pub memory: Memory,
    /// The client that will read the file; one that nobody knows is taken to be new.
    pub client: Option<Version>,
}

impl Wanted {
    /// What the shell is given.
    pub fn command(&self) -> String {
        let program = quoted(&self.program);
        if self.memory == Memory::default() {
            format!("{program} hook")
        } else {
            format!("{program} hook --memory {}", self.memory)
        }
    }

    /// The events that the client knows.
    pub fn events(&self) -> impl Iterator<Item = &'static Event> {
        EVENTS.iter().filter(|event| self.knows(event))
    }

    /// The events that it does not.
    pub fn left_out(&self) -> impl Iterator<Item = &'static Event> {
        EVENTS.iter().filter(|event| !self.knows(event))
    }

    fn knows(&self, event: &Event) -> bool {
        self.client.is_none_or(|client| client >= event.since)
    }

    /// The entry for one event.
    pub fn group(&self, event: &Event) -> Value {
        let mut group = Map::new();
        if let Some(matcher) = event.matcher {
            group.insert("matcher".to_owned(), json!(matcher));
        }
        let hook = json!({ "type": "command", "command": self.command(), "timeout": event.timeout_seconds });
        group.insert("hooks".to_owned(), json!([hook]));
        Value::Object(group)
    }

    /// All of `hooks`.
    pub fn hooks(&self) -> Value {
        self.events().map(|event| (event.name.to_owned(), json!([self.group(event)]))).collect::<Map<_, _>>().into()
    }
}

/// A word for a POSIX shell, which the client runs commands with.
fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "_@%+=:,./-".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Whether a command is ours: some binary called `trackway`, wherever it is, told to `hook`, whatever comes with it.
pub fn is_ours(command: &str) -> bool {
    let words = words(command);
    let is_assignment = |word: &&String| word.split_once('=').is_some_and(|(name, _)| !name.contains(['/', '\\']));
    let mut words = words.iter().skip_while(is_assignment);
    words.next().is_some_and(|program| is_our_name(program)) && words.any(|word| word == "hook")
}

/// What a command of ours says about memory.
pub fn memory_of(command: &str) -> Memory {
    let words = words(command);
    let said = words.iter().enumerate().find_map(|(index, word)| match word.strip_prefix("--memory") {
        Some("") => words.get(index + 1).map(String::as_str),
        rest => rest.and_then(|rest| rest.strip_prefix('=')),
    });
    said.and_then(|word| word.parse().ok()).unwrap_or_default()
}

/// Whether a binary's path ends in a name that is known again: `trackway`, `trackway.exe`, `trackway-0.2`.
pub fn is_our_name(program: &str) -> bool {
    let name = program.rsplit(['/', '\\']).next().unwrap_or_default();
    name.strip_prefix("trackway").is_some_and(|rest| !rest.starts_with(|character: char| character.is_alphanumeric()))
}

/// The words of a command, as a shell takes them apart.
fn words(command: &str) -> Vec<String> {
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

    fn wanted(program: &str, memory: Memory) -> Wanted {
        Wanted { program: program.to_owned(), memory, client: None }
    }

    #[test]
    fn the_command_is_quoted_and_says_only_what_is_not_the_default() {
        assert_eq!(wanted("/usr/bin/trackway", Memory::Subagents).command(), "/usr/bin/trackway hook");
        assert_eq!(wanted("/a b/trackway", Memory::All).command(), "'/a b/trackway' hook --memory all");
        assert_eq!(wanted("/it's/trackway", Memory::Off).command(), r"'/it'\''s/trackway' hook --memory off");
    }

    #[test]
    fn our_command_is_known_again() {
        for program in ["trackway", "/a b/trackway", "/it's/trackway", "C:\\bin\\trackway.exe", "/opt/trackway-0.2"] {
            for memory in [Memory::Off, Memory::Subagents, Memory::All] {
                assert!(is_ours(&wanted(program, memory).command()), "{program}");
            }
        }
        for command in ["\"/a b/trackway\" hook", "A=1 trackway --db x hook", "/a\\ b/trackway hook --memory=off"] {
            assert!(is_ours(command), "{command}");
        }
        for command in ["", "hook", "trackway status", "trackwayx hook", "echo trackway hook", "/trackway/x hook", "'"]
        {
            assert!(!is_ours(command), "{command}");
        }
    }

    #[test]
    fn what_a_command_says_about_memory_is_read_again() {
        for memory in [Memory::Off, Memory::Subagents, Memory::All] {
            assert_eq!(memory_of(&wanted("/a b/trackway", memory).command()), memory);
        }
        assert_eq!(memory_of("trackway hook --memory=off"), Memory::Off);
        assert_eq!(memory_of("trackway hook --memory"), Memory::Subagents);
    }

    #[test]
    fn an_old_client_is_not_told_of_events_it_does_not_know() {
        let names = |client: &str| {
            let wanted = Wanted { client: client.parse().ok(), ..wanted("trackway", Memory::All) };
            wanted.left_out().map(|event| event.name).collect::<Vec<_>>()
        };
        assert_eq!(names("1.0.128 (Claude Code)"), ["PostToolUseFailure", "SubagentStart"]);
        assert_eq!(names("2.0.44 (Claude Code)"), ["PostToolUseFailure"]);
        assert_eq!(names("2.1.197 (Claude Code)"), [""; 0]);
        assert_eq!(names("no version"), [""; 0]);
        assert_eq!("2.2.0-beta.1".parse(), Ok(Version(2, 2, 0)));
    }
}
