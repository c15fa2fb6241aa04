//! Writes the hooks and the MCP server of a client as a plugin.

use std::{fs, path::Path};

use serde_json::{Value, json};
use trackway_capture::{client::Client, program};
use trackway_domain::{Error as Rule, enums::Memory};

use super::settings::{change_file, unified_diff};
use crate::{
    dispatch::CommandOutcome,
    failure::Failure,
    render::Layout,
    settings_file::{BackupAction, PlannedFile, SettingsFile},
};

/// Writes the plugin. Keeps other files in its folder, and rejects a folder with another plugin.
pub fn write_plugin(
    client: &dyn Client,
    folder: &Path,
    memory: Memory,
    dry_run: bool,
) -> Result<CommandOutcome, Failure> {
    let plugin = client.connection().plugin(memory);
    let plugin = plugin.ok_or_else(|| Rule::usage(format!("{} does not support plugins", client.display_name())))?;
    let manifest = SettingsFile::read(&folder.join(plugin.manifest))?;
    if let Some(text) = &manifest.text {
        let name =
            serde_json::from_str::<Value>(text).ok().and_then(|manifest| manifest["name"].as_str().map(str::to_owned));
        if name.as_deref() != Some(plugin.name) {
            let name = name.map_or("another plugin".to_owned(), |name| format!("the plugin {name:?}"));
            return Err(Rule::conflict(format!("{} contains {name}", folder.display()))
                .hint("use another folder")
                .into());
        }
    }
    let mut files = Vec::new();
    let mut diff = String::new();
    let mut result = "unchanged";
    for (file, text) in plugin.files {
        let path = folder.join(file);
        let planned = |_: &SettingsFile| Ok(PlannedFile { text: Some(text.clone()), backup: BackupAction::Keep });
        let change = change_file(&path, dry_run, planned)?;
        if !change.is_empty() {
            result = "written";
            diff.push_str(&unified_diff(&path, change.before.as_deref(), change.after.as_deref()));
        }
        files.push(path.display().to_string());
    }
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let data = json!({
        "client": client.command_name(),
        "scope": "plugin",
        "file": folder.display().to_string(),
        "outcome": result,
        "files": files,
        "command": client.connection().command(&plugin.hooks),
        "memory": plugin.hooks.memory,
        "events": client.connection().events(&plugin.hooks).0,
    });
    let mut outcome = CommandOutcome::new(data, Layout::Connection);
    if dry_run {
        outcome.is_dry_run = true;
        if !diff.is_empty() {
            outcome.data["diff"] = json!(diff);
            outcome.layout = Layout::Field("diff");
        }
    }
    if !program::is_on_path() {
        outcome.remarks.push("note: the plugin runs `trackway`, which is not in your PATH".to_owned());
    }
    Ok(outcome)
}
