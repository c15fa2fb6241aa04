//! Search in messages that hooks and transcripts recorded.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::terminal::{Terminal, both_engines, column, run_command_with_input, text};

const FIRST: &str = "0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001";
const SECOND: &str = "7c3e1f20-5d11-4b6a-9c2e-4a1b6c8d0002";

impl Terminal {
    /// Ingests a session of messages one second apart: the first from a person, the others from an agent.
    fn ingest_session(&self, session: &str, messages: &[&str]) -> PathBuf {
        let line = |index: usize, message: &&str| {
            let (kind, content) = match index {
                0 => ("user", json!(message)),
                _ => ("assistant", json!([{ "type": "text", "text": message }])),
            };
            json!({
                "type": kind,
                "uuid": format!("{}{index:04}", &session[..32]),
                "sessionId": session,
                "promptId": format!("prompt of {session}"),
                "timestamp": format!("2026-03-01T09:{:02}:{:02}.000Z", index / 60, index % 60),
                "cwd": self.home.path(),
                "version": "2.1.197",
                "message": { "id": format!("msg_{session}_{index}"), "role": kind, "content": content, "model": "m" },
            })
            .to_string()
        };
        let lines: Vec<String> = messages.iter().enumerate().map(|(index, message)| line(index, message)).collect();
        let path = self.home.path().join(format!("{session}.jsonl"));
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        self.json(&["ingest", path.to_str().unwrap()]);
        path
    }

    /// The bodies of the messages that a search finds, oldest first.
    #[track_caller]
    fn search_bodies(&self, query: &str) -> Vec<String> {
        let mut ids = column(&self.json(&["search", query]), "message_id");
        ids.sort();
        ids.iter().map(|id| text(&self.json(&["message", "get", id])["body"])).collect()
    }

    #[track_caller]
    fn search_snippets(&self, query: &str) -> Vec<String> {
        column(&self.json(&["search", query]), "snippet")
    }
}

both_engines! {
    fn search_finds_words_in_any_language(terminal: Terminal) {
        let messages = [
            "Où est la crème brûlée?",
            "Die STRASSE in Łódź",
            "東京都に行きます",
            "저는 한국어를 배웁니다",
            "Привет, ёлка",
            "हिन्दी में लिखो",
            "let tea_timer = don't_stop(3);",
        ];
        terminal.ingest_session(FIRST, &messages);
        let expected_hits = [
            ("creme BRULEE", 0), ("ou", 0), ("straße", 1), ("lodz", 1), ("東京", 2), ("京都", 2), ("都", 2), ("行", 2), ("한국", 3),
            ("한국어", 3), ("елка", 4), ("ПРИВЕТ", 4), ("हिन्दी", 5), ("tea_timer", 6), ("don't", 6), ("TIMER", 6),
        ];
        for (query, index) in expected_hits {
            assert_eq!(terminal.search_bodies(query), [messages[index]], "{query}");
        }
        for query in ["cre", "東都", "हिन्द", "timer_tea"] {
            assert_eq!(terminal.search_bodies(query), Vec::<String>::new(), "{query}");
        }
    }

    fn search_supports_phrases_prefixes_and_several_words(terminal: Terminal) {
        let messages = ["write the tea timer", "the timer makes tea", "tea times three", "one two one two three"];
        terminal.ingest_session(FIRST, &messages);
        assert_eq!(terminal.search_bodies("tea timer"), messages[..2]);
        assert_eq!(terminal.search_bodies("\"tea timer\""), messages[..1]);
        assert_eq!(terminal.search_bodies("\"timer tea\""), Vec::<String>::new());
        assert_eq!(terminal.search_bodies("tim*"), messages[..3]);
        assert_eq!(terminal.search_bodies("\"tea tim\"*"), [messages[0], messages[2]]);
        assert_eq!(terminal.search_bodies("\"one two three\""), messages[3..]);
        assert_eq!(terminal.search_bodies("TEA \"three\""), messages[2..3]);
        assert_eq!(column(&terminal.json(&["search", "tea", "times"]), "snippet"), ["«tea» «times» three"]);
    }

    fn search_hit_shows_sender_session_and_time(terminal: Terminal) {
        terminal.ingest_session(FIRST, &["Please brew *some*\n\ngreen tea.", "Green tea it is."]);
        let hits = terminal.json(&["search", "\"green tea\""]);
        let mut snippets = column(&hits, "snippet");
        snippets.sort();
        assert_eq!(snippets, ["Please brew *some* «green tea».", "«Green tea» it is."]);
        let hit = hits.as_array().unwrap().iter().find(|hit| hit["from"] == "ada").unwrap();
        assert_eq!((&hit["session_id"], &hit["created_at"]), (&json!(FIRST), &json!("2026-03-01T09:00:00.000Z")));
        assert!(hit["score"].as_f64().unwrap() > 0.0);
        let message = terminal.json(&["message", "get", &text(&hit["message_id"])]);
        assert_eq!((&message["id"], &message["body"]), (&hit["message_id"], &json!("Please brew *some*\n\ngreen tea.")));
        assert_eq!((&message["from"], &message["session_id"], &message["from_actor_kind"]), (&json!("ada"), &json!(FIRST), &json!("person")));
        let shown = terminal.run(&["search", "brew"]).stdout;
        assert!(shown.starts_with("message_id\tscore\tcreated_at\tfrom\trun_id\tsnippet\n") && shown.contains("\tada\t\tPlease «brew»"), "{shown}");
    }

    fn filters_restrict_search_and_message_list(terminal: Terminal) {
        terminal.ingest_session(FIRST, &["tea one", "tea two"]);
        terminal.ingest_session(SECOND, &["tea three", "tea four"]);
        let snippets = |arguments: &[&str]| {
            let mut snippets = column(&terminal.json(&[&["search", "tea"], arguments].concat()), "snippet");
            snippets.sort();
            snippets
        };
        assert_eq!(snippets(&[]), ["«tea» four", "«tea» one", "«tea» three", "«tea» two"]);
        assert_eq!(snippets(&["--session", FIRST]), ["«tea» one", "«tea» two"]);
        assert_eq!(snippets(&["--session", SECOND, "--since", "2026-03-01T09:00:01Z"]), ["«tea» four"]);
        assert_eq!(snippets(&["--session", SECOND, "--until", "2026-03-01T09:00:01Z"]), ["«tea» three"]);
        let run = text(&terminal.json(&["session", "show", FIRST])["prompts"][0]["id"]);
        assert_eq!(snippets(&["--run", &run]), ["«tea» two"]);
        let agent = text(&terminal.json(&["run", "show", &run])["agent"]);
        assert_eq!(snippets(&["--agent", &agent]), ["«tea» four", "«tea» two"]);
        terminal.json(&["role", "set", "--name", "brewer"]);
        assert_eq!(snippets(&["--role", "brewer"]), Vec::<String>::new());
        let listed = |arguments: &[&str]| column(&terminal.json(&[&["message", "list"], arguments].concat()), "body");
        assert_eq!(listed(&["--session", FIRST]), ["tea two", "tea one"]);
        assert_eq!(listed(&["--run", &run]), ["tea two"]);
        assert_eq!(listed(&["--limit", "1", "--session", SECOND]), ["tea four"]);
        assert_eq!(terminal.expect_error(&["search", "tea", "--session", "nowhere"]).0, 3);
        assert_eq!(terminal.expect_error(&["message", "get", "nothing"]).0, 3);
    }

    fn equal_bodies_are_stored_once_and_found_per_message(terminal: Terminal) {
        terminal.ingest_session(FIRST, &["hello", "same body", "same body"]);
        terminal.ingest_session(SECOND, &["same body", "bye"]);
        let hits = terminal.json(&["search", "same", "body"]);
        let ids = column(&hits, "message_id");
        assert_eq!(ids.len(), 3);
        let contents: std::collections::HashSet<_> = ids.iter().map(|id| text(&terminal.json(&["message", "get", id])["content_id"])).collect();
        assert_eq!(contents.len(), 1);
        // Hits with equal scores are listed newest first.
        assert!(ids.windows(2).all(|pair| pair[0] > pair[1]), "{ids:?}");
    }

    fn search_does_not_find_messages_of_a_forgotten_session(terminal: Terminal) {
        terminal.ingest_session(FIRST, &["secret plan", "shared answer"]);
        terminal.ingest_session(SECOND, &["open plan", "shared answer"]);
        assert_eq!(terminal.search_bodies("plan").len(), 2);
        terminal.json(&["forget", FIRST, "--yes"]);
        assert_eq!(terminal.search_bodies("plan"), ["open plan"]);
        assert_eq!(terminal.search_bodies("secret"), Vec::<String>::new());
        assert_eq!(terminal.search_bodies("shared"), ["shared answer"]);
        // After another ingest, search finds the session again.
        terminal.ingest_session(FIRST, &["secret plan", "shared answer"]);
        assert_eq!(terminal.search_bodies("secret"), ["secret plan"]);
        assert_eq!(terminal.search_bodies("shared").len(), 2);
    }

    fn answer_to_a_forgotten_message_remains(terminal: Terminal) {
        terminal.ingest_session(FIRST, &["secret plan", "shared answer"]);
        let secret = text(&terminal.json(&["search", "secret"])[0]["message_id"]);
        let answer = terminal.send_message(&["I see", "--reply-to", &secret]);
        terminal.send_message(&["shared answer"]);
        terminal.json(&["forget", FIRST, "--yes"]);
        assert_eq!(terminal.json(&["message", "get", &answer])["in_reply_to"], Value::Null);
        assert_eq!(terminal.search_bodies("shared"), ["shared answer"]);
        assert_eq!(terminal.search_bodies("secret"), Vec::<String>::new());
        assert_eq!(terminal.json(&["cleanup", "contents"])["removed"], 0);
    }

    fn search_finds_a_prompt_recorded_by_a_hook(terminal: Terminal) {
        let event = json!({ "hook_event_name": "UserPromptSubmit", "session_id": FIRST, "cwd": terminal.home.path(), "prompt": "Water the ficus" });
        let mut command = terminal.command(&["hook"]);
        command.current_dir(terminal.home.path());
        assert_eq!(run_command_with_input(command, event.to_string().as_bytes()).code, 0);
        assert_eq!(terminal.search_snippets("ficus"), ["Water the «ficus»"]);
    }

    fn new_messages_do_not_change_later_pages(terminal: Terminal) {
        let messages: Vec<String> = (0..25).map(|number| format!("tea{} number {number}", " tea".repeat(number % 3))).collect();
        terminal.ingest_session(FIRST, &messages.iter().map(String::as_str).collect::<Vec<_>>());
        let all = column(&terminal.json(&["search", "tea", "--limit", "100"]), "message_id");
        assert_eq!(all.len(), 25);
        let mut paged = Vec::new();
        let mut after: Option<String> = None;
        for page in 0.. {
            let mut arguments = vec!["search", "tea", "--limit", "4", "--json"];
            arguments.extend(after.as_deref().map(|after| ["--after", after]).into_iter().flatten());
            let answer: Value = serde_json::from_str(&terminal.run(&arguments).stdout).unwrap();
            paged.extend(column(&answer["data"], "message_id"));
            if page == 2 {
                // Messages that arrive between two pages must not shift the other hits.
                terminal.ingest_session(SECOND, &["tea tea tea tea tea", "bread"]);
            }
            match answer["more"].as_str() {
                Some(more) => after = Some(more.strip_prefix("--after ").unwrap().to_owned()),
                None => break,
            }
        }
        let arrived_later = |id: &&String| text(&terminal.json(&["message", "get", id])["session_id"]) == SECOND;
        let before: Vec<_> = paged.iter().filter(|id| !arrived_later(id)).cloned().collect();
        assert_eq!(before, all);
        let bread = column(&terminal.json(&["search", "bread"]), "message_id");
        assert_eq!(terminal.expect_error(&["search", "tea", "--after", &bread[0]]).0, 2);
        assert_eq!(terminal.expect_error(&["search", "tea", "--after", "123456"]).0, 3);
    }

    fn invalid_searches_fail_with_clear_errors_and_unusual_searches_work(terminal: Terminal) {
        terminal.ingest_session(FIRST, &["a and b or c's \"d\" (e) NEAR near", "x"]);
        let refused = [
            ("\"unbalanced", "the quotation mark before \"unbalanced\" is not closed"),
            ("a AND", "AND is not an operator: a search requires all of its words"),
            ("", "the search is empty"),
            ("  ", "the search is empty"),
            ("?!*", "the search \"?!*\" has no letter or digit"),
            ("\"\"", "the search \"\\\"\\\"\" has no letter or digit"),
        ];
        for (query, message) in refused {
            assert_eq!(terminal.expect_error(&["search", query]), (2, message.to_owned()), "{query}");
        }
        let minus = "-b excludes nothing: a search requires all of its words".to_owned();
        assert_eq!(terminal.expect_error(&["search", "a -b"]), (2, minus));
        assert_eq!(terminal.run(&["search"]).code, 2);
        assert_eq!(terminal.expect_error(&["search", "a", "--limit", "0"]).0, 2);
        for query in ["c's", "'d'", "a:b", "(e)", "a^b NEAR/2", "e) near", "{a}", "a \\ b", "a & b | c", "a - b", "a-b", "content: a", "a* \"b\"*", "%a%", "'a':*", "^a", "a + b", "\"AND\"", "a;--"] {
            let output = terminal.run(&["search", "--", query]);
            assert_eq!(output.code, 0, "{query}: {}", output.stderr);
        }
        assert_eq!(terminal.search_bodies("c's").len(), 1);
        assert_eq!(terminal.search_bodies("\"and b\" 'd' \"NEAR near\"").len(), 1);
    }
}
