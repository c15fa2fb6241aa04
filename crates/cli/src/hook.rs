//! `trackway hook`: the command line of the hook intake and of the hook daemon.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    path::Path,
    process::ExitCode,
};

use clap::{Arg, ArgMatches, Command};
use serde_json::Value;
use trackway_capture::{
    client::Client,
    hook::{EVENT_MAX, EventHeader, HookCall, HookLog, daemon},
    paths::is_below,
};
use trackway_clients::CLIENTS;
use trackway_domain::enums::Memory;

use crate::{
    dispatch::CommandOutcome,
    environment,
    location::{Location, user_folder},
    render::Layout,
};

/// The flags of the command that take a value.
const VALUE_FLAGS: [&str; 3] = ["--memory", "--db", "--tenant"];

pub fn command() -> Command {
    let (clients, connect) = (CLIENTS.display_names(), CLIENTS.connect_command());
    Command::new("hook")
        .about(format!("Record one {clients} hook event from standard input"))
        .long_about(format!(
            "Record one {clients} hook event from standard input\n\n\
             `{connect}` installs this command as a hook. It always exits with 0, and writes errors to hook.log next to the database; `trackway doctor` shows them.",
        ))
        // An unknown client must not make the command fail, so the parser accepts any name.
        .arg(Arg::new("client").value_name("CLIENT").help(format!(
            "Client that sends the event: {} [default: {}]",
            CLIENTS.command_names(),
            CLIENTS.named(None).map_or("", Client::command_name)
        )))
        .arg(
            Arg::new("memory")
                .long("memory")
                .value_name("WHO")
                .value_parser(clap::value_parser!(Memory))
                .default_value("subagents")
                .help("Which agents to ask for their scratchpad when they stop"),
        )
}

/// Runs `trackway hook` without clap. This starts faster and ignores unknown arguments: the client's settings may
/// contain arguments of another Trackway version, and the client treats a failed hook as a veto.
pub fn run_fast(arguments: &[OsString]) -> Option<ExitCode> {
    let words: Vec<&str> = arguments.iter().skip(1).map(|word| word.to_str().unwrap_or("?")).collect();
    if words.first() != Some(&"hook") || words.iter().any(|word| matches!(*word, "-h" | "--help")) {
        return None;
    }
    let after = |name: &str| words.iter().position(|word| *word == name).and_then(|place| words.get(place + 1));
    let given =
        |name: &str, variable: &str| after(name).map(ToString::to_string).or_else(|| std::env::var(variable).ok());
    let memory = after("--memory").and_then(|who| who.parse().ok()).unwrap_or_default();
    let (db, tenant) = (given("--db", environment::DATABASE), given("--tenant", environment::TENANT));
    match std::panic::catch_unwind(|| take(client_word(&words[1..]), memory, db, tenant)) {
        Ok(Some(answer)) => {
            let _ = writeln!(io::stdout(), "{answer}");
        }
        Ok(None) => {}
        Err(_) => HookLog::of_user(user_folder()).write("?", "internal error: the hook panicked"),
    }
    Some(ExitCode::SUCCESS)
}

/// The word that names the client: a known client anywhere among the arguments, or else the word after `hook`. Other
/// words may be values of flags of another Trackway version.
fn client_word<'a>(arguments: &[&'a str]) -> Option<&'a str> {
    let is_value = |index: usize| index > 0 && VALUE_FLAGS.contains(&arguments[index - 1]);
    let words = arguments.iter().enumerate().filter(|(index, word)| !word.starts_with('-') && !is_value(*index));
    let known = words.map(|(_, word)| *word).find(|word| CLIENTS.by_command_name(word).is_some());
    known.or_else(|| arguments.first().copied().filter(|word| !word.starts_with('-')))
}

pub fn hook(whole: &ArgMatches, matches: &ArgMatches) -> CommandOutcome {
    let memory = matches.get_one::<Memory>("memory").copied().unwrap_or(Memory::Subagents);
    let given = |name: &str| whole.get_one::<String>(name).cloned();
    let client = matches.get_one::<String>("client").map(String::as_str);
    let answer = take(client, memory, given("db"), given("tenant"));
    CommandOutcome::new(Value::String(answer.unwrap_or_default()), Layout::Text)
}

/// Records one event from standard input, and returns the text to print. If `client` is none, the event is from the
/// first known client, because hooks that earlier Trackway versions installed do not name a client.
fn take(client: Option<&str>, memory: Memory, db: Option<String>, tenant: Option<String>) -> Option<String> {
    let known = match client {
        Some(name) => CLIENTS.by_command_name(name),
        None => CLIENTS.named(None),
    };
    let Some(client) = known else {
        // Read the event anyway: a client that cannot write the whole event may report the hook as broken.
        let _ = io::copy(&mut io::stdin().lock().take(EVENT_MAX), &mut io::sink());
        let (name, known) = (client.unwrap_or_default(), CLIENTS.command_names());
        HookLog::of_user(user_folder()).write("?", &format!("unknown client {name:?}; known: {known}"));
        return None;
    };
    let token = std::env::var(environment::TOKEN).ok().filter(|token| !token.is_empty());
    let call = HookCall { client, clients: CLIENTS, memory, token, user_folder: user_folder() };
    call.handle(io::stdin().lock(), |header| find(header, db, tenant))
}

/// The database for the directory of an event; none if the configuration excludes the sessions of this directory.
fn find(header: &EventHeader, db: Option<String>, tenant: Option<String>) -> Result<Option<Location>, String> {
    let cwd = header.cwd.as_deref().map(Path::new);
    let given = |value: Option<String>| value.filter(|value| !value.is_empty());
    let location = Location::find_from(cwd, given(db), given(tenant)).map_err(|failure| failure.message.to_string())?;
    if cwd.is_some_and(|cwd| is_below(cwd, &location.exclude)) {
        return Ok(None);
    }
    if location.is_untrusted_server {
        let why = "the project's configuration names a database server; to allow it, add the project's directory to `trust` in your config.toml";
        HookLog::of_user(user_folder()).write(&header.name, why);
        return Ok(Location::find_from(None, None, None).ok());
    }
    Ok(Some(location))
}

/// Runs the hook daemon.
pub fn run_daemon(arguments: &[OsString]) -> ExitCode {
    let [socket] = arguments else { return ExitCode::FAILURE };
    let given = |name: &str| std::env::var(name).ok();
    daemon::run(socket.into(), user_folder(), CLIENTS, || {
        Location::find_from(None, given(environment::DATABASE), given(environment::TENANT))
            .map_err(|failure| failure.message.to_string())
    })
}
