//! `trackway connect` and `trackway disconnect`: our hooks and our MCP server in Claude Code's settings, or in a plugin's
//! folder.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use clap::ArgMatches;
use serde_json::{Value, json};
use similar::TextDiff;
use trackway_client_claude::{
    plugin,
    settings::{self, Wanted, servers},
};
use trackway_domain::{Error as Rule, words::Memory};

use crate::{
    client,
    door::Outcome,
    environment,
    failure::Failure,
    location,
    render::Shape,
    settings_file::{self, Backup, Change, Planned, SettingsFile},
};

/// Whose settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Project,
    User,
}

impl Scope {
    fn word(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::User => "user",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Project => Self::User,
            Self::User => Self::Project,
        }
    }

    /// What was said, else the project's where there is one.
    fn of(matches: &ArgMatches) -> Self {
        let project = matches.get_flag("project");
        let user = matches.get_flag("user") || location::project_top().is_none();
        if user && !project { Self::User } else { Self::Project }
    }

    fn settings(self) -> Result<PathBuf, Failure> {
        let folder = match self {
            Self::Project => location::project_top().map_or_else(env::current_dir, Ok)?.join(".claude"),
            Self::User => user_folder()?,
        };
        Ok(folder.join("settings.json"))
    }

    /// Where the client looks for MCP servers.
    fn servers(self) -> Result<PathBuf, Failure> {
        match self {
            Self::Project => Ok(location::project_top().map_or_else(env::current_dir, Ok)?.join(plugin::SERVERS)),
            // It stands in the folder that was said, and beside the one that is there anyway.
            Self::User => match said(environment::CLAUDE_FOLDER) {
                Some(folder) => Ok(folder.join(".claude.json")),
                None => Ok(user_folder()?.with_file_name(".claude.json")),
            },
        }
    }
}

fn said(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Where Claude Code keeps what is the user's.
fn user_folder() -> Result<PathBuf, Failure> {
    let home = || said("HOME").or_else(|| said("USERPROFILE")).map(|home| home.join(".claude"));
    said(environment::CLAUDE_FOLDER).or_else(home).ok_or_else(|| {
        Rule::usage("there is no home directory: HOME is not set").hint("connect a project: --project").into()
    })
}

/// The settings files that count here: the project's and the user's, where they are.
pub fn settings_files() -> Vec<PathBuf> {
    let files = [Scope::Project, Scope::User].into_iter().filter_map(|scope| scope.settings().ok());
    files.filter(|path| path.is_file()).collect()
}

/// Puts our hooks and our server into the settings.
pub fn connect(matches: &ArgMatches) -> Result<Outcome, Failure> {
    let (_, matches) = matches.subcommand().unwrap_or(("", matches));
    let memory = matches.get_one::<Memory>("memory").copied();
    let dry_run = matches.get_flag("dry_run");
    if let Some(folder) = matches.get_one::<PathBuf>("plugin") {
        return write_plugin(folder, memory.unwrap_or_default(), dry_run);
    }
    let scope = Scope::of(matches);
    let path = scope.settings()?;
    let program = client::program()?;
    let wanted = Wanted { program: program.clone(), memory: Memory::default(), client: client::version() };
    let servers = if matches.get_flag("no_mcp") { None } else { Some(scope.servers()?) };
    let with_server = |file: &SettingsFile| {
        let is_there = servers::is_connected(file.text()).map_err(|why| file.refused(&why))?;
        let text = servers::connect(file.text(), &program).map_err(|why| file.refused(&why))?;
        Ok(Planned { text: Some(text), backup: if is_there { Backup::Keep } else { Backup::Write } })
    };
    // What would be refused there is refused before anything is written here.
    servers.as_deref().map(|path| changed(path, true, with_server)).transpose()?;
    let change = changed(&path, dry_run, |file| {
        let before = settings::connected_memory(file.text()).map_err(|why| file.refused(&why))?;
        let wanted = Wanted { memory: memory.or(before).unwrap_or_default(), ..wanted.clone() };
        let text = settings::connect(file.text(), &wanted).map_err(|why| file.refused(&why))?;
        // The backup is the file without us: connecting otherwise keeps it.
        Ok(Planned { text: Some(text), backup: if before.is_none() { Backup::Write } else { Backup::Keep } })
    })?;
    let memory_in = |text: &Option<String>| text.as_ref().and_then(|text| settings::connected_memory(text).ok()?);
    let wanted = Wanted { memory: memory_in(&change.after).unwrap_or_default(), ..wanted };
    let did = match memory_in(&change.before) {
        _ if change.is_none() => "unchanged",
        Some(_) => "updated",
        None => "connected",
    };
    let mut outcome = told(scope, &path, did, &change, dry_run);
    if let Some(servers) = &servers {
        let change = changed(servers, dry_run, with_server).map_err(|why| undone_for(why, &path, &change))?;
        let was_there = change.before.as_deref().is_some_and(|text| servers::is_connected(text) == Ok(true));
        let did = match was_there {
            _ if change.is_none() => "unchanged",
            true => "updated",
            false => "connected",
        };
        tell_of_server(&mut outcome, servers, did, &change);
    }
    outcome.data["command"] = json!(wanted.command());
    outcome.data["memory"] = json!(wanted.memory);
    outcome.data["events"] = wanted.events().map(|event| event.name).collect();
    outcome.data["left_out"] = wanted.left_out().map(|event| event.name).collect();
    outcome.remarks.extend(wanted.client.filter(|_| wanted.left_out().next().is_some()).map(|client| {
        let names: Vec<_> = wanted.left_out().map(|event| event.name).collect();
        format!("note: Claude Code {client} does not know {}; connect again after an update", names.join(", "))
    }));
    outcome.remarks.extend(connected_elsewhere(scope, &path).map(|other| {
        format!("note: {} is connected, too; a command that is the same in both runs once", other.display())
    }));
    Ok(outcome)
}

/// Takes our hooks and our server out of the settings.
pub fn disconnect(matches: &ArgMatches) -> Result<Outcome, Failure> {
    let (_, matches) = matches.subcommand().unwrap_or(("", matches));
    let scope = Scope::of(matches);
    let path = scope.settings()?;
    let dry_run = matches.get_flag("dry_run");
    let servers = scope.servers()?;
    changed(&servers, true, |file| without_us(file, servers::disconnect))?;
    let change = changed(&path, dry_run, |file| without_us(file, settings::disconnect))?;
    let mut outcome = told(scope, &path, undone(&change), &change, dry_run);
    let change = changed(&servers, dry_run, |file| without_us(file, servers::disconnect))
        .map_err(|why| undone_for(why, &path, &change))?;
    tell_of_server(&mut outcome, &servers, undone(&change), &change);
    outcome.remarks.extend(connected_elsewhere(scope, &path).map(|other| {
        let flag = scope.other().word();
        format!("note: {} is connected: trackway disconnect claude-code --{flag}", other.display())
    }));
    Ok(outcome)
}

/// A file with what is ours taken out.
fn without_us(file: &SettingsFile, taken_out: fn(&str) -> settings::Result<String>) -> Result<Planned, Failure> {
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
fn connected_elsewhere(scope: Scope, path: &Path) -> Option<PathBuf> {
    let other = scope.other().settings().ok().filter(|other| other != path)?;
    let file = SettingsFile::read(&other).ok()?;
    settings::connected_memory(file.text()).ok()?.map(|_| other)
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
        why.hint = Some(format!("{} was changed, and could not be put back: {}", path.display(), still.message));
    }
    why
}

fn told(scope: Scope, path: &Path, did: &str, change: &Change, dry_run: bool) -> Outcome {
    // Sessions read the settings of the directory they are started in, and none further up.
    let project = path.parent().and_then(Path::parent).filter(|_| scope == Scope::Project);
    let data = json!({
        "client": "claude-code",
        "scope": scope.word(),
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
fn write_plugin(folder: &Path, memory: Memory, dry_run: bool) -> Result<Outcome, Failure> {
    let manifest = SettingsFile::read(&folder.join(plugin::MANIFEST))?;
    if let Some(text) = &manifest.text {
        let name =
            serde_json::from_str::<Value>(text).ok().and_then(|manifest| manifest["name"].as_str().map(str::to_owned));
        if name.as_deref() != Some(plugin::NAME) {
            let name = name.map_or("another plugin".to_owned(), |name| format!("the plugin {name:?}"));
            return Err(Rule::conflict(format!("{} holds {name}", folder.display()))
                .hint("name a folder of its own")
                .into());
        }
    }
    let wanted = plugin::wanted(memory);
    let mut files = Vec::new();
    let mut diff = String::new();
    let mut did = "unchanged";
    for (file, text) in plugin::files(&wanted) {
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
        "client": "claude-code",
        "scope": "plugin",
        "file": folder.display().to_string(),
        "outcome": did,
        "files": files,
        "command": wanted.command(),
        "memory": wanted.memory,
        "events": wanted.events().map(|event| event.name).collect::<Vec<_>>(),
    });
    let mut outcome = Outcome::new(data, Shape::Connection);
    if dry_run {
        outcome.dry_run = true;
        if !diff.is_empty() {
            outcome.data["diff"] = json!(diff);
            outcome.shape = Shape::Field("diff");
        }
    }
    if !client::is_on_path() {
        outcome.remarks.push("note: the plugin runs `trackway`, which is not on the path here".to_owned());
    }
    Ok(outcome)
}
