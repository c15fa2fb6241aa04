//! `trackway connect` and `trackway disconnect`: add our hooks and our MCP server to the settings of agent clients, or
//! write them as a plugin.

pub mod detection;
mod plugin;
mod settings;

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};
use trackway_capture::{
    client::Client,
    connection::{Scope, SettingsFileNames, Version},
};
use trackway_clients::CLIENTS;
use trackway_domain::{Error as Rule, ErrorKind, enums::Memory};

pub use self::detection::settings_files;
use self::{
    detection::{ClientState, SettingsState, find_clients, settings_of},
    settings::ConnectOptions,
};
use crate::{
    client_argument::{ClientParser, named_clients},
    dispatch::{CommandOutcome, ask, can_ask},
    failure::Failure,
    location,
    render::{Layout, Output},
};

pub fn commands() -> [Command; 2] {
    let clients = CLIENTS.display_names();
    let connect = settings_command("connect")
        .about("Start recording the sessions of agent clients")
        .long_about(format!(
            "Add Trackway's hooks and MCP server to the settings of agent clients ({clients})\n\n\
             Without CLIENT, lists the known clients with their programs, settings and transcripts, and on a terminal \
             asks which to connect.",
        ))
        .arg(yes_argument("Connect all installed clients without asking"))
        .arg(memory())
        .args(plugin())
        .arg(no_mcp());
    let disconnect = settings_command("disconnect")
        .about("Stop recording the sessions of agent clients")
        .long_about(format!(
            "Remove Trackway's hooks and MCP server from the settings of agent clients ({clients})\n\n\
             Without CLIENT, asks and then disconnects all connected clients.",
        ))
        .arg(yes_argument("Disconnect all connected clients without asking"));
    [connect, disconnect]
}

/// A command with the arguments that `connect` and `disconnect` share.
fn settings_command(name: &'static str) -> Command {
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    Command::new(name).args([
        Arg::new("clients")
            .value_name("CLIENT")
            .num_args(0..)
            .value_parser(ClientParser)
            .help("Agent clients, by name"),
        flag("project").conflicts_with("user").help(format!(
            "Use the project's settings: {} in its top directory [default inside a directory with .trackway or .git]",
            file_names(|files| files.project_hooks)
        )),
        flag("user").help(format!(
            "Use the user's settings: {} [default outside projects]",
            file_names(|files| files.user_hooks)
        )),
        Arg::new("dry_run")
            .long("dry-run")
            .action(ArgAction::SetTrue)
            .help("Show the difference, without changing anything"),
    ])
}

/// The names of a settings file of every client.
fn file_names(name: impl Fn(&SettingsFileNames) -> &'static str) -> String {
    let names = CLIENTS.0.iter().map(|client| name(&client.connection().settings_file_names()));
    names.collect::<Vec<_>>().join(", ")
}

fn yes_argument(help: &'static str) -> Arg {
    Arg::new("yes").long("yes").short('y').action(ArgAction::SetTrue).help(help)
}

fn memory() -> Arg {
    Arg::new("memory").long("memory").value_name("WHOSE").value_parser(clap::value_parser!(Memory)).help(
        "Which agents to ask for their scratchpad when they stop [default: unchanged; subagents for a new connection]",
    )
}

fn no_mcp() -> Arg {
    Arg::new("no_mcp").long("no-mcp").action(ArgAction::SetTrue).help(format!(
        "Do not add the MCP server to {} (with --user: {})",
        file_names(|files| files.project_servers),
        file_names(|files| files.user_servers)
    ))
}

/// The flag for plugins, if a client supports them.
fn plugin() -> Option<Arg> {
    let has_plugins = CLIENTS.0.iter().any(|client| client.connection().plugin(Memory::default()).is_some());
    has_plugins.then(|| {
        Arg::new("plugin")
            .long("plugin")
            .value_name("DIR")
            .value_parser(clap::value_parser!(PathBuf))
            .conflicts_with_all(["project", "user"])
            .help("Write the hooks and the MCP server as a plugin to this folder, without changing any settings")
    })
}

/// The scope in the arguments.
fn scope_flag(matches: &ArgMatches) -> Option<Scope> {
    match (matches.get_flag("project"), matches.get_flag("user")) {
        (true, _) => Some(Scope::Project),
        (_, true) => Some(Scope::User),
        _ => None,
    }
}

/// The scope in the arguments. The default is the project if the current directory is inside a project, else the user.
fn scope_of(matches: &ArgMatches) -> Scope {
    let default = || if location::project_top().is_some() { Scope::Project } else { Scope::User };
    scope_flag(matches).unwrap_or_else(default)
}

/// A client whose settings change.
#[derive(Debug)]
struct Target {
    client: &'static dyn Client,
    /// The installed version, if it is needed and known.
    version: Option<Version>,
    scope: Scope,
}

pub fn connect(matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let clients = named_clients(matches, "clients");
    let dry_run = matches.get_flag("dry_run");
    let options = ConnectOptions {
        memory: matches.get_one::<Memory>("memory").copied(),
        with_server: !matches.get_flag("no_mcp"),
    };
    if let Some(folder) = matches.try_get_one::<PathBuf>("plugin").ok().flatten() {
        let [client] = clients.as_slice() else {
            return Err(Rule::usage("--plugin requires exactly one client")
                .hint(format!("known clients: {}", CLIENTS.command_names()))
                .into());
        };
        return plugin::write_plugin(*client, folder, options.memory.unwrap_or_default(), dry_run);
    }
    if clients.is_empty() {
        return connect_found(matches, options, dry_run);
    }
    let scope = scope_of(matches);
    let target = |client: &'static dyn Client| Target { client, version: client.connection().version(), scope };
    let targets: Vec<Target> = clients.into_iter().map(target).collect();
    let mut outcomes = change_all(&targets, dry_run, |target, dry_run| settings::connect(target, options, dry_run))?;
    match outcomes.outcomes.pop_if(|_| targets.len() == 1) {
        Some(only) => Ok(only),
        None => Ok(outcomes.into_list(dry_run)),
    }
}

/// Lists the clients of this machine, and connects those that the user chooses.
fn connect_found(matches: &ArgMatches, options: ConnectOptions, dry_run: bool) -> Result<CommandOutcome, Failure> {
    let (scope, flag) = (scope_of(matches), scope_flag(matches));
    let mut states = find_clients();
    let (mut open, mut remarks, mut has_failed) = (Vec::new(), Vec::new(), false);
    for state in states.iter().filter(|state| state.is_installed()) {
        let is_relevant = |settings: &&SettingsState| settings.scope == scope || settings.file.is_some();
        remarks.extend(problems(state.client, state.settings.iter().filter(is_relevant)));
        let is_readable = state.of(Some(scope)).all(|settings| settings.problem.is_none());
        if !state.is_connected(flag) && is_readable {
            let file = state.of(Some(scope)).find_map(|settings| settings.file.as_ref());
            let question = format!(
                "connect {}{}",
                state.title(),
                file.map(|file| format!(" in {}", file.display())).unwrap_or_default()
            );
            open.push((question, Target { client: state.client, version: state.version, scope }));
        }
        has_failed |= !state.is_connected(flag) && !is_readable;
    }
    let list = |states: &[ClientState], results: Value| {
        let clients: Vec<Value> = states.iter().map(ClientState::to_json).collect();
        CommandOutcome::new(json!({ "clients": clients, "results": results }), Layout::Clients)
    };
    let change = |targets: &[Target]| {
        change_all(targets, dry_run, |target, dry_run| settings::connect(target, options, dry_run))
    };
    let mut outcome = list(&states, json!([]));
    if !open.is_empty() && (dry_run || matches.get_flag("yes")) {
        let targets: Vec<Target> = open.into_iter().map(|(_, target)| target).collect();
        let changed = change(&targets)?.into_list(dry_run);
        for state in &mut states {
            state.settings = settings_of(state.client);
        }
        outcome = list(&states, changed.data);
        remarks.extend(changed.remarks);
        (outcome.failure, outcome.is_dry_run) = (changed.failure, dry_run);
    } else if !open.is_empty() && (matches.get_flag("json") || !can_ask() || !std::io::stdout().is_terminal()) {
        let names = open.iter().map(|(_, target)| target.client.command_name()).collect::<Vec<_>>().join(" ");
        let message = "connecting requires the names of clients, or --yes, without a terminal";
        let hint = format!("trackway connect {names}");
        outcome.failure = Some(Failure::new(ErrorKind::Usage, message, Some(hint.into())));
    } else if !open.is_empty() {
        Output::of(matches).print(&outcome)?;
        let mut chosen = Vec::new();
        for (question, target) in open {
            if ask(&question)? {
                chosen.push(target);
            }
        }
        outcome = change(&chosen)?.into_list(dry_run);
        if chosen.is_empty() {
            outcome.text = Some("Nothing was changed.".to_owned());
        }
        remarks.append(&mut outcome.remarks);
    }
    (outcome.remarks, outcome.has_failed) = (remarks, has_failed);
    Ok(outcome)
}

pub fn disconnect(matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let clients = named_clients(matches, "clients");
    let dry_run = matches.get_flag("dry_run");
    if clients.is_empty() {
        return disconnect_connected(matches, dry_run);
    }
    let scope = scope_of(matches);
    let targets: Vec<Target> = clients.into_iter().map(|client| Target { client, version: None, scope }).collect();
    let mut outcomes = change_all(&targets, dry_run, |target, dry_run| {
        let mut outcome = settings::disconnect(target, dry_run)?;
        outcome.remarks.extend(settings::still_connected_note(target));
        Ok(outcome)
    })?;
    match outcomes.outcomes.pop_if(|_| targets.len() == 1) {
        Some(only) => Ok(only),
        None => Ok(outcomes.into_list(dry_run)),
    }
}

/// Disconnects every connected client, after asking.
fn disconnect_connected(matches: &ArgMatches, dry_run: bool) -> Result<CommandOutcome, Failure> {
    let flag = scope_flag(matches);
    let (mut targets, mut files, mut remarks) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_unreadable = false;
    for client in CLIENTS.0 {
        let mut all = settings_of(*client);
        all.retain(|settings| flag.is_none_or(|flag| settings.scope == flag));
        remarks.extend(problems(*client, all.iter()));
        is_unreadable |= all.iter().any(|settings| settings.file.is_some() && settings.problem.is_some());
        // A scope has two settings files. If one of them cannot be read, do not change the other.
        for settings in all.iter().filter(|settings| settings.has_entries() && settings.problem.is_none()) {
            let place = settings.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
            let line = format!("{} in {place}", client.display_name());
            if !files.contains(&line) {
                files.push(line);
            }
            targets.push(Target { client: *client, version: None, scope: settings.scope });
        }
    }
    if !targets.is_empty() && !dry_run && !matches.get_flag("yes") {
        if !can_ask() {
            return Err(Rule::usage("disconnecting all clients requires --yes without a terminal")
                .hint("--dry-run shows what would happen")
                .into());
        }
        for line in files {
            writeln!(anstream::stderr(), "{line}")?;
        }
        if !ask("disconnect")? {
            return Err(Rule::usage("nothing was changed").into());
        }
    }
    let mut outcome = change_all(&targets, dry_run, settings::disconnect)?.into_list(dry_run);
    if targets.is_empty() {
        outcome.text = Some("No client is connected.".to_owned());
    }
    outcome.remarks.splice(..0, remarks);
    outcome.has_failed = is_unreadable;
    Ok(outcome)
}

/// Warnings about settings that cannot be read.
fn problems<'a>(client: &'a dyn Client, settings: impl Iterator<Item = &'a SettingsState>) -> Vec<String> {
    let warning = |why: &String| format!("warning: {}: {why}", client.display_name());
    settings.filter_map(|settings| settings.problem.as_ref()).map(warning).collect()
}

/// The outcome of each changed client, and the error that stopped the command.
#[derive(Debug, Default)]
struct Changes {
    outcomes: Vec<CommandOutcome>,
    failure: Option<Failure>,
}

impl Changes {
    /// One outcome with a list.
    fn into_list(self, dry_run: bool) -> CommandOutcome {
        let (data, remarks): (Vec<Value>, Vec<Vec<String>>) =
            self.outcomes.into_iter().map(|outcome| (outcome.data, outcome.remarks)).unzip();
        let mut list = CommandOutcome::new(Value::Array(data), Layout::Connections);
        (list.remarks, list.failure, list.is_dry_run) = (remarks.concat(), self.failure, dry_run);
        list
    }
}

/// Changes the settings of several clients. A dry run of all changes comes first; if it fails, no client is changed. A
/// later error stops the command, and the clients that were changed before the error stay changed.
fn change_all(
    targets: &[Target],
    dry_run: bool,
    change: impl Fn(&Target, bool) -> Result<CommandOutcome, Failure>,
) -> Result<Changes, Failure> {
    if targets.len() > 1 && !dry_run {
        for target in targets {
            change(target, true)?;
        }
    }
    let mut changes = Changes::default();
    for target in targets {
        match change(target, dry_run) {
            Ok(outcome) => changes.outcomes.push(outcome),
            Err(failure) if changes.outcomes.is_empty() => return Err(failure),
            Err(failure) => {
                changes.failure = Some(failure);
                break;
            }
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Changes two targets. The change of the second target fails in the dry run, or only when it is written.
    fn change_two(fails_in_dry_run: bool) -> (Result<Changes, Failure>, Vec<(Scope, bool)>) {
        let client = CLIENTS.0[0];
        let targets = [Scope::Project, Scope::User].map(|scope| Target { client, version: None, scope });
        let calls = RefCell::new(Vec::new());
        let changes = change_all(&targets, false, |target, dry_run| {
            calls.borrow_mut().push((target.scope, dry_run));
            if target.scope == Scope::User && (fails_in_dry_run || !dry_run) {
                return Err(Rule::conflict("no").into());
            }
            Ok(CommandOutcome::new(json!(1), Layout::Connection))
        });
        (changes, calls.into_inner())
    }

    #[test]
    fn error_in_a_dry_run_changes_no_client() {
        let (changes, calls) = change_two(true);
        assert!(changes.is_err());
        assert_eq!(calls, [(Scope::Project, true), (Scope::User, true)]);
    }

    #[test]
    fn later_error_is_reported_with_the_changes_before_it() {
        let (changes, calls) = change_two(false);
        let list = changes.unwrap().into_list(false);
        assert_eq!((list.data, list.failure.map(|failure| failure.kind)), (json!([1]), Some(ErrorKind::Conflict)));
        assert_eq!(calls[2..], [(Scope::Project, false), (Scope::User, false)]);
    }
}
