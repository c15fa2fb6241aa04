//! What connects a client to Trackway: hooks and an MCP server in its settings. Text in, text out: the caller reads and writes
//! the files.

use std::{
    fmt,
    fmt::Debug,
    path::{Path, PathBuf},
    str::FromStr,
};

use trackway_domain::words::Memory;

/// A version of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl FromStr for Version {
    type Err = ();

    /// Reads the first word of a text: `2.1.197 (Name)`.
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

/// Why a text is left alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct Refused {
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub what: String,
}

/// Whose settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Project,
    User,
}

/// The hooks that a settings file should hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// This program, as a path or a name.
    pub program: String,
    /// Whose runs end with the end-of-run prompt.
    pub memory: Memory,
    /// The client that will read the file; an unknown version is taken to be new.
    pub client: Option<Version>,
}

/// A folder that the client loads as a plugin.
#[derive(Debug)]
pub struct Plugin {
    /// The name in its manifest, by which the folder is recognised.
    pub name: &'static str,
    /// Where the manifest is in the folder.
    pub manifest: &'static str,
    pub wanted: Wanted,
    /// Every file: its path in the folder, and its text.
    pub files: Vec<(&'static str, String)>,
    /// The command that starts the client with the folder, to be followed by its path.
    pub start: &'static str,
}

/// The files that are changed, as help texts name them.
#[derive(Debug)]
pub struct ShownFiles {
    pub project_hooks: &'static str,
    pub user_hooks: &'static str,
    pub project_servers: &'static str,
    pub user_servers: &'static str,
}

/// How a client is connected.
pub trait Connection: Debug + Send + Sync {
    /// The version that is installed here, where the client tells it in time.
    fn version(&self) -> Option<Version>;

    /// The files that are changed, for help texts.
    fn shown_files(&self) -> ShownFiles;

    /// The file that holds hooks. `project` is the top of the project.
    fn hooks_file(&self, scope: Scope, project: &Path) -> trackway_domain::Result<PathBuf>;

    /// The file that lists MCP servers.
    fn servers_file(&self, scope: Scope, project: &Path) -> trackway_domain::Result<PathBuf>;

    /// The text with the wanted hooks in it. Hooks of ours that are there already become the wanted ones.
    fn add_hooks(&self, text: &str, wanted: &Wanted) -> Result<String, Refused>;

    /// The text without our hooks.
    fn remove_hooks(&self, text: &str) -> Result<String, Refused>;

    /// What our hooks in the text say about memory; none where there are none.
    fn memory(&self, text: &str) -> Result<Option<Memory>, Refused>;

    /// The text with our MCP server in it.
    fn add_server(&self, text: &str, program: &str) -> Result<String, Refused>;

    /// The text without our MCP server.
    fn remove_server(&self, text: &str) -> Result<String, Refused>;

    /// Whether our MCP server is in the text.
    fn has_server(&self, text: &str) -> Result<bool, Refused>;

    /// The command that the hooks run.
    fn command(&self, wanted: &Wanted) -> String;

    /// The events that are hooked, and those that the version does not know.
    fn events(&self, wanted: &Wanted) -> (Vec<&'static str>, Vec<&'static str>);

    /// The same as a plugin folder, for a client that has plugins.
    fn plugin(&self, memory: Memory) -> Option<Plugin>;
}
