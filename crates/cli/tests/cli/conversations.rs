//! Conversations, their messages (from arguments, files and standard input) and their experiments.

use std::{fs, path::PathBuf, time::Instant};

use serde_json::{Value, json};
use snapbox::str;
use trackway_store::{Url, connection::Connection};

use crate::{
    output::redact,
    terminal::{CommandOutput, Terminal, both_engines, column, run_command_with_input, text},
};

impl Terminal {
    /// Sends a message and returns its id.
    #[track_caller]
    pub fn send_message(&self, arguments: &[&str]) -> String {
        text(&self.json(&[&["message", "send", "--body"], arguments].concat())["id"])
    }

    /// Creates a conversation with an experiment, and returns both ids.
    #[track_caller]
    fn create_experiment(&self, title: &str) -> (String, String) {
        let conversation = text(&self.json(&["conversation", "create", "--title", title])["id"]);
        let experiment =
            text(&self.json(&["experiment", "create", "--conversation", &conversation, "--title", "first try"])["id"]);
        (conversation, experiment)
    }

    fn write_file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.home.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> CommandOutput {
        run_command_with_input(self.command(arguments), input)
    }

    fn listed_bodies(&self, arguments: &[&str]) -> Vec<String> {
        column(&self.json(&[&["message", "list"], arguments].concat()), "body")
    }
}

fn data(output: &CommandOutput) -> Value {
    assert_eq!(output.code, 0, "{}", output.stderr);
    serde_json::from_str::<Value>(&output.stdout).unwrap()["data"].clone()
}

both_engines! {
    fn conversation_can_be_created_changed_and_deleted(terminal: Terminal) {
        terminal.json(&["role", "set", "--name", "coder"]);
        let made = terminal.json(&["conversation", "create", "--title", "Tea", "--role", "coder", "--project", "kitchen", "--tag", "a", "b", "--description", "d"]);
        assert_eq!(made["new"], true);
        let id = text(&made["id"]);
        let changed = terminal.json(&["conversation", "set", &id, "--project", "", "--notes", "n"]);
        assert_eq!((&changed["new"], &changed["title"], &changed["project"], &changed["notes"], &changed["tags"], &changed["description"]),
            (&json!(false), &json!("Tea"), &json!(null), &json!("n"), &json!(["a", "b"]), &json!("d")));
        terminal.json(&["conversation", "set", &id, "--title", "Green tea", "--tag", ""]);
        let shown = terminal.json(&["conversation", "get", &id]);
        assert_eq!((&shown["title"], &shown["role"], &shown["tags"], &shown["messages"]), (&json!("Green tea"), &json!("coder"), &json!([]), &json!(0)));
        assert_eq!(terminal.expect_error(&["conversation", "create"]), (2, "a new conversation needs a title".into()));
        assert_eq!(terminal.expect_error(&["conversation", "create", "--title", " "]), (2, "title is empty".into()));
        assert_eq!(terminal.expect_error(&["conversation", "set", "ffffffff", "--title", "x"]).0, 3);
        assert_eq!(terminal.expect_error(&["conversation", "set", &id, "--role", "codr"]).0, 3);

        let experiment = text(&terminal.json(&["experiment", "create", "--conversation", &id, "--title", "x"])["id"]);
        let message = terminal.send_message(&["kept", "--experiment", &experiment]);
        let second = text(&terminal.json(&["conversation", "create", "--title", "Other"])["id"]);
        assert_eq!(column(&terminal.json(&["conversation", "list"]), "title"), ["Other", "Green tea"]);
        assert_eq!(column(&terminal.json(&["conversation", "list", "--role", "coder"]), "title"), ["Green tea"]);
        terminal.json(&["conversation", "delete", &id, "--yes"]);
        assert_eq!(column(&terminal.json(&["conversation", "list"]), "id"), [second]);
        assert_eq!(terminal.json(&["experiment", "list"]), json!([]));
        assert_eq!(terminal.json(&["message", "get", &message])["conversation"], "Green tea");
        assert_eq!(terminal.expect_error(&["message", "send", "--body", "late", "--conversation", &id]).0, 3);
        assert_eq!(terminal.expect_error(&["message", "send", "--body", "late", "--experiment", &experiment]).0, 3);
    }

    fn experiment_ends_only_once(terminal: Terminal) {
        let (conversation, experiment) = terminal.create_experiment("Tea");
        assert_eq!(terminal.expect_error(&["experiment", "create", "--title", "x"]), (2, "a new experiment needs a conversation and a title".into()));
        assert_eq!(terminal.expect_error(&["experiment", "create", "--conversation", &conversation]).0, 2);
        assert_eq!(terminal.json(&["experiment", "set", &experiment, "--title", "second"])["title"], "second");
        let (other, _) = terminal.create_experiment("Other");
        assert_eq!(terminal.expect_error(&["experiment", "set", &experiment, "--conversation", &other]), (2, "an experiment cannot move to another conversation".into()));
        assert_eq!(terminal.expect_error(&["experiment", "end", &experiment, "--status", "open"]), (2, "an experiment cannot end with status open".into()));
        assert_eq!(terminal.expect_error(&["experiment", "end", &experiment, "--status", "won"]).0, 2);
        let ended = terminal.json(&["experiment", "end", &experiment, "--status", "failed", "--outcome", "cold"]);
        assert_eq!((&ended["status"], &ended["outcome"]), (&json!("failed"), &json!("cold")));
        let again = terminal.json(&["experiment", "end", &experiment, "--status", "failed"]);
        assert_eq!((&again["outcome"], &again["ended_at"], &again["updated_at"]), (&json!("cold"), &ended["ended_at"], &ended["updated_at"]));
        assert_eq!(terminal.expect_error(&["experiment", "end", &experiment, "--status", "succeeded"]), (4, "the experiment has already ended as failed".into()));
        assert_eq!(column(&terminal.json(&["experiment", "list", "--conversation", &conversation, "--status", "failed"]), "title"), ["second"]);
        assert_eq!(terminal.json(&["experiment", "get", &experiment])["conversation"], "Tea");
        terminal.json(&["experiment", "delete", &experiment, "--yes"]);
        assert_eq!(terminal.json(&["experiment", "list", "--conversation", &conversation]), json!([]));
    }

    fn message_body_comes_from_argument_file_or_standard_input(terminal: Terminal) {
        let send = ["message", "send", "--json"];
        let sent = terminal.json(&["message", "send", "--body", "hello"]);
        assert_eq!((&sent["content_new"], &sent["queue_item_id"], &sent["queue_items"]), (&json!(true), &json!(null), &json!([])));
        let body = |id: &Value| text(&terminal.json(&["message", "get", &text(id)])["body"]);
        assert_eq!(body(&sent["id"]), "hello");

        let file = terminal.write_file("body.md", b"# from a file\n");
        let sent = terminal.json(&["message", "send", "--file", file.to_str().unwrap()]);
        assert_eq!(body(&sent["id"]), "# from a file\n");
        let piped = data(&terminal.run_with_input(&send, b"from a pipe"));
        assert_eq!(body(&piped["id"]), "from a pipe");
        for more in [["--body", "-"], ["--file", "-"]] {
            let sent = data(&terminal.run_with_input(&[&send[..], &more].concat(), b"from a pipe"));
            assert_eq!((&sent["content_id"], &sent["content_new"]), (&piped["content_id"], &json!(false)));
        }
        // With `--body`, standard input is not read.
        let sent = data(&terminal.run_with_input(&[&send[..], &["--body", "-given"]].concat(), b"not this"));
        assert_eq!(body(&sent["id"]), "-given");

        let before = terminal.listed_bodies(&[]).len();
        assert_eq!(terminal.expect_error(&["message", "send", "--body", "x", "--file", file.to_str().unwrap()]).0, 2);
        assert_eq!(terminal.expect_error(&["message", "send"]), (2, "body is empty".into()));
        assert_eq!(terminal.expect_error(&["message", "send", "--body", ""]), (2, "body is empty".into()));
        assert_eq!(terminal.expect_error(&["message", "send", "--body", " \n\u{7}"]), (2, "body is empty".into()));
        assert_eq!(terminal.expect_error(&["message", "send", "--file", "nowhere.md"]), (3, "there is no file \"nowhere.md\"".into()));
        assert_eq!(terminal.expect_error(&["message", "send", "--file", "."]), (2, "\".\" is a directory".into()));
        let binary = terminal.write_file("image.png", &[0xff, 0xfe, 0x00]);
        assert!(terminal.expect_error(&["message", "send", "--file", binary.to_str().unwrap()]).1.ends_with("is not text in UTF-8"));
        assert_eq!(terminal.listed_bodies(&[]).len(), before);
    }

    fn message_send_rejects_oversized_bodies_quickly(terminal: Terminal) {
        let huge = terminal.home.path().join("huge.txt");
        fs::File::create(&huge).unwrap().set_len(50_000_000).unwrap();
        let started = Instant::now();
        let (code, message) = terminal.expect_error(&["message", "send", "--file", huge.to_str().unwrap()]);
        assert_eq!((code, message), (2, format!("{} exceeds the limit of 1000000 characters", huge.display())));
        let output = terminal.run_with_input(&["message", "send"], &vec![b'x'; 50_000_000]);
        assert_eq!((output.code, output.stderr.as_str()), (2, "error: standard input exceeds the limit of 1000000 characters\n"));
        assert!(started.elapsed().as_secs() < 20);
        let long = terminal.write_file("long.txt", "é".repeat(1_000_001).as_bytes());
        assert_eq!(terminal.expect_error(&["message", "send", "--file", long.to_str().unwrap()]), (2, "body has 1000001 characters, the limit is 1000000".into()));
        let whole = terminal.write_file("whole.txt", format!("{}\u{7}", "é".repeat(1_000_000)).as_bytes());
        let sent = terminal.json(&["message", "send", "--file", whole.to_str().unwrap()]);
        assert_eq!(terminal.json(&["message", "get", &text(&sent["id"])])["body"].as_str().unwrap().len(), 2_000_000);
    }

    fn bodies_that_are_equal_after_cleaning_are_stored_once(terminal: Terminal) {
        let contents = |bodies: &[&[u8]]| -> Vec<Value> {
            bodies.iter().map(|body| data(&terminal.run_with_input(&["message", "send", "--json"], body))).collect()
        };
        let same = contents(&[b"one\r\ntwo\t3\x1b\x07", b"one\ntwo\t3", b"one\ntwo\t3\x00"]);
        assert!(same.iter().all(|sent| sent["content_id"] == same[0]["content_id"]), "{same:?}");
        assert_eq!(same.iter().map(|sent| sent["content_new"] == true).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(terminal.json(&["message", "get", &text(&same[0]["id"])])["body"], "one\ntwo\t3");
        let others = contents(&[b"one\ntwo\t3\n", b" one\ntwo\t3", b"One\ntwo\t3"]);
        assert!(others.iter().all(|sent| sent["content_new"] == true), "{others:?}");
        let exact = "{ \"b\" :1.50, \"a\":  [1e3, \"\\u00e9\"] , \"b\": 2 }";
        let sent = data(&terminal.run_with_input(&["message", "send", "--json"], exact.as_bytes()));
        assert_eq!(terminal.json(&["message", "get", &text(&sent["id"])])["body"], exact);
    }

    fn message_belongs_to_a_conversation_and_an_experiment_and_can_be_a_reply(terminal: Terminal) {
        let (conversation, experiment) = terminal.create_experiment("Tea");
        let (other, _) = terminal.create_experiment("Other");
        let shown = |id: &str| terminal.json(&["message", "get", id]);
        let question = terminal.send_message(&["is it hot?", "--experiment", &experiment, "--title", "Q", "--goal", "know it", "--tag", "ask", "tea"]);
        let message = shown(&question);
        assert_eq!((&message["conversation_id"], &message["experiment_id"]), (&json!(conversation), &json!(experiment)));
        assert_eq!((&message["conversation"], &message["experiment"], &message["title"], &message["goal"]), (&json!("Tea"), &json!("first try"), &json!("Q"), &json!("know it")));
        assert_eq!((&message["status"], &message["tags"], &message["from"], &message["handled"]), (&json!("ingested"), &json!(["ask", "tea"]), &json!("ada"), &json!([])));
        let answer = terminal.send_message(&["no", "--reply-to", &question, "--status", "failed", "--error-message", "kettle\u{1b} broke"]);
        let message = shown(&answer);
        assert_eq!((&message["in_reply_to"], &message["experiment_id"], &message["status"], &message["error_message"]),
            (&json!(question), &json!(experiment), &json!("failed"), &json!("kettle broke")));
        let aside = terminal.send_message(&["elsewhere", "--reply-to", &question, "--conversation", &other]);
        assert_eq!((&shown(&aside)["conversation_id"], &shown(&aside)["experiment_id"]), (&json!(other), &json!(null)));
        terminal.send_message(&["matching", "--experiment", &experiment, "--conversation", &conversation]);
        assert_eq!(terminal.expect_error(&["message", "send", "--body", "x", "--experiment", &experiment, "--conversation", &other]),
            (2, "the experiment \"first try\" is part of another conversation".into()));
        assert_eq!(terminal.expect_error(&["message", "send", "--body", "x", "--reply-to", "ffffffff"]).0, 3);
        assert_eq!(terminal.expect_error(&["message", "send", "--body", "x", "--status", "fine"]).0, 2);

        assert_eq!(terminal.listed_bodies(&["--experiment", &experiment]), ["matching", "no", "is it hot?"]);
        assert_eq!(terminal.listed_bodies(&["--conversation", &other]), ["elsewhere"]);
        assert_eq!(terminal.listed_bodies(&["--reply-to", &question]), ["elsewhere", "no"]);
        assert_eq!(terminal.listed_bodies(&["--tag", "tea"]), ["is it hot?"]);
        assert_eq!(terminal.listed_bodies(&["--tag", "te"]), Vec::<String>::new());
        assert_eq!(column(&terminal.json(&["search", "no", "--conversation", &conversation]), "snippet"), ["«no»"]);
        assert_eq!(terminal.json(&["search", "no", "--conversation", &other]), json!([]));
        assert_eq!(column(&terminal.json(&["search", "matching", "--experiment", &experiment]), "snippet"), ["«matching»"]);
        assert_eq!(terminal.json(&["conversation", "get", &conversation])["messages"], 3);
    }

    fn message_recipient_is_a_role_a_person_or_an_agent(terminal: Terminal) {
        terminal.json(&["role", "set", "--name", "coder"]);
        terminal.json(&["role", "set", "--name", "worker"]);
        terminal.send_message(&["to a role", "--to", "coder"]);
        terminal.send_message(&["to a person", "--to", "ada"]);
        terminal.send_message(&["to an agent", "--to", "agent:worker"]);
        let role = terminal.send_message(&["to another role", "--to", "role:worker"]);
        assert_eq!(terminal.expect_error(&["message", "send", "--body", "x", "--to", "worker"]), (2, "the name \"worker\" is ambiguous".into()));
        assert_eq!(terminal.expect_error(&["message", "send", "--body", "x", "--to", "nobody"]), (3, "there is no agent or person or role \"nobody\"".into()));
        assert_eq!(terminal.listed_bodies(&["--to", "coder"]), ["to a role"]);
        assert_eq!(terminal.listed_bodies(&["--to", "agent:worker"]), ["to an agent"]);
        let shown = terminal.json(&["message", "get", &role]);
        assert_eq!((&shown["to"], &shown["to_kind"]), (&json!("worker"), &json!("role")));
    }

    fn message_sent_in_a_run_is_attributed_to_the_run(terminal: Terminal) {
        terminal.json(&["role", "set", "--name", "coder"]);
        terminal.json(&["role", "set", "--name", "critic"]);
        terminal.json(&["workflow", "set", "--name", "q"]);
        terminal.json(&["task", "set", "--workflow", "q", "--variant", "unit/go", "--role", "coder"]);
        let (run, token) = terminal.start_run(&["--agent", "worker", "--task", "unit/go"]);
        let sent = terminal.json_with_token(Some(&token), &["message", "send", "--body", "done", "--status", "succeeded"]);
        let id = text(&sent["id"]);
        let shown = terminal.json(&["message", "get", &id]);
        assert_eq!((&shown["from"], &shown["from_run_id"], &shown["role"], &shown["task"]), (&json!("worker"), &json!(run), &json!("coder"), &json!("unit/go")));
        terminal.json_with_token(Some(&token), &["message", "send", "--body", "hm", "--role", "critic"]);
        assert_eq!(terminal.listed_bodies(&["--role", "coder"]), ["done"]);
        assert_eq!(terminal.listed_bodies(&["--role", "critic"]), ["hm"]);
        assert_eq!(terminal.listed_bodies(&["--task", "unit/go"]), ["hm", "done"]);
        assert_eq!(column(&terminal.json(&["search", "done", "--role", "coder", "--task", "unit/go"]), "message_id"), [id.as_str()]);
        assert_eq!(terminal.json(&["search", "done", "--role", "critic"]), json!([]));

        let touches = terminal.json(&["made", &run])["touches"].clone();
        assert_eq!((column(&touches, "resource_type"), column(&touches, "action_type")), (vec!["message".into(); 2], vec!["send".into(); 2]));
        let chain = terminal.json(&["why", &id])["chain"].clone();
        assert_eq!(column(&chain, "kind"), ["message", "run", "agent", "role", "task", "person"]);
        let own = terminal.send_message(&["by hand"]);
        let why = terminal.json(&["why", &own]);
        assert_eq!((column(&why["chain"], "kind"), column(&why["chain"], "label")[1].as_str()), (vec!["message".into(), "person".into()], "ada"));
        terminal.json_with_token(Some(&token), &["run", "end", &run, "--status", "completed"]);
        assert_eq!(terminal.expect_error_with_token(Some(&token), &["message", "send", "--body", "late"]).0, 6);
        let (_, mute) = { terminal.json(&["agent", "set", "--handle", "mute", "--capability", "vote"]); terminal.start_run(&["--agent", "mute"]) };
        assert_eq!(terminal.expect_error_with_token(Some(&mute), &["message", "send", "--body", "x"]), (6, "agent mute may not send_message".into()));
    }

    fn hostile_titles_and_bodies_are_cleaned_and_not_interpreted(terminal: Terminal) {
        let title = "a\nb: c\r\n---\u{1b}[31m<script>alert(1)</script>";
        let conversation = terminal.json(&["conversation", "create", "--title", title]);
        assert_eq!(conversation["title"], "a b: c ---[31m<script>alert(1)</script>");
        let body = "---\ntitle: x\nactions: [pwn]\n---\n<script>alert(1)</script>\u{9b}31m \u{202e}";
        let id = terminal.send_message(&[body, "--title", title, "--tag", "x\ny"]);
        let shown = terminal.json(&["message", "get", &id]);
        assert_eq!((&shown["body"], &shown["title"], &shown["tags"]),
            (&json!("---\ntitle: x\nactions: [pwn]\n---\n<script>alert(1)</script>31m \u{202e}"), &conversation["title"], &json!(["x y"])));
        assert_eq!(terminal.run(&["message", "list"]).stdout.lines().count(), 2);
        assert_eq!(terminal.run(&["conversation", "list"]).stdout.lines().count(), 2);
        let long = "x".repeat(201);
        assert_eq!(terminal.expect_error(&["message", "send", "--body", "x", "--title", &long]), (2, "title has 201 characters, the limit is 200".into()));
        assert_eq!(terminal.expect_error(&["message", "send", "--body", "x", "--tag", &long]).0, 2);
        assert_eq!(terminal.listed_bodies(&[]).len(), 1);
    }

    fn search_finds_messages_in_any_language(terminal: Terminal) {
        let bodies = ["Où est la crème brûlée?", "東京都に行きます", "저는 한국어를 배웁니다", "我喜欢喝绿茶", "three green tea pots", "tea green"];
        for body in bodies {
            terminal.send_message(&[body]);
        }
        let found = |query: &str| {
            let mut found: Vec<String> = column(&terminal.json(&["search", query]), "message_id")
                .iter()
                .map(|id| text(&terminal.json(&["message", "get", id])["body"]))
                .collect();
            found.sort();
            found
        };
        for (query, index) in [("CREME brulee", 0), ("京都", 1), ("한국", 2), ("绿茶", 3), ("喝", 3), ("\"green tea\"", 4), ("\"tea green\"", 5), ("pot*", 4)] {
            assert_eq!(found(query), [bodies[index]], "{query}");
        }
        assert_eq!(found("gre* tea"), [bodies[5], bodies[4]]);
        assert_eq!(found("茶绿"), Vec::<String>::new());
        for query in ["\"unbalanced", "a AND", "*"] {
            assert_eq!(terminal.expect_error(&["search", query]).0, 2, "{query}");
        }
    }

    fn cleanup_contents_removes_bodies_without_a_message(terminal: Terminal) {
        let deleted = terminal.json(&["message", "send", "--body", "gone away"]);
        terminal.send_message(&["stays"]);
        assert_eq!(terminal.json(&["cleanup", "contents"]), json!({ "removed": 0, "characters": 0 }));
        let mut connection = match Url::parse(&terminal.database.url_text()).unwrap() {
            Url::Sqlite(path) => Connection::sqlite(&path, false).unwrap(),
            Url::Postgres(url) => Connection::postgres(&url).unwrap(),
        };
        let literal = match connection.engine() {
            trackway_testkit::Engine::Sqlite => format!("x'{}'", text(&deleted["id"]).replace('-', "")),
            trackway_testkit::Engine::Postgres => format!("'{}'", text(&deleted["id"])),
        };
        connection.batch(&format!("delete from messages where id = {literal}; delete from registry where id = {literal}")).unwrap();
        drop(connection);
        assert_eq!(terminal.json(&["cleanup", "contents", "--dry-run"]), json!({ "removed": 1, "characters": 9 }));
        assert_eq!(terminal.json(&["cleanup", "contents"]), json!({ "removed": 1, "characters": 9 }));
        assert_eq!(terminal.json(&["cleanup", "contents"])["removed"], 0);
        assert_eq!(terminal.json(&["event", "list", "--limit", "1"])[0]["detail"], json!({ "removed": 1, "characters": 9 }));
        assert_eq!(terminal.json(&["search", "away"]), json!([]));
        assert_eq!(terminal.json(&["message", "send", "--body", "gone away"])["content_new"], true);
        assert_eq!(column(&terminal.json(&["search", "away"]), "snippet"), ["gone «away»"]);
    }

    fn text_output_of_conversation_commands(terminal: Terminal) {
        let (conversation, experiment) = terminal.create_experiment("Tea");
        let shown = |arguments: &[&str]| redact(&terminal.run(arguments).stdout);
        snapbox::assert_data_eq!(shown(&["message", "send", "--body", "hello", "--experiment", &experiment, "--tag", "x"]), str![[r#"
id: [ID]
content id: [..]
content new: yes

"#]]);
        snapbox::assert_data_eq!(shown(&["message", "list"]), str![[r#"
id	created_at	from	from_run_id	to	role	title	tags	status	body	conversation	session_id
[ID]	[TIME]	ada					x	ingested	hello	Tea	

"#]]);
        snapbox::assert_data_eq!(shown(&["conversation", "list"]), str![[r#"
id	title	project	role	tags	experiments	messages	created_at
[ID]	Tea				1	1	[TIME]

"#]]);
        terminal.json(&["experiment", "end", &experiment, "--status", "succeeded", "--outcome", "warm"]);
        snapbox::assert_data_eq!(shown(&["experiment", "list", "--conversation", &conversation]), str![[r#"
id	title	conversation	status	outcome	messages	testcases	created_at	ended_at
[ID]	first try	Tea	succeeded	warm	1	0	[TIME]	[TIME]

"#]]);
    }
}
