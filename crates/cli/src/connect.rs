//! `trackway connect` and `trackway disconnect`: add our hooks and our MCP server to a client's settings, or write them as
//! a plugin.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use clap::ArgMatches;
use serde_json::{Value, json};
use similar::TextDiff;
use trackway_capture::{
    client::Client,
    connection::{HookSettings, Scope, SettingsError},
    program,
};
use trackway_clients::CLIENTS;
use trackway_domain::{Error as Rule, enums::Memory};

use crate::{
    dispatch::CommandOutcome,
    failure::Failure,
    location,
    render::Layout,
    settings_file::{self, BackupAction, Change, PlannedFile, SettingsFile},
};

fn scope_name(scope: Scope) -> &'static str {
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

/// The scope in the arguments, or else the project if the current directory is in one.
fn scope_of(matches: &ArgMatches) -> Scope {
    let project = matches.get_flag("project");
    let user = matches.get_flag("user") || location::project_top().is_none();
    if user && !project { Scope::User } else { Scope::Project }
}

/// The client that the command line names, with the arguments of its subcommand.
fn client_of(matches: &ArgMatches) -> Result<(&'static dyn Client, &ArgMatches), Failure> {
    let (name, matches) = matches.subcommand().unwrap_or(("", matches));
    let client = CLIENTS.0.iter().find(|client| client.command_name() == name);
    Ok((*client.ok_or_else(|| Rule::usage("no client given"))?, matches))
}

/// The top directory of the project, or else the current directory.
fn project() -> Result<PathBuf, Failure> {
    Ok(location::project_top().map_or_else(env::current_dir, Ok)?)
}

fn hooks_file(client: &dyn Client, scope: Scope) -> Result<PathBuf, Failure> {
    Ok(client.connection().hooks_file(scope, &project()?)?)
}

fn servers_file(client: &dyn Client, scope: Scope) -> Result<PathBuf, Failure> {
    Ok(client.connection().servers_file(scope, &project()?)?)
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

/// Adds our hooks and our server to the settings.
pub fn connect(matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let (client, matches) = client_of(matches)?;
    let connection = client.connection();
    let memory = matches.get_one::<Memory>("memory").copied();
    let dry_run = matches.get_flag("dry_run");
    if let Some(folder) = matches.try_get_one::<PathBuf>("plugin").ok().flatten() {
        return write_plugin(client, folder, memory.unwrap_or_default(), dry_run);
    }
    let scope = scope_of(matches);
    let path = hooks_file(client, scope)?;
    let program = program::stable_path()?;
    let hook_settings =
        HookSettings { program: program.clone(), memory: Memory::default(), client: connection.version() };
    let servers = if matches.get_flag("no_mcp") { None } else { Some(servers_file(client, scope)?) };
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
        // The backup is the file without our hooks. Connecting again, with other options, keeps it.
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
pub fn disconnect(matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let (client, matches) = client_of(matches)?;
    let connection = client.connection();
    let scope = scope_of(matches);
    let path = hooks_file(client, scope)?;
    let dry_run = matches.get_flag("dry_run");
    let servers = servers_file(client, scope)?;
    let without_server = |file: &SettingsFile| without_entries(file, |text| connection.remove_server(text));
    change_file(&servers, true, without_server)?;
    let change = change_file(&path, dry_run, |file| without_entries(file, |text| connection.remove_hooks(text)))?;
    let mut outcome = hooks_outcome(client, scope, &path, disconnect_result(&change), &change, dry_run);
    let change = change_file(&servers, dry_run, without_server).map_err(|why| roll_back(why, &path, &change))?;
    add_server_outcome(&mut outcome, &servers, disconnect_result(&change), &change);
    outcome.remarks.extend(connected_elsewhere(client, scope, &path).map(|file| {
        let (name, flag) = (client.command_name(), scope_name(other_scope(scope)));
        format!("note: {} is still connected; to disconnect it: trackway disconnect {name} --{flag}", file.display())
    }));
    Ok(outcome)
}

/// Plans a file without our entries.
fn without_entries(
    file: &SettingsFile,
    remove: impl Fn(&str) -> Result<String, SettingsError>,
) -> Result<PlannedFile, Failure> {
    let Some(before) = &file.text else { return Ok(PlannedFile { text: None, backup: BackupAction::Keep }) };
    let text = remove(before).map_err(|why| file.invalid(&why))?;
    let backup = file.backup();
    let text = if text.is_empty() && text != *before { text_without_entries(backup.as_deref()) } else { Some(text) };
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

/// The text of a file that contained only our entries: the backup if it was blank, or else none to remove the file.
fn text_without_entries(backup: Option<&str>) -> Option<String> {
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
fn change_file(
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
    // A session reads the settings of its start directory, but of no parent directory: show where to start it.
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
            outcome.data["diff"] = json!(difference(path, change.before.as_deref(), change.after.as_deref()));
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
        let diff = format!("{before}{}", difference(path, change.before.as_deref(), change.after.as_deref()));
        outcome.data["diff"] = json!(diff);
        outcome.layout = Layout::Field("diff");
    }
}

/// A unified diff.
fn difference(path: &Path, before: Option<&str>, after: Option<&str>) -> String {
    let named = |text: Option<&str>| text.map_or("/dev/null".to_owned(), |_| path.display().to_string());
    let diff = TextDiff::from_lines(before.unwrap_or_default(), after.unwrap_or_default());
    diff.unified_diff().header(&named(before), &named(after)).to_string()
}

/// Writes the plugin. Keeps other files in its folder, and rejects a folder with another plugin.
fn write_plugin(client: &dyn Client, folder: &Path, memory: Memory, dry_run: bool) -> Result<CommandOutcome, Failure> {
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
            diff.push_str(&difference(&path, change.before.as_deref(), change.after.as_deref()));
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
