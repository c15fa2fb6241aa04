//! Notes, decisions, commitments and scratchpads.

use serde_json::json;
use trackway_testkit::{CommandLine, column, engines, text};

engines! {
    fn note_keeps_revisions_and_read_confirmations(terminal: CommandLine) {
        let note = text(&terminal.json(&["note", "create", "--studio", "main", "--title", "Plan", "--body", "one"])["id"]);
        let first = terminal.json(&["note", "confirm", &note]);
        assert_eq!(terminal.json(&["note", "confirm", &note]), first);
        assert_eq!(terminal.json(&["note", "update", &note, "--body", "two", "--if-revision", "1"])["revision"], 2);
        assert_eq!(terminal.fails(&["note", "update", &note, "--body", "three", "--if-revision", "1"]), (4, "the note is at revision 2, not 1".into()));
        assert_eq!(terminal.json(&["note", "update", &note, "--body", "two"])["revision"], 2);
        assert_eq!(terminal.json(&["note", "confirm", &note])["note_revision"], 2);
        let history = terminal.json(&["note", "history", &note]);
        assert_eq!((column(&history, "number"), column(&history, "body")), (vec!["2".into(), "1".into()], vec!["two".into(), "one".into()]));
        let comment = terminal.json(&["note", "create", "--studio", "main", "--title", "But", "--about", &note]);
        let shown = terminal.json(&["note", "show", &note]);
        assert_eq!(column(&shown["read_by"], "actor"), ["ada"]);
        assert_eq!(column(&shown["comments"], "id"), [text(&comment["id"])]);
        assert_eq!(terminal.json(&["note", "show", &text(&comment["id"])])["about"], "main/notes/Plan");
        assert_eq!(terminal.json(&["note", "pin", &note])["pinned"], true);
        assert_eq!(terminal.json(&["note", "archive", &note])["archived"], true);
        assert_eq!(column(&terminal.json(&["note", "list"]), "title"), ["But"]);
        assert_eq!(column(&terminal.json(&["note", "list", "--archived"]), "title"), ["But", "Plan"]);
    }

    fn decision_results_are_ordered_by_votes(terminal: CommandLine) {
        terminal.json(&["agent", "set", "--handle", "bot"]);
        let decision = text(&terminal.json(&["decision", "create", "--studio", "main", "--question", "lunch?", "--option", "soup", "--option", "salad", "--option", "cake"])["id"]);
        let results = || terminal.json(&["decision", "results", &decision]);
        assert_eq!(column(&results(), "option"), ["soup", "salad", "cake"]);
        let (_, token) = terminal.start_run(&["--agent", "bot"]);
        let vote = |token: Option<&str>, option: &str, flags: &[&str]| {
            terminal.json_in_run(token, &[&["decision", "vote", &decision, "--option", option], flags].concat())
        };
        vote(None, "cake", &["--accept"]);
        vote(Some(&token), "cake", &["--accept", "--prefer"]);
        vote(Some(&token), "salad", &["--accept"]);
        assert_eq!(column(&results(), "option"), ["cake", "salad", "soup"]);
        assert_eq!(column(&results(), "accepted"), ["2", "1", "0"]);
        assert_eq!(column(&results(), "preferred"), ["1", "0", "0"]);
        // Voting again changes the vote. Without flags it withdraws the vote.
        vote(None, "cake", &[]);
        assert_eq!(column(&results(), "accepted"), ["1", "1", "0"]);
        terminal.json(&["decision", "add-options", &decision, "--option", "tea"]);
        assert_eq!(terminal.fails(&["decision", "add-options", &decision, "--option", "tea"]).0, 4);
        assert_eq!(terminal.fails(&["decision", "vote", &decision, "--option", "te", "--accept"]), (3, "there is no option \"te\"".into()));

        assert_eq!(terminal.fails_in_run(Some(&token), &["decision", "close", &decision]).0, 6);
        let closed = terminal.json(&["decision", "close", &decision]);
        assert_eq!((&closed["status"], column(&closed["results"], "option")[0].as_str()), (&json!("closed"), "cake"));
        assert_eq!(terminal.fails(&["decision", "vote", &decision, "--option", "soup", "--accept"]), (4, "the decision \"lunch?\" is closed".into()));
        assert_eq!(terminal.fails(&["decision", "close", &decision]).0, 4);
        let shown = terminal.json(&["decision", "show", &decision]);
        assert_eq!(shown["outcome"], closed["results"]);
    }

    fn decision_accepts_votes_until_its_deadline(terminal: CommandLine) {
        let create = ["decision", "create", "--studio", "main", "--question", "q", "--option", "a", "--deadline"];
        let past = text(&terminal.json(&[&create[..], &["2020-01-01T00:00:00Z"]].concat())["id"]);
        assert_eq!(terminal.fails(&["decision", "vote", &past, "--option", "a", "--accept"]).0, 4);
        assert_eq!(terminal.fails(&[&create[..], &["tomorrow"]].concat()).0, 2);
    }

    fn commitment_is_achieved_at_critical_mass(terminal: CommandLine) {
        terminal.json(&["agent", "set", "--handle", "bot"]);
        let create = ["commitment", "create", "--studio", "main", "--title", "Tests first", "--critical-mass", "2", "--limit", "2"];
        let commitment = terminal.json(&create);
        assert_eq!(commitment["status"], "pending");
        let id = text(&commitment["id"]);
        assert_eq!(terminal.json(&["commitment", "commit", &id])["members"], 1);
        assert_eq!(terminal.json(&["commitment", "commit", &id])["members"], 1);
        let (run, token) = terminal.start_run(&["--agent", "bot"]);
        let achieved = terminal.json_in_run(Some(&token), &["commitment", "commit", &id]);
        assert_eq!((&achieved["status"], &achieved["members"]), (&json!("achieved"), &json!(2)));
        assert_eq!(column(&terminal.json(&["made", &run])["touches"], "action_type"), ["commit"]);
        let (_, other) = terminal.start_run(&["--agent", "worker"]);
        assert_eq!(terminal.fails_in_run(Some(&other), &["commitment", "commit", &id]).0, 4);
        assert_eq!(terminal.json(&["commitment", "show", &id])["committed"], json!(["ada", "bot"]));
        let late = terminal.json(&["commitment", "create", "--studio", "main", "--title", "Late", "--critical-mass", "1", "--deadline", "2020-01-01T00:00:00Z"]);
        assert_eq!(terminal.json(&["commitment", "show", &text(&late["id"])])["status"], "failed");
        assert_eq!(terminal.fails(&["commitment", "commit", &text(&late["id"])]).0, 4);
        assert_eq!(terminal.fails(&["commitment", "create", "--studio", "main", "--title", "x", "--critical-mass", "0"]).0, 2);
    }

    fn scratchpad_is_writable_by_agent_and_owner_only(terminal: CommandLine) {
        terminal.json(&["agent", "set", "--handle", "bot"]);
        let get = || terminal.json(&["scratchpad", "get", "--agent", "bot"]);
        assert_eq!((get()["content"].clone(), get()["revision"].clone()), (json!(""), json!(0)));
        let (run, token) = terminal.start_run(&["--agent", "bot"]);
        assert_eq!(terminal.json_in_run(Some(&token), &["scratchpad", "update", "--content", "first\n"])["revision"], 1);
        assert_eq!(terminal.json_in_run(Some(&token), &["scratchpad", "set", "--agent", "bot", "--content", "second\n", "--if-revision", "1"])["revision"], 2);
        assert_eq!(terminal.fails(&["scratchpad", "set", "--agent", "bot", "--content", "x", "--if-revision", "1"]), (4, "the scratchpad is at revision 2, not 1".into()));
        assert_eq!(terminal.json(&["scratchpad", "set", "--agent", "bot", "--content", "third\n"])["revision"], 3);
        let history = terminal.json(&["scratchpad", "history", "--agent", "bot"]);
        assert_eq!(column(&history, "revision"), ["3", "2", "1"]);
        assert_eq!(column(&history, "run_id"), ["null".into(), run.clone(), run]);
        assert_eq!(column(&history, "by"), ["ada", "bot", "bot"]);
        let diff = terminal.json(&["scratchpad", "diff", "--agent", "bot", "--from", "1"]);
        assert_eq!(diff["diff"], "--- revision 1\n+++ revision 3\n@@ -1 +1 @@\n-first\n+third\n");
        assert_eq!(terminal.json(&["scratchpad", "restore", "--agent", "bot", "--revision", "1"]), json!({"content": "first\n", "revision": 4}));
        assert_eq!(terminal.fails(&["scratchpad", "restore", "--agent", "bot", "--revision", "9"]).0, 3);

        let (_, other) = terminal.start_run(&["--agent", "worker"]);
        assert_eq!(terminal.fails_in_run(Some(&other), &["scratchpad", "set", "--agent", "bot", "--content", "x"]).0, 6);
        assert_eq!(terminal.fails(&["scratchpad", "update", "--content", "x"]), (6, "only agents have a scratchpad".into()));
        let long = "𝔸".repeat(10_000);
        assert_eq!(terminal.json(&["scratchpad", "set", "--agent", "bot", "--content", &long])["content"], json!(long));
        let message = "Scratchpad content exceeds maximum length of 10000 characters (it has 10001)";
        assert_eq!(terminal.fails(&["scratchpad", "set", "--agent", "bot", "--content", &format!("{long}x")]), (2, message.into()));
        assert_eq!(get()["revision"], 5);
    }
}
