//! Matching of spawns to agents by weaker evidence (role, prompt, type), through hooks and ingest; clean-ups of spawns.

use serde_json::{Value, json};

use crate::{
    hook::{HookSession, agent_call, project},
    ingest::{AGENT, SESSION, TranscriptFolder, TranscriptWriter, ingest, record_without_home},
    terminal::{Terminal, both_engines, column, run_in_pty, text},
};

const B: &str = "b0123456789abcdef";
const C: &str = "c0123456789abcdef";

fn spawn_input(prompt: &str) -> Value {
    json!({ "prompt": prompt, "description": "a job", "subagent_type": "general-purpose" })
}

/// Writes the parent's transcript with one spawning call per prompt: t1, t2, ...
fn write_parent(folder: &TranscriptFolder, prompts: &[&str]) -> TranscriptWriter {
    let mut main = TranscriptWriter::new(SESSION, "/ship");
    folder.append(None, &main.prompt("go"));
    for (prompt, number) in prompts.iter().zip(1..) {
        folder
            .append(None, &main.tool_call(&format!("m{number}"), "Agent", &format!("t{number}"), &spawn_input(prompt)));
    }
    main
}

/// Writes a subagent's transcript with its first prompt and a reply.
fn write_agent(folder: &TranscriptFolder, name: &'static str, prompt: &str) -> TranscriptWriter {
    let mut sub = TranscriptWriter::new(SESSION, "/ship").for_agent(name);
    folder.append(Some(name), &sub.prompt(prompt));
    folder.append(Some(name), &sub.reply(&format!("r-{name}"), Some("end_turn"), 3, "Done."));
    sub
}

fn ingest_in_full(terminal: &Terminal) -> Value {
    terminal.json(&["ingest", crate::ingest::projects_folder(terminal).to_str().unwrap(), "--full"])
}

/// Each spawn as `CALL AGENT EVIDENCE`, with `tentative` for a tentative match.
fn spawn_lines(terminal: &Terminal) -> Vec<String> {
    let spawns = terminal.json(&["spawn", "list", "--limit", "1000"]);
    let shown = |spawn: &Value| {
        let text_or_dash = |field: &str| spawn[field].as_str().unwrap_or("-").to_owned();
        let tentative = if spawn["tentative"] == true { " tentative" } else { "" };
        format!("{} {} {}{tentative}", text_or_dash("tool_use_id"), text_or_dash("agent_id"), text_or_dash("evidence"))
    };
    let mut shown: Vec<_> = spawns.as_array().unwrap().iter().map(shown).collect();
    shown.sort();
    shown
}

/// Each match of a spawn as `AGENT EVIDENCE`, with `tentative` and `withdrawn`.
fn match_lines(terminal: &Terminal, call: &str) -> Vec<String> {
    let matches = terminal.json(&["spawn", "show", call])["matches"].clone();
    let shown = |row: &Value| {
        let tentative = if row["tentative"] == true { " tentative" } else { "" };
        let withdrawn = if row["withdrawn_at"].is_null() { "" } else { " withdrawn" };
        format!("{} {}{tentative}{withdrawn}", text(&row["agent_id"]), text(&row["evidence"]))
    };
    let mut shown: Vec<_> = matches.as_array().unwrap().iter().map(shown).collect();
    shown.sort();
    shown
}

/// Each subagent as `AGENT ROLE ROLE_SOURCE`.
fn role_lines(terminal: &Terminal) -> Vec<String> {
    let subagents = terminal.json(&["subagent", "list", "--limit", "1000"]);
    let text_or_dash = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let shown = |agent: &Value| {
        format!(
            "{} {} {}",
            text_or_dash(&agent["agent_id"]),
            text_or_dash(&agent["role"]),
            text_or_dash(&agent["role_source"])
        )
    };
    let mut shown: Vec<_> = subagents.as_array().unwrap().iter().map(shown).collect();
    shown.sort();
    shown
}

/// Each agent as `HANDLE < PARENT_HANDLE`.
fn agent_lines(terminal: &Terminal) -> Vec<String> {
    let agents = terminal.json(&["agent", "list"]);
    let rows = agents.as_array().unwrap();
    let handle =
        |id: &Value| rows.iter().find(|row| row["id"] == *id).map_or("-".to_owned(), |row| text(&row["handle"]));
    let mut shown: Vec<_> =
        rows.iter().map(|row| format!("{} < {}", text(&row["handle"]), handle(&row["parent_id"]))).collect();
    shown.retain(|row| !row.starts_with("worker "));
    shown.sort();
    shown
}

/// A `SubagentStop` event with the transcript path that the newest clients use.
fn stop_event(terminal: &Terminal, folder: &TranscriptFolder, name: &str) -> Value {
    json!({
        "agent_id": name, "agent_type": "general-purpose", "stop_hook_active": false, "last_assistant_message": "Done.",
        "transcript_path": folder.file(None), "agent_transcript_path": folder.file(Some(name)), "cwd": project(terminal),
    })
}

both_engines! {
    fn role_tag_in_agents_prompt_matches_oldest_spawn_of_that_role(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = write_parent(&folder, &["[ROLE:alpha] one", "[ROLE:beta] two", "[ROLE:beta] three"]);
        write_agent(&folder, AGENT, "in other words [ROLE:beta] than any call");
        let read = ingest(&terminal);
        assert_eq!((&read["matched"], &read["tentative"], &read["unmatched"]), (&json!(0), &json!(1), &json!(2)));
        assert_eq!(spawn_lines(&terminal), ["t1 - -", &format!("t2 {AGENT} role tentative"), "t3 - -"]);
        assert_eq!(role_lines(&terminal), [format!("{AGENT} beta task_match")]);
        assert_eq!(agent_lines(&terminal), ["beta@ship < main@ship", "main@ship < -"]);
        // The result line is exact evidence for the other call of that role.
        folder.append(None, &main.tool_result("t3", "Done.", &json!({ "status": "completed", "agentId": AGENT })));
        let read = ingest(&terminal);
        assert_eq!((&read["matched"], &read["tentative"], &read["unmatched"]), (&json!(1), &json!(0), &json!(2)));
        assert_eq!(spawn_lines(&terminal), ["t1 - -", "t2 - -", &format!("t3 {AGENT} tool_result")]);
        assert_eq!(match_lines(&terminal, "t2"), [format!("{AGENT} role tentative withdrawn")]);
        let before = record_without_home(&terminal);
        assert_eq!(ingest(&terminal)["bytes"], 0);
        ingest_in_full(&terminal);
        snapbox::assert_data_eq!(record_without_home(&terminal), snapbox::IntoData::raw(before));
    }

    fn role_tag_in_agents_prompt_replaces_tentative_match_by_type(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let session = HookSession { terminal: &terminal, id: SESSION };
        session.prompt("go");
        session.send_agent_call("t1", "[ROLE:alpha] one");
        session.send_agent_call("t2", "[ROLE:beta] two");
        session.send_subagent_start("a1");
        session.send_subagent_start("a2");
        assert_eq!(spawn_lines(&terminal), ["t1 a1 subagent_type tentative", "t2 a2 subagent_type tentative"]);
        folder.append(None, &TranscriptWriter::new(SESSION, "/ship").prompt("go"));
        write_agent(&folder, "a1", "[ROLE:beta] reworded by a hook");
        session.send("SubagentStop", &stop_event(&terminal, &folder, "a1"));
        // a2 has no better evidence and takes the remaining spawn.
        assert_eq!(spawn_lines(&terminal), ["t1 a2 subagent_type tentative", "t2 a1 role tentative"]);
        assert_eq!(match_lines(&terminal, "t1"), ["a1 subagent_type tentative withdrawn", "a2 subagent_type tentative"]);
        assert_eq!(match_lines(&terminal, "t2"), ["a1 role tentative", "a2 subagent_type tentative withdrawn"]);
        assert_eq!(role_lines(&terminal), ["a1 beta task_match", "a2 alpha task_match"]);
        assert_eq!(agent_lines(&terminal), ["alpha@project < main@project", "beta@project < main@project", "main@project < -"]);
        // Exact evidence withdraws tentative matches for good.
        session.send("PostToolUse", &{
            let mut event = agent_call("t2", "[ROLE:beta] two");
            event["tool_response"] = json!({ "status": "completed", "agentId": "a2" });
            event
        });
        assert_eq!(spawn_lines(&terminal), ["t1 - -", "t2 a2 post_tool_use"]);
        assert_eq!(role_lines(&terminal), ["a1 beta transcript_parse", "a2 beta task_match"]);
    }

    fn prompt_without_matching_spawn_falls_back_to_agent_type(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        write_parent(&folder, &["one"]);
        write_agent(&folder, AGENT, "reworded");
        folder.write(&format!("{SESSION}/subagents/agent-{AGENT}.meta.json"), br#"{"agentType":"general-purpose"}"#);
        ingest(&terminal);
        assert_eq!(spawn_lines(&terminal), [format!("t1 {AGENT} subagent_type tentative")]);
        // An agent whose prompt equals the prompt of a call only ever matches that call.
        write_agent(&folder, B, "one");
        folder.write(&format!("{SESSION}/subagents/agent-{B}.meta.json"), br#"{"agentType":"general-purpose"}"#);
        ingest(&terminal);
        assert_eq!(spawn_lines(&terminal), [format!("t1 {B} prompt_hash")]);
        assert_eq!(match_lines(&terminal, "t1"), [format!("{AGENT} subagent_type tentative withdrawn"), format!("{B} prompt_hash")]);
    }

    fn equal_prompts_match_tentatively_in_call_order(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = write_parent(&folder, &["same", "other", "same"]);
        write_agent(&folder, AGENT, "same");
        ingest(&terminal);
        assert_eq!(spawn_lines(&terminal), [&format!("t1 {AGENT} prompt_hash tentative"), "t2 - -", "t3 - -"]);
        write_agent(&folder, B, "same");
        write_agent(&folder, C, "same");
        let read = ingest(&terminal);
        assert_eq!((&read["matched"], &read["tentative"], &read["unmatched"]), (&json!(0), &json!(2), &json!(1)));
        let tentative = [format!("t1 {AGENT} prompt_hash tentative"), "t2 - -".to_owned(), format!("t3 {B} prompt_hash tentative")];
        assert_eq!(spawn_lines(&terminal), tentative);
        ingest_in_full(&terminal);
        assert_eq!(spawn_lines(&terminal), tentative);
        // The result line shows that the tentative match was wrong.
        folder.append(None, &main.tool_result("t1", "Done.", &json!({ "status": "completed", "agentId": B })));
        ingest(&terminal);
        // Only one call with that prompt remains, so the match of the other agent becomes exact.
        assert_eq!(spawn_lines(&terminal), [format!("t1 {B} tool_result"), "t2 - -".to_owned(), format!("t3 {AGENT} prompt_hash")]);
        assert_eq!(match_lines(&terminal, "t1"), [format!("{AGENT} prompt_hash tentative withdrawn"), format!("{B} tool_result")]);
        assert_eq!(match_lines(&terminal, "t3"), [format!("{AGENT} prompt_hash"), format!("{B} prompt_hash tentative withdrawn")]);
    }

    fn hooks_match_equal_prompts_tentatively(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let session = HookSession { terminal: &terminal, id: SESSION };
        session.prompt("go");
        session.send_agent_call("t1", "same");
        session.send_agent_call("t2", "same");
        session.send_subagent_start("a1");
        session.send_subagent_start("a2");
        // Two calls of one type without a role leave no evidence for a match.
        assert_eq!(spawn_lines(&terminal), ["t1 - -", "t2 - -"]);
        folder.append(None, &TranscriptWriter::new(SESSION, "/ship").prompt("go"));
        for name in ["a2", "a1"] {
            write_agent(&folder, if name == "a1" { "a1" } else { "a2" }, "same");
            session.send("SubagentStop", &stop_event(&terminal, &folder, name));
        }
        assert_eq!(spawn_lines(&terminal), ["t1 a2 prompt_hash tentative", "t2 a1 prompt_hash tentative"]);
        session.send_agent_result("t1", "same", "a1");
        session.send_agent_result("t2", "same", "a2");
        assert_eq!(spawn_lines(&terminal), ["t1 a1 post_tool_use", "t2 a2 post_tool_use"]);
    }

    fn agent_matches_the_repeated_call_after_a_failed_call(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = write_parent(&folder, &["same"]);
        folder.append(None, &main.failed_result("t1"));
        folder.append(None, &main.tool_call("m2", "Agent", "t2", &spawn_input("same")));
        write_agent(&folder, AGENT, "same");
        ingest(&terminal);
        assert_eq!(spawn_lines(&terminal), ["t1 - -", &format!("t2 {AGENT} prompt_hash tentative")]);
    }

    fn match_moves_to_the_other_call_when_the_first_fails(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = write_parent(&folder, &["same", "same"]);
        write_agent(&folder, AGENT, "same");
        ingest(&terminal);
        assert_eq!(spawn_lines(&terminal), [&format!("t1 {AGENT} prompt_hash tentative"), "t2 - -"]);
        folder.append(None, &main.failed_result("t1"));
        ingest(&terminal);
        assert_eq!(spawn_lines(&terminal), ["t1 - -", &format!("t2 {AGENT} prompt_hash tentative")]);
        assert_eq!(match_lines(&terminal, "t1"), [format!("{AGENT} prompt_hash tentative withdrawn")]);
    }

    fn agent_started_before_the_first_prompt_is_child_of_main_agent(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: SESSION };
        session.send("SessionStart", &json!({ "source": "startup", "cwd": project(&terminal) }));
        session.send_subagent_start("w1");
        session.prompt("go");
        assert_eq!(agent_lines(&terminal), ["general-purpose@project < main@project", "main@project < -"]);
    }

    fn a_thousand_equal_prompts_give_each_agent_its_own_spawn(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        write_parent(&folder, &["same"; 1_000]);
        for number in 0..20 {
            let name: &'static str = Box::leak(format!("a{number:02}").into_boxed_str());
            write_agent(&folder, name, "same");
        }
        let read = ingest(&terminal);
        assert_eq!((&read["spawns"], &read["tentative"], &read["unmatched"]), (&json!(1_000), &json!(20), &json!(980)));
        let mut matched: Vec<_> = spawn_lines(&terminal).into_iter().filter(|spawn| spawn.contains("tentative")).collect();
        matched.sort_by_key(|spawn| spawn.split(' ').nth(1).map(str::to_owned));
        let expected: Vec<_> = (0..20).map(|number| format!("t{} a{number:02} prompt_hash tentative", number + 1)).collect();
        assert_eq!(matched, expected);
    }

    fn progress_line_read_after_agent_start_gives_retry_match(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let session = HookSession { terminal: &terminal, id: SESSION };
        session.prompt("go");
        session.send_agent_call("t1", "[ROLE:first] one");
        session.send_agent_call("t2", "[ROLE:second] two");
        session.send_subagent_start("a1");
        assert_eq!(role_lines(&terminal), ["a1 first task_match"]);
        let mut main = TranscriptWriter::new(SESSION, "/ship");
        let progress = json!({ "parentToolUseID": "t2", "data": { "type": "agent_progress", "agentId": "a1" } });
        folder.append(None, &(main.prompt("go") + &main.line("progress", &progress)));
        session.send("PreCompact", &json!({ "transcript_path": folder.file(None) }));
        assert_eq!(spawn_lines(&terminal), ["t1 - -", "t2 a1 agent_progress"]);
        assert_eq!(role_lines(&terminal), ["a1 second retry_match"]);
        // Better evidence for the same spawn does not change the role source.
        session.send_agent_result("t2", "[ROLE:second] two", "a1");
        assert_eq!(spawn_lines(&terminal), ["t1 - -", "t2 a1 post_tool_use"]);
        assert_eq!(role_lines(&terminal), ["a1 second retry_match"]);
    }

    fn progress_line_read_by_later_ingest_gives_retry_match(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = write_parent(&folder, &["[ROLE:first] one", "[ROLE:second] two"]);
        write_agent(&folder, AGENT, "reworded, and without a tag");
        ingest(&terminal);
        assert_eq!(role_lines(&terminal), [format!("{AGENT} - -")]);
        let progress = |call: &str, agent: &str| json!({ "parentToolUseID": call, "data": { "type": "agent_progress", "agentId": agent } });
        folder.append(None, &main.line("progress", &progress("t2", AGENT)));
        ingest(&terminal);
        assert_eq!(spawn_lines(&terminal), ["t1 - -", &format!("t2 {AGENT} agent_progress")]);
        assert_eq!(role_lines(&terminal), [format!("{AGENT} second retry_match")]);
        // A progress line that the agent's first ingest reads gives an ordinary task match.
        folder.append(None, &main.line("progress", &progress("t1", B)));
        write_agent(&folder, B, "reworded");
        ingest(&terminal);
        assert_eq!(role_lines(&terminal), [format!("{AGENT} second retry_match"), format!("{B} first task_match")]);
    }

    fn transcript_index_counts_lines_from_one(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = write_parent(&folder, &["[ROLE:first] one", "two"]);
        folder.append(None, &main.tool_result("t1", "Done.", &json!({ "status": "completed", "agentId": AGENT })));
        ingest(&terminal);
        let indexes = || column(&terminal.json(&["spawn", "list"]), "transcript_index");
        assert_eq!(indexes(), ["2", "3"]);
        assert_eq!(column(&terminal.json(&["subagent", "list"]), "task_match_index"), ["2"]);
        ingest_in_full(&terminal);
        assert_eq!(indexes(), ["2", "3"]);
    }

    fn null_role_cleanup_asks_for_confirmation_and_keeps_matched_spawns(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = write_parent(&folder, &["[ROLE:first] one", "two", "three"]);
        folder.append(None, &main.tool_result("t2", "Done.", &json!({ "status": "completed", "agentId": AGENT })));
        write_agent(&folder, AGENT, "two");
        ingest(&terminal);
        let before = record_without_home(&terminal);
        let call_ids = || column(&terminal.json(&["spawn", "list"]), "tool_use_id");
        let (code, message) = terminal.expect_error(&["cleanup", "null-role", "--session", SESSION]);
        assert_eq!((code, message.contains("--yes")), (2, true), "{message}");
        let output = run_in_pty(&terminal.command(&["cleanup", "null-role"]));
        assert!(output.stdout.contains("[y/N]"), "{output:?}");
        assert_eq!(call_ids(), ["t1", "t2", "t3"]);
        assert_eq!(terminal.json(&["cleanup", "null-role", "--dry-run"])["removed"], 1);
        assert_eq!(terminal.json(&["cleanup", "null-role", "--session", SESSION, "--yes"])["removed"], 1);
        assert_eq!(call_ids(), ["t1", "t2"]);
        assert_eq!(terminal.json(&["cleanup", "null-role", "--yes"])["removed"], 0);
        assert_eq!(terminal.json(&["cleanup", "null-role", "--matched", "--yes"])["removed"], 1);
        assert_eq!(call_ids(), ["t1"]);
        let subagent = terminal.json(&["subagent", "list"])[0].clone();
        assert_eq!(subagent["task_match_index"], Value::Null);
        assert_eq!(terminal.json(&["run", "show", &text(&subagent["run_id"])])["cause_id"], Value::Null);
        // A plain ingest reads only new lines, and there are no new lines. A full ingest reads all lines again.
        assert_eq!(ingest(&terminal)["spawns"], 1);
        assert_eq!(call_ids(), ["t1"]);
        assert_eq!(ingest_in_full(&terminal)["spawns"], 3);
        snapbox::assert_data_eq!(record_without_home(&terminal), snapbox::IntoData::raw(before));
        assert_eq!(ingest_in_full(&terminal)["spawns"], 3);
    }

    fn tagged_subagent_has_one_agent_below_the_main_agent(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        session.send_agent_call("t1", "[ROLE:coder] code");
        session.send_subagent_start("a1");
        assert_eq!(agent_lines(&terminal), ["coder@project < main@project", "main@project < -"]);
        session.send_subagent_stop("a1", "coded");
        session.send_agent_result("t1", "[ROLE:coder] code", "a1");
        assert_eq!(agent_lines(&terminal), ["coder@project < main@project", "main@project < -"]);
    }

    fn late_role_leaves_no_unused_agent(terminal: Terminal) {
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        // The agent's start is reported before the call.
        session.send_subagent_start("a1");
        assert_eq!(agent_lines(&terminal), ["general-purpose@project < main@project", "main@project < -"]);
        session.send_agent_result("t1", "[ROLE:coder] code", "a1");
        assert_eq!(agent_lines(&terminal), ["coder@project < main@project", "main@project < -"]);
        // The agent of the role already exists, so the agent of the type is removed.
        session.send_subagent_start("a2");
        assert_eq!(agent_lines(&terminal).len(), 3);
        session.send_agent_result("t2", "[ROLE:coder] more", "a2");
        assert_eq!(agent_lines(&terminal), ["coder@project < main@project", "main@project < -"]);
        assert_eq!(column(&terminal.json(&["run", "list"]), "agent"), ["coder@project", "coder@project", "main@project"]);
        // An agent that a person has configured is not removed.
        terminal.json(&["agent", "set", "--handle", "general-purpose@project", "--identity", "helpful"]);
        session.send_subagent_start("a3");
        session.send_agent_result("t3", "[ROLE:coder] again", "a3");
        assert_eq!(agent_lines(&terminal), ["coder@project < main@project", "general-purpose@project < main@project", "main@project < -"]);
    }

    fn agent_is_child_of_the_agent_that_started_it(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = write_parent(&folder, &["[ROLE:lead] lead"]);
        let mut sub = write_agent(&folder, AGENT, "[ROLE:lead] lead");
        folder.append(Some(AGENT), &sub.tool_call("n1", "Agent", "t9", &spawn_input("[ROLE:hand] work")));
        folder.append(Some(AGENT), &sub.tool_result("t9", "Done.", &json!({ "status": "completed", "agentId": B })));
        write_agent(&folder, B, "[ROLE:hand] work");
        folder.append(None, &main.tool_result("t1", "Done.", &json!({ "status": "completed", "agentId": AGENT })));
        ingest(&terminal);
        assert_eq!(agent_lines(&terminal), ["hand@ship < lead@ship", "lead@ship < main@ship", "main@ship < -"]);
        // Ingest does not change a parent that a person has set.
        terminal.json(&["agent", "set", "--handle", "hand@ship", "--parent", "main@ship"]);
        ingest_in_full(&terminal);
        assert_eq!(agent_lines(&terminal), ["hand@ship < main@ship", "lead@ship < main@ship", "main@ship < -"]);
    }

    fn malformed_and_huge_role_tags_are_cleaned_or_ignored(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let huge = format!("[ROLE:{}] go", "r".repeat(1 << 20));
        let prompts = ["[ROLE:] go", "[ROLE:  ] go", &huge, "in the middle [ROLE:mid] of it", "[ROLE:never closed", "[ROLE:a\u{0}b\nc] go"];
        write_parent(&folder, &prompts);
        let own_prompts = ["[ROLE:] x", &format!("[ROLE:{}] x", "r".repeat(1 << 20)), "and [ROLE:mid] here"];
        for (name, prompt) in [AGENT, B, C].into_iter().zip(own_prompts) {
            write_agent(&folder, name, prompt);
        }
        ingest(&terminal);
        let cut = "r".repeat(trackway_domain::text::LINE_MAX) + "…";
        let roles: Vec<_> = column(&terminal.json(&["spawn", "list"]), "role").into_iter().map(|role| role.chars().take(300).collect::<String>()).collect();
        let cut: String = cut.chars().take(300).collect();
        assert_eq!(roles, ["null", "null", &cut, "mid", "null", "ab c"]);
        let actual = spawn_lines(&terminal);
        assert_eq!(actual, [
            "t1 - -".to_owned(), "t2 - -".to_owned(), format!("t3 {B} role tentative"), format!("t4 {C} role tentative"), "t5 - -".to_owned(), "t6 - -".to_owned(),
        ]);
    }
}
