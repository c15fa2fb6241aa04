//! Displays the results of `connect` and `disconnect`, and the clients of this machine.

use serde_json::Value;
use trackway_capture::client::Client;
use trackway_clients::CLIENTS;
use trackway_domain::enums::Memory;

use super::{Renderer, dim, heading};

impl Renderer {
    /// Several results. A dry run shows the diff of each changed file.
    pub(super) fn connections(&self, data: &Value) -> String {
        let render = |change: &Value| {
            change["diff"].as_str().map_or_else(|| self.connection(change), |diff| diff.trim_end().to_owned())
        };
        data.as_array().into_iter().flatten().map(render).collect::<Vec<_>>().join("\n\n")
    }

    /// The results of connecting clients. If there are no results, the known clients.
    pub(super) fn clients(&self, data: &Value) -> String {
        let clients = data["clients"].as_array().map(Vec::as_slice).unwrap_or_default();
        match self.connections(&data["results"]) {
            results if !results.is_empty() => results,
            _ => clients.iter().map(|client| self.client(client)).collect::<Vec<_>>().join("\n\n"),
        }
    }

    fn client(&self, client: &Value) -> String {
        let name = [self.cell(client, "name"), self.cell(client, "version")].join(" ");
        let mut lines = vec![heading(name.trim_end())];
        let mut add = |name: &str, value: String| lines.push(format!("{} {value}", dim(&format!("{name}:"))));
        add(
            "program",
            if client["program"].is_string() {
                self.cell(client, "program")
            } else {
                format!("not installed (no {} on the PATH)", self.cell(client, "program_name"))
            },
        );
        let settings = client["settings"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut files = Vec::new();
        for scope in settings.iter().filter(|scope| scope["connected"] == true) {
            let file = self.cell(scope, "file");
            // In the home directory, the settings of both scopes are one file.
            if !files.contains(&file) {
                add(
                    "connected",
                    format!("{file} ({}, memory: {})", self.cell(scope, "scope"), self.cell(scope, "memory")),
                );
                files.push(file);
            }
        }
        if files.is_empty() {
            add("connected", "no".to_owned());
        }
        let transcripts = &client["transcripts"];
        add(
            "transcripts",
            match transcripts["sessions"].as_u64() {
                Some(1) => format!("1 session in {}", self.cell(transcripts, "folder")),
                Some(sessions) => format!("{sessions} sessions in {}", self.cell(transcripts, "folder")),
                None => "none".to_owned(),
            },
        );
        lines.join("\n")
    }

    pub(super) fn connection(&self, data: &Value) -> String {
        let file = self.cell(data, "file");
        let is_plugin = data["scope"] == "plugin";
        let command = self.cell(data, "client");
        let client = CLIENTS.0.iter().find(|client| client.command_name() == command);
        let name = client.map_or_else(|| command.clone(), |client| client.display_name().to_owned());
        let mut parts = vec![match data["outcome"].as_str().unwrap_or_default() {
            "connected" => format!("{} in {file}", heading(&format!("Connected {name}"))),
            "updated" => format!("{} in {file}", heading(&format!("Updated the connection of {name}"))),
            "written" => format!("{} to {file}", heading("Wrote the plugin")),
            "unchanged" if is_plugin => format!("The plugin is up to date: {file}"),
            "unchanged" => format!("{name} is already connected in {file}"),
            "disconnected" => format!("{} in {file}", heading(&format!("Disconnected {name}"))),
            "removed" => {
                format!("{}: removed {file}, which contained nothing else", heading(&format!("Disconnected {name}")))
            }
            _ => format!("No Trackway hooks in {file}"),
        }];
        let fact = |name: &str, value: String| format!("{} {value}", dim(&format!("{name}:")));
        if let Some(events) = data["events"].as_array() {
            parts.push(fact("hooks", format!("{} events run {}", events.len(), self.cell(data, "command"))));
            parts.push(fact("memory", self.cell(data, "memory")));
        }
        let server = self.cell(&data["mcp"], "file");
        parts.extend(match data["mcp"]["outcome"].as_str().unwrap_or_default() {
            "connected" | "updated" | "unchanged" => Some(fact("mcp", format!("{server} starts trackway mcp"))),
            "disconnected" => Some(fact("mcp", format!("removed from {server}"))),
            "removed" => Some(fact("mcp", format!("removed {server}, which contained nothing else"))),
            _ => None,
        });
        if data["backup"].is_string() {
            parts.push(fact("backup", self.cell(data, "backup")));
        }
        let undo = format!("trackway disconnect {command} --{}", self.cell(data, "scope"));
        let next = match data["outcome"].as_str().unwrap_or_default() {
            _ if is_plugin => plugin_start(client, &file),
            "connected" | "updated" => {
                let start = data["project"]
                    .as_str()
                    .map_or_else(|| format!("restart {name}"), |project| format!("start {name} in {project}"));
                let list = client.and_then(|client| client.connection().hooks_command());
                let list = list.map_or_else(String::new, |command| format!("; its {command} command lists the hooks"));
                format!("{start}{list}. To undo: {undo}")
            }
            "unchanged" => format!("to undo: {undo}"),
            "disconnected" | "removed" => "open sessions may keep the hooks until they end".to_owned(),
            _ => format!("to add them: trackway connect {command} --{}", self.cell(data, "scope")),
        };
        parts.push(format!("{} {next}", heading("next:")));
        parts.join("\n")
    }
}

/// The command that starts the client with a plugin.
fn plugin_start(client: Option<&&'static dyn Client>, folder: &str) -> String {
    let plugin = client.and_then(|client| client.connection().plugin(Memory::default()));
    plugin.map_or_else(String::new, |plugin| format!("{} {folder}", plugin.start_command))
}
