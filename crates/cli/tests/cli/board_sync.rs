//! A board and its folder, both edited between two syncs.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::terminal::{Terminal, both_engines, column, run_command, text};

/// Creates board `one` with stickies of these names and the relation `a CAUSES c`, and exports it. Returns the
/// folder.
fn create_board(terminal: &Terminal, names: &[&str]) -> PathBuf {
    terminal.json(&["board", "set", "--name", "one"]);
    for name in names {
        terminal.json(&["stickie", "set", "--board", "one", "--name", name, "--note", name]);
    }
    terminal.json(&["stickie", "relate", "--from", "a", "--to", "c", "--type", "CAUSES", "--label", "old"]);
    terminal.json(&["board", "export", "one", "f"]);
    terminal.home.path().join("f")
}

fn relate(terminal: &Terminal, label: &str) {
    terminal.json(&["stickie", "relate", "--from", "a", "--to", "c", "--type", "CAUSES", "--label", label]);
}

/// The relations of the board, as (from, to, labels).
fn relations(terminal: &Terminal) -> Vec<(String, String, Value)> {
    let board = terminal.json(&["board", "get", "one"]);
    let name = |id: &Value| {
        let found = board["stickies"].as_array().unwrap().iter().find(|stickie| stickie["id"] == *id);
        text(&found.unwrap()["name"])
    };
    let relations = board["relations"].as_array().unwrap().iter();
    relations.map(|one| (name(&one["from_id"]), name(&one["to_id"]), one["labels"].clone())).collect()
}

fn expected_relation(from: &str, to: &str, label: &str) -> Vec<(String, String, Value)> {
    vec![(from.to_owned(), to.to_owned(), json!([label]))]
}

fn sync_from_folder(terminal: &Terminal) -> [i64; 4] {
    counts(&terminal.json(&["board", "sync", "one", "--from", "f"]))
}

fn sync_to_folder(terminal: &Terminal) -> [i64; 4] {
    counts(&terminal.json(&["board", "sync", "one", "--to", "f"]))
}

fn counts(answer: &Value) -> [i64; 4] {
    ["created", "updated", "unchanged", "removed"].map(|field| answer[field].as_i64().unwrap())
}

/// The exit code of `board diff`, and the lines that report a difference.
fn diff(terminal: &Terminal) -> (i32, Vec<String>) {
    let output = run_command(terminal.command(&["board", "diff", "one", "f"]));
    (output.code, output.stdout.lines().filter(|line| !line.starts_with("= ")).map(str::to_owned).collect())
}

fn no_difference() -> (i32, Vec<String>) {
    (0, Vec::new())
}

fn replace_in_file(path: &PathBuf, from: &str, to: &str) {
    let before = fs::read_to_string(path).unwrap();
    assert!(before.contains(from), "{before}");
    fs::write(path, before.replace(from, to)).unwrap();
}

fn hint(terminal: &Terminal, arguments: &[&str]) -> String {
    let output = run_command(terminal.command(&[arguments, &["--json"]].concat()));
    text(&serde_json::from_str::<Value>(&output.stderr).unwrap()["error"]["hint"])
}

both_engines! {
    fn relation_stays_with_its_stickie_when_the_name_is_reused(terminal: Terminal) {
        let folder = create_board(&terminal, &["a", "c"]);
        terminal.json(&["stickie", "update", "c", "--name", "cc"]);
        terminal.json(&["stickie", "set", "--board", "one", "--name", "c"]);
        assert_eq!(sync_from_folder(&terminal), [0, 0, 3, 0]);
        assert_eq!(relations(&terminal), expected_relation("a", "cc", "old"));
        // In lines without ids, the old name still refers to the renamed stickie.
        let ids = |line: &&str| !line.contains("from_id") && !line.contains("to_id");
        let lines = fs::read_to_string(folder.join("relations.yaml")).unwrap();
        fs::write(folder.join("relations.yaml"), lines.lines().filter(ids).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        assert_eq!(sync_from_folder(&terminal), [0, 0, 3, 0]);
        assert_eq!(relations(&terminal), expected_relation("a", "cc", "old"));
        assert_eq!(sync_to_folder(&terminal), [1, 1, 1, 0]);
        assert_eq!(diff(&terminal), no_difference());
        // An edited name refers to the stickie that has this name now.
        replace_in_file(&folder.join("relations.yaml"), "to: cc", "to: c");
        let synced = terminal.json(&["board", "sync", "one", "--from", "f"]);
        assert_eq!((&synced["relations"]["created"], &synced["relations"]["removed"]), (&json!(1), &json!(1)));
        assert_eq!(relations(&terminal), expected_relation("a", "c", "old"));
        assert_eq!(diff(&terminal), no_difference());
    }

    fn relation_edited_on_both_sides_is_a_conflict(terminal: Terminal) {
        let folder = create_board(&terminal, &["a", "c"]);
        let lines = folder.join("relations.yaml");
        let conflict = || {
            let (board, files) = (terminal.json(&["board", "get", "one"]), fs::read_to_string(&lines).unwrap());
            for side in ["--from", "--to"] {
                let failed = terminal.expect_error(&["board", "sync", "one", side, "f"]);
                assert_eq!(failed, (4, "edited on both sides: relations.yaml: a CAUSES c".into()));
            }
            assert_eq!((terminal.json(&["board", "get", "one"]), fs::read_to_string(&lines).unwrap()), (board, files));
        };
        // Both sides edited the labels.
        relate(&terminal, "board");
        replace_in_file(&lines, "- old", "- folder");
        conflict();
        assert_eq!(diff(&terminal), (1, vec!["~ relations.yaml: a CAUSES c (edited on both sides)".into()]));
        terminal.json(&["board", "sync", "one", "--from", "f", "--force"]);
        assert_eq!((relations(&terminal), diff(&terminal)), (expected_relation("a", "c", "folder"), no_difference()));
        // The board edited the labels, and the folder deleted the line.
        relate(&terminal, "again");
        let with = fs::read_to_string(&lines).unwrap();
        fs::write(&lines, "[]\n").unwrap();
        conflict();
        terminal.json(&["board", "sync", "one", "--to", "f", "--force"]);
        assert_eq!((relations(&terminal), diff(&terminal)), (expected_relation("a", "c", "again"), no_difference()));
        // The board deleted the relation, and the folder edited its labels.
        terminal.json(&["stickie", "unrelate", "--from", "a", "--to", "c", "--type", "CAUSES"]);
        replace_in_file(&lines, "- again", "- mine");
        conflict();
        fs::write(&lines, with).unwrap();
        // A change on one side alone is no conflict: old lines of the folder are ignored, and new edits in the folder
        // are applied.
        terminal.json(&["board", "sync", "one", "--from", "f", "--force"]);
        assert_eq!(diff(&terminal).0, 0);
        relate(&terminal, "newer");
        assert_eq!((sync_from_folder(&terminal), relations(&terminal)), ([0, 0, 2, 0], expected_relation("a", "c", "newer")));
        sync_to_folder(&terminal);
        assert_eq!(diff(&terminal), no_difference());
        for label in ["first", "second"] {
            // In each round, the board also gets a new stickie.
            terminal.json(&["stickie", "set", "--board", "one", "--name", label]);
            let before = relations(&terminal).remove(0).2[0].clone();
            replace_in_file(&lines, &format!("- {}", text(&before)), &format!("- {label}"));
            sync_from_folder(&terminal);
            assert_eq!(relations(&terminal), expected_relation("a", "c", label));
        }
    }

    fn deleting_a_stickie_or_its_file_deletes_its_relations(terminal: Terminal) {
        let folder = create_board(&terminal, &["a", "b", "c"]);
        terminal.json(&["stickie", "relate", "--from", "b", "--to", "a", "--type", "USES"]);
        sync_to_folder(&terminal);
        fs::remove_file(folder.join("b.stickie.yaml")).unwrap();
        let synced = terminal.json(&["board", "sync", "one", "--from", "f"]);
        assert_eq!((counts(&synced), &synced["relations"]["removed"]), ([0, 0, 2, 1], &json!(1)));
        assert!(!fs::read_to_string(folder.join("relations.yaml")).unwrap().contains("type: USES"));
        assert_eq!(diff(&terminal), no_difference());
        assert_eq!((sync_from_folder(&terminal), sync_to_folder(&terminal)), ([0, 0, 2, 0], [0, 0, 2, 0]));
        // Renaming a stickie in its file renames it in `relations.yaml`.
        replace_in_file(&folder.join("c.stickie.yaml"), "name: c", "name: d");
        assert_eq!(sync_from_folder(&terminal), [0, 1, 1, 0]);
        assert!(fs::read_to_string(folder.join("relations.yaml")).unwrap().contains("to: d\n"));
        assert_eq!((diff(&terminal), relations(&terminal)), (no_difference(), expected_relation("a", "d", "old")));
        // Lines from an older copy use an old name, or name a stickie that has been deleted since then.
        for line in ["- from: a\n  type: CAUSES\n  to: c\n  labels:\n    - old\n", "- from: b\n  type: USES\n  to: a\n- from: a\n  type: CAUSES\n  to: d\n  labels: [old]\n"] {
            fs::write(folder.join("relations.yaml"), line).unwrap();
            assert_eq!((sync_from_folder(&terminal), relations(&terminal)), ([0, 0, 2, 0], expected_relation("a", "d", "old")), "{line}");
            assert_eq!(diff(&terminal), no_difference());
        }
        // Deleting a stickie on the board also removes its line from the folder.
        terminal.json(&["stickie", "delete", "d", "--yes"]);
        sync_from_folder(&terminal);
        assert_eq!(sync_to_folder(&terminal), [0, 0, 1, 1]);
        assert_eq!((fs::read_to_string(folder.join("relations.yaml")).unwrap().trim(), diff(&terminal)), ("[]", no_difference()));
        // A name that no stickie ever had is an error, and `--force` rewrites the file.
        fs::write(folder.join("relations.yaml"), "- from: a\n  type: USES\n  to: nobody\n").unwrap();
        let refused = ["board", "sync", "one", "--to", "f"];
        assert_eq!(terminal.expect_error(&refused), (3, "relations.yaml: there is no stickie \"nobody\" on this board".into()));
        assert!(hint(&terminal, &refused).contains("--force"));
        for broken in ["- from: a\n  type: USES\n  to: nobody\n", "- from: [\n"] {
            fs::write(folder.join("relations.yaml"), broken).unwrap();
            terminal.json(&["board", "sync", "one", "--to", "f", "--force"]);
            assert_eq!(diff(&terminal), no_difference(), "{broken}");
        }
    }

    fn sync_to_folder_keeps_folder_edits_and_adds_board_changes(terminal: Terminal) {
        let folder = create_board(&terminal, &["a", "b", "c"]);
        replace_in_file(&folder.join("relations.yaml"), "- old", "- folder");
        fs::write(folder.join("new.stickie.yaml"), "note: x\n").unwrap();
        let lines = fs::read_to_string(folder.join("relations.yaml")).unwrap();
        fs::write(folder.join("relations.yaml"), format!("{lines}- from: b\n  type: USES\n  to: new\n")).unwrap();
        terminal.json(&["stickie", "relate", "--from", "b", "--to", "a", "--type", "USES"]);
        terminal.json(&["stickie", "update", "b", "--name", "bb"]);
        sync_to_folder(&terminal);
        let mut left = diff(&terminal).1;
        left.sort();
        assert_eq!(left, [
            "- new.stickie.yaml (edited: folder)",
            "- relations.yaml: bb USES new (edited: folder)",
            "~ relations.yaml: a CAUSES c (edited: folder)",
        ]);
        assert_eq!(sync_from_folder(&terminal), [1, 0, 3, 0]);
        let mut found: Vec<(String, String)> = relations(&terminal).into_iter().map(|(from, to, _)| (from, to)).collect();
        found.sort();
        assert_eq!(found, [("a", "c"), ("bb", "a"), ("bb", "new")].map(|(from, to)| (from.to_owned(), to.to_owned())));
        assert_eq!(diff(&terminal), no_difference());
    }

    fn new_stickies_with_the_same_name_and_different_notes_conflict(terminal: Terminal) {
        let folder = create_board(&terminal, &["a", "c"]);
        terminal.json(&["stickie", "set", "--board", "one", "--name", "new", "--note", "of the board"]);
        fs::write(folder.join("new.stickie.yaml"), "note: of the folder\n").unwrap();
        for side in ["--from", "--to"] {
            assert_eq!(terminal.expect_error(&["board", "sync", "one", side, "f"]), (4, "edited on both sides: new.stickie.yaml".into()));
        }
        assert_eq!(terminal.json(&["stickie", "get", "new"])["note"], "of the board");
        // Equal notes are no conflict. The next sync applies an edit in the folder.
        fs::write(folder.join("new.stickie.yaml"), "note: of the board\n").unwrap();
        assert_eq!((sync_from_folder(&terminal), diff(&terminal)), ([0, 0, 3, 0], no_difference()));
        fs::write(folder.join("new.stickie.yaml"), "note: of the folder\n").unwrap();
        assert_eq!((sync_from_folder(&terminal), diff(&terminal)), ([0, 1, 2, 0], no_difference()));
    }

    fn import_restores_a_deleted_board_from_its_folder(terminal: Terminal) {
        let folder = create_board(&terminal, &["a", "c"]);
        let content = || {
            let board = terminal.json(&["board", "get", "one"]);
            (board["id"].clone(), column(&board["stickies"], "id"), column(&board["stickies"], "note"), relations(&terminal))
        };
        let before = content();
        terminal.json(&["stickie", "set", "--board", "one", "--name", "later"]);
        terminal.json(&["board", "delete", "one", "--yes"]);
        let back = terminal.json(&["board", "import", "f"]);
        assert_eq!((counts(&back), &back["board"], &back["relations"]["created"]), ([2, 0, 0, 0], &json!("new"), &json!(1)));
        assert_eq!((content(), diff(&terminal)), (before, no_difference()));
        assert_eq!(text(&terminal.json(&["why", &text(&back["id"])])["chain"][0]["label"]), "board one");
        // The import fails if another board has taken the name.
        terminal.json(&["board", "delete", "one", "--yes"]);
        terminal.json(&["board", "set", "--name", "one"]);
        assert_eq!(terminal.expect_error(&["board", "import", "f"]), (4, "there is already a board called \"one\"".into()));
        replace_in_file(&folder.join("blackboard.yaml"), "name: one", "name: first");
        assert_eq!(terminal.json(&["board", "import", "f"])["created"], 2);
        assert_eq!(terminal.json(&["board", "get", "first"])["id"], back["id"]);
        let stickie = text(&terminal.json(&["stickie", "get", "a"])["id"]);
        fs::write(folder.join("blackboard.yaml"), format!("id: {stickie}\n")).unwrap();
        assert_eq!(terminal.expect_error(&["board", "import", "f"]), (4, format!("blackboard.yaml: {stickie} is not a board")));
    }

    fn sync_rejects_invalid_board_folders_and_names_the_file(terminal: Terminal) {
        let folder = create_board(&terminal, &["a", "c"]);
        let before = terminal.json(&["board", "list"]);
        fs::create_dir(terminal.home.path().join("empty")).unwrap();
        for arguments in [&["board", "import", "empty"][..], &["board", "sync", "one", "--from", "empty"]] {
            assert_eq!(terminal.expect_error(arguments), (2, "the folder has neither blackboard.yaml nor a stickie file".into()));
        }
        assert_eq!(terminal.json(&["board", "list"]), before);
        assert_eq!(fs::read_dir(terminal.home.path().join("empty")).unwrap().count(), 0);
        let sync = ["board", "sync", "one", "--from", "f"];
        replace_in_file(&folder.join("c.stickie.yaml"), "name: c", "name: a");
        assert_eq!(terminal.expect_error(&sync), (4, "a.stickie.yaml and c.stickie.yaml are both called \"a\"".into()));
        replace_in_file(&folder.join("c.stickie.yaml"), "name: a", "name: c");
        fs::create_dir(folder.join("x.stickie.yaml")).unwrap();
        assert_eq!(terminal.expect_error(&sync), (2, "x.stickie.yaml is not a file".into()));
        fs::remove_dir(folder.join("x.stickie.yaml")).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(folder.join("p.stickie.yaml")).status().unwrap();
        assert!(pipe.success());
        assert_eq!(terminal.expect_error(&sync), (2, "p.stickie.yaml is not a file".into()));
        fs::remove_file(folder.join("p.stickie.yaml")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.join("l.stickie.yaml")).unwrap();
        assert_eq!(terminal.expect_error(&sync).1, "l.stickie.yaml cannot be read: No such file or directory (os error 2)");
    }
}
