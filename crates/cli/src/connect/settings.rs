//! Adds our hooks and our MCP server to the settings of one client, and removes them.

use std::{
    env,
    path::{Path, PathBuf},
};

use serde_json::json;
use similar::TextDiff;
use trackway_capture::{
    client::Client,
    connection::{HookSettings, Scope, SettingsError},
    program,
};
use trackway_domain::enums::Memory;

use super::Target;
use crate::{
    dispatch::CommandOutcome,
    failure::Failure,
    location,
    render::Layout,
    settings_file::{self, BackupAction, Change, PlannedFile, SettingsFile},
};

pub fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Project => "project",
        Scope::User => "user",
    }
}

fn other_scope(scope: Scope) -> Scope {
    match scope {
        Scope::Project => Scope::User,
        Scope::User => Scope::Project,
    }
}

/// The top directory of the project, or else the current directory.
fn project_directory() -> Result<PathBuf, Failure> {
    Ok(location::project_top().map_or_else(env::current_dir, Ok)?)
}

pub fn hooks_file(client: &dyn Client, scope: Scope) -> Result<PathBuf, Failure> {
    Ok(client.connection().hooks_file(scope, &project_directory()?)?)
}

pub fn servers_file(client: &dyn Client, scope: Scope) -> Result<PathBuf, Failure> {
    Ok(client.connection().servers_file(scope, &project_directory()?)?)
}

/// The options of `connect`.
#[derive(Debug, Clone, Copy)]
pub struct ConnectOptions {
    pub memory: Option<Memory>,
    /// Whether to add the MCP server.
    pub with_server: bool,
}

/// Adds our hooks and our server to the settings.
pub fn connect(target: &Target, options: ConnectOptions, dry_run: bool) -> Result<CommandOutcome, Failure> {
    let Target { client, version, scope } = *target;
    let connection = client.connection();
    let memory = options.memory;
    let path = hooks_file(client, scope)?;
    let program = program::stable_path()?;
    let hook_settings = HookSettings { program: program.clone(), memory: Memory::default(), client: version };
    let servers = if options.with_server { Some(servers_file(client, scope)?) } else { None };
    let with_server = |file: &SettingsFile| {
        let is_there = connection.has_server(file.text()).map_err(|why| file.invalid(&why))?;
        let text = connection.add_server(file.text(), &program).map_err(|why| file.invalid(&why))?;
        Ok(PlannedFile { text: Some(text), backup: if is_there { BackupAction::Keep } else { BackupAction::Write } })
    };
    // Check the second file before writing the first, so that a failure changes neither.
    servers.as_deref().map(|path| change_file(path, true, with_server)).transpose()?;
    let change = change_file(&path, dry_run, |file| {
        let before = connection.memory(file.text()).map_err(|why| file.invalid(&why))?;
        let hook_settings = HookSettings { memory: memory.or(before).unwrap_or_default(), ..hook_settings.clone() };
        let text = connection.add_hooks(file.text(), &hook_settings).map_err(|why| file.invalid(&why))?;
        // The backup is the file without our hooks. Connecting again, with other options, keeps the backup.
        Ok(PlannedFile {
            text: Some(text),
            backup: if before.is_none() { BackupAction::Write } else { BackupAction::Keep },
        })
    })?;
    let memory_in = |text: &Option<String>| text.as_ref().and_then(|text| connection.memory(text).ok()?);
    let hook_settings = HookSettings { memory: memory_in(&change.after).unwrap_or_default(), ..hook_settings };
    let result = match memory_in(&change.before) {
        _ if change.is_empty() => "unchanged",
        Some(_) => "updated",
        None => "connected",
    };
    let mut outcome = hooks_outcome(client, scope, &path, result, &change, dry_run);
    if let Some(servers) = &servers {
        let change = change_file(servers, dry_run, with_server).map_err(|why| roll_back(why, &path, &change))?;
        let was_connected = change.before.as_deref().is_some_and(|text| connection.has_server(text) == Ok(true));
        let result = match was_connected {
            _ if change.is_empty() => "unchanged",
            true => "updated",
            false => "connected",
        };
        add_server_outcome(&mut outcome, servers, result, &change);
    }
    let (events, left_out) = connection.events(&hook_settings);
    outcome.data["command"] = json!(connection.command(&hook_settings));
    outcome.data["memory"] = json!(hook_settings.memory);
    outcome.data["events"] = json!(events);
    outcome.data["left_out"] = json!(left_out);
    outcome.remarks.extend(hook_settings.client.filter(|_| !left_out.is_empty()).map(|version| {
        let (name, left_out) = (client.display_name(), left_out.join(", "));
        format!("note: {name} {version} does not support {left_out}; after updating it, connect again")
    }));
    outcome.remarks.extend(connected_elsewhere(client, scope, &path).map(|other| {
        format!(
            "note: {} is also connected; a hook command that is the same in both files runs only once",
            other.display()
        )
    }));
    Ok(outcome)
}

/// Removes our hooks and our server from the settings.
pub fn disconnect(target: &Target, dry_run: bool) -> Result<CommandOutcome, Failure> {
    let Target { client, scope, .. } = *target;
    let connection = client.connection();
    let path = hooks_file(client, scope)?;
    let servers = servers_file(client, scope)?;
    let without_server = |file: &SettingsFile| without_entries(file, |text| connection.remove_server(text));
    change_file(&servers, true, without_server)?;
    let change = change_file(&path, dry_run, |file| without_entries(file, |text| connection.remove_hooks(text)))?;
    let mut outcome = hooks_outcome(client, scope, &path, disconnect_result(&change), &change, dry_run);
    let change = change_file(&servers, dry_run, without_server).map_err(|why| roll_back(why, &path, &change))?;
    add_server_outcome(&mut outcome, &servers, disconnect_result(&change), &change);
    Ok(outcome)
}

/// A note about the settings of the other scope, if they are still connected.
pub fn still_connected_note(&Target { client, scope, .. }: &Target) -> Option<String> {
    let file = connected_elsewhere(client, scope, &hooks_file(client, scope).ok()?)?;
    let (name, flag) = (client.command_name(), scope_name(other_scope(scope)));
    Some(format!("note: {} is still connected; to disconnect it: trackway disconnect {name} --{flag}", file.display()))
}

/// Plans a file without our entries.
fn without_entries(
    file: &SettingsFile,
    remove: impl Fn(&str) -> Result<String, SettingsError>,
) -> Result<PlannedFile, Failure> {
    let Some(before) = &file.text else { return Ok(PlannedFile { text: None, backup: BackupAction::Keep }) };
    let text = remove(before).map_err(|why| file.invalid(&why))?;
    let backup = file.backup();
    let text = if text.is_empty() && text != *before { blank_backup(backup.as_deref()) } else { Some(text) };
    let backup = if backup.is_some() && backup == text { BackupAction::Remove } else { BackupAction::Keep };
    Ok(PlannedFile { text, backup })
}

fn disconnect_result(change: &Change) -> &'static str {
    match change.after {
        _ if change.is_empty() => "not_connected",
        Some(_) => "disconnected",
        None => "removed",
    }
}

/// The new text of a file that contained only our entries: the backup if it is blank, or else `None`, which removes the
/// file.
fn blank_backup(backup: Option<&str>) -> Option<String> {
    let is_blank = |text: &&str| {
        let content: String =
            text.chars().filter(|character| !matches!(character, '\u{feff}' | ' ' | '\t' | '\r' | '\n')).collect();
        content.is_empty() || content == "{}"
    };
    backup.filter(is_blank).map(str::to_owned)
}

/// The settings file of the other scope, if it is connected.
fn connected_elsewhere(client: &dyn Client, scope: Scope, path: &Path) -> Option<PathBuf> {
    let other = hooks_file(client, other_scope(scope)).ok().filter(|other| other != path)?;
    let file = SettingsFile::read(&other).ok()?;
    client.connection().memory(file.text()).ok()?.map(|_| other)
}

/// Changes a file. With `dry_run`, only computes the change.
pub fn change_file(
    path: &Path,
    dry_run: bool,
    plan: impl Fn(&SettingsFile) -> Result<PlannedFile, Failure>,
) -> Result<Change, Failure> {
    if !dry_run {
        return settings_file::change(path, plan);
    }
    let file = SettingsFile::read(path)?;
    let after = plan(&file)?.text;
    Ok(Change { before: file.text, after, backup: None, backup_action: BackupAction::Keep, created_directory: false })
}

/// Undoes the change of the first file after the second one failed, and returns the error of the second.
fn roll_back(mut why: Failure, path: &Path, change: &Change) -> Failure {
    if let Err(error) = settings_file::undo(path, change) {
        why.hint = Some(
            format!("{} was changed, and the change could not be undone: {}", path.display(), error.message).into(),
        );
    }
    why
}

fn hooks_outcome(
    client: &dyn Client,
    scope: Scope,
    path: &Path,
    result: &str,
    change: &Change,
    dry_run: bool,
) -> CommandOutcome {
    // A session reads the settings of its start directory, but not of parent directories. So show where to start it.
    let project = path.parent().and_then(Path::parent).filter(|_| scope == Scope::Project);
    let data = json!({
        "client": client.command_name(),
        "scope": scope_name(scope),
        "file": path.display().to_string(),
        "project": project.map(|project| project.display().to_string()),
        "outcome": result,
        "backup": change.backup.as_ref().map(|backup| backup.display().to_string()),
    });
    let mut outcome = CommandOutcome::new(data, Layout::Connection);
    if dry_run {
        outcome.is_dry_run = true;
        if !change.is_empty() {
            outcome.data["diff"] = json!(unified_diff(path, change.before.as_deref(), change.after.as_deref()));
            outcome.layout = Layout::Field("diff");
        }
    }
    outcome
}

/// Adds the change of the server settings to the outcome.
fn add_server_outcome(outcome: &mut CommandOutcome, path: &Path, result: &str, change: &Change) {
    outcome.data["mcp"] = json!({
        "file": path.display().to_string(),
        "outcome": result,
        "backup": change.backup.as_ref().map(|backup| backup.display().to_string()),
    });
    if outcome.is_dry_run && !change.is_empty() {
        let before = outcome.data["diff"].as_str().unwrap_or_default();
        let diff = format!("{before}{}", unified_diff(path, change.before.as_deref(), change.after.as_deref()));
        outcome.data["diff"] = json!(diff);
        outcome.layout = Layout::Field("diff");
    }
}

/// A unified diff.
pub fn unified_diff(path: &Path, before: Option<&str>, after: Option<&str>) -> String {
    let named = |text: Option<&str>| text.map_or("/dev/null".to_owned(), |_| path.display().to_string());
    let diff = TextDiff::from_lines(before.unwrap_or_default(), after.unwrap_or_default());
    diff.unified_diff().header(&named(before), &named(after)).to_string()
}
