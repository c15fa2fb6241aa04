//! What connecting a client did, where, and what comes next.

use serde_json::Value;
use trackway_capture::client::Client;
use trackway_clients::CLIENTS;
use trackway_domain::words::Memory;

use super::{Page, dim, heading};

impl Page {
    pub(super) fn connection(&self, data: &Value) -> String {
        let file = self.cell(data, "file");
        let is_plugin = data["scope"] == "plugin";
        let command = self.cell(data, "client");
        let client = CLIENTS.0.iter().find(|client| client.command_name() == command);
        let name = client.map_or_else(|| command.clone(), |client| client.display_name().to_owned());
        let mut parts = vec![match data["outcome"].as_str().unwrap_or_default() {
            "connected" => format!("{} in {file}", heading(&format!("Connected {name}"))),
            "updated" => format!("{} in {file}", heading(&format!("Connected {name} anew"))),
            "written" => format!("{} to {file}", heading("Wrote the plugin")),
            "unchanged" if is_plugin => format!("The plugin is there already: {file}"),
            "unchanged" => format!("{name} is connected already in {file}"),
            "disconnected" => format!("{} in {file}", heading(&format!("Disconnected {name}"))),
            "removed" => format!("{}: {file} is gone, it held nothing else", heading(&format!("Disconnected {name}"))),
            _ => format!("There are no hooks of Trackway in {file}"),
        }];
        let fact = |name: &str, value: String| format!("{} {value}", dim(&format!("{name}:")));
        if let Some(events) = data["events"].as_array() {
            parts.push(fact("hooks", format!("{} events run {}", events.len(), self.cell(data, "command"))));
            parts.push(fact("memory", self.cell(data, "memory")));
        }
        let server = self.cell(&data["mcp"], "file");
        parts.extend(match data["mcp"]["outcome"].as_str().unwrap_or_default() {
            "connected" | "updated" | "unchanged" => Some(fact("mcp", format!("{server} starts trackway mcp"))),
            "disconnected" => Some(fact("mcp", format!("taken out of {server}"))),
            "removed" => Some(fact("mcp", format!("{server} is gone, it held nothing else"))),
            _ => None,
        });
        if data["backup"].is_string() {
            parts.push(fact("as it was before", self.cell(data, "backup")));
        }
        let undo = format!("trackway disconnect {command} --{} takes them out", self.cell(data, "scope"));
        let next = match data["outcome"].as_str().unwrap_or_default() {
            _ if is_plugin => plugin_start(client, &file),
            "connected" | "updated" => {
                let place = data["project"].as_str().map_or("anew".to_owned(), |project| format!("in {project}"));
                format!("start {name} {place}, /hooks there lists them; {undo}")
            }
            "unchanged" => undo,
            "disconnected" | "removed" => "sessions that are open may keep the hooks until they end".to_owned(),
            _ => format!("trackway connect {command} --{} puts them in", self.cell(data, "scope")),
        };
        parts.push(format!("{} {next}", heading("next:")));
        parts.join("\n")
    }
}

/// How to start the client with a plugin folder.
fn plugin_start(client: Option<&&'static dyn Client>, folder: &str) -> String {
    let plugin = client.and_then(|client| client.connection().plugin(Memory::default()));
    plugin.map_or_else(String::new, |plugin| format!("{} {folder}", plugin.start))
}
