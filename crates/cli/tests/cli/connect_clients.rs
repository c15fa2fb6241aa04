//! `connect` and `disconnect` for several clients. Without a client's name, they find the clients, ask the user, and
//! change nothing unless the user agrees.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use snapbox::str;
use trackway_testkit::{Engine, write_program};

use crate::{
    ingest::{SESSION, TranscriptFolder, TranscriptWriter},
    terminal::{CommandOutput, Terminal, run_command, run_in_pty_with_input},
};

/// A user with a project, and a folder of programs that is on the PATH.
struct Machine {
    terminal: Terminal,
}

impl Machine {
    /// A machine without clients.
    fn new() -> Self {
        let machine = Self { terminal: Terminal::uninitialized(Engine::Sqlite) };
        fs::create_dir_all(machine.project().join(".git")).unwrap();
        fs::create_dir(machine.programs()).unwrap();
        machine
    }

    /// A machine with Claude Code on the PATH.
    fn with_client() -> Self {
        let machine = Self::new();
        write_program(&machine.programs().join("claude"), "#!/bin/sh\necho '2.1.197 (Claude Code)'\n");
        machine
    }

    fn home(&self) -> &Path {
        self.terminal.home.path()
    }

    fn project(&self) -> PathBuf {
        self.home().join("project")
    }

    fn programs(&self) -> PathBuf {
        self.home().join("bin")
    }

    fn project_settings(&self) -> PathBuf {
        self.project().join(".claude/settings.json")
    }

    fn user_settings(&self) -> PathBuf {
        self.home().join(".claude/settings.json")
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.terminal.command(&line.split(' ').collect::<Vec<_>>());
        // `connect` must ignore entries of the PATH that do not exist, are no directories or are relative.
        let broken = format!("/nonexistent:{}:relative", self.project().join(".git").display());
        command
            .current_dir(self.project())
            .env("PATH", format!("{broken}:{}:/usr/bin:/bin", self.programs().display()));
        command
    }

    fn run(&self, line: &str) -> CommandOutput {
        self.masked(run_command(self.command(line)))
    }

    /// Runs a command on a terminal, and types the answers to its questions.
    fn run_with_answers(&self, line: &str, answers: &str) -> CommandOutput {
        self.masked(run_in_pty_with_input(&self.command(line), answers))
    }

    fn masked(&self, output: CommandOutput) -> CommandOutput {
        let mask = |text: &str| {
            text.replace(self.home().to_str().unwrap(), "[HOME]").replace(env!("CARGO_BIN_EXE_trackway"), "[TRACKWAY]")
        };
        CommandOutput { code: output.code, stdout: mask(&output.stdout), stderr: mask(&output.stderr) }
    }

    /// The `data` of a command that succeeds, possibly with warnings.
    #[track_caller]
    fn json(&self, line: &str) -> Value {
        let output = self.run(&format!("{line} --json"));
        assert_eq!(output.code, 0, "{}", output.stderr);
        serde_json::from_str::<Value>(&output.stdout).unwrap()["data"].clone()
    }

    fn is_connected(&self) -> bool {
        self.project_settings().exists() || self.user_settings().exists()
    }
}

#[test]
fn connect_without_a_terminal_lists_clients_and_names_the_command() {
    let machine = Machine::with_client();
    let folder = TranscriptFolder::new(&machine.terminal);
    folder.append(None, &TranscriptWriter::new(SESSION, "/ship").prompt("go"));
    let output = machine.run("connect");
    snapbox::assert_data_eq!(
        output.stdout,
        str![[r#"
Claude Code 2.1.197
program: [HOME]/bin/claude
connected: no
transcripts: 1 session in [HOME]/.claude/projects

"#]]
    );
    snapbox::assert_data_eq!(
        output.stderr,
        str![[r#"
error: connecting requires the names of clients, or --yes, without a terminal
hint: trackway connect claude-code

"#]]
    );
    assert_eq!(output.code, 2);
    assert!(!machine.is_connected());

    let output = machine.run("connect --json");
    assert_eq!(output.code, 2);
    let data = serde_json::from_str::<Value>(&output.stdout).unwrap()["data"].clone();
    let client = &data["clients"][0];
    assert_eq!(
        (&client["installed"], &client["version"], &client["connected"]),
        (&json!(true), &json!("2.1.197"), &json!(false))
    );
    assert_eq!(client["transcripts"], json!({ "folder": "[HOME]/.claude/projects", "sessions": 1 }));
    assert_eq!(data["results"], json!([]));
    assert_eq!(serde_json::from_str::<Value>(&output.stderr).unwrap()["error"]["hint"], "trackway connect claude-code");

    machine.json("connect claude-code");
    let again = machine.run("connect");
    assert_eq!((again.code, again.stderr.as_str()), (0, ""));
    assert!(again.stdout.contains("connected: [HOME]/project/.claude/settings.json (project, memory: subagents)\n"));
}

#[test]
fn connect_lists_missing_clients_and_succeeds() {
    let machine = Machine::new();
    // A shell skips files that are not executable, and directories.
    fs::write(machine.programs().join("claude"), "not a program").unwrap();
    let output = machine.run("connect");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    snapbox::assert_data_eq!(
        output.stdout,
        str![[r#"
Claude Code
program: not installed (no claude on the PATH)
connected: no
transcripts: none

"#]]
    );
    assert_eq!(machine.json("connect --yes")["results"], json!([]));
    assert!(!machine.is_connected());
    // Naming a client connects it, whether or not it is on the PATH.
    assert_eq!(machine.json("connect claude-code")["outcome"], "connected");
}

#[test]
fn connect_accepts_a_client_that_prints_no_version() {
    let machine = Machine::new();
    write_program(&machine.programs().join("claude"), "#!/bin/sh\nexit 1\n");
    let data = machine.json("connect --dry-run");
    assert_eq!(data["clients"][0]["installed"], true);
    assert_eq!(data["clients"][0]["version"], Value::Null);
    assert!(data["results"][0]["diff"].as_str().unwrap().contains("[TRACKWAY] hook"));
    assert!(!machine.is_connected());
}

#[test]
fn connect_asks_on_a_terminal() {
    let machine = Machine::with_client();
    for answer in ["\n", "n\n", "what\n"] {
        let output = machine.run_with_answers("connect", answer);
        assert_eq!(output.code, 0, "{}", output.stdout);
        let question = "connect Claude Code 2.1.197 in [HOME]/project/.claude/settings.json? [y/N]";
        assert!(
            output.stdout.contains(question) && output.stdout.contains("Nothing was changed."),
            "{}",
            output.stdout
        );
        assert!(!machine.is_connected());
    }
    let output = machine.run_with_answers("connect --user --memory all", "y\n");
    assert!(output.stdout.contains("in [HOME]/.claude/settings.json? [y/N]"), "{}", output.stdout);
    assert!(fs::read_to_string(machine.user_settings()).unwrap().contains("hook --memory all"));
    assert!(!machine.project_settings().exists());
    // If a client is connected in one scope, `connect` offers the other scope only if an option names that scope.
    assert!(!machine.run_with_answers("connect", "y\n").stdout.contains("[y/N]"));
    assert!(machine.run_with_answers("connect --project", "y\n").stdout.contains("[y/N]"));
    assert!(machine.project_settings().exists());
}

#[test]
fn connect_yes_and_dry_run_never_ask() {
    let machine = Machine::with_client();
    let output = machine.run_with_answers("connect --dry-run", "");
    assert!(output.stdout.contains("+++ [HOME]/project/.claude/settings.json") && !output.stdout.contains("[y/N]"));
    assert!(!machine.is_connected());
    let connected = machine.json("connect --yes");
    assert_eq!(connected["results"][0]["outcome"], "connected");
    assert_eq!(connected["clients"][0]["connected"], true);
    assert!(machine.project().join(".mcp.json").exists());
    assert_eq!(machine.json("connect --yes")["results"], json!([]));
}

#[test]
fn client_named_twice_is_connected_once() {
    let machine = Machine::with_client();
    assert_eq!(machine.json("connect claude-code claude-code")["outcome"], "connected");
    // The client's name in the database is accepted too.
    assert_eq!(machine.json("connect claude_code claude-code")["outcome"], "unchanged");
    assert_eq!(machine.json("disconnect claude-code claude_code")["outcome"], "removed");
}

#[test]
fn unknown_client_is_a_usage_error_with_the_known_names() {
    let machine = Machine::with_client();
    for line in
        ["connect claude-cod", "disconnect claude-cod", "connect claude-code claude-cod", "ingest --client claude-cod"]
    {
        let output = machine.run(line);
        assert_eq!(output.code, 2, "{line}");
        assert!(output.stderr.starts_with("error: invalid value 'claude-cod' for "), "{}", output.stderr);
        assert!(output.stderr.contains("[possible values: claude-code]"), "{}", output.stderr);
        assert!(output.stderr.ends_with("hint: a similar value exists: 'claude-code'\n"), "{}", output.stderr);
        assert!(!machine.is_connected());
    }
    let output = machine.run("connect --plugin folder");
    assert_eq!(output.code, 2);
    assert_eq!(output.stderr, "error: --plugin requires exactly one client\nhint: known clients: claude-code\n");
}

#[test]
fn invalid_settings_are_skipped_and_reported() {
    let machine = Machine::with_client();
    fs::create_dir_all(machine.project().join(".claude")).unwrap();
    fs::write(machine.project_settings(), "{ oops").unwrap();
    for line in ["connect", "connect --yes", "connect --dry-run", "disconnect --yes"] {
        let output = machine.run(line);
        assert_eq!(output.code, 1, "{line}");
        assert!(
            output.stderr.starts_with("warning: Claude Code: [HOME]/project/.claude/settings.json, line 1, column 3: "),
            "{line}: {}",
            output.stderr
        );
        assert_eq!(fs::read_to_string(machine.project_settings()).unwrap(), "{ oops");
    }
    // The user's settings are valid.
    assert_eq!(machine.json("connect --user --yes")["results"][0]["outcome"], "connected");
    let disconnected = machine.run("disconnect --yes");
    assert_eq!(disconnected.code, 1);
    assert!(disconnected.stdout.starts_with("Disconnected Claude Code"), "{}", disconnected.stdout);
    assert!(!machine.user_settings().exists());
}

#[test]
fn failed_second_file_leaves_both_files_unchanged() {
    let machine = Machine::with_client();
    fs::write(machine.project().join(".mcp.json"), "[]").unwrap();
    let output = machine.run("connect --yes");
    assert_eq!(output.code, 1, "{}", output.stdout);
    assert!(output.stderr.contains("[HOME]/project/.mcp.json, line 1, column 1: "), "{}", output.stderr);
    assert!(!machine.is_connected());
    assert_eq!(fs::read_to_string(machine.project().join(".mcp.json")).unwrap(), "[]");
}

#[test]
fn disconnect_removes_all_connections_after_asking() {
    let machine = Machine::with_client();
    let none = machine.run("disconnect");
    assert_eq!((none.code, none.stdout.as_str(), none.stderr.as_str()), (0, "No client is connected.\n", ""));
    assert_eq!(machine.json("disconnect"), json!([]));
    fs::create_dir_all(machine.home().join(".claude")).unwrap();
    fs::write(machine.user_settings(), "{\"model\": \"opus\"}\n").unwrap();
    machine.json("connect claude-code --project");
    machine.json("connect claude-code --user");

    let output = machine.run("disconnect");
    assert_eq!(output.code, 2);
    snapbox::assert_data_eq!(
        output.stderr,
        str![[r#"
error: disconnecting all clients requires --yes without a terminal
hint: --dry-run shows what would happen

"#]]
    );
    let diff = machine.run("disconnect --dry-run").stdout;
    assert!(
        diff.contains("--- [HOME]/project/.claude/settings.json") && diff.contains("--- [HOME]/.claude/settings.json")
    );
    let refused = machine.run_with_answers("disconnect", "n\n");
    assert_eq!(refused.code, 2);
    assert!(refused.stdout.contains("Claude Code in [HOME]/project/.claude/settings.json\n"), "{}", refused.stdout);
    assert!(refused.stdout.contains("error: nothing was changed") || refused.stdout.contains("nothing was changed"));
    assert!(machine.project_settings().exists());

    // With a scope, `disconnect` removes only the connections in that scope.
    assert_eq!(machine.json("disconnect --project --yes").as_array().unwrap().len(), 1);
    assert!(!machine.project_settings().exists() && !machine.project().join(".mcp.json").exists());
    assert_eq!(machine.run_with_answers("disconnect", "y\n").code, 0);
    assert_eq!(fs::read_to_string(machine.user_settings()).unwrap(), "{\"model\": \"opus\"}\n");
}

#[test]
fn connect_works_in_a_project_without_a_home() {
    let machine = Machine::with_client();
    let without_home = |line: &str, directory: &Path| {
        let mut command = machine.command(line);
        command.env_remove("HOME").current_dir(directory).stdin(Stdio::null());
        machine.masked(run_command(command))
    };
    let connected = without_home("connect --yes", &machine.project());
    assert_eq!((connected.code, connected.stderr.as_str()), (0, ""));
    assert!(machine.project_settings().exists());
    let disconnected = without_home("disconnect --yes", &machine.project());
    assert_eq!(disconnected.code, 0);
    assert_eq!(disconnected.stderr, "warning: Claude Code: cannot find the home directory: HOME is not set\n");
    assert!(!machine.project_settings().exists());
    // Outside a project, the user's settings would change.
    let elsewhere = without_home("connect --yes", Path::new("/"));
    assert_eq!(elsewhere.code, 1);
    assert_eq!(elsewhere.stderr, "warning: Claude Code: cannot find the home directory: HOME is not set\n");
}
