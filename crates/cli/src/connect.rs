//! `trackway connect` and `trackway disconnect`: our hooks and our MCP server in a client's settings, or in a plugin's folder.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use clap::ArgMatches;
use serde_json::{Value, json};
use similar::TextDiff;
use trackway_capture::{
    client::Client,
    connection::{Refused, Scope, Wanted},
    program,
};
use trackway_clients::CLIENTS;
use trackway_domain::{Error as Rule, words::Memory};

use crate::{
    door::Outcome,
    failure::Failure,
    location,
    render::Shape,
    settings_file::{self, Backup, Change, Planned, SettingsFile},
};

fn word(scope: Scope) -> &'static str {
    match scope {
        Scope::Project => "project",
        Scope::User => "user",
    }
}

fn other(scope: Scope) -> Scope {
    match scope {
        Scope::Project => Scope::User,
        Scope::User => Scope::Project,
    }
}

/// The scope that was given, else the project's where there is one.
fn scope_of(matches: &ArgMatches) -> Scope {
    let project = matches.get_flag("project");
    let user = matches.get_flag("user") || location::project_top().is_none();
    if user && !project { Scope::User } else { Scope::Project }
}

/// The client that the command line names, with the arguments of that.
fn client_of(matches: &ArgMatches) -> Result<(&'static dyn Client, &ArgMatches), Failure> {
    let (name, matches) = matches.subcommand().unwrap_or(("", matches));
    let client = CLIENTS.0.iter().find(|client| client.command_name() == name);
    Ok((*client.ok_or_else(|| Rule::usage("which client?"))?, matches))
}

/// The top of the project, else the current directory.
fn project() -> Result<PathBuf, Failure> {
    Ok(location::project_top().map_or_else(env::current_dir, Ok)?)
}

fn hooks_file(client: &dyn Client, scope: Scope) -> Result<PathBuf, Failure> {
    Ok(client.connection().hooks_file(scope, &project()?)?)
}

fn servers_file(client: &dyn Client, scope: Scope) -> Result<PathBuf, Failure> {
    Ok(client.connection().servers_file(scope, &project()?)?)
}

/// The settings files that count here, with their clients: the project's and the user's, where they are.
pub fn settings_files() -> Vec<(&'static dyn Client, PathBuf)> {
    let of_client = |client: &&'static dyn Client| {
        let client = *client;
        let files = [Scope::Project, Scope::User].into_iter().filter_map(move |scope| hooks_file(client, scope).ok());
        files.map(move |file| (client, file))
    };
    CLIENTS.0.iter().flat_map(of_client).filter(|(_, path)| path.is_file()).collect()
}

/// Puts our hooks and our server into the settings.
pub fn connect(matches: &ArgMatches) -> Result<Outcome, Failure> {
    let (client, matches) = client_of(matches)?;
    let connection = client.connection();
    let memory = matches.get_one::<Memory>("memory").copied();
    let dry_run = matches.get_flag("dry_run");
    if let Some(folder) = matches.try_get_one::<PathBuf>("plugin").ok().flatten() {
        return write_plugin(client, folder, memory.unwrap_or_default(), dry_run);
    }
    let scope = scope_of(matches);
    let path = hooks_file(client, scope)?;
    let program = program::lasting()?;
    let wanted = Wanted { program: program.clone(), memory: Memory::default(), client: connection.version() };
    let servers = if matches.get_flag("no_mcp") { None } else { Some(servers_file(client, scope)?) };
    let with_server = |file: &SettingsFile| {
        let is_there = connection.has_server(file.text()).map_err(|why| file.refused(&why))?;
        let text = connection.add_server(file.text(), &program).map_err(|why| file.refused(&why))?;
        Ok(Planned { text: Some(text), backup: if is_there { Backup::Keep } else { Backup::Write } })
    };
    // What would be refused there is refused before anything is written here.
    servers.as_deref().map(|path| changed(path, true, with_server)).transpose()?;
    let change = changed(&path, dry_run, |file| {
        let before = connection.memory(file.text()).map_err(|why| file.refused(&why))?;
        let wanted = Wanted { memory: memory.or(before).unwrap_or_default(), ..wanted.clone() };
        let text = connection.add_hooks(file.text(), &wanted).map_err(|why| file.refused(&why))?;
        // The backup is the file without us: connecting otherwise keeps it.
        Ok(Planned { text: Some(text), backup: if before.is_none() { Backup::Write } else { Backup::Keep } })
    })?;
    let memory_in = |text: &Option<String>| text.as_ref().and_then(|text| connection.memory(text).ok()?);
    let wanted = Wanted { memory: memory_in(&change.after).unwrap_or_default(), ..wanted };
    let did = match memory_in(&change.before) {
        _ if change.is_none() => "unchanged",
        Some(_) => "updated",
        None => "connected",
    };
    let mut outcome = told(client, scope, &path, did, &change, dry_run);
    if let Some(servers) = &servers {
        let change = changed(servers, dry_run, with_server).map_err(|why| undone_for(why, &path, &change))?;
        let was_there = change.before.as_deref().is_some_and(|text| connection.has_server(text) == Ok(true));
        let did = match was_there {
            _ if change.is_none() => "unchanged",
            true => "updated",
            false => "connected",
        };
        tell_of_server(&mut outcome, servers, did, &change);
    }
    let (events, left_out) = connection.events(&wanted);
    outcome.data["command"] = json!(connection.command(&wanted));
    outcome.data["memory"] = json!(wanted.memory);
    outcome.data["events"] = json!(events);
    outcome.data["left_out"] = json!(left_out);
    outcome.remarks.extend(wanted.client.filter(|_| !left_out.is_empty()).map(|version| {
        let (name, left_out) = (client.display_name(), left_out.join(", "));
        format!("note: {name} {version} does not know {left_out}; connect again after an update")
    }));
    outcome.remarks.extend(connected_elsewhere(client, scope, &path).map(|other| {
        format!("note: {} is connected, too; a command that is the same in both runs once", other.display())
    }));
    Ok(outcome)
}

/// Takes our hooks and our server out of the settings.
pub fn disconnect(matches: &ArgMatches) -> Result<Outcome, Failure> {
    let (client, matches) = client_of(matches)?;
    let connection = client.connection();
    let scope = scope_of(matches);
    let path = hooks_file(client, scope)?;
    let dry_run = matches.get_flag("dry_run");
    let servers = servers_file(client, scope)?;
    let without_server = |file: &SettingsFile| without_us(file, |text| connection.remove_server(text));
    changed(&servers, true, without_server)?;
    let change = changed(&path, dry_run, |file| without_us(file, |text| connection.remove_hooks(text)))?;
    let mut outcome = told(client, scope, &path, undone(&change), &change, dry_run);
    let change = changed(&servers, dry_run, without_server).map_err(|why| undone_for(why, &path, &change))?;
    tell_of_server(&mut outcome, &servers, undone(&change), &change);
    outcome.remarks.extend(connected_elsewhere(client, scope, &path).map(|file| {
        let (name, flag) = (client.command_name(), word(other(scope)));
        format!("note: {} is connected: trackway disconnect {name} --{flag}", file.display())
    }));
    Ok(outcome)
}

/// A file with what is ours taken out.
fn without_us(file: &SettingsFile, taken_out: impl Fn(&str) -> Result<String, Refused>) -> Result<Planned, Failure> {
    let Some(before) = &file.text else { return Ok(Planned { text: None, backup: Backup::Keep }) };
    let text = taken_out(before).map_err(|why| file.refused(&why))?;
    let backup = file.backup();
    let text = if text.is_empty() && text != *before { nothing_left(backup.as_deref()) } else { Some(text) };
    let backup = if backup.is_some() && backup == text { Backup::Remove } else { Backup::Keep };
    Ok(Planned { text, backup })
}

fn undone(change: &Change) -> &'static str {
    match change.after {
        _ if change.is_none() => "not_connected",
        Some(_) => "disconnected",
        None => "removed",
    }
}

/// What a file becomes that held nothing but our hooks: what it was, if that was nothing, too; else there was none.
fn nothing_left(backup: Option<&str>) -> Option<String> {
    let is_bare = |text: &&str| {
        let said: String =
            text.chars().filter(|character| !matches!(character, '\u{feff}' | ' ' | '\t' | '\r' | '\n')).collect();
        said.is_empty() || said == "{}"
    };
    backup.filter(is_bare).map(str::to_owned)
}

/// The other settings, when they are connected.
fn connected_elsewhere(client: &dyn Client, scope: Scope, path: &Path) -> Option<PathBuf> {
    let other = hooks_file(client, other(scope)).ok().filter(|other| other != path)?;
    let file = SettingsFile::read(&other).ok()?;
    client.connection().memory(file.text()).ok()?.map(|_| other)
}

/// Changes a file, or finds out how it would be.
fn changed(
    path: &Path,
    dry_run: bool,
    plan: impl Fn(&SettingsFile) -> Result<Planned, Failure>,
) -> Result<Change, Failure> {
    if !dry_run {
        return settings_file::change(path, plan);
    }
    let file = SettingsFile::read(path)?;
    let after = plan(&file)?.text;
    Ok(Change { before: file.text, after, backup: None, backed_up: Backup::Keep, made_directory: false })
}

/// Both files or none: what was done to the first is undone because of what became of the second.
fn undone_for(mut why: Failure, path: &Path, change: &Change) -> Failure {
    if let Err(still) = settings_file::undo(path, change) {
        why.hint = Some(format!("{} was changed, and could not be put back: {}", path.display(), still.message).into());
    }
    why
}

fn told(client: &dyn Client, scope: Scope, path: &Path, did: &str, change: &Change, dry_run: bool) -> Outcome {
    // Sessions read the settings of the directory they are started in, and none further up.
    let project = path.parent().and_then(Path::parent).filter(|_| scope == Scope::Project);
    let data = json!({
        "client": client.command_name(),
        "scope": word(scope),
        "file": path.display().to_string(),
        "project": project.map(|project| project.display().to_string()),
        "outcome": did,
        "backup": change.backup.as_ref().map(|backup| backup.display().to_string()),
    });
    let mut outcome = Outcome::new(data, Shape::Connection);
    if dry_run {
        outcome.dry_run = true;
        if !change.is_none() {
            outcome.data["diff"] = json!(difference(path, change.before.as_deref(), change.after.as_deref()));
            outcome.shape = Shape::Field("diff");
        }
    }
    outcome
}

/// Says what became of the file with the servers.
fn tell_of_server(outcome: &mut Outcome, path: &Path, did: &str, change: &Change) {
    outcome.data["mcp"] = json!({
        "file": path.display().to_string(),
        "outcome": did,
        "backup": change.backup.as_ref().map(|backup| backup.display().to_string()),
    });
    if outcome.dry_run && !change.is_none() {
        let before = outcome.data["diff"].as_str().unwrap_or_default();
        let diff = format!("{before}{}", difference(path, change.before.as_deref(), change.after.as_deref()));
        outcome.data["diff"] = json!(diff);
        outcome.shape = Shape::Field("diff");
    }
}

/// As `diff -u` shows it.
fn difference(path: &Path, before: Option<&str>, after: Option<&str>) -> String {
    let named = |text: Option<&str>| text.map_or("/dev/null".to_owned(), |_| path.display().to_string());
    let diff = TextDiff::from_lines(before.unwrap_or_default(), after.unwrap_or_default());
    diff.unified_diff().header(&named(before), &named(after)).to_string()
}

/// Writes the plugin's folder. Other files in it stay, another plugin is left alone.
fn write_plugin(client: &dyn Client, folder: &Path, memory: Memory, dry_run: bool) -> Result<Outcome, Failure> {
    let plugin = client.connection().plugin(memory);
    let plugin = plugin.ok_or_else(|| Rule::usage(format!("{} has no plugins", client.display_name())))?;
    let manifest = SettingsFile::read(&folder.join(plugin.manifest))?;
    if let Some(text) = &manifest.text {
        let name =
            serde_json::from_str::<Value>(text).ok().and_then(|manifest| manifest["name"].as_str().map(str::to_owned));
        if name.as_deref() != Some(plugin.name) {
            let name = name.map_or("another plugin".to_owned(), |name| format!("the plugin {name:?}"));
            return Err(Rule::conflict(format!("{} holds {name}", folder.display()))
                .hint("name a folder of its own")
                .into());
        }
    }
    let mut files = Vec::new();
    let mut diff = String::new();
    let mut did = "unchanged";
    for (file, text) in plugin.files {
        let path = folder.join(file);
        let planned = |_: &SettingsFile| Ok(Planned { text: Some(text.clone()), backup: Backup::Keep });
        let change = changed(&path, dry_run, planned)?;
        if !change.is_none() {
            did = "written";
            diff.push_str(&difference(&path, change.before.as_deref(), change.after.as_deref()));
        }
        files.push(path.display().to_string());
    }
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let data = json!({
        "client": client.command_name(),
        "scope": "plugin",
        "file": folder.display().to_string(),
        "outcome": did,
        "files": files,
        "command": client.connection().command(&plugin.wanted),
        "memory": plugin.wanted.memory,
        "events": client.connection().events(&plugin.wanted).0,
    });
    let mut outcome = Outcome::new(data, Shape::Connection);
    if dry_run {
        outcome.dry_run = true;
        if !diff.is_empty() {
            outcome.data["diff"] = json!(diff);
            outcome.shape = Shape::Field("diff");
        }
    }
    if !program::is_on_path() {
        outcome.remarks.push("note: the plugin runs `trackway`, which is not on the path here".to_owned());
    }
    Ok(outcome)
}
