//! What connecting a client did, where, and what comes next.

use serde_json::Value;

use super::{Page, dim, heading};

impl Page {
    pub(super) fn connection(&self, data: &Value) -> String {
        let file = self.cell(data, "file");
        let is_plugin = data["scope"] == "plugin";
        let mut parts = vec![match data["outcome"].as_str().unwrap_or_default() {
            "connected" => format!("{} in {file}", heading("Connected Claude Code")),
            "updated" => format!("{} in {file}", heading("Connected Claude Code anew")),
            "written" => format!("{} to {file}", heading("Wrote the plugin")),
            "unchanged" if is_plugin => format!("The plugin is there already: {file}"),
            "unchanged" => format!("Claude Code is connected already in {file}"),
            "disconnected" => format!("{} in {file}", heading("Disconnected Claude Code")),
            "removed" => format!("{}: {file} is gone, it held nothing else", heading("Disconnected Claude Code")),
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
        let undo = format!("trackway disconnect claude-code --{} takes them out", self.cell(data, "scope"));
        let next = match data["outcome"].as_str().unwrap_or_default() {
            _ if is_plugin => format!("claude --plugin-dir {file}"),
            "connected" | "updated" => {
                let place = data["project"].as_str().map_or("anew".to_owned(), |project| format!("in {project}"));
                format!("start Claude Code {place}, /hooks there lists them; {undo}")
            }
            "unchanged" => undo,
            "disconnected" | "removed" => "sessions that are open may keep the hooks until they end".to_owned(),
            _ => format!("trackway connect claude-code --{} puts them in", self.cell(data, "scope")),
        };
        parts.push(format!("{} {next}", heading("next:")));
        parts.join("\n")
    }
}
