//! The connection of a client to Trackway: hooks and an MCP server in the client's settings. These functions edit the
//! text of settings files; the caller reads and writes the files.

use std::{
    fmt,
    fmt::Debug,
    path::{Path, PathBuf},
    str::FromStr,
};

use trackway_domain::enums::Memory;

/// A version of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl FromStr for Version {
    type Err = ();

    /// Parses the first word of a text such as `MAJOR.MINOR.PATCH (NAME)`.
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

/// The reason why a settings text cannot be edited, with the position of the problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct SettingsError {
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    pub problem: String,
}

/// The scope of a settings file: one project, or all projects of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Project,
    User,
}

/// The hooks that a settings file should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSettings {
    /// The path or name of this program.
    pub program: String,
    /// The agents that receive the end-of-run prompt.
    pub memory: Memory,
    /// The version of the client that will read the file. If the version is unknown, it counts as the newest.
    pub client: Option<Version>,
}

/// A folder that the client loads as a plugin.
#[derive(Debug)]
pub struct Plugin {
    /// The name in the manifest, which identifies the folder.
    pub name: &'static str,
    /// The path of the manifest in the folder.
    pub manifest: &'static str,
    pub hooks: HookSettings,
    /// The path in the folder and the text of every file.
    pub files: Vec<(&'static str, String)>,
    /// The command that starts the client with the plugin, without the path of the folder at its end.
    pub start_command: &'static str,
}

/// The names of the edited settings files, for help texts.
#[derive(Debug)]
pub struct SettingsFileNames {
    pub project_hooks: &'static str,
    pub user_hooks: &'static str,
    pub project_servers: &'static str,
    pub user_servers: &'static str,
}

/// Connects a client to Trackway by editing its settings.
pub trait Connection: Debug + Send + Sync {
    /// The name of the client's program.
    fn program_name(&self) -> &'static str;

    /// The installed version of the client. None if the client does not print its version in time.
    fn version(&self) -> Option<Version>;

    fn settings_file_names(&self) -> SettingsFileNames;

    /// The settings file with the hooks. `project` is the root of the project.
    fn hooks_file(&self, scope: Scope, project: &Path) -> trackway_domain::Result<PathBuf>;

    /// The settings file with the MCP servers.
    fn servers_file(&self, scope: Scope, project: &Path) -> trackway_domain::Result<PathBuf>;

    /// Adds hooks to a settings text. Replaces the hooks of Trackway that are already in it.
    fn add_hooks(&self, text: &str, hooks: &HookSettings) -> Result<String, SettingsError>;

    /// Removes the hooks of Trackway from a settings text.
    fn remove_hooks(&self, text: &str) -> Result<String, SettingsError>;

    /// The memory setting in the hooks of Trackway. None if the text has no such hooks.
    fn memory(&self, text: &str) -> Result<Option<Memory>, SettingsError>;

    /// Adds the MCP server of Trackway to a settings text.
    fn add_server(&self, text: &str, program: &str) -> Result<String, SettingsError>;

    /// Removes the MCP server of Trackway from a settings text.
    fn remove_server(&self, text: &str) -> Result<String, SettingsError>;

    /// Whether a settings text has the MCP server of Trackway.
    fn has_server(&self, text: &str) -> Result<bool, SettingsError>;

    /// The command that the hooks run.
    fn command(&self, hooks: &HookSettings) -> String;

    /// The events that get hooks, and the events that the client's version does not know.
    fn events(&self, hooks: &HookSettings) -> (Vec<&'static str>, Vec<&'static str>);

    /// The command inside the client that lists its hooks, for a client that has one.
    fn hooks_command(&self) -> Option<&'static str>;

    /// The connection as a plugin folder, for a client that supports plugins.
    fn plugin(&self, memory: Memory) -> Option<Plugin>;
}
