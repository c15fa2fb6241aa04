//! The plugin: a folder with the same hooks as in the settings, and the MCP server.

use serde_json::{Value, json};
use trackway_domain::enums::Memory;

use crate::settings::{HookEntries, HookSettings, servers};

/// The name in the manifest, by which `connect` recognises the folder.
pub const NAME: &str = "trackway";

/// Path of the manifest in the folder.
pub const MANIFEST_FILE: &str = ".claude-plugin/plugin.json";

/// Path of the MCP server list, in a plugin's folder and in a project.
pub const SERVERS_FILE: &str = ".mcp.json";

const DESCRIPTION: &str = "Records which run made what (sessions, subagents, files and commits) for `trackway why`";

/// The hooks of a plugin. They find the binary on the PATH, so that the folder works on every machine where Trackway is
/// installed.
pub fn hook_settings(memory: Memory) -> HookSettings {
    HookSettings { program: NAME.to_owned(), memory, client: None }
}

/// All files of the folder: path and text.
pub fn files(wanted: &HookSettings) -> Vec<(&'static str, String)> {
    let manifest = json!({
        "name": NAME,
        "version": env!("CARGO_PKG_VERSION"),
        "description": DESCRIPTION,
        "author": { "name": "Trackway" },
        "license": env!("CARGO_PKG_LICENSE"),
    });
    let hooks = json!({ "description": DESCRIPTION, "hooks": wanted.hooks() });
    let servers = servers::list(&wanted.program);
    vec![
        (MANIFEST_FILE, pretty_json(&manifest)),
        ("hooks/hooks.json", pretty_json(&hooks)),
        (SERVERS_FILE, pretty_json(&servers)),
    ]
}

fn pretty_json(value: &Value) -> String {
    format!("{value:#}\n")
}
