//! `trackway hook`: the command line of the hook intake, and of the daemon behind it.

use std::{ffi::OsString, io::Write, path::Path, process::ExitCode};

use clap::{Arg, ArgMatches, Command};
use serde_json::Value;
use trackway_capture::{
    hook::{Call, Header, HookLog, daemon},
    paths::is_below,
};
use trackway_clients::CLIENTS;
use trackway_domain::words::Memory;

use crate::{
    door::Outcome,
    environment,
    location::{Location, user_folder},
    render::Shape,
};

pub fn command() -> Command {
    Command::new("hook")
        .about("Take one Claude Code hook event from standard input")
        .long_about(
            "Take one Claude Code hook event from standard input\n\n\
             Installed by `trackway connect claude-code`. Always exits with 0; what goes wrong stands in hook.log beside the database, and in `trackway doctor`.",
        )
        .arg(
            Arg::new("memory")
                .long("memory")
                .value_name("WHO")
                .value_parser(clap::value_parser!(Memory))
                .default_value("subagents")
                .help("Who is asked for its scratchpad when it stops"),
        )
}

/// The whole command line of a hook: no grammar is built for it, and no word in it can make it fail. The client takes a
/// failure for a veto, and the words may be those of another version.
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
    match std::panic::catch_unwind(|| take(memory, db, tenant)) {
        Ok(Some(answer)) => {
            let _ = writeln!(std::io::stdout(), "{answer}");
        }
        Ok(None) => {}
        Err(_) => HookLog::of_user(user_folder()).write("?", "the hook failed in a way that should not be"),
    }
    Some(ExitCode::SUCCESS)
}

pub fn hook(whole: &ArgMatches, matches: &ArgMatches) -> Outcome {
    let memory = matches.get_one::<Memory>("memory").copied().unwrap_or(Memory::Subagents);
    let given = |name: &str| whole.get_one::<String>(name).cloned();
    let answer = take(memory, given("db"), given("tenant"));
    Outcome::new(Value::String(answer.unwrap_or_default()), Shape::Text)
}

/// Takes one event from standard input, and returns what to print.
fn take(memory: Memory, db: Option<String>, tenant: Option<String>) -> Option<String> {
    let client = CLIENTS.named(None)?;
    let token = std::env::var(environment::TOKEN).ok().filter(|token| !token.is_empty());
    let call = Call { client, clients: CLIENTS, memory, token, user_folder: user_folder() };
    call.take(std::io::stdin().lock(), |header| find(header, db, tenant))
}

/// The database of the directory that an event names; none where its sessions are excluded.
fn find(header: &Header, db: Option<String>, tenant: Option<String>) -> Result<Option<Location>, String> {
    let cwd = header.cwd.as_deref().map(Path::new);
    let given = |value: Option<String>| value.filter(|value| !value.is_empty());
    let location = Location::find_from(cwd, given(db), given(tenant)).map_err(|failure| failure.message)?;
    if cwd.is_some_and(|cwd| is_below(cwd, &location.exclude)) {
        return Ok(None);
    }
    if location.is_sent_away {
        let why = "the project says that its database is on a server; to allow that, add its directory to `trust` in your config.toml";
        HookLog::of_user(user_folder()).write(&header.name, why);
        return Ok(Location::find_from(None, None, None).ok());
    }
    Ok(Some(location))
}

/// Runs the hook daemon.
pub fn keep(arguments: &[OsString]) -> ExitCode {
    let [socket] = arguments else { return ExitCode::FAILURE };
    let given = |name: &str| std::env::var(name).ok();
    daemon::run(socket.into(), user_folder(), CLIENTS, || {
        Location::find_from(None, given(environment::DATABASE), given(environment::TENANT))
            .map_err(|failure| failure.message)
    })
}
