//! Which file, which commit and which run: two projects, several work trees, and names that several have.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    hook::{Session, git, project, writing},
    ingest::{Folder, SESSION, Writing, ingest},
    terminal::{Terminal, both_engines, ran, text},
};

/// A repository with one commit.
fn repository(path: PathBuf) -> PathBuf {
    fs::create_dir_all(path.join("src")).unwrap();
    git(&path, &["init", "-q", "-b", "main"]);
    fs::write(path.join("README.md"), "read me\n").unwrap();
    commit(&path, "first");
    path
}

/// Commits all there is, and gives the hash.
fn commit(repository: &Path, subject: &str) -> String {
    git(repository, &["add", "."]);
    git(repository, &["commit", "-q", "--allow-empty", "-m", subject]);
    let printed = Command::new("git").arg("-C").arg(repository).args(["rev-parse", "HEAD"]).output().unwrap();
    String::from_utf8(printed.stdout).unwrap().trim().to_owned()
}

fn shell(command: &str) -> Value {
    json!({ "tool_name": "Bash", "tool_use_id": "b1", "tool_input": { "command": command }, "tool_response": {} })
}

/// Writes a file, on disk too.
fn written(call: &str, path: &Path) -> Value {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "x\n").unwrap();
    writing(call, path.to_str().unwrap())
}

/// What `why` answers to one who stands somewhere: the thing, and the prompt it came from. None when nothing is known.
fn why_from(terminal: &Terminal, here: &Path, thing: &str) -> Option<(String, String)> {
    let mut command = terminal.command(&["why", thing, "--json"]);
    command.current_dir(here);
    let ran = ran(command);
    if ran.code == 3 {
        return None;
    }
    assert_eq!(ran.code, 0, "{thing}: {}", ran.stderr);
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
    let hops = answer["data"]["chain"].as_array().unwrap();
    let label = |kind: &str| hops.iter().find(|hop| hop["kind"] == kind).map(|hop| text(&hop["label"]));
    Some((label("resource").unwrap_or_default(), label("message").or(label("spawn")).unwrap_or_default()))
}

fn why(terminal: &Terminal, thing: impl AsRef<Path>) -> Option<(String, String)> {
    why_from(terminal, terminal.home.path(), thing.as_ref().to_str().unwrap())
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with what `why` gives")]
fn known(resource: &str, prompt: &str) -> Option<(String, String)> {
    Some((resource.to_owned(), prompt.to_owned()))
}

both_engines! {
    fn what_stands_at_a_path_is_meant_and_nothing_else_of_that_name(terminal: Terminal) {
        let project = repository(project(&terminal));
        let session = Session { terminal: &terminal, id: "s1" };
        session.prompt("go");
        session.hears("PostToolUse", &written("t1", &project.join("src/lib.rs")));
        session.hears("PostToolUse", &written("t2", &project.join("README.md")));
        let hash = commit(&project, "all of it");
        session.hears("PostToolUse", &shell("git commit"));
        let (other, empty) = (terminal.home.path().join("other"), terminal.home.path().join("empty"));
        fs::create_dir_all(&empty).unwrap();
        fs::create_dir_all(other.join("src")).unwrap();
        fs::write(other.join("src/lib.rs"), "x\n").unwrap();
        for thing in ["src/lib.rs", "src/lib.rs:1", "./src/lib.rs"] {
            assert_eq!(why_from(&terminal, &other, thing), None, "{thing}");
        }
        // Where nothing is at that path, the name is all there is.
        assert_eq!(why_from(&terminal, &empty, "src/lib.rs"), known("file src/lib.rs", "go"));
        assert_eq!(why_from(&terminal, &project, "src/lib.rs:1"), known("file src/lib.rs:1", "go"));

        let url = |path: &Path| format!("file://{}", path.display());
        assert_eq!(why_from(&terminal, &empty, &url(&project.join("README.md"))), known("file README.md", "go"));
        for foreign in ["https://example.org/some/other/README.md", "https://example.org/README.md", "http://h/tasks/README.md", "file:///etc/README.md"] {
            assert_eq!(why_from(&terminal, &empty, foreign), None, "{foreign}");
        }
        assert_eq!(why_from(&terminal, &empty, &url(&other.join("src/lib.rs"))), None);
        let run = text(&terminal.json(&["run", "list"])[0]["id"]);
        assert_eq!(why_from(&terminal, &empty, &format!("http://127.0.0.1:7878/runs/{}", &run[28..])), known("", "go"));
        assert_eq!(why_from(&terminal, &empty, &format!("http://127.0.0.1:7878/notes/{}", &run[28..])), None);
        let shown = known(&format!("commit {} all of it", &hash[..8]), "go");
        assert_eq!(why_from(&terminal, &empty, &format!("https://example.org/o/r/commit/{hash}")), shown);
    }

    fn the_maker_of_a_file_is_who_created_it_last_or_changed_it_last(terminal: Terminal) {
        let folder = Folder::of(&terminal);
        let mut main = Writing::new(SESSION, "/ship");
        let mut lines = String::new();
        for number in 0..24 {
            let made = if number % 10 == 2 { "File created" } else { "updated" };
            lines += &main.prompt(&format!("go {number}"));
            for (name, said) in [("old.rs", "updated"), ("again.rs", made)] {
                let call = format!("{name}-{number}");
                lines += &main.calls(&format!("m-{call}"), "Write", &call, &json!({ "file_path": format!("/ship/{name}"), "content": "x\n" }));
                lines += &main.result(&call, said, &Value::Null);
            }
            lines += &main.says(&format!("m{number}"), Some("end_turn"), 3, "Done.");
        }
        folder.append(None, &lines);
        ingest(&terminal);
        assert_eq!(why(&terminal, "/ship/old.rs"), known("file old.rs", "go 23"));
        assert_eq!(why(&terminal, "/ship/again.rs"), known("file again.rs", "go 22"));
    }
}
