//! `made` lists the resources of a run, `why` leads from a resource back to its run, and each resource shows its
//! author and run.

use std::fs;

use serde_json::{Value, json};

use crate::{
    mcp::VERSIONS,
    mcp_client::Client,
    terminal::{Terminal, both_engines, column, text},
};

const REPORT: &str = "<testsuite name='tea'><testcase name='brews'/><testcase name='pours'/></testsuite>";

/// Starts a run of agent `bot` on a task of role `coder`. Returns the ids of the task and the run, and the run's
/// token.
fn start_coder_run(terminal: &Terminal) -> (String, String, String) {
    terminal.json(&["role", "set", "--name", "coder"]);
    terminal.json(&["workflow", "set", "--name", "q"]);
    let task = terminal.json(&["task", "set", "--workflow", "q", "--variant", "unit/go", "--role", "coder"]);
    terminal.json(&["agent", "set", "--handle", "bot"]);
    let (run, token) = terminal.start_run(&["--agent", "bot", "--task", "unit/go"]);
    (text(&task["id"]), run, token)
}

fn chain_ids(why: &Value) -> Vec<String> {
    column(&why["chain"], "id")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(work)
}

both_engines! {
    fn why_traces_testcases_experiments_and_conversations_to_their_run(terminal: Terminal) {
        let (task, run, token) = start_coder_run(&terminal);
        let in_run = |arguments: &[&str]| terminal.json_with_token(Some(&token), arguments);
        let report = terminal.home.path().join("junit.xml");
        fs::write(&report, REPORT).unwrap();
        let conversation = text(&in_run(&["conversation", "set", "--title", "Tea"])["id"]);
        let experiment = text(&in_run(&["experiment", "set", "--conversation", &conversation, "--title", "first try"])["id"]);
        let imported = in_run(&["testcase", "import", report.to_str().unwrap(), "--experiment", &experiment]);
        assert_eq!(imported["imported"], 2);
        in_run(&["experiment", "end", &experiment, "--status", "succeeded"]);
        in_run(&["run", "end", &run, "--status", "completed"]);

        let made = terminal.json(&["made", &run])["touches"].clone();
        let kinds = ["conversation", "experiment", "testcase", "testcase", "experiment"];
        assert_eq!(column(&made, "resource_type"), kinds);
        assert_eq!(column(&made, "action_type"), ["create", "create", "create", "create", "close"]);
        assert_eq!(column(&made, "display_path"), ["Tea", "first try", "brews", "pours", "first try"]);
        assert_eq!(column(&terminal.json(&["made", &run, "--kind", "testcase"])["touches"], "display_path"), ["brews", "pours"]);
        for resource in column(&made, "resource_id") {
            let why = terminal.json(&["why", &resource]);
            assert_eq!(column(&why["chain"], "kind"), ["resource", "run", "agent", "role", "task", "person"]);
            assert_eq!((chain_ids(&why)[1].clone(), chain_ids(&why)[4].clone()), (run.clone(), task.clone()));
            assert_eq!((column(&why["chain"], "label")[5].as_str(), &why["missing"]), ("ada", &json!([])));
            let printed = terminal.run(&["why", &resource]).stdout;
            assert!(!printed.contains("not recorded"), "{printed}");
        }
        assert_eq!(terminal.json(&["run", "show", &run])["no_effect"], false);
    }

    fn run_that_only_imports_or_queues_counts_as_having_an_effect(terminal: Terminal) {
        let (task, run, token) = start_coder_run(&terminal);
        let item = text(&terminal.json_with_token(Some(&token), &["queue", "add", "--task", "unit/go"])["id"]);
        terminal.json_with_token(Some(&token), &["run", "end", &run, "--status", "completed"]);
        let why = terminal.json(&["why", &item]);
        assert_eq!(column(&why["chain"], "kind"), ["queue_item", "run", "agent", "role", "task", "person"]);
        assert_eq!((chain_ids(&why)[1].clone(), chain_ids(&why)[4].clone()), (run.clone(), task));
        assert_eq!(column(&why["touched_by"], "run_id"), [run.as_str()]);

        let urls = |of: &[&str]| of.iter().map(|of| terminal.json(&["why", &format!("http://127.0.0.1:1/{of}")])["chain"][0]["label"].clone()).collect::<Vec<_>>();
        terminal.json(&["board", "set", "--name", "wall"]);
        terminal.json(&["label", "set", "--key", "k", "--name", "K"]);
        assert_eq!(urls(&["boards/wall", "labels/k", "roles/coder"]), ["board wall", "label k", "role coder"]);
        assert_eq!(terminal.expect_error(&["why", "http://127.0.0.1:1/boards/k"]).0, 3);

        let report = terminal.home.path().join("junit.xml");
        fs::write(&report, REPORT).unwrap();
        let (importing, token) = terminal.start_run(&["--agent", "bot"]);
        terminal.json_with_token(Some(&token), &["testcase", "import", report.to_str().unwrap()]);
        terminal.json_with_token(Some(&token), &["run", "end", &importing, "--status", "completed"]);
        let (idle, token) = terminal.start_run(&["--agent", "bot"]);
        terminal.json_with_token(Some(&token), &["run", "end", &idle, "--status", "completed"]);
        let listed = terminal.json(&["run", "list"]);
        assert_eq!(column(&listed, "id"), [idle, importing, run]);
        assert_eq!(column(&listed, "no_effect"), ["true", "false", "false"]);
    }

    fn resources_show_their_author_and_run(terminal: Terminal) {
        let (_, run, token) = start_coder_run(&terminal);
        let in_run = |arguments: &[&str]| terminal.json_with_token(Some(&token), arguments);
        let id = |made: Value| text(&made["id"]);
        let note = id(in_run(&["note", "create", "--studio", "main", "--title", "Found", "--body", "it"]));
        in_run(&["note", "create", "--studio", "main", "--title", "Re", "--body", "so it is", "--about", &note]);
        let decision = id(in_run(&["decision", "create", "--studio", "main", "--question", "Lunch?", "--option", "soup"]));
        let commitment = id(in_run(&["commitment", "create", "--studio", "main", "--title", "Tests", "--critical-mass", "2"]));
        in_run(&["decision", "vote", &decision, "--option", "soup", "--accept"]);
        terminal.json(&["decision", "vote", &decision, "--option", "soup", "--prefer"]);
        terminal.json(&["board", "set", "--name", "wall"]);
        let stickie = id(in_run(&["stickie", "set", "--board", "wall", "--name", "one", "--note", "boil it"]));
        let message = id(in_run(&["message", "send", "--body", "hello"]));
        let own = id(terminal.json(&["note", "create", "--studio", "main", "--title", "Mine"]));

        let shown = |noun: &str, id: &str| terminal.json(&[noun, "get", id]);
        for (noun, id) in [("note", &note), ("decision", &decision), ("commitment", &commitment)] {
            let got = shown(noun, id);
            assert_eq!((&got["author"], &got["run_id"]), (&json!("bot"), &json!(run)), "{noun}");
            let listed = terminal.json(&[noun, "list"]).as_array().unwrap().iter().find(|row| row["id"] == json!(id)).unwrap().clone();
            assert_eq!((&listed["author"], &listed["run_id"]), (&json!("bot"), &json!(run)), "{noun}");
        }
        assert_eq!((&shown("note", &own)["author"], &shown("note", &own)["run_id"]), (&json!("ada"), &json!(null)));
        assert_eq!((&shown("note", &note)["comments"][0]["author"], &shown("note", &note)["comments"][0]["run_id"]), (&json!("bot"), &json!(run)));
        let votes = shown("decision", &decision)["votes"].clone();
        assert_eq!((column(&votes, "option"), column(&votes, "author")), (vec!["soup".into(); 2], vec!["bot".into(), "ada".into()]));
        assert_eq!((column(&votes, "run_id"), column(&votes, "preferred")), (vec![run.clone(), "null".into()], vec!["false".into(), "true".into()]));
        for stickie in [shown("stickie", &stickie), shown("board", "wall")["stickies"][0].clone(), terminal.json(&["stickie", "list"])[0].clone()] {
            assert_eq!((&stickie["author"], &stickie["created_by_run_id"]), (&json!("bot"), &json!(run)));
        }
        assert_eq!((&shown("message", &message)["from"], &shown("message", &message)["from_run_id"]), (&json!("bot"), &json!(run)));
        let hit = terminal.json(&["search", "hello"])[0].clone();
        assert_eq!((&hit["from"], &hit["run_id"]), (&json!("bot"), &json!(run)));

        // The text output also shows the author and the run.
        let short = &run[28..];
        for arguments in [
            &["note", "get", &note][..], &["note", "list"], &["decision", "get", &decision], &["decision", "list"], &["commitment", "list"],
            &["stickie", "get", &stickie], &["stickie", "list"], &["board", "get", "wall"], &["message", "get", &message], &["message", "list"], &["search", "hello"],
        ] {
            let printed = terminal.run(arguments).stdout;
            assert!(printed.contains("bot") && printed.contains(short), "{arguments:?}: {printed}");
        }
        let printed = terminal.run(&["decision", "get", &decision]).stdout;
        assert!(printed.contains(&format!("votes\noption\tauthor\trun_id\taccepted\tpreferred\tupdated_at\nsoup\tbot\t{short}\tyes\tno\t")), "{printed}");
    }

    fn mcp_why_traces_resources_to_run_task_and_person(terminal: Terminal) {
        let (_, run, token) = start_coder_run(&terminal);
        let conversation = text(&terminal.json_with_token(Some(&token), &["conversation", "set", "--title", "Tea"])["id"]);
        let item = text(&terminal.json_with_token(Some(&token), &["queue", "add", "--task", "unit/go"])["id"]);
        terminal.json_with_token(Some(&token), &["message", "send", "--body", "it boils", "--conversation", &conversation]);
        block_on(async {
            let client = Client::over_stdio(&terminal, None, &VERSIONS[0]).await;
            for thing in [conversation.clone(), item, format!("trackway:///conversations/{conversation}")] {
                let why = client.call_ok("why", json!({ "thing": thing })).await;
                for part in [format!("](/runs/{run})"), "[unit/go @ 1](/tasks/".to_owned(), "- person: [ada](/people/".to_owned()] {
                    assert!(why.contains(&part), "{part:?} is not in {why}");
                }
                assert!(!why.contains("not recorded"), "{why}");
            }
            let thread = client.call_ok("show", json!({ "page": format!("/conversations/{conversation}") })).await;
            assert!(thread.contains(" bot](/messages/") && thread.contains(&format!(" in run [{}](/runs/{run})", &run[28..])), "{thread}");
        });
    }
}
