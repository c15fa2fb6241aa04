//! Commands that name a client: `hook`, `ingest --client` and `agent set --runner`. Also kinds of evidence, whose names
//! fit every client.

use std::fs;

use serde_json::{Value, json};

use crate::{
    hook::{HookSession, agent_call},
    ingest::{AGENT, OTHER, SESSION, TranscriptFolder, TranscriptWriter, projects_folder, sample_transcript_lines},
    terminal::{CommandOutput, Terminal, both_engines, column, run_command, run_command_with_input, text},
};

fn run_hook(terminal: &Terminal, session: &str, arguments: &[&str]) -> CommandOutput {
    let session = HookSession { terminal, id: session };
    let event = session.event("UserPromptSubmit", &json!({ "prompt": "go" }));
    run_command_with_input(terminal.command(&[&["hook"], arguments].concat()), event.to_string().as_bytes())
}

both_engines! {
    fn hook_accepts_the_client_that_sends_the_event(terminal: Terminal) {
        let lines: [&[&str]; 4] =
            [&["claude-code"], &["claude-code", "--memory", "off"], &["--memory", "all", "claude_code"], &["--future", "value"]];
        for (number, arguments) in lines.into_iter().enumerate() {
            let output = run_hook(&terminal, &format!("s{number}"), arguments);
            assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{arguments:?}");
            let sessions = terminal.json(&["session", "list"]);
            assert_eq!(column(&sessions, "client"), vec!["claude_code"; number + 1], "{arguments:?}");
        }
    }

    fn hook_of_an_unknown_client_records_nothing_and_exits_zero(terminal: Terminal) {
        for arguments in [&["codex-of-tomorrow"][..], &["codex-of-tomorrow", "--memory", "off"], &[""]] {
            let output = run_hook(&terminal, "s1", arguments);
            assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "", ""), "{arguments:?}");
        }
        // An event that is larger than the buffer of a pipe is read to its end.
        let output = run_command_with_input(terminal.command(&["hook", "codex-of-tomorrow"]), &vec![b' '; 1 << 20]);
        assert_eq!((output.code, output.stdout.as_str()), (0, ""));
        assert_eq!(terminal.json(&["session", "list"]), json!([]));
        let log = fs::read_to_string(terminal.home.path().join(".local/share/trackway/hook.log")).unwrap();
        let lines: Vec<_> = log.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        let unknown = "? unknown client \"codex-of-tomorrow\"; known: claude-code";
        assert_eq!(lines, [unknown, unknown, "? unknown client \"\"; known: claude-code", unknown]);
        let doctor = run_command(terminal.command(&["doctor"]));
        assert!(doctor.stdout.contains("unknown client \"codex-of-tomorrow\""), "{}", doctor.stdout);
    }

    fn ingest_reads_one_client_or_all(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        folder.append(None, &TranscriptWriter::new(SESSION, "/ship").prompt("go"));
        assert_eq!(terminal.json(&["ingest", "--client", "claude-code"])["sessions"], 1);
        assert_eq!(terminal.json(&["ingest"])["sessions"], 1);
        let other = folder.write(&format!("{OTHER}.jsonl"), TranscriptWriter::new(OTHER, "/ship").prompt("stop").as_bytes());
        let read = terminal.json(&["ingest", "--client", "claude_code", other.to_str().unwrap()]);
        assert_eq!((&read["files"], &read["sessions"]), (&json!(1), &json!(1)));
        assert_eq!(terminal.json(&["session", "list"]).as_array().unwrap().len(), 2);
    }

    fn ingest_names_files_that_no_client_wrote(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let known = folder.write(&format!("{SESSION}.jsonl"), TranscriptWriter::new(SESSION, "/ship").prompt("go").as_bytes());
        let notes = folder.write("notes.txt", b"no transcript");
        let strange = folder.write("strange.jsonl", b"{\"a\": 1}\n");
        let arguments = ["ingest", known.to_str().unwrap(), notes.to_str().unwrap(), notes.to_str().unwrap(), strange.to_str().unwrap()];
        let output = run_command(terminal.command(&arguments));
        assert_eq!(output.code, 0, "{}", output.stderr);
        assert_eq!(
            output.stderr.replace(terminal.home.path().to_str().unwrap(), "HOME"),
            "warning: HOME/.claude/projects/-ship/strange.jsonl: no line names a session\n\
             warning: HOME/.claude/projects/-ship/notes.txt: not a transcript of Claude Code\n"
        );
        // If the argument is a directory, `ingest` skips files with other extensions without a warning.
        let all = terminal.json(&["ingest", projects_folder(&terminal).to_str().unwrap(), "--full"]);
        assert_eq!(all["sessions"], 1);
        assert!(!all["problems"].to_string().contains("notes.txt"), "{}", all["problems"]);
    }

    fn agent_set_accepts_the_command_name_of_a_client(terminal: Terminal) {
        for name in ["claude-code", "claude_code"] {
            assert_eq!(terminal.json(&["agent", "set", "--handle", "coder", "--runner", name])["runner"], "claude_code");
        }
        assert_eq!(column(&terminal.json(&["agent", "list"]), "runner"), ["shell", "claude_code"]);
        let output = run_command(terminal.command(&["agent", "set", "--handle", "coder", "--runner", "claude-cod"]));
        assert_eq!(output.code, 2);
        assert!(output.stderr.contains("possible values: agent, shell, claude_code, external"), "{}", output.stderr);
    }

    fn evidence_has_a_kind_in_every_json_document(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        session.send("PreToolUse", &agent_call("t1", "one"));
        session.send("PreToolUse", &agent_call("t2", "two"));
        session.send_subagent_start("a1");
        session.send_agent_result("t1", "one", "a1");
        let folder = TranscriptFolder::new(&terminal);
        for (agent, line) in sample_transcript_lines() {
            folder.append(agent, &line);
        }
        let agent = folder.file(Some(AGENT));
        folder.write(
            agent.with_extension("meta.json").strip_prefix(projects_folder(&terminal).join("-ship")).unwrap().to_str().unwrap(),
            json!({ "agentType": "general-purpose", "toolUseId": "t1" }).to_string().as_bytes(),
        );
        terminal.json(&["ingest"]);

        let pair = |row: &Value| format!("{} {}", row["evidence"], row["evidence_kind"]).replace('"', "");
        let listed = terminal.json(&["spawn", "list"]);
        let listed: Vec<_> = listed.as_array().unwrap().iter().map(pair).collect();
        assert_eq!(listed, ["meta_json sidecar", "post_tool_use hook_result", "null null"]);
        let ids = column(&terminal.json(&["session", "list"]), "id");
        let mut in_matches = Vec::new();
        let mut in_trees = Vec::new();
        for id in ids {
            let shown = terminal.json(&["session", "show", &id]);
            in_trees.extend(shown["tree"].as_array().unwrap().iter().map(pair));
            assert!(shown["spawns"].as_array().unwrap().iter().all(|spawn| spawn.get("evidence_kind").is_some()));
            let spawn = terminal.json(&["spawn", "show", "t1", "--session", &id]);
            assert_eq!(text(&spawn["tool_use_id"]), "t1");
            in_matches.extend(spawn["matches"].as_array().unwrap().iter().map(pair));
        }
        in_trees.sort();
        assert_eq!(in_trees, ["meta_json sidecar", "post_tool_use hook_result"]);
        in_matches.sort();
        in_matches.dedup();
        assert_eq!(in_matches, ["meta_json sidecar", "post_tool_use hook_result", "tool_result tool_result"]);
    }
}
