//! Runs any version of the real Claude Code against a scripted model.
//!
//! The first call for a version installs the client from the npm registry. The client runs in a network namespace in
//! which only loopback exists, so that it reaches the model and nothing else. This needs root or user namespaces, npm,
//! node, and the `scripted-model` program, which is built with this crate's tests.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    poll,
    scripted_model::{ModelRequest, Scenario},
};

/// Environment variable with the versions to test, separated by spaces. `./test --all` sets more than the default.
const VERSIONS_VARIABLE: &str = "TRACKWAY_TEST_CLIENT_VERSIONS";

/// The newer version calls its spawn tool Agent and writes a transcript for each subagent. The older version does
/// neither.
const DEFAULT_VERSIONS: &str = "2.1.197 1.0.128";

/// Environment variable with the folder of the installed clients, `~/.cache/trackway-test/claude-code` by default.
const INSTALL_DIR_VARIABLE: &str = "TRACKWAY_TEST_CLIENTS";

const TIMEOUT: Duration = Duration::from_mins(2);

/// The tools that the client may use without permission.
const ALLOWED_TOOLS: &str = "Write,Edit,Bash,Task,Agent";

/// Disables everything that needs a network. `IS_SANDBOX` allows the client to run as root.
const CLIENT_ENVIRONMENT: [(&str, &str); 6] = [
    ("TERM", "dumb"),
    ("IS_SANDBOX", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_TELEMETRY", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
];

/// The versions of Claude Code with which tests run.
pub fn versions() -> Vec<String> {
    let versions = std::env::var(VERSIONS_VARIABLE);
    versions.as_deref().unwrap_or(DEFAULT_VERSIONS).split_whitespace().map(str::to_owned).collect()
}

/// The name of the tool that starts subagents in the client that sent this request. Before version 2.1.63 of the
/// client, the name is Task.
pub(crate) fn spawn_tool(request: &Value) -> &'static str {
    let is_offered =
        |name| request["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == name));
    if is_offered("Agent") { "Agent" } else { "Task" }
}

/// An installed version of the client.
#[derive(Debug, Clone)]
pub struct ClaudeClient {
    pub version: String,
    command: Vec<PathBuf>,
}

/// A call of the client, which [`ClientCall::run`] executes.
#[derive(Debug)]
pub struct ClientCall<'client> {
    client: &'client ClaudeClient,
    scenario: Scenario,
    home: PathBuf,
    project: PathBuf,
    settings: Option<Value>,
    later_prompts: Option<Vec<String>>,
    environment: BTreeMap<String, String>,
    arguments: Vec<String>,
    timeout: Duration,
}

/// The result of a call.
#[derive(Debug)]
pub struct ClientResult {
    pub status: ExitStatus,
    /// The objects that the client printed: a single result, or all messages of a stream.
    pub printed: Vec<Value>,
    pub stderr: String,
    /// The requests that the model received.
    pub requests: Vec<ModelRequest>,
}

impl ClaudeClient {
    /// Installs this version unless it is already installed.
    pub fn version(version: &str) -> Self {
        let clients = std::env::var_os(INSTALL_DIR_VARIABLE).map_or_else(
            || std::env::home_dir().expect("a home directory").join(".cache/trackway-test/claude-code"),
            PathBuf::from,
        );
        let install_folder = clients.join(version);
        if !install_folder.exists() {
            install(version, &clients, &install_folder);
        }
        let packages = install_folder.join("node_modules/@anthropic-ai");
        let native = packages.join(native_package()).join("claude");
        let command = if native.exists() {
            vec![native]
        } else {
            vec![PathBuf::from("node"), packages.join("claude-code/cli.js")]
        };
        Self { version: version.to_owned(), command }
    }

    /// A call with the scenario's prompt in the directory `project`, by the user with the home directory `home`.
    pub fn call(&self, scenario: &Scenario, home: &Path, project: &Path) -> ClientCall<'_> {
        ClientCall {
            client: self,
            scenario: scenario.clone(),
            home: home.to_owned(),
            project: project.to_owned(),
            settings: None,
            later_prompts: None,
            environment: BTreeMap::new(),
            arguments: Vec::new(),
            timeout: TIMEOUT,
        }
    }
}

impl ClaudeClient {
    /// A shell script that runs the client, with any arguments, against a model that plays this scenario.
    pub fn wrapper_script(&self, scenario: &Path, requests: &Path) -> String {
        let isolated_command = isolated_command();
        let arguments = std::iter::once(isolated_command.get_program()).chain(isolated_command.get_args());
        let quoted = |word: &std::ffi::OsStr| format!("'{}'", word.to_str().unwrap().replace('\'', r"'\''"));
        let arguments: Vec<String> = arguments.map(quoted).collect();
        let client: Vec<String> = self.command.iter().map(|word| quoted(word.as_os_str())).collect();
        let environment = CLIENT_ENVIRONMENT.map(|(name, value)| format!("export {name}={value}\n")).concat();
        format!(
            "#!/bin/sh\n{environment}exec {} run --series 1 --scenario {} --requests {} -- {} \"$@\"\n",
            arguments.join(" "),
            quoted(scenario.as_os_str()),
            quoted(requests.as_os_str()),
            client.join(" ")
        )
    }
}

/// Installs into a temporary folder and renames it. If two processes install at once, both end up with a complete
/// client.
fn install(version: &str, clients: &Path, install_folder: &Path) {
    fs::create_dir_all(clients).unwrap();
    let new = tempfile::Builder::new().prefix(".new-").tempdir_in(clients).unwrap();
    let npm = Command::new("npm")
        .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"])
        .arg(new.path())
        .arg(format!("@anthropic-ai/claude-code@{version}"))
        .output()
        .unwrap_or_else(|error| panic!("npm is needed to install Claude Code: {error}"));
    assert!(npm.status.success(), "npm cannot install {version}: {}", String::from_utf8_lossy(&npm.stderr));
    if let Err(error) = fs::rename(new.path(), install_folder) {
        assert!(install_folder.exists(), "{}: {error}", install_folder.display());
    }
}

/// The npm package with the native client for this machine. Some versions have no native client.
fn native_package() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("claude-code-{}-{architecture}", std::env::consts::OS)
}

impl ClientCall<'_> {
    /// Writes these project settings before the call.
    #[must_use]
    pub fn settings(mut self, settings: Value) -> Self {
        self.settings = Some(settings);
        self
    }

    /// Replaces the scenario's prompt.
    #[must_use]
    pub fn prompt(mut self, prompt: &str) -> Self {
        prompt.clone_into(&mut self.scenario.prompt);
        self
    }

    /// Sends these prompts after the first one, each after the reply to the previous one.
    #[must_use]
    pub fn then_prompts<'a>(mut self, prompts: impl IntoIterator<Item = &'a str>) -> Self {
        self.later_prompts.get_or_insert_default().extend(prompts.into_iter().map(str::to_owned));
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Adds arguments, such as `--resume`.
    #[must_use]
    pub fn args<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments.extend(arguments.into_iter().map(str::to_owned));
        self
    }

    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs the client until it exits. After the timeout, kills the client with all its child processes and panics.
    #[track_caller]
    pub fn run(self) -> ClientResult {
        if let Some(settings) = &self.settings {
            fs::create_dir_all(self.project.join(".claude")).unwrap();
            fs::write(self.project.join(".claude/settings.json"), format!("{settings:#}")).unwrap();
        }
        let (series, records) = create_call_folder(&self.home);
        fs::write(records.join("scenario.json"), json!(self.scenario).to_string()).unwrap();
        let requests = records.join("requests.jsonl");

        let mut command = isolated_command();
        command.args(["run", "--series", &series.to_string(), "--scenario"]).arg(records.join("scenario.json"));
        command.arg("--requests").arg(&requests).arg("--").args(&self.client.command).arg("-p");
        match self.later_prompts {
            None => command.args([&self.scenario.prompt, "--output-format", "json"]),
            // The client accepts a stream of prompts only if it prints a stream, and printing a stream requires
            // --verbose.
            Some(_) => command.args("--verbose --input-format stream-json --output-format stream-json".split(' ')),
        };
        command.args(["--allowedTools", ALLOWED_TOOLS, "--permission-mode", "acceptEdits"]);
        command.args(["--model", "claude-sonnet-4-5"]).args(&self.arguments).current_dir(&self.project);
        command.env_clear().env("HOME", &self.home).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(CLIENT_ENVIRONMENT).envs(&self.environment);

        let mut prompts =
            self.later_prompts.into_iter().flat_map(|later| [vec![self.scenario.prompt.clone()], later].concat());
        let mut running = RunningClient::start(command, self.timeout);
        running.send_prompt(prompts.next());
        let mut printed = Vec::new();
        while let Some(line) = running.read_line() {
            let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
            if is_result(&value) {
                running.send_prompt(prompts.next());
            }
            printed.push(value);
        }
        let (status, stderr) = running.wait();
        ClientResult { status, printed, stderr, requests: ModelRequest::read_all(&requests) }
    }
}

impl ClientResult {
    /// The last result that the client printed: `session_id`, `result`, `usage` and more.
    #[track_caller]
    pub fn result(&self) -> &Value {
        let last = self.printed.iter().rfind(|value| is_result(value));
        last.unwrap_or_else(|| panic!("the client gave no result: {self:#?}"))
    }
}

fn is_result(printed: &Value) -> bool {
    printed["type"] == "result"
}

/// Creates the folder for the files of a call, below the home directory. Returns the number of the call and the folder.
fn create_call_folder(home: &Path) -> (usize, PathBuf) {
    let all = home.join(".scripted-model");
    fs::create_dir_all(&all).unwrap();
    for number in 1.. {
        let directory = all.join(number.to_string());
        match fs::create_dir(&directory) {
            Ok(()) => return (number, directory),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => panic!("{}: {error}", directory.display()),
        }
    }
    unreachable!("there is always one more number")
}

/// A command for the `scripted-model` program in new namespaces. The only network there is loopback. The program ends
/// with the thread that started it, and all processes in the namespace end with the program. So a killed test leaves no
/// processes behind.
pub fn isolated_command() -> Command {
    let mut command = Command::new("setpriv");
    command.args("--pdeathsig KILL unshare --net --pid --fork --kill-child --mount-proc".split(' '));
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        command.arg("--map-root-user");
    }
    command.arg(scripted_model());
    command
}

/// Path of the program, which cargo puts one directory above the tests.
fn scripted_model() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found = test.ancestors().skip(1).take(2).map(|folder| folder.join("scripted-model")).find(|file| file.exists());
    found.expect("scripted-model is not built: cargo build -p trackway-testkit --bin scripted-model")
}

/// A running client. Dropping it kills it.
struct RunningClient {
    child: Child,
    /// Open while more prompts follow.
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    deadline: Instant,
}

impl RunningClient {
    fn start(mut command: Command, timeout: Duration) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let stderr = child.stderr.take().unwrap();
        let stderr = thread::spawn(move || std::io::read_to_string(stderr).unwrap_or_default());
        let stdin = child.stdin.take();
        Self { child, stdin, lines, stderr: Some(stderr), deadline: Instant::now() + timeout }
    }

    /// Sends a prompt, or closes standard input after the last prompt.
    fn send_prompt(&mut self, prompt: Option<String>) {
        let Some(prompt) = prompt else {
            self.stdin = None;
            return;
        };
        let content = json!([{ "type": "text", "text": prompt }]);
        let line = json!({ "type": "user", "message": { "role": "user", "content": content } });
        let stdin = self.stdin.as_mut().expect("standard input is open");
        // Ignore errors: the write fails only if the client has exited, and the test sees the exit status.
        let _ = writeln!(stdin, "{line}");
    }

    /// The next line that the client prints, or none if it has closed its output.
    fn read_line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => self.fail_after_timeout(),
        }
    }

    fn wait(mut self) -> (ExitStatus, String) {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match poll(left, || self.child.try_wait().unwrap()) {
            Some(status) => (status, self.stderr()),
            None => self.fail_after_timeout(),
        }
    }

    fn stderr(&mut self) -> String {
        self.stderr.take().map(|thread| thread.join().unwrap()).unwrap_or_default()
    }

    fn fail_after_timeout(&mut self) -> ! {
        self.kill();
        panic!("the client took too long and was killed; its standard error: {}", self.stderr());
    }

    fn kill(&mut self) {
        // Fails only if the client has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for RunningClient {
    fn drop(&mut self) {
        self.kill();
    }
}
