//! A board and its folder, both edited between two syncs.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::terminal::{Terminal, both_engines, column, run_command, text};

/// A board called `one` with stickies of these names, `a CAUSES c`, and its folder.
fn board(terminal: &Terminal, names: &[&str]) -> PathBuf {
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

/// The relations of the board: from, to, labels.
fn relations(terminal: &Terminal) -> Vec<(String, String, Value)> {
    let board = terminal.json(&["board", "get", "one"]);
    let name = |id: &Value| {
        let found = board["stickies"].as_array().unwrap().iter().find(|stickie| stickie["id"] == *id);
        text(&found.unwrap()["name"])
    };
    let relations = board["relations"].as_array().unwrap().iter();
    relations.map(|one| (name(&one["from_id"]), name(&one["to_id"]), one["labels"].clone())).collect()
}

fn related(from: &str, to: &str, label: &str) -> Vec<(String, String, Value)> {
    vec![(from.to_owned(), to.to_owned(), json!([label]))]
}

fn from(terminal: &Terminal) -> [i64; 4] {
    counts(&terminal.json(&["board", "sync", "one", "--from", "f"]))
}

fn to(terminal: &Terminal) -> [i64; 4] {
    counts(&terminal.json(&["board", "sync", "one", "--to", "f"]))
}

fn counts(answer: &Value) -> [i64; 4] {
    ["created", "updated", "unchanged", "removed"].map(|field| answer[field].as_i64().unwrap())
}

/// The lines of a diff that are not the same on both sides, and its exit code.
fn differs(terminal: &Terminal) -> (i32, Vec<String>) {
    let output = run_command(terminal.command(&["board", "diff", "one", "f"]));
    (output.code, output.stdout.lines().filter(|line| !line.starts_with("= ")).map(str::to_owned).collect())
}

fn same() -> (i32, Vec<String>) {
    (0, Vec::new())
}

fn edit(path: &PathBuf, from: &str, to: &str) {
    let before = fs::read_to_string(path).unwrap();
    assert!(before.contains(from), "{before}");
    fs::write(path, before.replace(from, to)).unwrap();
}

fn hint(terminal: &Terminal, arguments: &[&str]) -> String {
    let output = run_command(terminal.command(&[arguments, &["--json"]].concat()));
    text(&serde_json::from_str::<Value>(&output.stderr).unwrap()["error"]["hint"])
}

both_engines! {
    fn a_name_that_went_to_another_stickie_takes_no_relation_with_it(terminal: Terminal) {
        let folder = board(&terminal, &["a", "c"]);
        terminal.json(&["stickie", "update", "c", "--name", "cc"]);
        terminal.json(&["stickie", "set", "--board", "one", "--name", "c"]);
        assert_eq!(from(&terminal), [0, 0, 3, 0]);
        assert_eq!(relations(&terminal), related("a", "cc", "old"));
        // Nor do lines that have no ids.
        let ids = |line: &&str| !line.contains("from_id") && !line.contains("to_id");
        let lines = fs::read_to_string(folder.join("relations.yaml")).unwrap();
        fs::write(folder.join("relations.yaml"), lines.lines().filter(ids).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        assert_eq!(from(&terminal), [0, 0, 3, 0]);
        assert_eq!(relations(&terminal), related("a", "cc", "old"));
        assert_eq!(to(&terminal), [1, 1, 1, 0]);
        assert_eq!(differs(&terminal), same());
        // Whoever writes another name means another stickie.
        edit(&folder.join("relations.yaml"), "to: cc", "to: c");
        let synced = terminal.json(&["board", "sync", "one", "--from", "f"]);
        assert_eq!((&synced["relations"]["created"], &synced["relations"]["removed"]), (&json!(1), &json!(1)));
        assert_eq!(relations(&terminal), related("a", "c", "old"));
        assert_eq!(differs(&terminal), same());
    }

    fn a_relation_that_both_edited_is_a_conflict(terminal: Terminal) {
        let folder = board(&terminal, &["a", "c"]);
        let lines = folder.join("relations.yaml");
        let conflict = || {
            let (board, files) = (terminal.json(&["board", "get", "one"]), fs::read_to_string(&lines).unwrap());
            for side in ["--from", "--to"] {
                let failed = terminal.expect_error(&["board", "sync", "one", side, "f"]);
                assert_eq!(failed, (4, "edited on both sides: relations.yaml: a CAUSES c".into()));
            }
            assert_eq!((terminal.json(&["board", "get", "one"]), fs::read_to_string(&lines).unwrap()), (board, files));
        };
        // Labels and labels.
        relate(&terminal, "board");
        edit(&lines, "- old", "- folder");
        conflict();
        assert_eq!(differs(&terminal), (1, vec!["~ relations.yaml: a CAUSES c (edited on both sides)".into()]));
        terminal.json(&["board", "sync", "one", "--from", "f", "--force"]);
        assert_eq!((relations(&terminal), differs(&terminal)), (related("a", "c", "folder"), same()));
        // Labels on the board, and the line is gone.
        relate(&terminal, "again");
        let with = fs::read_to_string(&lines).unwrap();
        fs::write(&lines, "[]\n").unwrap();
        conflict();
        terminal.json(&["board", "sync", "one", "--to", "f", "--force"]);
        assert_eq!((relations(&terminal), differs(&terminal)), (related("a", "c", "again"), same()));
        // Gone on the board, and labels in the folder.
        terminal.json(&["stickie", "unrelate", "--from", "a", "--to", "c", "--type", "CAUSES"]);
        edit(&lines, "- again", "- mine");
        conflict();
        fs::write(&lines, with).unwrap();
        // One side alone is no conflict: what is old in the folder goes, and what is edited there again comes.
        terminal.json(&["board", "sync", "one", "--from", "f", "--force"]);
        assert_eq!(differs(&terminal).0, 0);
        relate(&terminal, "newer");
        assert_eq!((from(&terminal), relations(&terminal)), ([0, 0, 2, 0], related("a", "c", "newer")));
        to(&terminal);
        assert_eq!(differs(&terminal), same());
        for label in ["first", "second"] {
            // The board has something newer all along.
            terminal.json(&["stickie", "set", "--board", "one", "--name", label]);
            let before = relations(&terminal).remove(0).2[0].clone();
            edit(&lines, &format!("- {}", text(&before)), &format!("- {label}"));
            from(&terminal);
            assert_eq!(relations(&terminal), related("a", "c", label));
        }
    }

    fn a_relation_goes_with_its_stickie_and_its_line_with_the_file(terminal: Terminal) {
        let folder = board(&terminal, &["a", "b", "c"]);
        terminal.json(&["stickie", "relate", "--from", "b", "--to", "a", "--type", "USES"]);
        to(&terminal);
        fs::remove_file(folder.join("b.stickie.yaml")).unwrap();
        let synced = terminal.json(&["board", "sync", "one", "--from", "f"]);
        assert_eq!((counts(&synced), &synced["relations"]["removed"]), ([0, 0, 2, 1], &json!(1)));
        assert!(!fs::read_to_string(folder.join("relations.yaml")).unwrap().contains("type: USES"));
        assert_eq!(differs(&terminal), same());
        assert_eq!((from(&terminal), to(&terminal)), ([0, 0, 2, 0], [0, 0, 2, 0]));
        // Another name in the folder is another name in its lines.
        edit(&folder.join("c.stickie.yaml"), "name: c", "name: d");
        assert_eq!(from(&terminal), [0, 1, 1, 0]);
        assert!(fs::read_to_string(folder.join("relations.yaml")).unwrap().contains("to: d\n"));
        assert_eq!((differs(&terminal), relations(&terminal)), (same(), related("a", "d", "old")));
        // Lines that were kept elsewhere still say the old name, and one that is deleted by now.
        for line in ["- from: a\n  type: CAUSES\n  to: c\n  labels:\n    - old\n", "- from: b\n  type: USES\n  to: a\n- from: a\n  type: CAUSES\n  to: d\n  labels: [old]\n"] {
            fs::write(folder.join("relations.yaml"), line).unwrap();
            assert_eq!((from(&terminal), relations(&terminal)), ([0, 0, 2, 0], related("a", "d", "old")), "{line}");
            assert_eq!(differs(&terminal), same());
        }
        // Deleted on the board, a stickie takes its line with it as well.
        terminal.json(&["stickie", "delete", "d", "--yes"]);
        from(&terminal);
        assert_eq!(to(&terminal), [0, 0, 1, 1]);
        assert_eq!((fs::read_to_string(folder.join("relations.yaml")).unwrap().trim(), differs(&terminal)), ("[]", same()));
        // What nobody ever was called is told, and can be written anew.
        fs::write(folder.join("relations.yaml"), "- from: a\n  type: USES\n  to: nobody\n").unwrap();
        let refused = ["board", "sync", "one", "--to", "f"];
        assert_eq!(terminal.expect_error(&refused), (3, "relations.yaml: there is no stickie \"nobody\" on this board".into()));
        assert!(hint(&terminal, &refused).contains("--force"));
        for broken in ["- from: a\n  type: USES\n  to: nobody\n", "- from: [\n"] {
            fs::write(folder.join("relations.yaml"), broken).unwrap();
            terminal.json(&["board", "sync", "one", "--to", "f", "--force"]);
            assert_eq!(differs(&terminal), same(), "{broken}");
        }
    }

    fn lines_of_the_folder_stay_while_the_boards_come(terminal: Terminal) {
        let folder = board(&terminal, &["a", "b", "c"]);
        edit(&folder.join("relations.yaml"), "- old", "- folder");
        fs::write(folder.join("new.stickie.yaml"), "note: x\n").unwrap();
        let lines = fs::read_to_string(folder.join("relations.yaml")).unwrap();
        fs::write(folder.join("relations.yaml"), format!("{lines}- from: b\n  type: USES\n  to: new\n")).unwrap();
        terminal.json(&["stickie", "relate", "--from", "b", "--to", "a", "--type", "USES"]);
        terminal.json(&["stickie", "update", "b", "--name", "bb"]);
        to(&terminal);
        let mut left = differs(&terminal).1;
        left.sort();
        assert_eq!(left, [
            "- new.stickie.yaml (edited: folder)",
            "- relations.yaml: bb USES new (edited: folder)",
            "~ relations.yaml: a CAUSES c (edited: folder)",
        ]);
        assert_eq!(from(&terminal), [1, 0, 3, 0]);
        let mut found: Vec<(String, String)> = relations(&terminal).into_iter().map(|(from, to, _)| (from, to)).collect();
        found.sort();
        assert_eq!(found, [("a", "c"), ("bb", "a"), ("bb", "new")].map(|(from, to)| (from.to_owned(), to.to_owned())));
        assert_eq!(differs(&terminal), same());
    }

    fn one_name_for_two_texts_is_a_conflict(terminal: Terminal) {
        let folder = board(&terminal, &["a", "c"]);
        terminal.json(&["stickie", "set", "--board", "one", "--name", "new", "--note", "of the board"]);
        fs::write(folder.join("new.stickie.yaml"), "note: of the folder\n").unwrap();
        for side in ["--from", "--to"] {
            assert_eq!(terminal.expect_error(&["board", "sync", "one", side, "f"]), (4, "edited on both sides: new.stickie.yaml".into()));
        }
        assert_eq!(terminal.json(&["stickie", "get", "new"])["note"], "of the board");
        // The same text is no conflict, and one that the folder has seen before is meant to change.
        fs::write(folder.join("new.stickie.yaml"), "note: of the board\n").unwrap();
        assert_eq!((from(&terminal), differs(&terminal)), ([0, 0, 3, 0], same()));
        fs::write(folder.join("new.stickie.yaml"), "note: of the folder\n").unwrap();
        assert_eq!((from(&terminal), differs(&terminal)), ([0, 1, 2, 0], same()));
    }

    fn a_deleted_board_comes_back_from_its_folder(terminal: Terminal) {
        let folder = board(&terminal, &["a", "c"]);
        let content = || {
            let board = terminal.json(&["board", "get", "one"]);
            (board["id"].clone(), column(&board["stickies"], "id"), column(&board["stickies"], "note"), relations(&terminal))
        };
        let before = content();
        terminal.json(&["stickie", "set", "--board", "one", "--name", "later"]);
        terminal.json(&["board", "delete", "one", "--yes"]);
        let back = terminal.json(&["board", "import", "f"]);
        assert_eq!((counts(&back), &back["board"], &back["relations"]["created"]), ([2, 0, 0, 0], &json!("new"), &json!(1)));
        assert_eq!((content(), differs(&terminal)), (before, same()));
        assert_eq!(text(&terminal.json(&["why", &text(&back["id"])])["chain"][0]["label"]), "board one");
        // Its name may be taken by then.
        terminal.json(&["board", "delete", "one", "--yes"]);
        terminal.json(&["board", "set", "--name", "one"]);
        assert_eq!(terminal.expect_error(&["board", "import", "f"]), (4, "there is already a board called \"one\"".into()));
        edit(&folder.join("blackboard.yaml"), "name: one", "name: first");
        assert_eq!(terminal.json(&["board", "import", "f"])["created"], 2);
        assert_eq!(terminal.json(&["board", "get", "first"])["id"], back["id"]);
        let stickie = text(&terminal.json(&["stickie", "get", "a"])["id"]);
        fs::write(folder.join("blackboard.yaml"), format!("id: {stickie}\n")).unwrap();
        assert_eq!(terminal.expect_error(&["board", "import", "f"]), (4, format!("blackboard.yaml: {stickie} is not a board")));
    }

    fn what_is_no_folder_of_a_board_is_told_by_name(terminal: Terminal) {
        let folder = board(&terminal, &["a", "c"]);
        let before = terminal.json(&["board", "list"]);
        fs::create_dir(terminal.home.path().join("empty")).unwrap();
        for arguments in [&["board", "import", "empty"][..], &["board", "sync", "one", "--from", "empty"]] {
            assert_eq!(terminal.expect_error(arguments), (2, "the folder has neither blackboard.yaml nor a stickie file".into()));
        }
        assert_eq!(terminal.json(&["board", "list"]), before);
        assert_eq!(fs::read_dir(terminal.home.path().join("empty")).unwrap().count(), 0);
        let sync = ["board", "sync", "one", "--from", "f"];
        edit(&folder.join("c.stickie.yaml"), "name: c", "name: a");
        assert_eq!(terminal.expect_error(&sync), (4, "a.stickie.yaml and c.stickie.yaml are both called \"a\"".into()));
        edit(&folder.join("c.stickie.yaml"), "name: a", "name: c");
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
