//! Where the client's settings are, and what is put into them.

use std::{
    env,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use trackway_capture::{
    connection::{Connection, Plugin, Refused, Scope, ShownFiles, Version, Wanted},
    program,
};
use trackway_domain::{Error as Rule, words::Memory};

use crate::{
    ClaudeCode, plugin,
    settings::{self, Hooks, servers},
};

/// Where the client keeps what is the user's.
pub const FOLDER: &str = "CLAUDE_CONFIG_DIR";
/// A client on Node needs most of a second to print its version.
const PATIENCE: Duration = Duration::from_secs(5);

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The folder of the user's settings.
fn user_folder() -> trackway_domain::Result<PathBuf> {
    let home = || variable("HOME").or_else(|| variable("USERPROFILE")).map(|home| home.join(".claude"));
    variable(FOLDER)
        .or_else(home)
        .ok_or_else(|| Rule::usage("there is no home directory: HOME is not set").hint("connect a project: --project"))
}

impl Connection for ClaudeCode {
    fn version(&self) -> Option<Version> {
        let mut command = Command::new(program::on_path("claude").next()?);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let deadline = Instant::now() + PATIENCE;
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

    fn shown_files(&self) -> ShownFiles {
        ShownFiles {
            project_hooks: ".claude/settings.json",
            user_hooks: "~/.claude/settings.json",
            project_servers: plugin::SERVERS,
            user_servers: "~/.claude.json",
        }
    }

    fn hooks_file(&self, scope: Scope, project: &Path) -> trackway_domain::Result<PathBuf> {
        let folder = match scope {
            Scope::Project => project.join(".claude"),
            Scope::User => user_folder()?,
        };
        Ok(folder.join("settings.json"))
    }

    fn servers_file(&self, scope: Scope, project: &Path) -> trackway_domain::Result<PathBuf> {
        match (scope, variable(FOLDER)) {
            (Scope::Project, _) => Ok(project.join(plugin::SERVERS)),
            // The file stands in the folder that is set, and beside the default folder.
            (Scope::User, Some(folder)) => Ok(folder.join(".claude.json")),
            (Scope::User, None) => Ok(user_folder()?.with_file_name(".claude.json")),
        }
    }

    fn add_hooks(&self, text: &str, wanted: &Wanted) -> Result<String, Refused> {
        settings::connect(text, wanted)
    }

    fn remove_hooks(&self, text: &str) -> Result<String, Refused> {
        settings::disconnect(text)
    }

    fn memory(&self, text: &str) -> Result<Option<Memory>, Refused> {
        settings::connected_memory(text)
    }

    fn add_server(&self, text: &str, program: &str) -> Result<String, Refused> {
        servers::connect(text, program)
    }

    fn remove_server(&self, text: &str) -> Result<String, Refused> {
        servers::disconnect(text)
    }

    fn has_server(&self, text: &str) -> Result<bool, Refused> {
        servers::is_connected(text)
    }

    fn command(&self, wanted: &Wanted) -> String {
        wanted.command()
    }

    fn events(&self, wanted: &Wanted) -> (Vec<&'static str>, Vec<&'static str>) {
        (wanted.events().map(|event| event.name).collect(), wanted.left_out().map(|event| event.name).collect())
    }

    fn plugin(&self, memory: Memory) -> Option<Plugin> {
        let wanted = plugin::wanted(memory);
        let files = plugin::files(&wanted);
        Some(Plugin { name: plugin::NAME, manifest: plugin::MANIFEST, wanted, files, start: "claude --plugin-dir" })
    }
}
