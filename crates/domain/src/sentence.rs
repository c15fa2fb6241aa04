//! Messages and hints of errors. A sentence keeps the commands and fields it names apart from its words, so that each
//! interface writes them its own way: the command line as `trackway note show 1a2b3c4d` and `--max-items`, HTTP and MCP as
//! `/notes/1a2b3c4d` and `max_items`.

use std::fmt;

/// The commands that sentences name. [`command!`](crate::command) compiles only for these. Tests check that the command line
/// has each of them, and that an action or a view of that name has the same fields.
pub const COMMANDS: &[Usage] = &[
    Usage::new("agent list", &[]),
    Usage::new("agent set", &["handle", "capability", "max_items", "archived"]),
    Usage::new("board list", &[]),
    Usage::new("connect claude-code", &[]),
    Usage::new("decision results", &[]).with_subject(),
    Usage::new("ingest", &[]),
    Usage::new("init", &[]),
    Usage::new("label list", &[]),
    Usage::new("note show", &[]).with_subject(),
    Usage::new("open", &[]),
    Usage::new("person list", &[]),
    Usage::new("queue cancel", &[]),
    Usage::new("queue complete", &[]),
    Usage::new("queue held", &[]),
    Usage::new("queue list", &["role"]),
    Usage::new("queue requeue", &["id"]),
    Usage::new("queue take", &["agent"]),
    Usage::new("report list", &[]),
    Usage::new("report set", &["agent", "task"]),
    Usage::new("role list", &[]),
    Usage::new("role set", &["name"]),
    Usage::new("run cancel", &[]),
    Usage::new("run start", &["agent"]),
    Usage::new("scratchpad set", &["agent", "content"]),
    Usage::new("studio list", &[]),
    Usage::new("task delete", &[]),
    Usage::new("task get", &[]),
    Usage::new("task latest", &["variant"]),
    Usage::new("task list", &["role"]),
    Usage::new("task run", &["agent"]).with_subject(),
    Usage::new("task set", &["workflow", "variant", "script", "archived"]),
    Usage::new("tenant list", &[]),
    Usage::new("up", &["listen"]),
    Usage::new("workflow list", &[]),
    Usage::new("workflow set", &["name"]),
    Usage::new("workspace list", &[]),
];

/// The fields that sentences name on their own. [`field!`](crate::field) compiles only for these, and the same tests check
/// them.
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

/// How a command is called.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Usage {
    /// A noun and a verb, or one word.
    pub words: &'static str,
    /// Whether its first argument has no flag.
    pub has_subject: bool,
    /// Flags, with `_` for `-`.
    pub flags: &'static [&'static str],
}

impl Usage {
    const fn new(words: &'static str, flags: &'static [&'static str]) -> Self {
        Self { words, has_subject: false, flags }
    }

    const fn with_subject(self) -> Self {
        Self { has_subject: true, ..self }
    }

    /// Looks a command up at compile time, for [`command!`](crate::command).
    #[doc(hidden)]
    pub const fn of(words: &str, subject: &[&str], flags: &[&str]) -> &'static Self {
        let mut index = 0;
        while index < COMMANDS.len() {
            let usage = &COMMANDS[index];
            if is_same(usage.words, words) {
                assert!(usage.has_subject || subject.is_empty(), "COMMANDS has this command without a subject");
                let mut flag = 0;
                while flag < flags.len() {
                    assert!(has(usage.flags, flags[flag]), "COMMANDS has this command without one of the flags");
                    flag += 1;
                }
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
    pub usage: &'static Usage,
    pub subject: Option<String>,
    /// Flags with their values.
    pub flags: Vec<(&'static str, String)>,
}

/// A field of actions and views, made by [`field!`](crate::field). On the command line it is a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Field(&'static str);

impl Field {
    /// Looks a field up at compile time, for [`field!`](crate::field).
    #[doc(hidden)]
    pub const fn of(name: &'static str) -> Self {
        assert!(has(FIELDS, name), "FIELDS lacks this field");
        Self(name)
    }

    pub fn name(self) -> &'static str {
        self.0
    }
}

/// Names a command, its subject in brackets, and its flags: `command!("note show", [id])`,
/// `command!("agent set", handle = handle, max_items = "NUMBER")`.
#[macro_export]
macro_rules! command {
    ($words:literal $(, [$subject:expr])? $(, $flag:ident = $value:expr)* $(,)?) => {
        $crate::sentence::Command {
            usage: const {
                $crate::sentence::Usage::of($words, &[$(stringify!($subject))?], &[$(stringify!($flag)),*])
            },
            subject: $crate::command!(@subject $($subject)?),
            flags: vec![$((stringify!($flag), $value.to_string())),*],
        }
    };
    (@subject) => {
        None
    };
    (@subject $subject:expr) => {
        Some($subject.to_string())
    };
}

/// Names a field: `field!(max_items)`.
#[macro_export]
macro_rules! field {
    ($name:ident) => {
        const { $crate::sentence::Field::of(stringify!($name)) }
    };
}

/// Joins words, fields and commands: `sentence!["read it again: ", command!("note show", [id])]`.
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

/// A message or a hint. It displays as on the command line, for logs and stored errors too.
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
        self.flags.iter().try_for_each(|(flag, value)| write!(out, " --{} {value}", flag.replace('_', "-")))
    }
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

/// `==` of texts cannot be used at compile time.
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
    fn displays_as_on_the_command_line() {
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
    }
}
