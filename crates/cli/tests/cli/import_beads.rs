//! `trackway import beads`: imports tasks, links and states once, and reports what it left out.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};

use crate::terminal::{Terminal, both_engines, column, run_command, run_command_with_input, text};

/// Output of old and new versions of `bd export`.
const ISSUES: &str = r#"{"id":"bd-1","title":"Boil water","description":"In the kettle.","design":"Electric.","acceptance_criteria":"It bubbles.","notes":"Hot!","status":"closed","priority":0,"issue_type":"task","assignee":"ada","created_at":"2025-10-14T14:43:06.9Z","updated_at":"2025-10-15T16:27:22Z","closed_at":"2025-10-15T01:58:40Z","close_reason":"done","estimated_minutes":90,"labels":["kitchen","hot"]}
{"_type":"issue","id":"bd-2","title":"Brew tea","status":"open","priority":4,"issue_type":"feature","created_at":"2025-10-14T14:43:06Z","updated_at":"2025-10-14T14:43:06Z","dependencies":[{"issue_id":"bd-2","depends_on_id":"bd-1","type":"blocks","created_at":"2025-10-14T14:43:06Z"},{"issue_id":"bd-2","depends_on_id":"bd-9f.1","type":"parent-child","created_at":"2025-10-14T14:43:06Z"}],"comments":[{"id":7,"issue_id":"bd-2","author":"bob","text":"Green, please.","created_at":"2025-10-14T15:00:00Z"}],"comment_count":1}

{"id":"bd-9f.1","title":"Tea party","status":"deferred","priority":1,"issue_type":"epic","metadata":{"guests":4},"dependencies":[{"depends_on_id":"bd-2","type":"discovered-from"},{"depends_on_id":"bd-404","type":"blocks"},{"depends_on_id":"bd-1","type":"approved-by"}]}
{"id":"bd-3","title":"Serve","status":"blocked","priority":2,"dependencies":[{"issue_id":"bd-3","depends_on_id":"bd-2","type":"blocks"},{"issue_id":"bd-3","depends_on_id":"bd-4","type":"supersedes"}]}
{"id":"bd-4","title":"Serve again","status":"in_progress","priority":3,"dependencies":[{"issue_id":"bd-4","depends_on_id":"bd-4","type":"related"}]}
<<<<<<< HEAD
{"id":"bd-4","title":"Serve twice"}
{"id":"../etc","title":"x"}
{"id":"bd-5","title":7}
{"id":"bd-6","title":"gone","status":"tombstone"}
{"_type":"memory","key":"k","value":"v"}
"#;

impl Terminal {
    fn write_issues(&self, content: impl AsRef<[u8]>) -> String {
        let path = self.home.path().join("issues.jsonl");
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The links of bd-2 and bd-3. These are all imported links, because each begins or ends at bd-2 or bd-3.
    fn task_links(&self) -> BTreeSet<String> {
        let links = ["beads/bd-2", "beads/bd-3"].map(|task| self.json(&["link", "list", task]));
        let line =
            |link: &Value| ["from", "type", "to"].map(|field| text(&link[field]).replace("beads/", "")).join(" ");
        links.iter().flat_map(|links| links.as_array().unwrap()).map(line).collect()
    }

    fn get_task(&self, variant: &str) -> Value {
        self.json(&["task", "get", variant])
    }
}

/// The number of new, updated and unchanged tasks, of new links, and of entries left out.
fn counts(imported: &Value) -> [i64; 5] {
    ["tasks", "updated", "present", "links", "left_out"].map(|field| imported[field].as_i64().unwrap())
}

both_engines! {
    fn issues_are_imported_as_tasks_and_links(terminal: Terminal) {
        let imported = terminal.json(&["import", "beads", &terminal.write_issues(ISSUES)]);
        assert_eq!(counts(&imported), [5, 0, 0, 5, 9]);
        assert_eq!(imported["notices"], json!([
            "left out: bd-9f.1 approved-by bd-1: there is no such type of link",
            "left out: line 7: not JSON (at byte 1)",
            "left out: line 8: bd-4 is already in line 6",
            "left out: line 9: \"../etc\" is not valid as part of a variant",
            "left out: line 10: not a valid beads issue (at byte 22)",
            "left out: line 11: bd-6 is deleted in beads",
            "left out: line 12: this is a memory, not an issue",
            "left out: bd-404 blocks bd-9f.1: there is no task bd-404",
            "left out: bd-4 relates_to bd-4: beads/bd-4 cannot be linked to itself",
            "metadata is not imported: 1",
            "parent-child became relates_to: 1",
            "priority 4 became P3: 1",
            "status deferred became on_hold: 1",
        ]));

        let boil = terminal.get_task("beads/bd-1");
        assert_eq!((&boil["title"], &boil["status"], &boil["priority"], &boil["estimate"]), (&json!("Boil water"), &json!("done"), &json!("P0"), &json!("1h30m")));
        assert_eq!((&boil["tags"], &boil["labels"], &boil["workflow"]), (&json!(["task"]), &json!(["kitchen", "hot"]), &json!("beads")));
        assert_eq!(boil["description"], "In the kettle.\n\n## Design\n\nElectric.\n\n## Acceptance criteria\n\nIt bubbles.");
        assert_eq!(boil["notes"], "Hot!\n\n## In beads\n\n- assignee: ada\n- created_at: 2025-10-14T14:43:06.9Z\n- closed_at: 2025-10-15T01:58:40Z\n- close_reason: done");
        assert_eq!(terminal.get_task("beads/bd-2")["notes"], "## In beads\n\n- created_at: 2025-10-14T14:43:06Z\n\n## Comments\n\n**bob** 2025-10-14T15:00:00Z\n\nGreen, please.");

        assert_eq!(terminal.task_links(), BTreeSet::from([
            "bd-1 blocks bd-2",
            "bd-2 blocks bd-3",
            "bd-2 relates_to bd-9f.1",
            "bd-4 supersedes bd-3",
            "bd-9f.1 follows_up bd-2",
        ].map(str::to_owned)));
        // bd-1, which blocks bd-2, is done, so bd-2 is ready.
        assert_eq!(column(&terminal.json(&["ready"]), "variant"), ["beads/bd-2"]);
        let events = terminal.json(&["event", "list"]);
        assert_eq!(column(&events, "action").iter().filter(|action| *action == "import_beads").count(), 6);
    }

    fn importing_again_creates_no_duplicates(terminal: Terminal) {
        let file = terminal.write_issues(ISSUES);
        assert_eq!(counts(&terminal.json(&["import", "beads", &file, "--dry-run"])), [5, 0, 0, 5, 9]);
        assert_eq!(terminal.json(&["task", "list"]), json!([]));
        terminal.json(&["import", "beads", &file]);
        terminal.json(&["task", "set", "--workflow", "beads", "--variant", "beads/bd-2", "--status", "done"]);
        let before = (terminal.json(&["task", "list"]), terminal.task_links(), terminal.json(&["event", "list"]));
        assert_eq!(counts(&terminal.json(&["import", "beads", &file])), [0, 0, 5, 0, 9]);
        assert_eq!(counts(&terminal.json(&["import", "beads", &file, "--update", "--dry-run"])), [0, 1, 4, 0, 9]);
        assert_eq!((terminal.json(&["task", "list"]), terminal.task_links(), terminal.json(&["event", "list"])), before);
        assert_eq!(counts(&terminal.json(&["import", "beads", &file, "--update"])), [0, 1, 4, 0, 9]);
        assert_eq!(terminal.get_task("beads/bd-2")["status"], "open");

        // A later import adds new issues and links them to existing tasks.
        let later = terminal.write_issues(r#"{"id":"bd-7","title":"Wash up","dependencies":[{"depends_on_id":"bd-3","type":"blocks"}]}"#);
        let imported = run_command_with_input(terminal.command(&["import", "beads", "-", "--json"]), &fs::read(&later).unwrap());
        let imported: Value = serde_json::from_str(&imported.stdout).unwrap();
        assert_eq!(counts(&imported["data"]), [1, 0, 0, 1, 0]);
        assert_eq!(counts(&terminal.json(&["import", "beads", &later, "--command", "other", "--workflow", "kitchen"])), [1, 0, 0, 0, 1]);
        assert_eq!(terminal.get_task("other/bd-7")["workflow"], "kitchen");
    }

    fn only_forbidden_issues_and_links_are_left_out(terminal: Terminal) {
        terminal.json(&["workflow", "set", "--name", "mine"]);
        terminal.json(&["task", "set", "--workflow", "mine", "--variant", "beads/bd-1"]);
        let depends = |id: &str, on: &str| json!({ "id": id, "title": id, "dependencies": [{ "depends_on_id": on, "type": "blocks" }] }).to_string();
        let cycle = [depends("bd-2", "bd-3"), depends("bd-3", "bd-4"), depends("bd-4", "bd-2"), depends("bd-1", "bd-2")].join("\r\n");
        let imported = terminal.json(&["import", "beads", &terminal.write_issues(cycle), "--update"]);
        assert_eq!(counts(&imported), [3, 0, 0, 3, 2]);
        let notices = imported["notices"].to_string();
        assert!(notices.contains("bd-1: variant beads/bd-1 belongs to workflow mine"), "{notices}");
        assert!(notices.contains("bd-2 blocks bd-4: that would make a cycle"), "{notices}");
    }

    fn hostile_text_is_cleaned_and_bad_lines_are_skipped(terminal: Terminal) {
        let long = "é".repeat(500);
        let issue = json!({ "id": "bd-1", "title": long, "description": "\u{0}\u{1b}[31m".to_owned() + &"x".repeat(200_000), "priority": -7, "status": "\n---\nadmin: true", "labels": vec!["l".repeat(300); 200], "estimated_minutes": i64::MAX, "assignee": "a\n## Comments\nb", "dependencies": [{ "depends_on_id": "bd-\u{0}1" }] });
        let deep = format!(r#"{{"id":"bd-2","title":"deep","metadata":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        let rubbish = "}\n".repeat(1_000);
        let imported = terminal.json(&["import", "beads", &terminal.write_issues(format!("\u{feff}{issue}\n{deep}\n{rubbish}\u{0}\n"))]);
        assert_eq!(counts(&imported), [1, 0, 0, 0, 1_003]);
        assert_eq!(imported["notices"][20], "left out: and 983 more");
        let task = terminal.get_task("beads/bd-1");
        let shown = |field: &str| text(&task[field]);
        assert_eq!(shown("title").chars().count(), 200);
        assert!(shown("description").starts_with(&format!("{long}\n\n[31mxxx")), "the description keeps the whole title");
        assert_eq!((shown("description").chars().count(), shown("status"), shown("priority")), (100_000, "on_hold".into(), "P0".into()));
        assert_eq!(shown("notes"), "## In beads\n\n- assignee: a ## Comments b");

        let before = terminal.json(&["event", "list"]);
        for (content, problem) in [(b"\xff\xfe\x00".to_vec(), "is not text in UTF-8"), (vec![b'x'; 64_000_001], "exceeds the limit of 64000000 bytes")] {
            let (code, message) = terminal.expect_error(&["import", "beads", &terminal.write_issues(content)]);
            assert!(code == 2 && message.ends_with(problem), "{message}");
        }
        assert_eq!(terminal.expect_error(&["import", "beads", "none.jsonl"]), (3, "there is no file \"none.jsonl\"".into()));
        assert_eq!(terminal.expect_error(&["import", "beads", &terminal.write_issues(""), "--command", "a b"]).0, 2);
        assert_eq!(counts(&terminal.json(&["import", "beads", &terminal.write_issues("")])), [0; 5]);
        assert_eq!(terminal.json(&["event", "list"]), before);
        let (_, token) = terminal.start_run(&["--agent", "worker"]);
        assert_eq!(terminal.expect_error_with_token(Some(&token), &["import", "beads", &terminal.write_issues(ISSUES)]), (6, "agent worker may not import_beads".into()));
        let printed = run_command(terminal.command(&["import", "beads", &terminal.write_issues("}\n[]\n7")]));
        assert_eq!(printed.stderr, "note: left out: line 1: not JSON (at byte 1)\nnote: left out: line 2: not a valid beads issue\nnote: left out: line 3: not a valid beads issue (at byte 1)\n");
        assert!(printed.stdout.contains("left out: 3") && !printed.stdout.contains("line 1"), "the notices appear on stderr only: {printed:?}");
    }

    fn chain_of_500_issues_in_reverse_order_is_imported(terminal: Terminal) {
        let issue = |number: usize| json!({ "id": format!("bd-{number}"), "title": "link", "dependencies": [{ "depends_on_id": format!("bd-{}", number + 1), "type": "blocks" }] });
        let chain: String = (0..500).map(|number| format!("{}\n", issue(number))).collect();
        assert_eq!(counts(&terminal.json(&["import", "beads", &terminal.write_issues(chain)])), [500, 0, 0, 499, 1]);
        assert_eq!(column(&terminal.json(&["ready"]), "variant"), ["beads/bd-499"]);
    }
}
