//! Checks that only adapters name agent clients or compare their versions.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use trackway_clients::CLIENTS;
use trackway_domain::{
    Time,
    enums::{Driver, RunMode, Runner},
    observed::{Fact, Observation, ObservedFact, PromptKey, SessionFacts, Source},
};
use trackway_testkit::{TestEnv, engines};
use trackway_views::{View, session::ListSessions};

/// Files and folders that may name a client, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/clients/src/lib.rs", "the table of clients"),
    ("crates/domain/src/sentence.rs", "hints contain the command `connect claude-code`, which is fixed"),
    ("crates/domain/src/enums.rs", "values in the database and in JSON are fixed"),
    ("crates/actions/src/session/import/nagger.rs", "claude-nagger is another tool, which records this client only"),
    ("crates/store/src/engine/foreign/nagger.rs", "claude-nagger is another tool, which records this client only"),
    ("crates/server/src/nouns.rs", "the page names a command that the user can run"),
    ("crates/views/src/why.rs", "the answer names a command that the user can run"),
    ("crates/testkit/src/lib.rs", "declares the module below"),
    ("crates/testkit/src/claude_client.rs", "starts the real client for tests"),
    ("bench/src", "benchmarks use transcripts and tools of a client"),
];

/// Files and folders with comparisons that look like client versions but are not, and why.
const ALLOWED_COMPARISONS: &[(&str, &str)] = &[];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The source files outside the adapters, with their paths from the top of the workspace.
fn sources() -> Vec<(String, String)> {
    let top = workspace();
    let crates = fs::read_dir(top.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src"));
    let mut folders: Vec<PathBuf> = crates.chain([top.join("bench/src")]).filter(|folder| folder.is_dir()).collect();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&top).unwrap().to_string_lossy().into_owned();
                sources.push((name, fs::read_to_string(path).unwrap()));
            }
        }
    }
    assert!(sources.len() > 300, "found only {} sources", sources.len());
    sources.sort();
    sources
}

/// Lines that violate a rule outside the allowed paths, as `FILE:LINE`, and allowed paths that no longer need the
/// permission.
fn violations(allowed: &[(&str, &str)], is_violation: impl Fn(&str) -> bool) -> Vec<String> {
    let mut needed = BTreeSet::new();
    let mut found = Vec::new();
    for (file, text) in sources() {
        let allowance = allowed.iter().find(|(path, _)| Path::new(&file).starts_with(path));
        for (line, number) in text.lines().zip(1..).filter(|(line, _)| is_violation(line)) {
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
    let is_named = |line: &str| {
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
    assert_eq!(violations(ALLOWED_COMPARISONS, compares_version), Vec::<String>::new());
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

engines! {
    fn sessions_are_unique_for_each_client(env: TestEnv) {
        let at = Time::from_micros(1_772_182_800_000_000);
        for client in ["claude_code", "another_client", "claude_code"] {
            let fact = Fact::Session(Box::<SessionFacts>::default());
            let facts = vec![ObservedFact::new(at, None, &PromptKey::default(), fact)];
            let observation = Observation { client, session: "s-1".into(), source: Source::Hook, facts, progress: None };
            env.core.observe(&env.ada, &observation).unwrap();
        }
        let list = ListSessions { workspace: None, limit: 10, before: None };
        let listed = env.read(|read| Ok(list.answer(read, at)?));
        let mut clients: Vec<_> = listed.rows.iter().map(|shown| shown.session.client.as_str()).collect();
        clients.sort_unstable();
        assert_eq!(clients, ["another_client", "claude_code"]);
    }
}
