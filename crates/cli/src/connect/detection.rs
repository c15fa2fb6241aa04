//! Finds the agent clients of this machine: their programs, their settings and their transcripts.

use std::{
    path::{Path, PathBuf},
    thread,
};

use serde_json::{Value, json};
use trackway_capture::{
    client::Client,
    connection::{Scope, Version},
    program,
};
use trackway_clients::CLIENTS;
use trackway_domain::enums::Memory;

use super::settings::{hooks_file, scope_name, servers_file};
use crate::settings_file::SettingsFile;

/// The state of an agent client on this machine.
#[derive(Debug)]
pub struct ClientState {
    pub client: &'static dyn Client,
    /// The client's program on the PATH.
    pub program: Option<PathBuf>,
    /// The version that the program prints.
    pub version: Option<Version>,
    /// The settings of the project and of the user.
    pub settings: Vec<SettingsState>,
    /// The folder of the transcripts, and the number of sessions in it.
    pub transcripts: Option<(PathBuf, usize)>,
}

/// The state of the settings of one scope.
#[derive(Debug)]
pub struct SettingsState {
    pub scope: Scope,
    /// The file with the hooks. None if the client's adapter cannot determine it.
    pub file: Option<PathBuf>,
    /// The memory setting of our hooks. None if the file does not have our hooks.
    pub memory: Option<Memory>,
    pub has_server: bool,
    /// The reason why the settings cannot be read.
    pub problem: Option<String>,
}

impl SettingsState {
    /// Reads the settings of a scope.
    pub fn read(client: &dyn Client, scope: Scope) -> Self {
        let mut state = Self { scope, file: None, memory: None, has_server: false, problem: None };
        let text = |path: &Path| {
            let file = SettingsFile::read(path).map_err(|failure| failure.message.to_string())?;
            Ok::<_, String>((file.text().to_owned(), path.display().to_string()))
        };
        let hooks = hooks_file(client, scope).map_err(|failure| failure.message.to_string()).and_then(|path| {
            state.file = Some(path.clone());
            let (text, name) = text(&path)?;
            client.connection().memory(&text).map_err(|why| format!("{name}, {why}"))
        });
        let server = servers_file(client, scope).map_err(|failure| failure.message.to_string()).and_then(|path| {
            let (text, name) = text(&path)?;
            client.connection().has_server(&text).map_err(|why| format!("{name}, {why}"))
        });
        match hooks {
            Ok(memory) => state.memory = memory,
            Err(why) => state.problem = Some(why),
        }
        match server {
            Ok(has_server) => state.has_server = has_server,
            Err(why) => state.problem = state.problem.or(Some(why)),
        }
        state
    }

    /// Whether the file has our hooks.
    pub fn is_connected(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether `disconnect` would remove anything.
    pub fn has_entries(&self) -> bool {
        self.is_connected() || self.has_server
    }

    fn to_json(&self) -> Value {
        json!({
            "scope": scope_name(self.scope),
            "file": self.file.as_ref().map(|file| file.display().to_string()),
            "connected": self.is_connected(),
            "memory": self.memory,
            "mcp": self.has_server,
            "problem": self.problem,
        })
    }
}

impl ClientState {
    fn find(client: &'static dyn Client) -> Self {
        let connection = client.connection();
        let program = program::find_on_path(connection.program_name()).next();
        let version = program.as_ref().and_then(|_| connection.version());
        let folder = client.transcripts_folder().filter(|folder| folder.is_dir());
        let transcripts = folder.map(|folder| {
            let found = client.find_transcripts(&folder, &mut |_| true).transcripts;
            let sessions = found.iter().filter(|transcript| transcript.agent.is_none()).count();
            (folder, sessions)
        });
        Self { client, program, version, settings: settings_of(client), transcripts }
    }

    /// The name of the client, with its version if it is known.
    pub fn title(&self) -> String {
        let name = self.client.display_name();
        self.version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}"))
    }

    pub fn is_installed(&self) -> bool {
        self.program.is_some()
    }

    /// Whether the settings of this scope have our hooks. Without a scope, whether any settings have them.
    pub fn is_connected(&self, scope: Option<Scope>) -> bool {
        self.of(scope).any(SettingsState::is_connected)
    }

    /// The settings of this scope. Without a scope, all settings.
    pub fn of(&self, scope: Option<Scope>) -> impl Iterator<Item = &SettingsState> {
        self.settings.iter().filter(move |settings| scope.is_none_or(|scope| settings.scope == scope))
    }

    pub fn to_json(&self) -> Value {
        json!({
            "client": self.client.command_name(),
            "name": self.client.display_name(),
            "installed": self.is_installed(),
            "program": self.program.as_ref().map(|program| program.display().to_string()),
            "program_name": self.client.connection().program_name(),
            "version": self.version.map(|version| version.to_string()),
            "connected": self.is_connected(None),
            "settings": self.settings.iter().map(SettingsState::to_json).collect::<Vec<_>>(),
            "transcripts": self.transcripts.as_ref().map(|(folder, sessions)| {
                json!({ "folder": folder.display().to_string(), "sessions": sessions })
            }),
        })
    }
}

/// The settings of a client in the project and of the user.
pub fn settings_of(client: &dyn Client) -> Vec<SettingsState> {
    [Scope::Project, Scope::User].map(|scope| SettingsState::read(client, scope)).into()
}

/// Every known client. Asks all programs for their versions at the same time, because some programs take a second.
pub fn find_clients() -> Vec<ClientState> {
    thread::scope(|scope| {
        let searches: Vec<_> = CLIENTS.0.iter().map(|client| scope.spawn(move || ClientState::find(*client))).collect();
        searches.into_iter().filter_map(|search| search.join().ok()).collect()
    })
}

/// The existing settings files of the project and the user, with their clients.
pub fn settings_files() -> Vec<(&'static dyn Client, PathBuf)> {
    let of_client = |client: &&'static dyn Client| {
        let client = *client;
        let files = [Scope::Project, Scope::User].into_iter().filter_map(move |scope| hooks_file(client, scope).ok());
        files.map(move |file| (client, file))
    };
    CLIENTS.0.iter().flat_map(of_client).filter(|(_, path)| path.is_file()).collect()
}
