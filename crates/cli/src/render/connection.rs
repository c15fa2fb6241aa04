//! Displays the result of `connect` and `disconnect`.

use serde_json::Value;
use trackway_capture::client::Client;
use trackway_clients::CLIENTS;
use trackway_domain::enums::Memory;

use super::{Renderer, dim, heading};

impl Renderer {
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
                format!("{start}; its /hooks command lists the hooks. To undo: {undo}")
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
