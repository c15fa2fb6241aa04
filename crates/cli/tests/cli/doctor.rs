//! Hooks that do not do what their user thinks: silent ones are found, and none follows a stranger's configuration.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};

use trackway_testkit::Engine;

use crate::terminal::{Terminal, both_engines, column, ran, ran_with_input, text};

fn doctor(terminal: &Terminal) -> (i32, Value) {
    let ran = ran(terminal.command(&["doctor", "--json"]));
    (ran.code, serde_json::from_str::<Value>(&ran.stdout).unwrap()["data"].clone())
}

fn hears(terminal: &Terminal, event: &Value) {
    assert_eq!(ran_with_input(terminal.command(&["hook"]), event.to_string().as_bytes()).code, 0);
}

fn modified(path: &Path, at: SystemTime) {
    File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

both_engines! {
    fn hooks_that_went_silent_are_a_finding(terminal: Terminal) {
        let home = terminal.home.path();
        terminal.json(&["connect", "claude-code", "--user"]);
        let settings = home.join(".claude/settings.json");
        modified(&settings, SystemTime::now() - Duration::from_hours(3));
        let transcript = home.join("s1.jsonl");
        fs::write(&transcript, "").unwrap();
        hears(&terminal, &json!({ "hook_event_name": "UserPromptSubmit", "session_id": "s1", "cwd": home, "prompt": "go", "transcript_path": transcript }));
        let (code, found) = doctor(&terminal);
        assert_eq!((code, &found["hooks"], &found["findings"]), (0, &json!(true), &json!([])));

        modified(&transcript, SystemTime::now() + Duration::from_mins(10));
        let (code, found) = doctor(&terminal);
        let finding = &found["findings"][0];
        assert_eq!((code, text(&finding["check"]).as_str()), (1, "hooks"));
        assert!(text(&finding["problem"]).starts_with("session s1 went on until "), "{finding}");
        assert!(text(&finding["fix"]).contains("trackway ingest"), "{finding}");
    }
}

#[test]
fn a_project_sends_nothing_away_without_the_users_word() {
    let terminal = Terminal::before_init(Engine::Sqlite);
    let project = terminal.home.path().join("cloned");
    fs::create_dir_all(project.join(".trackway")).unwrap();
    fs::write(project.join(".trackway/config.toml"), "db = \"postgres://stranger@127.0.0.1:1/all\"\n").unwrap();
    let users = terminal.home.path().join(".local/share/trackway");
    let hears = |session: &str| {
        let event =
            json!({ "hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": project, "prompt": "go" });
        let mut command = terminal.command(&["hook"]);
        command.env_remove("TRACKWAY_DB");
        assert_eq!(ran_with_input(command, event.to_string().as_bytes()).code, 0);
    };
    let known = || {
        let url = format!("sqlite:{}", users.join("trackway.db").display());
        column(&terminal.json(&["session", "list", "--db", &url]), "id")
    };
    hears("s1");
    assert_eq!(known(), ["s1"]);
    assert!(fs::read_to_string(users.join("hook.log")).unwrap().contains("add its directory to `trust`"));

    // With the user's word it goes to the server, or waits for it.
    let config = terminal.home.path().join(".config/trackway");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("config.toml"), format!("trust = [{:?}]\n", project.display().to_string())).unwrap();
    hears("s2");
    assert_eq!(known(), ["s1"]);
}
