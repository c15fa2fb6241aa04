//! Checks that only adapters know agent clients: their names, versions, tools and commands.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;
use trackway_actions::{Result, forget::Forget};
use trackway_capture::ingest::{self, Ingest, Progress, Selection};
use trackway_clients::CLIENTS;
use trackway_domain::{
    ErrorKind, Id, Ref, Time,
    enums::{Driver, RunMode, Runner},
    kind,
    observed::{Fact, Observation, ObservedFact, PromptKey, SessionFacts, Source},
};
use trackway_testkit::{TestEnv, engines};
use trackway_views::{
    View,
    doctor::is_session_recorded,
    session::{ListSessions, session_counts},
};

const SESSION: &str = "11111111-1111-4111-8111-111111111111";
/// The time at which the sessions of the tests began.
const AT: Time = Time::from_micros(1_772_182_800_000_000);

/// Files and folders that may name a client, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/clients/src/lib.rs", "the table of clients"),
    ("crates/domain/src/enums.rs", "values in the database and in JSON are fixed"),
    ("crates/actions/src/import/nagger.rs", "claude-nagger is another tool, which records this client only"),
    ("crates/store/src/engine/foreign/nagger.rs", "claude-nagger is another tool, which records this client only"),
    ("crates/store/migrations/0002_sessions.sql", "landed"),
    ("crates/store/migrations/0004_lean.sql", "landed"),
    ("crates/store/migrations/0007_agents.sql", "landed"),
    ("crates/store/migrations/0017_clients.sql", "the client of all sessions that were recorded before"),
    ("crates/testkit/src/lib.rs", "declares the module below"),
    ("crates/testkit/src/claude_client.rs", "starts the real client for tests"),
    ("bench/src", "benchmarks use transcripts and tools of a client"),
];

/// Files and folders with comparisons that look like comparisons of client versions, and what they compare.
const ALLOWED_COMPARISONS: &[(&str, &str)] = &[];

/// Files and folders that may name a version of a client, or that name versions of something else, and why.
const ALLOWED_VERSIONS: &[(&str, &str)] = &[
    ("crates/actions/src/import/nagger.rs", "versions of claude-nagger"),
    ("crates/testkit/src/claude_client.rs", "installs versions of the real client"),
    ("bench/src", "benchmarks write transcripts of one version"),
];

/// Files and folders that may name a client's tools and commands, and why.
const ALLOWED_TOOLS: &[(&str, &str)] = &[
    ("crates/testkit/src/claude_client.rs", "the scripted model calls tools of the real client"),
    ("bench/src", "benchmarks write transcripts with tool calls"),
];

/// Tools of clients, as they name them in events and transcripts. Labels of pages use some other names of tools, such
/// as `Agent` and `Read`.
const TOOLS: &[&str] = &["Bash", "Edit", "MultiEdit", "NotebookEdit", "Task", "TodoWrite", "WebFetch", "Write"];

/// Commands that people type inside clients, besides those that list hooks.
const COMMANDS: &[&str] = &["/branch", "/clear", "/compact", "/resume", "/rewind"];

/// Words near which a number such as `2.1` is the version of a client.
const CLIENT_WORDS: &[&str] = &["client", "hook", "session", "transcript", "subagent", "before", "since", "version"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The source files, migrations and build scripts outside the adapters, with their paths from the top of the workspace.
fn sources() -> Vec<(String, String)> {
    let top = workspace();
    let crates = fs::read_dir(top.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let (mut folders, mut files) = (vec![top.join("bench/src"), top.join("crates/store/migrations")], Vec::new());
    for path in crates {
        folders.extend(Some(path.join("src")).filter(|folder| folder.is_dir()));
        files.extend(Some(path.join("build.rs")).filter(|file| file.is_file()));
    }
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "sql") {
                files.push(path);
            }
        }
    }
    let name = |path: &Path| path.strip_prefix(&top).unwrap().to_string_lossy().into_owned();
    let mut sources: Vec<_> = files.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect();
    assert!(sources.len() > 300, "found only {} sources", sources.len());
    sources.sort();
    sources
}

/// Lines that violate a rule outside the allowed paths, as `FILE:LINE`, and allowed paths that no longer need the
/// permission. The rule receives a line, and a text with this line and its two neighbours.
fn violations(allowed: &[(&str, &str)], is_violation: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut needed = BTreeSet::new();
    let mut found = Vec::new();
    for (file, text) in sources() {
        let allowance = allowed.iter().find(|(path, _)| Path::new(&file).starts_with(path));
        let lines: Vec<&str> = text.lines().collect();
        for (line, number) in lines.iter().zip(1..) {
            let nearby = lines[usize::max(number, 2) - 2..usize::min(number + 1, lines.len())].join("\n");
            if !is_violation(line, &nearby) {
                continue;
            }
            match allowance {
                Some((path, _)) => drop(needed.insert(*path)),
                None => found.push(format!("{file}:{number}: {}", line.trim())),
            }
        }
    }
    let unused = allowed.iter().filter(|(path, _)| !needed.contains(path));
    found.extend(unused.map(|(path, why)| format!("{path} needs no permission any more: {why}")));
    found
}

#[test]
fn only_adapters_name_clients() {
    // The first word of a name suffices: `claude` of `claude_code`.
    let words: BTreeSet<String> =
        CLIENTS.0.iter().filter_map(|client| client.name().split('_').next().map(str::to_owned)).collect();
    let is_named = |line: &str, _: &str| {
        let line = line.to_lowercase();
        words.iter().any(|word| line.contains(word.as_str()))
    };
    assert_eq!(violations(ALLOWED, is_named), Vec::<String>::new());
}

#[test]
fn only_adapters_compare_client_versions() {
    assert!(compares_version("if version.starts_with(\"1.0.\") {"));
    assert!(compares_version("if version >= Version(2, 1, 0) {"));
    assert!(!compares_version("text.starts_with(\"28\")"));
    assert_eq!(violations(ALLOWED_COMPARISONS, |line, _| compares_version(line)), Vec::<String>::new());
}

#[test]
fn only_adapters_name_client_versions() {
    assert!(names_version("// Hooks before 2.1.69 do not.", ""));
    assert!(names_version("let version = \"2.1.197\";", ""));
    assert!(names_version("    /// Since 2.0 it does.", "the client\n    /// Since 2.0 it does."));
    assert!(!names_version("/// The text `1.50` as a number.", "YAML"));
    assert!(!names_version("let share = 1.0 / ratio;", "the client"));
    assert!(!names_version("// JSON-RPC 2.0", "// JSON-RPC 2.0"));
    assert!(!names_version("listen on 127.0.0.1", "the client"));
    assert_eq!(violations(ALLOWED_VERSIONS, names_version), Vec::<String>::new());
}

/// Whether a line names a version 1 or 2 of a client: `2.1.69` anywhere, or `2.1` in a comment about clients.
fn names_version(line: &str, nearby: &str) -> bool {
    let nearby = nearby.to_lowercase();
    let is_about_clients = || CLIENT_WORDS.iter().any(|word| nearby.contains(word));
    let comment = ["//", "-- "].iter().find_map(|start| line.split_once(start)).map(|(_, comment)| comment);
    numbers(line).any(|number| number.split('.').count() == 3)
        || comment.is_some_and(|comment| numbers(comment).next().is_some() && is_about_clients())
}

/// The numbers in a text that look like version 1 or 2 of a client.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '.');
    words.map(|word| word.trim_end_matches('.')).filter(|word| {
        let parts: Vec<&str> = word.split('.').collect();
        let are_numbers = parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
        are_numbers && (2..=3).contains(&parts.len()) && ["1", "2"].contains(&parts[0])
    })
}

#[test]
fn only_adapters_name_client_tools_and_commands() {
    let listed = CLIENTS.0.iter().filter_map(|client| client.connection().hooks_command());
    let commands: BTreeSet<&str> = listed.chain(COMMANDS.iter().copied()).collect();
    let names_tool = |line: &str| {
        let is_quoted = |tool: &&str| ['"', '`'].iter().any(|quote| line.contains(&format!("{quote}{tool}{quote}")));
        TOOLS.iter().any(is_quoted)
    };
    let names_command = |line: &str| {
        let is_command = |word: &str| commands.contains(word.trim_matches(|edge: char| "\"'`(),.;:".contains(edge)));
        line.split_whitespace().any(is_command)
    };
    assert!(names_tool("find_removed(\"Bash\", id)"));
    assert!(names_command("check with its `/hooks` command"));
    assert!(!names_command("crates/capture/src/hooks"));
    let is_violation = |line: &str, _: &str| names_tool(line) || names_command(line);
    assert_eq!(violations(ALLOWED_TOOLS, is_violation), Vec::<String>::new());
}

/// Whether a line compares a value with a version number: `starts_with("1.0.")`, `== "2.1"`, `Version(2, ...)`.
fn compares_version(line: &str) -> bool {
    let is_number = |text: &str| {
        let number: String = text.chars().take_while(char::is_ascii_digit).collect();
        !number.is_empty() && text[number.len()..].starts_with('.')
    };
    let before_literal = ["starts_with(\"", "== \"", "!= \"", "< \"", "> \"", "<= \"", ">= \"", ".cmp(\""];
    let compares = before_literal.iter().any(|start| line.split(start).skip(1).any(is_number));
    let constructs = line.split("Version(").skip(1).any(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()));
    compares || constructs
}

#[test]
fn client_name_equals_run_mode_and_driver() {
    for client in CLIENTS.0 {
        let (mode, runner) = (RunMode::of_client(client.name()), Runner::of_client(client.name()));
        if client.launcher().is_some() {
            assert_eq!(runner.driver(), Driver::Client(client.name()));
            assert_eq!(mode.as_str(), client.name());
        }
        assert_eq!(CLIENTS.0.iter().filter(|other| other.name() == client.name()).count(), 1);
    }
}

#[test]
fn runs_of_each_client_are_observed() {
    for client in CLIENTS.0 {
        let mode = RunMode::of_client(client.name());
        assert!(mode.is_observed(), "{} has mode {mode}", client.name());
    }
}

/// Records the start of a session, as a hook of this client reports it.
fn record_session(env: &TestEnv, client: &'static str, session: &str) {
    let fact = Fact::Session(Box::<SessionFacts>::default());
    let facts = vec![ObservedFact::new(AT, None, &PromptKey::default(), fact)];
    let observation = Observation { client, session: session.into(), source: Source::Hook, facts, progress: None };
    env.core.observe(&env.ada, &observation).unwrap();
}

/// The sessions of the environment: client and id of each.
fn sessions(env: &TestEnv) -> BTreeMap<String, Id<kind::Session>> {
    let list = ListSessions { workspace: None, limit: 10, before: None };
    let listed = env.read(|read| Ok(list.answer(read, AT)?));
    listed.rows.into_iter().map(|shown| (shown.session.client, shown.session.id)).collect()
}

fn resolve(env: &TestEnv, session: &str) -> Result<Id<kind::Session>> {
    env.core.read(&env.ada, |read| Ok(read.resolve(&Ref::new(session))?))
}

engines! {
    fn sessions_are_unique_for_each_client(env: TestEnv) {
        for client in ["claude_code", "another_client", "claude_code"] {
            record_session(&env, client, SESSION);
        }
        let sessions_of_both = sessions(&env);
        assert_eq!(sessions_of_both.keys().collect::<Vec<_>>(), ["another_client", "claude_code"]);
        let [theirs, ours] = ["another_client", "claude_code"].map(|client| sessions_of_both[client]);

        let ambiguous = resolve(&env, SESSION).unwrap_err();
        let expected = format!("\"{SESSION}\" is ambiguous: 2 clients have a session with this id");
        assert_eq!((ambiguous.kind(), ambiguous.to_string()), (ErrorKind::Usage, expected));
        let hint = format!("use the session's short id: {} (another_client), {} (claude_code)", theirs.short(), ours.short());
        assert_eq!(ambiguous.hint().unwrap().to_string(), hint);
        assert_eq!(resolve(&env, &theirs.short()).unwrap(), theirs);
        assert_eq!(resolve(&env, &ours.short()).unwrap(), ours);

        let counts = env.read(|read| Ok(session_counts(read)?));
        let mut counted: Vec<_> = counts.iter().map(|counts| (&*counts.client, &*counts.session)).collect();
        counted.sort_unstable();
        assert_eq!(counted, [("another_client", SESSION), ("claude_code", SESSION)]);

        assert_eq!(env.execute(Forget { session: Ref::new(SESSION) }).unwrap_err().kind(), ErrorKind::Usage);
        assert_eq!(sessions(&env), sessions_of_both);
        env.execute(Forget { session: Ref::new(theirs.short()) }).unwrap();
        assert_eq!(resolve(&env, SESSION).unwrap(), ours);
        let is_recorded = |client: &str| env.read(|read| Ok(is_session_recorded(read, client, SESSION)?));
        assert_eq!(["another_client", "claude_code"].map(is_recorded), [false, true]);
    }

    fn listing_continues_after_a_session_id_that_two_clients_share(env: TestEnv) {
        for client in ["claude_code", "another_client"] {
            record_session(&env, client, SESSION);
        }
        let mut before = None;
        let mut listed = Vec::new();
        for _ in 0..2 {
            let list = ListSessions { workspace: None, limit: 1, before: before.take() };
            let page = env.read(|read| Ok(list.answer(read, AT)?));
            before = page.next_page.and_then(|next| Some(next.strip_prefix("--before ")?.to_owned()));
            listed.extend(page.rows.into_iter().map(|shown| shown.session.id));
        }
        listed.sort_unstable();
        let mut expected: Vec<_> = sessions(&env).into_values().collect();
        expected.sort_unstable();
        assert_eq!(listed, expected);
    }

    fn ingest_counts_only_sessions_of_the_client_that_it_reads(env: TestEnv) {
        record_session(&env, "another_client", SESSION);
        let folder = tempfile::tempdir().unwrap();
        let transcript = folder.path().join(format!("{SESSION}.jsonl"));
        let line = json!({
            "type": "user", "sessionId": SESSION, "uuid": "line-1", "cwd": "/p", "timestamp": "2026-02-27T09:00:00.000Z",
            "message": { "role": "user", "content": "go" },
        });
        fs::write(transcript, format!("{line}\n")).unwrap();
        let sources = vec![ingest::Source { client: CLIENTS.0[0], path: folder.path().to_owned() }];
        let mut ingest = Ingest::new(&env.core, &env.ada, Selection::new(sources));
        ingest.pass(&mut NoProgress).unwrap();
        let summary = ingest.summary().unwrap();
        assert_eq!((summary.problems, summary.files, summary.sessions), (Vec::new(), 1, 1));
        assert_eq!(sessions(&env).len(), 2);
    }
}

/// A progress display that shows nothing.
struct NoProgress;

impl Progress for NoProgress {
    fn begin(&mut self, _: u64) {}

    fn add(&mut self, _: u64) {}

    fn finish(&mut self) {}
}
