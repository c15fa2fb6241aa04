//! Finds the client's settings files and edits their text.

use std::{
    env,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use trackway_capture::{
    connection::{Connection, HookSettings, Plugin, Scope, SettingsError, SettingsFileNames, Version},
    program,
};
use trackway_domain::{Error as Rule, enums::Memory};

use crate::{
    ClaudeCode, plugin,
    settings::{self, HookEntries, servers},
};

/// Environment variable with the folder of the user's settings and transcripts.
pub const CONFIG_DIR_VARIABLE: &str = "CLAUDE_CONFIG_DIR";
/// The client's program.
const PROGRAM: &str = "claude";
/// Time limit for `claude --version`. Clients that run on Node need nearly a second.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// The path in an environment variable, unless it is unset or empty.
fn env_path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The folder of the user's settings.
fn user_settings_folder() -> trackway_domain::Result<PathBuf> {
    let home = || env_path("HOME").or_else(|| env_path("USERPROFILE")).map(|home| home.join(".claude"));
    env_path(CONFIG_DIR_VARIABLE).or_else(home).ok_or_else(|| {
        Rule::usage("cannot find the home directory: HOME is not set").hint("connect a project: --project")
    })
}

impl Connection for ClaudeCode {
    fn program_name(&self) -> &'static str {
        PROGRAM
    }

    fn version(&self) -> Option<Version> {
        let mut command = Command::new(program::find_on_path(PROGRAM).next()?);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let deadline = Instant::now() + VERSION_TIMEOUT;
        while child.try_wait().ok()?.is_none() {
            if Instant::now() > deadline {
                child.kill().ok()?;
                child.wait().ok()?;
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let mut printed = String::new();
        child.stdout?.take(100).read_to_string(&mut printed).ok()?;
        printed.parse().ok()
    }

    fn settings_file_names(&self) -> SettingsFileNames {
        SettingsFileNames {
            project_hooks: ".claude/settings.json",
            user_hooks: "~/.claude/settings.json",
            project_servers: plugin::SERVERS_FILE,
            user_servers: "~/.claude.json",
        }
    }

    fn hooks_file(&self, scope: Scope, project: &Path) -> trackway_domain::Result<PathBuf> {
        let folder = match scope {
            Scope::Project => project.join(".claude"),
            Scope::User => user_settings_folder()?,
        };
        Ok(folder.join("settings.json"))
    }

    fn servers_file(&self, scope: Scope, project: &Path) -> trackway_domain::Result<PathBuf> {
        match (scope, env_path(CONFIG_DIR_VARIABLE)) {
            (Scope::Project, _) => Ok(project.join(plugin::SERVERS_FILE)),
            // If the variable names a folder, the file is inside that folder. Otherwise the file is beside the default
            // folder.
            (Scope::User, Some(folder)) => Ok(folder.join(".claude.json")),
            (Scope::User, None) => Ok(user_settings_folder()?.with_file_name(".claude.json")),
        }
    }

    fn add_hooks(&self, text: &str, wanted: &HookSettings) -> Result<String, SettingsError> {
        settings::connect(text, wanted)
    }

    fn remove_hooks(&self, text: &str) -> Result<String, SettingsError> {
        settings::disconnect(text)
    }

    fn memory(&self, text: &str) -> Result<Option<Memory>, SettingsError> {
        settings::connected_memory(text)
    }

    fn add_server(&self, text: &str, program: &str) -> Result<String, SettingsError> {
        servers::connect(text, program)
    }

    fn remove_server(&self, text: &str) -> Result<String, SettingsError> {
        servers::disconnect(text)
    }

    fn has_server(&self, text: &str) -> Result<bool, SettingsError> {
        servers::is_connected(text)
    }

    fn command(&self, wanted: &HookSettings) -> String {
        wanted.command()
    }

    fn events(&self, wanted: &HookSettings) -> (Vec<&'static str>, Vec<&'static str>) {
        (
            wanted.events().map(|event| event.name).collect(),
            wanted.unsupported_events().map(|event| event.name).collect(),
        )
    }

    fn hooks_command(&self) -> Option<&'static str> {
        Some("/hooks")
    }

    fn plugin(&self, memory: Memory) -> Option<Plugin> {
        let wanted = plugin::hook_settings(memory);
        let files = plugin::files(&wanted);
        let (name, manifest, start_command) = (plugin::NAME, plugin::MANIFEST_FILE, "claude --plugin-dir");
        Some(Plugin { name, manifest, hooks: wanted, files, start_command })
    }
}
