//! The plugin: a folder that the client loads, with the same hooks as in the settings, and the MCP server.

use serde_json::{Value, json};
use trackway_domain::words::Memory;

use crate::settings::{Wanted, servers};

/// The name of the plugin, by which its manifest is known again.
pub const NAME: &str = "trackway";

/// Where the manifest is, in the folder.
pub const MANIFEST: &str = ".claude-plugin/plugin.json";

/// Where the MCP servers are, in a plugin's folder as in a project's.
pub const SERVERS: &str = ".mcp.json";

const DESCRIPTION: &str = "Keeps which run made what: sessions, subagents, files and commits, for `trackway why`";

/// What a plugin runs: the binary is found on the path, so that a folder works on any machine that has one.
pub fn wanted(memory: Memory) -> Wanted {
    Wanted { program: NAME.to_owned(), memory, client: None }
}

/// Every file of the folder: its path there, and its text.
pub fn files(wanted: &Wanted) -> Vec<(&'static str, String)> {
    let manifest = json!({
        "name": NAME,
        "version": env!("CARGO_PKG_VERSION"),
        "description": DESCRIPTION,
        "author": { "name": "Trackway" },
        "license": env!("CARGO_PKG_LICENSE"),
    });
    let hooks = json!({ "description": DESCRIPTION, "hooks": wanted.hooks() });
    let servers = servers::list(&wanted.program);
    vec![(MANIFEST, written(&manifest)), ("hooks/hooks.json", written(&hooks)), (SERVERS, written(&servers))]
}

fn written(value: &Value) -> String {
    format!("{value:#}\n")
}
