//! Runs `trackway` commands as a user or a script does.

use std::{
    ffi::OsStr,
    io::Write,
    iter,
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;
use trackway_store::Store;
use trackway_testkit::{Engine, TestDatabase, database, migrated_database};
pub use trackway_testkit::{column, text};

/// A simulated user, `ada`, who runs `trackway` commands with a home directory and a database.
pub struct Terminal {
    pub database: TestDatabase,
    pub home: TempDir,
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Terminal {
    /// Creates and initializes a database.
    pub fn new(engine: Engine) -> Self {
        let terminal = Self { database: migrated_database(engine), home: tempfile::tempdir().unwrap() };
        terminal.json(&["init"]);
        terminal
    }

    /// Reserves a database without initializing it.
    pub fn uninitialized(engine: Engine) -> Self {
        Self { database: database(engine), home: tempfile::tempdir().unwrap() }
    }

    /// Initializes the database at this URL.
    pub fn new_at_url(url: impl Into<String>) -> Self {
        let terminal = Self::uninitialized_at_url(url);
        terminal.json(&["init"]);
        terminal
    }

    /// Uses the database at this URL, which may not exist yet.
    pub fn uninitialized_at_url(url: impl Into<String>) -> Self {
        Self { database: TestDatabase::external(url.into()), home: tempfile::tempdir().unwrap() }
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trackway"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.home.path())
            .env("USER", "ada")
            .env("TRACKWAY_DB", self.database.url_text())
            // Only `hook_daemon.rs` and the tests with real clients run with the hook daemon.
            .env("TRACKWAY_HOOK_DAEMON", "off")
            .current_dir(self.home.path())
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        run_command(self.command(arguments))
    }

    /// Runs a command that must succeed, and returns the `data` of its JSON output.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        self.json_with_token(None, arguments)
    }

    /// Like `json`, with the token of a run.
    #[track_caller]
    pub fn json_with_token(&self, token: Option<&str>, arguments: &[&str]) -> Value {
        let mut command = self.command(arguments);
        command.arg("--json").envs(token.map(|token| ("TRACKWAY_TOKEN", token)));
        let output = run_command(command);
        assert_eq!(output.code, 0, "{arguments:?}: {}", output.stderr);
        assert_eq!(output.stderr, "", "{arguments:?}");
        let answer: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(answer["schema_version"], 1);
        answer["data"].clone()
    }

    /// Runs a command that must fail, and returns its exit code and its error message.
    #[track_caller]
    pub fn expect_error(&self, arguments: &[&str]) -> (i32, String) {
        self.expect_error_with_token(None, arguments)
    }

    /// Like `expect_error`, with the token of a run.
    #[track_caller]
    pub fn expect_error_with_token(&self, token: Option<&str>, arguments: &[&str]) -> (i32, String) {
        let mut command = self.command(arguments);
        command.arg("--json").envs(token.map(|token| ("TRACKWAY_TOKEN", token)));
        let output = run_command(command);
        assert_eq!(output.stdout, "", "{arguments:?}");
        let answer: Value =
            serde_json::from_str(&output.stderr).unwrap_or_else(|_| panic!("{arguments:?}: {}", output.stderr));
        let kinds = ["failed", "usage", "not_found", "conflict", "busy", "denied"];
        let code = kinds.iter().position(|kind| answer["error"]["code"] == *kind).unwrap() + 1;
        assert_eq!(i32::try_from(code).unwrap(), output.code);
        (output.code, answer["error"]["message"].as_str().unwrap().to_owned())
    }

    /// Starts a run and returns its id and token.
    #[track_caller]
    pub fn start_run(&self, arguments: &[&str]) -> (String, String) {
        let started = self.json(&[&["run", "start"], arguments].concat());
        (text(&started["run_id"]), text(&started["token"]))
    }
}

/// Checks after every test that the record is consistent.
impl Drop for Terminal {
    fn drop(&mut self) {
        // A database that does not exist or cannot be opened is not checked.
        if let (false, Ok(store)) = (std::thread::panicking(), Store::open(self.database.url()))
            && let Ok(findings) = store.integrity_findings()
        {
            assert_eq!(findings, Vec::<String>::new());
        }
    }
}

pub fn run_command(mut command: Command) -> CommandOutput {
    let output = command.output().unwrap();
    CommandOutput {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a command on a pseudo-terminal. Both output streams arrive in `stdout`.
pub fn run_in_pty(command: &Command) -> CommandOutput {
    run_in_pty_with_input(command, "")
}

/// Like `run_in_pty`, and types this input.
pub fn run_in_pty_with_input(command: &Command, input: &str) -> CommandOutput {
    let quoted = |word: &OsStr| format!("'{}'", word.to_str().unwrap().replace('\'', r"'\''"));
    let line: Vec<String> = iter::once(command.get_program()).chain(command.get_args()).map(quoted).collect();
    let mut script = Command::new("script");
    script.args(["-qec", &line.join(" "), "/dev/null"]).env_clear().env("TERM", "xterm");
    script.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    script.current_dir(command.get_current_dir().unwrap());
    let mut output = run_command_with_input(script, input.as_bytes());
    output.stdout = output.stdout.replace("\r\n", "\n");
    output
}

/// Runs a command with this standard input.
pub fn run_command_with_input(mut command: Command, input: &[u8]) -> CommandOutput {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command may stop reading before the end of its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    CommandOutput {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Generates two tests per function, one per engine.
macro_rules! both_engines {
    ($($(#[$meta:meta])* fn $name:ident($terminal:ident: Terminal) $body:block)*) => {
        $(
            mod $name {
                use super::*;

                fn test($terminal: Terminal) $body

                $(#[$meta])*
                #[test]
                fn sqlite() {
                    test(Terminal::new(trackway_testkit::Engine::Sqlite));
                }

                $(#[$meta])*
                #[test]
                fn postgres() {
                    test(Terminal::new(trackway_testkit::Engine::Postgres));
                }
            }
        )*
    };
}
pub(crate) use both_engines;
