//! The command line: parses arguments, runs the command, prints tables or JSON, and returns an exit code.

pub mod arguments;
pub mod board_folder;
pub mod client_argument;
pub mod config;
pub mod connect;
pub mod demo;
pub mod dispatch;
pub mod doctor;
pub mod environment;
pub mod failure;
pub mod hook;
pub mod ingest;
pub mod init;
pub mod location;
pub mod log;
pub mod long_text;
pub mod manual;
pub mod mcp;
pub mod model;
pub mod recorded_session;
pub mod reference;
pub mod render;
pub mod settings_file;
pub mod standard_input;
pub mod transfer;
pub mod up;
pub mod user;
pub mod work;

use std::{ffi::OsString, io::Write, process::ExitCode};

use clap::error::ErrorKind as ClapError;
use trackway_capture::hook::daemon;
use trackway_domain::ErrorKind;
use trackway_runner::supervise;

use crate::{failure::Failure, render::Output};

/// Runs one command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(code) = hook::run_fast(&arguments) {
        return code;
    }
    if arguments.get(1).is_some_and(|word| word == supervise::COMMAND) {
        let code = supervise::supervise(&arguments[2..]);
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    if arguments.get(1).is_some_and(|word| word == daemon::COMMAND) {
        return hook::run_daemon(&arguments[2..]);
    }
    let wants_json = arguments.iter().skip(1).any(|argument| argument == "--json");
    let outcome = match standard_input::substitute_dash(arguments)
        .map(|arguments| arguments::command_for(&arguments).try_get_matches_from(arguments))
    {
        Ok(Ok(matches)) => dispatch::dispatch(&matches).and_then(|outcome| {
            let code = Output::of(&matches).print(&outcome)?;
            outcome.failure.map_or(Ok(code), Err)
        }),
        Ok(Err(error)) if matches!(error.kind(), ClapError::DisplayHelp | ClapError::DisplayVersion) => {
            return if error.print().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Ok(Err(error)) if error.kind() == ClapError::DisplayHelpOnMissingArgumentOrSubcommand && !wants_json => {
            let _ = error.print();
            return ExitCode::from(ErrorKind::Usage.exit_code());
        }
        Ok(Err(error)) => Err(Failure::from(error)),
        Err(failure) => Err(failure),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            // A failure to write to stderr cannot be reported anywhere.
            let _ = writeln!(anstream::stderr(), "{}", failure.render(wants_json));
            ExitCode::from(failure.kind.exit_code())
        }
    }
}
