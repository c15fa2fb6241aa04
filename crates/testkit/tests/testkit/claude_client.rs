//! The real Claude Code against the scripted model: the client does what the model asks, and nothing else.

mod real_client {
    use std::{
        fs,
        panic::{self, AssertUnwindSafe},
        path::Path,
        time::Duration,
    };

    use serde_json::{Value, json};
    use tempfile::TempDir;
    use trackway_testkit::{
        claude_client::{ClaudeClient, ClientCall, versions},
        scripted_model::Scenario,
        wait_until,
    };

    const NEWEST: &str = "2.1.197";

    /// A user's home directory and a project.
    struct ClientFixture {
        home: TempDir,
        project: TempDir,
    }

    impl ClientFixture {
        fn new() -> Self {
            Self { home: tempfile::tempdir().unwrap(), project: tempfile::tempdir().unwrap() }
        }

        fn call<'client>(&self, client: &'client ClaudeClient, scenario: &Scenario) -> ClientCall<'client> {
            client.call(scenario, self.home.path(), self.project.path())
        }

        fn read(&self, file: &str) -> String {
            fs::read_to_string(self.project.path().join(file)).unwrap()
        }

        /// The distinct message ids in all transcripts, sorted.
        fn message_ids(&self) -> Vec<String> {
            let mut ids = Vec::new();
            for line in transcripts(&self.home.path().join(".claude/projects")).lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                if let (Some("assistant"), Some(id)) = (line["type"].as_str(), line["message"]["id"].as_str()) {
                    ids.push(id.to_owned());
                }
            }
            ids.sort();
            ids.dedup();
            ids
        }
    }

    fn transcripts(directory: &Path) -> String {
        let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        paths
            .map(|path| match path.extension() {
                _ if path.is_dir() => transcripts(&path),
                Some(extension) if extension == "jsonl" => fs::read_to_string(path).unwrap(),
                _ => String::new(),
            })
            .collect()
    }

    /// A scenario with one actor, TALK, that replies "one", "two" and "three".
    fn talk() -> Scenario {
        let turns = json!([[{ "text": "one" }], [{ "text": "two" }], [{ "text": "three" }]]);
        Scenario::parse(&json!({ "prompt": "TALK", "actors": [{ "match": "TALK", "turns": turns }] }).to_string())
    }

    #[test]
    fn client_runs_two_subagents() {
        for version in versions() {
            let client = ClaudeClient::version(&version);
            let fixture = ClientFixture::new();
            let hook = json!([{ "hooks": [{ "type": "command", "command": "cat >> \"$EVENTS\"" }] }]);
            let events = fixture.home.path().join("events.jsonl");
            let result = fixture
                .call(&client, &Scenario::named("two-subagents"))
                .settings(json!({ "hooks": { "PreToolUse": hook } }))
                .env("EVENTS", events.to_str().unwrap())
                .run();

            assert!(result.status.success(), "{version}: {result:#?}");
            assert_eq!(result.result()["result"], "Both logs are written.", "{version}");
            assert_eq!((fixture.read("tide.txt"), fixture.read("wind.txt")), ("high at six\n".into(), "calm\n".into()));
            let asked = result.requests.iter().filter(|request| request.body["tools"][0].is_object()).count();
            assert_eq!(asked, 6, "{version}: two turns of each of three actors");
            let mut ids = fixture.message_ids();
            // Claude Code 2.0 also starts agents that no tool call spawned. No actor matches these agents, so the ids
            // of their messages contain `a3`.
            ids.retain(|id| !id.starts_with("msg_s1_a3"));
            let wanted =
                ["a0_t0", "a0_t1", "a1_t0", "a1_t1", "a2_t0", "a2_t1"].map(|turn_key| format!("msg_s1_{turn_key}_n0"));
            assert_eq!(ids, wanted, "{version}");
            let events = fs::read_to_string(events).unwrap();
            let events = serde_json::Deserializer::from_str(&events).into_iter::<Value>();
            let mut tools: Vec<_> =
                events.map(|event| event.unwrap()["tool_name"].as_str().unwrap().to_owned()).collect();
            tools.sort();
            assert!(
                matches!(tools.join(" ").as_str(), "Agent Agent Write Write" | "Task Task Write Write"),
                "{tools:?}"
            );
        }
    }

    #[test]
    fn client_completes_all_other_scenarios() {
        let client = ClaudeClient::version(NEWEST);
        for (scenario, reply, file, content) in [
            ("nested", "The chart is drawn.", "coast.txt", "cliffs to the north\n"),
            ("equal-prompts", "Nothing, twice.", "seen.txt", "nothing\nnothing\n"),
            ("failing", "The hatch holds, the pump does not.", "hatch.txt", "tight\n"),
            ("edits-and-commit", "The ledger is up to date.", ".git/COMMIT_EDITMSG", "ledger: one rope less\n"),
            ("background", "The depth is known.", "depth.txt", "seven fathoms\n"),
        ] {
            let fixture = ClientFixture::new();
            let result = fixture.call(&client, &Scenario::named(scenario)).run();
            assert_eq!(
                (&result.result()["result"], fixture.read(file)),
                (&json!(reply), content.to_owned()),
                "{scenario}"
            );
        }
    }

    #[test]
    fn second_call_resumes_session() {
        let client = ClaudeClient::version(NEWEST);
        let fixture = ClientFixture::new();
        let first = fixture.call(&client, &talk()).run();
        let session = first.result()["session_id"].as_str().unwrap();
        let second = fixture.call(&client, &talk()).prompt("and then?").args(["--resume", session]).run();

        assert_eq!((&first.result()["result"], &second.result()["result"]), (&json!("one"), &json!("two")));
        assert_eq!(second.result()["session_id"], session);
        assert_eq!(fixture.message_ids(), ["msg_s1_a0_t0_n0", "msg_s2_a0_t1_n0"]);
    }

    #[test]
    fn one_call_answers_several_prompts() {
        let client = ClaudeClient::version(NEWEST);
        let fixture = ClientFixture::new();
        let result = fixture.call(&client, &talk()).then_prompts(["go on", "and on"]).run();

        assert!(result.status.success(), "{result:#?}");
        let replies: Vec<_> = result.printed.iter().filter_map(|printed| printed["result"].as_str()).collect();
        assert_eq!(replies, ["one", "two", "three"]);
    }

    #[test]
    fn timed_out_client_is_killed_with_its_child_processes() {
        let client = ClaudeClient::version(NEWEST);
        let fixture = ClientFixture::new();
        // The directory in the process name distinguishes this process from those of concurrent runs of the test.
        let left_behind = "setsid bash -c 'echo > started; exec -a $CWD/left-behind sleep 600' > /dev/null 2>&1 &";
        let turns = json!([[{ "tool": "Bash", "input": { "command": left_behind } }], [{ "hang": 600 }]]);
        let scenario = json!({ "prompt": "TALK", "actors": [{ "match": "TALK", "turns": turns }] });
        let call = fixture.call(&client, &Scenario::parse(&scenario.to_string())).timeout(Duration::from_secs(10));

        let panic = panic::catch_unwind(AssertUnwindSafe(|| call.run())).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.starts_with("the client took too long and was killed"), "{message}");
        assert_eq!(fixture.read("started"), "\n");
        // The kernel ends the processes one by one.
        wait_until("no process is left behind", Duration::from_secs(10), || {
            (!has_process_in(fixture.project.path())).then_some(())
        });
    }

    /// Whether a process has this directory in its command line.
    fn has_process_in(directory: &Path) -> bool {
        let directory = directory.to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("cmdline"));
        processes.filter_map(|file| fs::read(file).ok()).any(|line| String::from_utf8_lossy(&line).contains(directory))
    }
}
