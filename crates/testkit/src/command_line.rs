//! Executes command lines in the process of the test. The tests in `crates/cli` start the program instead, because they
//! test its output, files, exit codes and standard input.

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;
use trackway_actions::{
    Credential,
    context::Secret,
    registry::{ACTIONS, Mode},
    tenant::LOCAL_TENANT,
};
use trackway_domain::ErrorKind;
use trackway_store::Engine;
use trackway_views::registry::VIEWS;

use crate::{TestEnv, test_env::PERSON};

/// A command line on a test environment.
#[derive(Debug)]
pub struct CommandLine {
    pub env: TestEnv,
}

impl CommandLine {
    pub fn new(engine: Engine) -> Self {
        Self { env: TestEnv::new(engine) }
    }

    /// Executes a command that must succeed, and returns its data.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        self.json_in_run(None, arguments)
    }

    /// Executes a command that must succeed, with the token of a run.
    #[track_caller]
    pub fn json_in_run(&self, token: Option<&str>, arguments: &[&str]) -> Value {
        self.execute(token, arguments).unwrap_or_else(|(_, error)| panic!("{arguments:?}: {error}"))
    }

    /// Executes a command that must fail, and returns the exit code and the message.
    #[track_caller]
    pub fn fails(&self, arguments: &[&str]) -> (i32, String) {
        self.fails_in_run(None, arguments)
    }

    /// Executes a command that must fail, with the token of a run.
    #[track_caller]
    pub fn fails_in_run(&self, token: Option<&str>, arguments: &[&str]) -> (i32, String) {
        let (kind, message) = self.execute(token, arguments).expect_err("the command must fail");
        (kind.exit_code().into(), message)
    }

    /// Starts a run and returns its id and token.
    #[track_caller]
    pub fn start_run(&self, arguments: &[&str]) -> (String, String) {
        let started = self.json(&[&["run", "start"], arguments].concat());
        (text(&started["run_id"]), text(&started["token"]))
    }

    fn execute(&self, token: Option<&str>, arguments: &[&str]) -> Result<Value, (ErrorKind, String)> {
        let usage = |message: String| (ErrorKind::Usage, message);
        let failed = |error: trackway_actions::Error| (error.kind(), error.to_string());
        let core = &self.env.core;
        let credential = match token {
            None => Credential::User { tenant: LOCAL_TENANT.to_owned(), handle: PERSON.to_owned() },
            Some(token) => Credential::Token(Secret(token.to_owned())),
        };
        let context = core.authenticate(&credential).map_err(failed)?;
        let (noun, verb) = (arguments[0], arguments.get(1).copied().unwrap_or_default());
        let is_named = |command: (&str, &str), alias: Option<&str>| {
            (command.0 == noun && (command.1 == verb || alias == Some(verb))) || command == ("", noun)
        };
        let parse = |extend: fn(Command) -> Command, words: usize| -> Result<ArgMatches, (ErrorKind, String)> {
            let yes = Arg::new("yes").long("yes").action(ArgAction::SetTrue);
            let command = extend(Command::new("trackway").no_binary_name(true)).arg(yes);
            command.try_get_matches_from(&arguments[words..]).map_err(|error| usage(error.to_string()))
        };
        let words = |command: (&str, &str)| if command.0.is_empty() { 1 } else { 2 };
        if let Some(action) = ACTIONS.iter().find(|action| is_named(action.command, action.alias)) {
            let matches = parse(action.arguments, words(action.command))?;
            return (action.with_matches)(core, &context, &matches, None, Mode::Execute).map_err(failed);
        }
        let view = VIEWS.iter().find(|view| is_named(view.command, view.alias));
        let view = view.ok_or_else(|| usage(format!("there is no command {noun} {verb}")))?;
        let matches = parse(view.arguments, words(view.command))?;
        let mut reader = core.reader(&context).map_err(failed)?;
        let answer = (view.with_matches)(&mut reader, &matches, core.now());
        let answer = answer.map_err(|error| failed(error.into()))?;
        Ok(answer.document.map_or(answer.data, Value::String))
    }
}

/// The database must be consistent after every test.
impl Drop for CommandLine {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.env.core.store().integrity_findings().unwrap(), Vec::<String>::new());
        }
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The values of one field in a list of rows.
pub fn column(rows: &Value, field: &str) -> Vec<String> {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    rows.as_array().unwrap().iter().map(|row| shown(&row[field])).collect()
}
