//! Claude Code itself, of any version, alone with a scripted model.
//!
//! The client comes from the npm registry, once per version, and runs in a network namespace that has loopback only: it
//! can talk to the model and to nobody else. Needs root or user namespaces, npm, node, and the `scripted-model` program,
//! which is built with this crate's tests.

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

/// The versions to test with, separated by spaces. `./test --all` names more than the default.
const VERSIONS: &str = "TRACKWAY_TEST_CLIENT_VERSIONS";

/// One with a tool for spawning named Agent and transcripts of its own for each subagent, one from before either.
const DEFAULT_VERSIONS: &str = "2.1.197 1.0.128";

/// Where clients are kept, `~/.cache/trackway-test/claude-code` by default.
const CLIENTS: &str = "TRACKWAY_TEST_CLIENTS";

const TIMEOUT: Duration = Duration::from_mins(2);

/// What the client may do without asking.
const ALLOWED_TOOLS: &str = "Write,Edit,Bash,Task,Agent";

/// Nothing that would want a network, and no questions about being root.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("TERM", "dumb"),
    ("IS_SANDBOX", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_TELEMETRY", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
];

/// The versions of Claude Code that tests with a real client run with.
pub fn versions() -> Vec<String> {
    let versions = std::env::var(VERSIONS);
    versions.as_deref().unwrap_or(DEFAULT_VERSIONS).split_whitespace().map(str::to_owned).collect()
}

/// One version of the client, installed.
#[derive(Debug, Clone)]
pub struct ClaudeClient {
    pub version: String,
    command: Vec<PathBuf>,
}

/// A call of the client, to be made with [`ClientCall::run`].
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

/// What came of a call.
#[derive(Debug)]
pub struct ClientResult {
    pub status: ExitStatus,
    /// The objects that the client printed: its result, or all messages of a stream.
    pub printed: Vec<Value>,
    pub stderr: String,
    /// What the model was asked.
    pub requests: Vec<ModelRequest>,
}

impl ClaudeClient {
    /// Installs this version, unless it is there.
    pub fn version(version: &str) -> Self {
        let clients = std::env::var_os(CLIENTS).map_or_else(
            || std::env::home_dir().expect("a home directory").join(".cache/trackway-test/claude-code"),
            PathBuf::from,
        );
        let place = clients.join(version);
        if !place.exists() {
            install(version, &clients, &place);
        }
        let packages = place.join("node_modules/@anthropic-ai");
        let native = packages.join(native_package()).join("claude");
        let command = if native.exists() {
            vec![native]
        } else {
            vec![PathBuf::from("node"), packages.join("claude-code/cli.js")]
        };
        Self { version: version.to_owned(), command }
    }

    /// A call with the scenario's prompt, from a project's directory, by the user whose home this is.
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
    /// A shell script that is the client, alone with a model that plays this scenario, whatever it is called with.
    pub fn script(&self, scenario: &Path, requests: &Path) -> String {
        let alone = alone();
        let words = std::iter::once(alone.get_program()).chain(alone.get_args());
        let quoted = |word: &std::ffi::OsStr| format!("'{}'", word.to_str().unwrap().replace('\'', r"'\''"));
        let words: Vec<String> = words.map(quoted).collect();
        let client: Vec<String> = self.command.iter().map(|word| quoted(word.as_os_str())).collect();
        let environment = ENVIRONMENT.map(|(name, value)| format!("export {name}={value}\n")).concat();
        format!(
            "#!/bin/sh\n{environment}exec {} run --series 1 --scenario {} --requests {} -- {} \"$@\"\n",
            words.join(" "),
            quoted(scenario.as_os_str()),
            quoted(requests.as_os_str()),
            client.join(" ")
        )
    }
}

/// Installs beside the place and moves there: of two who install at once, one wins and both have a whole client.
fn install(version: &str, clients: &Path, place: &Path) {
    fs::create_dir_all(clients).unwrap();
    let new = tempfile::Builder::new().prefix(".new-").tempdir_in(clients).unwrap();
    let npm = Command::new("npm")
        .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"])
        .arg(new.path())
        .arg(format!("@anthropic-ai/claude-code@{version}"))
        .output()
        .unwrap_or_else(|error| panic!("npm is needed to install Claude Code: {error}"));
    assert!(npm.status.success(), "npm cannot install {version}: {}", String::from_utf8_lossy(&npm.stderr));
    if let Err(error) = fs::rename(new.path(), place) {
        assert!(place.exists(), "{}: {error}", place.display());
    }
}

/// The package that holds the native client for this machine, in versions that have one.
fn native_package() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("claude-code-{}-{architecture}", std::env::consts::OS)
}

impl ClientCall<'_> {
    /// Writes the project's settings first.
    #[must_use]
    pub fn settings(mut self, settings: Value) -> Self {
        self.settings = Some(settings);
        self
    }

    /// Says this instead of the scenario's prompt.
    #[must_use]
    pub fn prompt(mut self, prompt: &str) -> Self {
        prompt.clone_into(&mut self.scenario.prompt);
        self
    }

    /// Keeps the conversation open for these prompts after the first, each when the one before is answered.
    #[must_use]
    pub fn then<'a>(mut self, prompts: impl IntoIterator<Item = &'a str>) -> Self {
        self.later_prompts.get_or_insert_default().extend(prompts.into_iter().map(str::to_owned));
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// More arguments, such as `--resume`.
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

    /// Runs the client to its end. One that takes too long is killed, with all that it started, and the test fails.
    #[track_caller]
    pub fn run(self) -> ClientResult {
        if let Some(settings) = &self.settings {
            fs::create_dir_all(self.project.join(".claude")).unwrap();
            fs::write(self.project.join(".claude/settings.json"), format!("{settings:#}")).unwrap();
        }
        let (series, records) = new_records(&self.home);
        fs::write(records.join("scenario.json"), json!(self.scenario).to_string()).unwrap();
        let requests = records.join("requests.jsonl");

        let mut command = alone();
        command.args(["run", "--series", &series.to_string(), "--scenario"]).arg(records.join("scenario.json"));
        command.arg("--requests").arg(&requests).arg("--").args(&self.client.command).arg("-p");
        match self.later_prompts {
            None => command.args([&self.scenario.prompt, "--output-format", "json"]),
            // A stream goes in only where one comes out, and one comes out only with --verbose.
            Some(_) => command.args("--verbose --input-format stream-json --output-format stream-json".split(' ')),
        };
        command.args(["--allowedTools", ALLOWED_TOOLS, "--permission-mode", "acceptEdits"]);
        command.args(["--model", "claude-sonnet-4-5"]).args(&self.arguments).current_dir(&self.project);
        command.env_clear().env("HOME", &self.home).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(ENVIRONMENT).envs(&self.environment);

        let mut prompts =
            self.later_prompts.into_iter().flat_map(|later| [vec![self.scenario.prompt.clone()], later].concat());
        let mut running = Running::start(command, self.timeout);
        running.say(prompts.next());
        let mut printed = Vec::new();
        while let Some(line) = running.line() {
            let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
            if is_result(&value) {
                running.say(prompts.next());
            }
            printed.push(value);
        }
        let (status, stderr) = running.end();
        ClientResult { status, printed, stderr, requests: ModelRequest::read_all(&requests) }
    }
}

impl ClientResult {
    /// What the client said in the end: `session_id`, `result`, `usage` and more.
    #[track_caller]
    pub fn result(&self) -> &Value {
        let last = self.printed.iter().rfind(|value| is_result(value));
        last.unwrap_or_else(|| panic!("the client gave no result: {self:#?}"))
    }
}

fn is_result(printed: &Value) -> bool {
    printed["type"] == "result"
}

/// A directory for what belongs to the next call in a home, and its number there.
fn new_records(home: &Path) -> (usize, PathBuf) {
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

/// The `scripted-model` program in namespaces of its own: no network but loopback, and all processes end with the first.
/// That one ends with the thread that starts it, so that a test that is killed leaves nothing behind.
pub fn alone() -> Command {
    let mut command = Command::new("setpriv");
    command.args("--pdeathsig KILL unshare --net --pid --fork --kill-child --mount-proc".split(' '));
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        command.arg("--map-root-user");
    }
    command.arg(scripted_model());
    command
}

/// The program that cargo puts one directory above the tests.
fn scripted_model() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found = test.ancestors().skip(1).take(2).map(|place| place.join("scripted-model")).find(|file| file.exists());
    found.expect("scripted-model is not built: cargo build -p trackway-testkit --bin scripted-model")
}

/// A client at work. Dropping it kills it.
struct Running {
    child: Child,
    /// Open as long as there is more to say.
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    deadline: Instant,
}

impl Running {
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

    /// Says one more thing, or that there is nothing more to say.
    fn say(&mut self, prompt: Option<String>) {
        let Some(prompt) = prompt else {
            self.stdin = None;
            return;
        };
        let content = json!([{ "type": "text", "text": prompt }]);
        let line = json!({ "type": "user", "message": { "role": "user", "content": content } });
        let stdin = self.stdin.as_mut().expect("a conversation that goes on");
        // A client that is gone shows in its status.
        let _ = writeln!(stdin, "{line}");
    }

    /// The next line that the client prints.
    fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => self.give_up(),
        }
    }

    fn end(mut self) -> (ExitStatus, String) {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match poll(left, || self.child.try_wait().unwrap()) {
            Some(status) => (status, self.stderr()),
            None => self.give_up(),
        }
    }

    fn stderr(&mut self) -> String {
        self.stderr.take().map(|thread| thread.join().unwrap()).unwrap_or_default()
    }

    fn give_up(&mut self) -> ! {
        self.kill();
        panic!("the client took too long and was killed; it said: {}", self.stderr());
    }

    fn kill(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
