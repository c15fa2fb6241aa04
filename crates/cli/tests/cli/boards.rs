//! Boards, stickies, and the export of boards to folders.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::terminal::{Terminal, both_engines, column, run_command, text};

/// Creates board `plan` with a named stickie, a stickie without a name, and a relation. Returns the ids of the
/// stickies.
fn create_board(terminal: &Terminal) -> (String, String) {
    terminal.json(&[
        "board",
        "set",
        "--name",
        "plan",
        "--project",
        "tea",
        "--lifecycle",
        "weekly",
        "--background",
        "a\nb ",
    ]);
    let water = ["stickie", "set", "--board", "plan", "--name", "water", "--note", "boil it\n", "--priority", "must"];
    let water = text(&terminal.json(&water)["id"]);
    let leaves = ["stickie", "create", "--board", "plan", "--note", "- black: tea # yes", "--label", "a", "b"];
    let leaves = text(&terminal.json(&leaves)["id"]);
    terminal.json(&["stickie", "relate", "--from", "water", "--to", &leaves, "--type", "USES", "--label", "hot"]);
    (water, leaves)
}

fn counts(answer: &Value) -> [i64; 4] {
    ["created", "updated", "unchanged", "removed"].map(|field| answer[field].as_i64().unwrap())
}

/// The exit code and the lines of `board diff`.
fn diff(terminal: &Terminal) -> (i32, Vec<String>) {
    let output = run_command(terminal.command(&["board", "diff", "plan", "folder"]));
    (output.code, output.stdout.lines().map(str::to_owned).collect())
}

fn replace_in_file(path: &Path, from: &str, to: &str) {
    let before = fs::read_to_string(path).unwrap();
    assert!(before.contains(from), "{before}");
    fs::write(path, before.replace(from, to)).unwrap();
}

both_engines! {
    fn stickie_set_updates_by_name_and_empty_values_clear_fields(terminal: Terminal) {
        let (water, _) = create_board(&terminal);
        let again = terminal.json(&["stickie", "set", "--board", "plan", "--name", "water", "--score", "2.5", "--structured", r#"{"b":1,"a":[true]}"#, "--code", "x()"]);
        assert_eq!((&again["id"], &again["new"], &again["note"], &again["edit_count"]), (&json!(water), &json!(false), &json!("boil it\n"), &json!(2)));
        let same = terminal.json(&["stickie", "update", "water", "--score", "2.5"]);
        assert_eq!((&same["edit_count"], &same["structured"]), (&json!(2), &json!({ "a": [true], "b": 1 })));
        assert_eq!(terminal.json(&["stickie", "archive", "water"])["archived"], true);
        let updated = terminal.json(&["stickie", "update", "water", "--note", "", "--code", "", "--priority", "", "--score", "", "--structured", ""]);
        for field in ["note", "code", "priority", "score", "structured"] {
            assert_eq!(updated[field], Value::Null, "{field}");
        }
        assert_eq!(updated["archived"], true, "an update does not unarchive a stickie");
        assert_eq!(column(&terminal.json(&["stickie", "list", "--board", "plan"]), "note"), ["- black: tea # yes"]);
        assert_eq!(terminal.json(&["stickie", "archive", "plan/water", "--undo"])["archived"], false);
        assert_eq!(terminal.json(&["board", "set", "plan", "--background", "", "--project", ""])["background"], Value::Null);
        assert_eq!(terminal.json(&["board", "get", "plan"])["lifecycle"], "weekly");
        assert_eq!(terminal.expect_error(&["stickie", "update", "water", "--structured", "{"]).0, 2);
        assert_eq!(terminal.expect_error(&["stickie", "update", "water", "--score", "NaN"]), (2, "score is not a number".into()));
    }

    fn relations_are_typed_and_stay_within_one_board(terminal: Terminal) {
        let (water, leaves) = create_board(&terminal);
        let relations = terminal.json(&["stickie", "get", "water"])["relations"].clone();
        assert_eq!((column(&relations, "type"), column(&relations, "to_id")), (vec!["USES".into()], vec![leaves.clone()]));
        assert_eq!(column(&terminal.json(&["stickie", "list", "--relation", "USES"]), "id"), [water.clone(), leaves.clone()]);
        assert_eq!(terminal.json(&["stickie", "list", "--relation", "CAUSES"]), json!([]));
        assert_eq!(terminal.expect_error(&["stickie", "list", "--relation", "LIKES"]).0, 2);
        assert_eq!(terminal.expect_error(&["stickie", "relate", "--from", "water", "--to", "water", "--type", "USES"]), (4, "a stickie cannot be related to itself".into()));
        terminal.json(&["board", "set", "--name", "other"]);
        terminal.json(&["stickie", "set", "--board", "other", "--name", "cup"]);
        assert_eq!(terminal.expect_error(&["stickie", "relate", "--from", "water", "--to", "cup", "--type", "USES"]), (4, "the stickies are on different boards".into()));
        terminal.json(&["stickie", "unrelate", "--from", "water", "--to", &leaves, "--type", "USES"]);
        assert_eq!(terminal.expect_error(&["stickie", "unrelate", "--from", "water", "--to", &leaves, "--type", "USES"]).0, 3);
        terminal.json(&["stickie", "set", "--board", "other", "--name", "water"]);
        assert_eq!(terminal.expect_error(&["stickie", "get", "water"]), (2, "several boards have a stickie named \"water\"".into()));
        assert_eq!(terminal.json(&["stickie", "get", "plan/water"])["id"], json!(water));
    }

    fn why_traces_a_stickie_to_its_run(terminal: Terminal) {
        terminal.json(&["workflow", "set", "--name", "kitchen"]);
        terminal.json(&["task", "set", "--workflow", "kitchen", "--variant", "brew"]);
        terminal.json(&["board", "set", "--name", "plan", "--task", "brew"]);
        let (run, token) = terminal.start_run(&["--agent", "worker", "--task", "brew"]);
        let cup = terminal.json_with_token(Some(&token), &["stickie", "set", "--board", "plan", "--name", "cup"]);
        assert_eq!((&cup["created_by_run_id"], &cup["created_by_task"]), (&json!(run), &json!("brew")));
        terminal.json_with_token(Some(&token), &["stickie", "update", "cup", "--note", "blue"]);
        let made = terminal.json(&["made", &run])["touches"].clone();
        assert_eq!((column(&made, "resource_type"), column(&made, "action_type"), column(&made, "display_path")), (vec!["stickie".into(); 2], vec!["create".into(), "update".into()], vec!["plan/cup".into(); 2]));
        let chain = terminal.json(&["why", &text(&cup["id"])])["chain"].clone();
        assert_eq!(column(&chain, "kind"), ["resource", "run", "agent", "task", "person"]);
        assert_eq!(terminal.expect_error_with_token(Some(&token), &["board", "set", "--name", "mine"]).0, 6);
        assert_eq!(terminal.json_with_token(Some(&token), &["stickie", "delete", "cup", "--yes"])["name"], "cup");
        assert_eq!(terminal.expect_error(&["stickie", "get", "cup"]).0, 3);
        assert_eq!(terminal.json(&["stickie", "set", "--board", "plan", "--name", "cup"])["new"], true);
    }

    fn board_round_trips_through_a_folder(terminal: Terminal) {
        let (_, leaves) = create_board(&terminal);
        let folder = terminal.home.path().join("folder");
        assert_eq!(counts(&terminal.json(&["board", "export", "plan", "folder"])), [2, 0, 0, 0]);
        let mut names: Vec<String> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let mut expected = vec!["blackboard.yaml".to_owned(), "relations.yaml".into(), "water.stickie.yaml".into(), format!("{leaves}.stickie.yaml")];
        expected.sort();
        assert_eq!(names, expected);
        let (code, lines) = diff(&terminal);
        assert_eq!((code, lines.len(), lines.iter().all(|line| line.starts_with("= "))), (0, 4, true), "{lines:?}");
        let before = terminal.json(&["board", "get", "plan"]);
        let events = terminal.json(&["event", "list"]);
        assert_eq!(counts(&terminal.json(&["board", "sync", "plan", "--from", "folder"])), [0, 0, 2, 0]);
        assert_eq!(counts(&terminal.json(&["board", "sync", "plan", "--to", "folder"])), [0, 0, 2, 0]);
        assert_eq!((terminal.json(&["board", "get", "plan"]), terminal.json(&["event", "list"])), (before, events));

        replace_in_file(&folder.join("water.stickie.yaml"), "boil it", "boil it twice");
        replace_in_file(&folder.join("water.stickie.yaml"), "priority: must", "priority: null");
        replace_in_file(&folder.join("relations.yaml"), "hot", "very hot");
        replace_in_file(&folder.join("blackboard.yaml"), "weekly", "daily");
        fs::write(folder.join("cup.stickie.yaml"), "note: yes\nlabels: [1]\n").unwrap();
        let (code, lines) = diff(&terminal);
        assert_eq!(code, 1);
        assert_eq!(lines.iter().map(|line| &line[..1]).collect::<Vec<_>>(), ["~", if leaves.as_str() < "w" { "=" } else { "~" }, "~", "-", "~"], "{lines:?}");
        let dry = terminal.run(&["board", "sync", "plan", "--from", "folder", "--dry-run"]);
        assert!(dry.stderr.contains("nothing was changed"), "{}", dry.stderr);
        let synced = terminal.json(&["board", "sync", "plan", "--from", "folder"]);
        assert_eq!((counts(&synced), &synced["board"], &synced["relations"]["updated"]), ([1, 1, 1, 0], &json!("changed"), &json!(1)));
        assert_eq!(terminal.json(&["stickie", "get", "water"])["note"], "boil it twice\n");
        let cup = terminal.json(&["stickie", "get", "cup"]);
        assert_eq!((&cup["note"], &cup["labels"]), (&json!("yes"), &json!(["1"])));
        assert!(fs::read_to_string(folder.join("cup.stickie.yaml")).unwrap().contains(&format!("id: {}", text(&cup["id"]))));
        assert_eq!(diff(&terminal).0, 0);
        assert_eq!(counts(&terminal.json(&["board", "sync", "plan", "--from", "folder"])), [0, 0, 3, 0], "a new file creates only one stickie");

        fs::remove_file(folder.join("cup.stickie.yaml")).unwrap();
        assert_eq!(counts(&terminal.json(&["board", "sync", "plan", "--from", "folder"])), [0, 0, 2, 1]);
        assert_eq!(terminal.expect_error(&["stickie", "get", "cup"]).0, 3);
    }

    fn sync_merges_edits_of_both_sides_and_reports_conflicts(terminal: Terminal) {
        let (_, leaves) = create_board(&terminal);
        let folder = terminal.home.path().join("folder");
        terminal.json(&["stickie", "set", "--board", "plan", "--name", "milk", "--note", "cold"]);
        terminal.json(&["board", "export", "plan", "folder"]);
        let leaves_file = folder.join(format!("{leaves}.stickie.yaml"));
        // On the board, one stickie is edited, one is added and one is deleted. In the folder, a different stickie is
        // edited, and another is added.
        terminal.json(&["stickie", "update", "water", "--note", "from the board"]);
        terminal.json(&["stickie", "set", "--board", "plan", "--name", "spoon"]);
        terminal.json(&["stickie", "delete", "milk", "--yes"]);
        replace_in_file(&leaves_file, "black", "green");
        fs::write(folder.join("sugar.stickie.yaml"), "note: from the folder\n").unwrap();
        let from = terminal.run(&["board", "sync", "plan", "--from", "folder", "--json"]);
        assert_eq!(counts(&serde_json::from_str::<Value>(&from.stdout).unwrap()["data"]), [1, 1, 2, 0]);
        let to = terminal.run(&["board", "sync", "plan", "--to", "folder", "--json"]);
        assert_eq!(counts(&serde_json::from_str::<Value>(&to.stdout).unwrap()["data"]), [1, 1, 2, 1]);
        assert_eq!(diff(&terminal).0, 0);
        let mut notes = column(&terminal.json(&["stickie", "list", "--board", "plan"]), "note");
        notes.sort();
        assert_eq!(notes, ["- green: tea # yes", "from the board", "from the folder", "null"]);
        assert!(!folder.join("milk.stickie.yaml").exists() && folder.join("spoon.stickie.yaml").exists());

        // A stickie that was edited on both sides is a conflict.
        terminal.json(&["stickie", "update", "water", "--note", "one"]);
        replace_in_file(&folder.join("water.stickie.yaml"), "from the board", "other");
        let before = terminal.json(&["board", "get", "plan"]);
        for side in ["--from", "--to"] {
            assert_eq!(terminal.expect_error(&["board", "sync", "plan", side, "folder"]), (4, "edited on both sides: water.stickie.yaml".into()));
        }
        assert_eq!(terminal.json(&["board", "get", "plan"]), before);
        assert_eq!(counts(&terminal.json(&["board", "sync", "plan", "--from", "folder", "--force"])), [0, 1, 3, 0]);
        assert_eq!(terminal.json(&["stickie", "get", "water"])["note"], "other");
        assert_eq!(diff(&terminal).0, 0);
    }

    fn similar_names_get_separate_files_and_names_can_be_swapped(terminal: Terminal) {
        terminal.json(&["board", "set", "--name", "plan"]);
        for name in ["Plan", "plan", "a/b", "..", "NUL", "one", "two"] {
            terminal.json(&["stickie", "set", "--board", "plan", "--name", name, "--note", name]);
        }
        let folder = terminal.home.path().join("folder");
        assert_eq!(counts(&terminal.json(&["board", "export", "plan", "folder"])), [7, 0, 0, 0]);
        let files = fs::read_dir(&folder).unwrap().count();
        assert_eq!(files, 9);
        replace_in_file(&folder.join("one.stickie.yaml"), "name: one", "name: two");
        replace_in_file(&folder.join("two.stickie.yaml"), "name: two", "name: one");
        assert_eq!(counts(&terminal.json(&["board", "sync", "plan", "--from", "folder"])), [0, 2, 5, 0]);
        assert_eq!(terminal.json(&["stickie", "get", "one"])["note"], "two");
        replace_in_file(&folder.join("one.stickie.yaml"), "name: two", "name: one");
        assert_eq!(terminal.expect_error(&["board", "sync", "plan", "--from", "folder"]), (4, "one.stickie.yaml and two.stickie.yaml are both called \"one\"".into()));
    }

    fn sync_rejects_foreign_and_invalid_files_without_changing_anything(terminal: Terminal) {
        create_board(&terminal);
        terminal.json(&["board", "set", "--name", "other"]);
        let cup = text(&terminal.json(&["stickie", "set", "--board", "other", "--name", "cup"])["id"]);
        terminal.json(&["board", "export", "plan", "folder"]);
        let folder = terminal.home.path().join("folder");
        fs::write(folder.join("a.stickie.yaml"), "note: new\n").unwrap();
        fs::write(folder.join("z.stickie.yaml"), format!("id: {cup}\nnote: mine\n")).unwrap();
        let before = terminal.json(&["board", "get", "plan"]);
        for arguments in [&["board", "sync", "plan", "--from", "folder"][..], &["board", "diff", "plan", "folder"], &["board", "import", "folder"]] {
            assert_eq!(terminal.expect_error(arguments), (4, format!("z.stickie.yaml: {cup} is not a stickie of this board")));
        }
        assert_eq!(terminal.expect_error(&["board", "sync", "other", "--from", "folder"]).0, 4);
        assert_eq!(terminal.expect_error(&["board", "export", "other", "folder"]).0, 4);
        assert_eq!(terminal.json(&["board", "get", "plan"]), before);
        fs::remove_file(folder.join("z.stickie.yaml")).unwrap();
        fs::write(folder.join("bad.stickie.yaml"), "note: [\n").unwrap();
        assert_eq!(terminal.expect_error(&["board", "sync", "plan", "--from", "folder"]).0, 2);
        fs::write(folder.join("bad.stickie.yaml"), "name: water\n").unwrap();
        assert_eq!(terminal.expect_error(&["board", "sync", "plan", "--from", "folder"]).0, 4, "two files name the same stickie");
        fs::remove_file(folder.join("bad.stickie.yaml")).unwrap();
        replace_in_file(&folder.join("relations.yaml"), "from: water", "from: fire");
        assert_eq!(terminal.expect_error(&["board", "sync", "plan", "--from", "folder"]), (3, "relations.yaml: there is no stickie \"fire\" on this board".into()));
        assert_eq!(terminal.json(&["board", "get", "plan"]), before);
        assert_eq!(terminal.expect_error(&["board", "sync", "plan", "--from", "nowhere"]).0, 3);
        assert_eq!(terminal.expect_error(&["board", "sync", "plan"]).0, 2);
    }

    fn import_creates_the_board_in_another_database(terminal: Terminal) {
        create_board(&terminal);
        terminal.json(&["board", "export", "plan", "folder"]);
        let elsewhere = Terminal::new(trackway_testkit::Engine::Sqlite);
        let folder = terminal.home.path().join("folder").display().to_string();
        let imported = elsewhere.json(&["board", "import", &folder]);
        assert_eq!((counts(&imported), &imported["board"], &imported["relations"]["created"]), ([2, 0, 0, 0], &json!("new"), &json!(1)));
        let content = |terminal: &Terminal| {
            let board = terminal.json(&["board", "get", "plan"]);
            let fields = ["name", "note", "code", "labels", "priority", "id"].map(|field| column(&board["stickies"], field));
            (board["id"].clone(), board["background"].clone(), fields, column(&board["relations"], "labels"))
        };
        assert_eq!(content(&elsewhere), content(&terminal));
        assert_eq!(counts(&elsewhere.json(&["board", "import", &folder])), [0, 0, 2, 0]);
        assert_eq!(diff(&terminal).0, 0);
        elsewhere.json(&["board", "set", "--name", "second"]);
        assert_eq!(elsewhere.expect_error(&["board", "set", "second", "--name", "plan"]), (4, "there is already a board called \"plan\"".into()));
    }
}
