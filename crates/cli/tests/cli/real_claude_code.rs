//! Real versions of Claude Code with Trackway's hooks. Hooks and ingest of the transcripts must give the same record.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use snapbox::IntoData;
use trackway_testkit::{
    Engine,
    claude_client::{ClaudeClient, ClientCall, ClientResult, versions},
    scripted_model::Scenario,
    write_program,
};

use crate::{
    record::comparable_record,
    terminal::{Terminal, column, text},
};

pub const NEWEST: &str = "2.1.197";

/// A real client with a project and with hooks that write to the terminal's database.
pub struct ConnectedClient {
    pub terminal: Terminal,
    client: ClaudeClient,
}

impl ConnectedClient {
    pub fn new(engine: Engine, version: &str, connect: &[&str]) -> Self {
        let client = Self { terminal: Terminal::new(engine), client: ClaudeClient::version(version) };
        fs::create_dir(client.project()).unwrap();
        // `connect` asks this program for its version. The real client takes a second to start.
        let claude = client.home().join("bin/claude");
        fs::create_dir(claude.parent().unwrap()).unwrap();
        write_program(&claude, &format!("#!/bin/sh\necho '{version} (Claude Code)'\n"));
        let mut command = client.terminal.command(&[&["connect", "claude-code", "--project"], connect].concat());
        command.env("PATH", format!("{}:/usr/bin:/bin", claude.parent().unwrap().display()));
        let output = command.current_dir(client.project()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        client
    }

    pub fn home(&self) -> &Path {
        self.terminal.home.path()
    }

    pub fn project(&self) -> PathBuf {
        self.home().join("project")
    }

    pub fn call(&self, scenario: &Scenario) -> ClientCall<'_> {
        self.client
            .call(scenario, self.home(), &self.project())
            .env("USER", "ada")
            .env("TRACKWAY_DB", &self.terminal.database.url_text())
    }

    #[track_caller]
    pub fn play(&self, scenario: &Scenario) -> ClientResult {
        let result = self.call(scenario).run();
        assert!(result.status.success(), "{}: {result:#?}", self.client.version);
        assert_eq!(self.hook_log(), "", "{}", self.client.version);
        result
    }

    pub fn projects(&self) -> PathBuf {
        self.home().join(".claude/projects")
    }

    /// The errors that hooks logged.
    fn hook_log(&self) -> String {
        let url = self.terminal.database.url_text();
        let folder = match url.strip_prefix("sqlite:") {
            Some(file) => Path::new(file).parent().unwrap().to_path_buf(),
            None => self.home().join(".local/share/trackway"),
        };
        fs::read_to_string(folder.join("hook.log")).unwrap_or_default()
    }

    /// Ingests the client's transcripts into a new database.
    pub fn ingest_into_new_database(&self, engine: Engine) -> Terminal {
        let other = Terminal::new(engine);
        other.json(&["ingest", self.projects().to_str().unwrap()]);
        other
    }
}

/// The agent that each call started, according to the client's own files.
fn agents_by_call_in_transcripts(projects: &Path) -> BTreeMap<String, String> {
    let mut agents = BTreeMap::new();
    for path in files_below(projects) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let content = fs::read_to_string(&path).unwrap();
        if let Some(agent) = name.strip_prefix("agent-").and_then(|name| name.strip_suffix(".meta.json")) {
            let meta: Value = serde_json::from_str(&content).unwrap();
            agents.extend(meta["toolUseId"].as_str().map(|call| (call.to_owned(), agent.to_owned())));
        } else if path.extension().is_some_and(|extension| extension == "jsonl") {
            for line in content.lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                let call = &line["message"]["content"][0]["tool_use_id"];
                if let (Some(call), Some(agent)) = (call.as_str(), line["toolUseResult"]["agentId"].as_str()) {
                    agents.insert(call.to_owned(), agent.to_owned());
                }
            }
        }
    }
    agents
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// With `-p`, this version exits before it has written all transcript lines, so hooks report events that no transcript
/// contains.
const VERSION_THAT_LOSES_LINES: &str = "2.1.40";

/// The agent that each spawn is matched to. Fails on a tentative match unless `may_be_tentative` is set.
fn agents_by_call(terminal: &Terminal, may_be_tentative: bool) -> BTreeMap<String, String> {
    let spawns = terminal.json(&["spawn", "list"]);
    let rows = spawns.as_array().unwrap().iter().filter(|spawn| !spawn["agent_id"].is_null());
    rows.map(|spawn| {
        assert!(may_be_tentative || spawn["tentative"] == json!(false), "{spawn:#}");
        (text(&spawn["tool_use_id"]), text(&spawn["agent_id"]))
    })
    .collect()
}

/// Plays a scenario with hooks, ingests its transcripts into a new database, and compares the two records.
fn assert_hooks_and_ingest_agree(engine: Engine, version: &str, name: &str) {
    let case = format!("{name} with {version}");
    let client = ConnectedClient::new(engine, version, &["--memory", "off"]);
    client.play(&Scenario::named(name));
    let from_hooks = comparable_record(&client.terminal);

    let ingested = client.ingest_into_new_database(engine);
    let from_transcripts = comparable_record(&ingested);
    if version != VERSION_THAT_LOSES_LINES {
        snapbox::assert_data_eq!(format!("{case}\n{from_hooks}"), format!("{case}\n{from_transcripts}").raw());
    }

    // Both records must agree with the client's own files.
    let spawns = column(&ingested.json(&["spawn", "list"]), "tool_use_id");
    // Equal prompts also get equal answers. Clients without agent ids leave no evidence that tells such agents apart.
    let are_indistinguishable = name == "equal-prompts" && version.starts_with("1.0.");
    for terminal in [&client.terminal, &ingested] {
        let matched = agents_by_call(terminal, are_indistinguishable);
        for (call, agent) in agents_by_call_in_transcripts(&client.projects()) {
            assert_eq!(matched.get(&call), Some(&agent), "{case}: {call}");
        }
        if !are_indistinguishable {
            let failed = terminal.json(&["spawn", "list", "--unmatched"]);
            assert!(failed.as_array().unwrap().iter().all(|spawn| !spawn["error"].is_null()), "{case}: {failed:#}");
        }
    }
    assert!(!spawns.is_empty() || name == "edits-and-commit", "{case}");

    if name == "edits-and-commit" {
        let run = text(
            &client
                .terminal
                .json(&["run", "list"])
                .as_array()
                .unwrap()
                .iter()
                .find(|run| run["subagent"].is_null())
                .unwrap()["id"],
        );
        let made = client.terminal.json(&["made", &run, "--kind", "commit"])["touches"].clone();
        assert_eq!(column(&made, "action_type"), ["create"], "{case}: a hook sees the commit appear");
        assert!(text(&made[0]["display_path"]).ends_with(" ledger: one rope less"), "{case}");
    }

    // Ingest after the hooks must not count anything twice.
    client.terminal.json(&["ingest", client.projects().to_str().unwrap()]);
    if version != VERSION_THAT_LOSES_LINES {
        snapbox::assert_data_eq!(
            format!("{case}\n{}", comparable_record(&client.terminal)),
            format!("{case}\n{from_transcripts}").raw()
        );
    }
    let again = client.terminal.json(&["ingest", client.projects().to_str().unwrap()]);
    assert_eq!((&again["bytes"], &again["lines"]), (&json!(0), &json!(0)), "{case}");
}

mod real_client {
    use super::*;

    /// One test per scenario: all versions with SQLite, the newest with PostgreSQL.
    macro_rules! scenarios {
        ($($name:ident = $file:literal,)*) => {
            $(
                mod $name {
                    use super::*;

                    #[test]
                    fn sqlite() {
                        for version in versions() {
                            assert_hooks_and_ingest_agree(Engine::Sqlite, &version, $file);
                        }
                    }

                    #[test]
                    fn postgres() {
                        assert_hooks_and_ingest_agree(Engine::Postgres, NEWEST, $file);
                    }
                }
            )*
        };
    }

    scenarios! {
        two_subagents = "two-subagents",
        equal_prompts = "equal-prompts",
        nested = "nested",
        background = "background",
        failing = "failing",
        edits_and_commit = "edits-and-commit",
    }
}
