//! Messages and hints of errors. A sentence stores the commands and fields that it names as structured parts, so that
//! each interface can render them: the command line as `trackway note show 1a2b3c4d` and `--max-items`, HTTP and MCP as
//! `/notes/1a2b3c4d` and `max_items`.

use std::fmt;

/// The commands that sentences may name. [`command!`](crate::command) compiles only for these. Tests check that the
/// command line has each of them, and that the action or view behind it has the same fields.
pub const COMMANDS: &[CommandUsage] = &[
    CommandUsage::new("agent list", &[]),
    CommandUsage::new("agent set", &["handle", "capability", "max_items", "archived"]),
    CommandUsage::new("board export", &[]).with_subject().with_switches(&["force"]),
    CommandUsage::new("board list", &[]),
    CommandUsage::new("connect", &[]),
    CommandUsage::new("decision results", &[]).with_subject(),
    CommandUsage::new("ingest", &[]),
    CommandUsage::new("init", &[]),
    CommandUsage::new("label list", &[]),
    CommandUsage::new("note show", &[]).with_subject(),
    CommandUsage::new("open", &[]),
    CommandUsage::new("person list", &[]),
    CommandUsage::new("queue cancel", &[]),
    CommandUsage::new("queue complete", &[]),
    CommandUsage::new("queue held", &[]),
    CommandUsage::new("queue list", &["role"]),
    CommandUsage::new("queue requeue", &["id"]),
    CommandUsage::new("queue take", &["agent"]),
    CommandUsage::new("report list", &[]),
    CommandUsage::new("report set", &["agent", "task"]),
    CommandUsage::new("role list", &[]),
    CommandUsage::new("role set", &["name"]),
    CommandUsage::new("run cancel", &[]),
    CommandUsage::new("run start", &["agent"]),
    CommandUsage::new("scratchpad set", &["agent", "content"]),
    CommandUsage::new("studio list", &[]),
    CommandUsage::new("task delete", &[]),
    CommandUsage::new("task get", &[]),
    CommandUsage::new("task latest", &["variant"]),
    CommandUsage::new("task list", &["role"]),
    CommandUsage::new("task run", &["agent"]).with_subject(),
    CommandUsage::new("task set", &["workflow", "variant", "script", "archived"]),
    CommandUsage::new("tenant list", &[]),
    CommandUsage::new("up", &["listen"]),
    CommandUsage::new("workflow list", &[]),
    CommandUsage::new("workflow set", &["name"]),
    CommandUsage::new("workspace list", &[]),
];

/// The fields that sentences may name without a command. [`field!`](crate::field) compiles only for these, and tests
/// check that they exist.
pub const FIELDS: &[&str] = &[
    "batch",
    "body",
    "command",
    "conversation",
    "done",
    "exact",
    "force",
    "keep",
    "lease",
    "limit",
    "max_attempts",
    "max_items",
    "max_steps",
    "owner",
    "priority",
    "spend_limit",
    "task",
    "title",
    "variant",
    "workflow",
];

/// The usage of a command: its words, and its arguments that sentences may name.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct CommandUsage {
    /// A noun and a verb, or a single word.
    pub words: &'static str,
    /// Whether the first argument of the command has no flag.
    pub has_subject: bool,
    /// Names of flags, with `_` instead of `-`.
    pub flags: &'static [&'static str],
    /// Names of flags without a value.
    pub switches: &'static [&'static str],
}

impl CommandUsage {
    const fn new(words: &'static str, flags: &'static [&'static str]) -> Self {
        Self { words, has_subject: false, flags, switches: &[] }
    }

    const fn with_subject(self) -> Self {
        Self { has_subject: true, ..self }
    }

    const fn with_switches(self, switches: &'static [&'static str]) -> Self {
        Self { switches, ..self }
    }

    /// Looks up a command at compile time, for [`command!`](crate::command).
    #[doc(hidden)]
    pub const fn of(words: &str, subject: &[&str], flags: &[&str], switches: &[&str]) -> &'static Self {
        let mut index = 0;
        while index < COMMANDS.len() {
            let usage = &COMMANDS[index];
            if is_same(usage.words, words) {
                assert!(usage.has_subject || subject.is_empty(), "COMMANDS has this command without a subject");
                assert!(has_all(usage.flags, flags), "COMMANDS has this command without one of the flags");
                assert!(has_all(usage.switches, switches), "COMMANDS has this command without one of the switches");
                return usage;
            }
            index += 1;
        }
        panic!("COMMANDS lacks this command")
    }
}

/// A command with its arguments, made by [`command!`](crate::command).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Command {
    pub usage: &'static CommandUsage,
    pub subject: Option<String>,
    /// Names and values of the flags.
    pub flags: Vec<(&'static str, String)>,
    pub switches: Vec<&'static str>,
}

/// A field of actions and views, made by [`field!`](crate::field). The command line has a flag for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Field(&'static str);

impl Field {
    /// Looks up a field at compile time, for [`field!`](crate::field).
    #[doc(hidden)]
    pub const fn of(name: &'static str) -> Self {
        assert!(has(FIELDS, name), "FIELDS lacks this field");
        Self(name)
    }

    pub fn name(self) -> &'static str {
        self.0
    }
}

/// Builds a [`Command`](crate::sentence::Command) from its words, its subject in brackets, its flags, and its switches
/// after a semicolon: `command!("note show", [id])`, `command!("agent set", handle = handle, max_items = "NUMBER")`,
/// `command!("board export", ["BOARD DIR"]; force)`.
#[macro_export]
macro_rules! command {
    ($words:literal $(, [$subject:expr])? $(, $flag:ident = $value:expr)* $(,)? $(; $($switch:ident),+)?) => {
        $crate::sentence::Command {
            usage: const {
                $crate::sentence::CommandUsage::of(
                    $words,
                    &[$(stringify!($subject))?],
                    &[$(stringify!($flag)),*],
                    &[$($(stringify!($switch)),+)?],
                )
            },
            subject: $crate::command!(@subject $($subject)?),
            flags: vec![$((stringify!($flag), $value.to_string())),*],
            switches: vec![$($(stringify!($switch)),+)?],
        }
    };
    (@subject) => {
        None
    };
    (@subject $subject:expr) => {
        Some($subject.to_string())
    };
}

/// Builds a [`Field`](crate::sentence::Field): `field!(max_items)`.
#[macro_export]
macro_rules! field {
    ($name:ident) => {
        const { $crate::sentence::Field::of(stringify!($name)) }
    };
}

/// Builds a [`Sentence`](crate::Sentence) from texts, fields and commands:
/// `sentence!["read the note: ", command!("note show", [id])]`.
#[macro_export]
macro_rules! sentence {
    ($($part:expr),+ $(,)?) => {
        $crate::Sentence::from_iter([$($crate::sentence::Part::from($part)),+])
    };
}

/// A part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Part {
    Words(String),
    Field(Field),
    Command(Command),
}

impl From<&str> for Part {
    fn from(words: &str) -> Self {
        Self::Words(words.to_owned())
    }
}

impl From<String> for Part {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

impl From<Field> for Part {
    fn from(field: Field) -> Self {
        Self::Field(field)
    }
}

impl From<Command> for Part {
    fn from(command: Command) -> Self {
        Self::Command(command)
    }
}

/// A message or a hint. Its `Display` form is that of the command line, which logs and stored errors use too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sentence(Vec<Part>);

impl Sentence {
    pub fn parts(&self) -> &[Part] {
        &self.0
    }
}

impl FromIterator<Part> for Sentence {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        Self(parts.into_iter().collect())
    }
}

impl<P: Into<Part>> From<P> for Sentence {
    fn from(part: P) -> Self {
        Self(vec![part.into()])
    }
}

impl fmt::Display for Sentence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Words(words) => out.write_str(words),
            Part::Field(field) => write!(out, "{field}"),
            Part::Command(command) => write!(out, "{command}"),
        })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "--{}", self.0.replace('_', "-"))
    }
}

impl fmt::Display for Command {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "trackway {}", self.usage.words)?;
        if let Some(subject) = &self.subject {
            write!(out, " {subject}")?;
        }
        self.flags.iter().try_for_each(|(flag, value)| write!(out, " --{} {value}", flag.replace('_', "-")))?;
        self.switches.iter().try_for_each(|switch| write!(out, " --{}", switch.replace('_', "-")))
    }
}

const fn has_all(names: &[&str], wanted: &[&str]) -> bool {
    let mut index = 0;
    while index < wanted.len() {
        if !has(names, wanted[index]) {
            return false;
        }
        index += 1;
    }
    true
}

const fn has(names: &[&str], name: &str) -> bool {
    let mut index = 0;
    while index < names.len() {
        if is_same(names[index], name) {
            return true;
        }
        index += 1;
    }
    false
}

/// Compares texts at compile time, where `==` is not available.
const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    #[test]
    fn sentence_is_displayed_as_on_the_command_line() {
        let hint = sentence![
            "a person can grant it: ",
            command!("agent set", handle = "ada", max_items = 3),
            "; without ",
            field!(max_items),
            format!(", {} ", "see"),
            command!("note show", ["1a2b3c4d"]),
        ];
        assert_eq!(
            hint.to_string(),
            "a person can grant it: trackway agent set --handle ada --max-items 3; without --max-items, see trackway note show 1a2b3c4d"
        );
        let export = command!("board export", ["BOARD DIR"]; force);
        assert_eq!(export.to_string(), "trackway board export BOARD DIR --force");
    }
}
