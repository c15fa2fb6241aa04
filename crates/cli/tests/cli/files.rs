//! Attribution of files and commits to runs, with several repositories, several work trees, and equal file names.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use trackway_store::Clock;

use crate::{
    hook::{HookSession, file_write, git, git_at, project, subagent_stop},
    ingest::{AGENT, OTHER, SESSION, TranscriptFolder, TranscriptWriter, ingest},
    terminal::{Terminal, both_engines, column, run_command, text},
};

/// Creates a repository with one commit.
fn create_repository(path: PathBuf) -> PathBuf {
    fs::create_dir_all(path.join("src")).unwrap();
    git(&path, &["init", "-q", "-b", "main"]);
    fs::write(path.join("README.md"), "read me\n").unwrap();
    commit(&path, "first");
    path
}

/// Commits all changes and returns the hash.
fn commit(repository: &Path, subject: &str) -> String {
    git(repository, &["add", "."]);
    git(repository, &["commit", "-q", "--allow-empty", "-m", subject]);
    head(repository)
}

fn head(repository: &Path) -> String {
    let printed = Command::new("git").arg("-C").arg(repository).args(["rev-parse", "HEAD"]).output().unwrap();
    String::from_utf8(printed.stdout).unwrap().trim().to_owned()
}

/// Creates a work tree in the folder in which Claude Code creates the work trees of its agents.
fn create_work_tree(repository: &Path, name: &str) -> PathBuf {
    let tree = repository.join(".claude/worktrees").join(name);
    git(repository, &["worktree", "add", "-q", tree.to_str().unwrap()]);
    tree
}

/// Sets the working directory of an event.
fn in_directory(directory: &Path, mut event: Value) -> Value {
    event["cwd"] = json!(directory);
    event
}

fn shell(command: &str) -> Value {
    json!({ "tool_name": "Bash", "tool_use_id": "b1", "tool_input": { "command": command }, "tool_response": {} })
}

fn by_agent(agent: &str, mut event: Value) -> Value {
    event["agent_id"] = json!(agent);
    event
}

/// Writes a file to disk, and returns the event that reports it.
fn write_file_event(call: &str, path: &Path) -> Value {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "x\n").unwrap();
    file_write(call, path.to_str().unwrap())
}

/// Runs `why` in a directory. Returns the labels of the resource and of its prompt or spawn, or `None` if nothing is
/// recorded.
fn why_from(terminal: &Terminal, here: &Path, thing: &str) -> Option<(String, String)> {
    let mut command = terminal.command(&["why", thing, "--json"]);
    command.current_dir(here);
    let output = run_command(command);
    if output.code == 3 {
        return None;
    }
    assert_eq!(output.code, 0, "{thing}: {}", output.stderr);
    let answer: Value = serde_json::from_str(&output.stdout).unwrap();
    let hops = answer["data"]["chain"].as_array().unwrap();
    let label = |kind: &str| hops.iter().find(|hop| hop["kind"] == kind).map(|hop| text(&hop["label"]));
    Some((label("resource").unwrap_or_default(), label("message").or(label("spawn")).unwrap_or_default()))
}

fn why(terminal: &Terminal, thing: impl AsRef<Path>) -> Option<(String, String)> {
    why_from(terminal, terminal.home.path(), thing.as_ref().to_str().unwrap())
}

#[expect(clippy::unnecessary_wraps, reason = "the result is compared with that of `why`")]
fn expected_answer(resource: &str, prompt: &str) -> Option<(String, String)> {
    Some((resource.to_owned(), prompt.to_owned()))
}

/// The touches of a run as `action path`, sorted.
fn made_by_run(terminal: &Terminal, run: &str) -> Vec<String> {
    let touches = terminal.json(&["made", run])["touches"].clone();
    let mut made: Vec<String> = touches
        .as_array()
        .unwrap()
        .iter()
        .map(|touch| format!("{} {}", text(&touch["action_type"]), text(&touch["display_path"])))
        .collect();
    made.sort();
    made
}

both_engines! {
    fn repositories_below_one_folder_have_separate_files(terminal: Terminal) {
        let work = terminal.home.path().join("work");
        let (first, second) = (create_repository(work.join("p1")), create_repository(work.join("p2")));
        let (notes, diary) = (work.join("notes"), work.join("diary"));
        for (id, place, file) in [
            ("s0", &work, "todo.txt"), ("s1", &first, "src/a.rs"), ("s2", &second, "src/a.rs"), ("s3", &notes, "a.txt"), ("s4", &diary, "a.txt"),
        ] {
            let session = HookSession { terminal: &terminal, id };
            session.send("UserPromptSubmit", &in_directory(place, json!({ "prompt": format!("go {id}") })));
            session.send("PostToolUse", &in_directory(place, write_file_event(id, &place.join(file))));
        }
        assert_eq!(why(&terminal, first.join("src/a.rs")), expected_answer("file src/a.rs", "go s1"));
        assert_eq!(why(&terminal, second.join("src/a.rs:1")), expected_answer("file src/a.rs:1", "go s2"));
        // Files outside any repository belong to the workspace above them.
        assert_eq!(why(&terminal, notes.join("a.txt")), expected_answer("file notes/a.txt", "go s3"));
        assert_eq!(why(&terminal, diary.join("a.txt")), expected_answer("file diary/a.txt", "go s4"));
        let mut agents = column(&terminal.json(&["agent", "list"]), "handle");
        agents.retain(|handle| handle.starts_with("main@"));
        agents.sort();
        assert_eq!(agents, ["main@p1", "main@p2", "main@work"]);
        // A session in the folder above names the same file.
        HookSession { terminal: &terminal, id: "s0" }.send("PostToolUse", &in_directory(&work, write_file_event("t9", &first.join("src/a.rs"))));
        assert_eq!(why(&terminal, first.join("src/a.rs")), expected_answer("file src/a.rs", "go s0"));
        assert_eq!(terminal.json(&["why", first.join("src/a.rs").to_str().unwrap()])["touched_by"].as_array().unwrap().len(), 2);
    }

    fn why_resolves_the_file_at_the_path_before_files_of_the_same_name(terminal: Terminal) {
        let project = create_repository(project(&terminal));
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        session.send("PostToolUse", &write_file_event("t1", &project.join("src/lib.rs")));
        session.send("PostToolUse", &write_file_event("t2", &project.join("README.md")));
        let hash = commit(&project, "all of it");
        session.send("PostToolUse", &shell("git commit"));
        let (other, empty) = (terminal.home.path().join("other"), terminal.home.path().join("empty"));
        fs::create_dir_all(&empty).unwrap();
        fs::create_dir_all(other.join("src")).unwrap();
        fs::write(other.join("src/lib.rs"), "x\n").unwrap();
        for thing in ["src/lib.rs", "src/lib.rs:1", "./src/lib.rs"] {
            assert_eq!(why_from(&terminal, &other, thing), None, "{thing}");
        }
        // If there is no file at that path, `why` searches for the name.
        assert_eq!(why_from(&terminal, &empty, "src/lib.rs"), expected_answer("file src/lib.rs", "go"));
        assert_eq!(why_from(&terminal, &project, "src/lib.rs:1"), expected_answer("file src/lib.rs:1", "go"));

        let url = |path: &Path| format!("file://{}", path.display());
        assert_eq!(why_from(&terminal, &empty, &url(&project.join("README.md"))), expected_answer("file README.md", "go"));
        for foreign in ["https://example.org/some/other/README.md", "https://example.org/README.md", "http://h/tasks/README.md", "file:///etc/README.md"] {
            assert_eq!(why_from(&terminal, &empty, foreign), None, "{foreign}");
        }
        assert_eq!(why_from(&terminal, &empty, &url(&other.join("src/lib.rs"))), None);
        let run = text(&terminal.json(&["run", "list"])[0]["id"]);
        assert_eq!(why_from(&terminal, &empty, &format!("http://127.0.0.1:7878/runs/{}", &run[28..])), expected_answer("", "go"));
        assert_eq!(why_from(&terminal, &empty, &format!("http://127.0.0.1:7878/notes/{}", &run[28..])), None);
        let shown = expected_answer(&format!("commit {} all of it", &hash[..8]), "go");
        assert_eq!(why_from(&terminal, &empty, &format!("https://example.org/o/r/commit/{hash}")), shown);
    }

    fn why_traces_a_file_written_by_a_command_through_its_commit(terminal: Terminal) {
        let project = create_repository(project(&terminal));
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.prompt("go");
        fs::write(project.join("gen.txt"), "made\n").unwrap();
        git(&project, &["add", "-A"]);
        let hash = commit(&project, "made it");
        session.send("PostToolUse", &shell("echo made > gen.txt; git add -A; git commit"));
        session.send("Stop", &json!({}));
        let why = terminal.json(&["why", project.join("gen.txt").to_str().unwrap()]);
        let kinds = column(&why["chain"], "kind");
        assert_eq!(kinds[..3], ["resource", "resource", "run"], "{why}");
        assert_eq!(column(&why["chain"], "label")[..2], ["file gen.txt".to_owned(), format!("commit {} made it", &hash[..8])]);
        assert_eq!(kinds.last().unwrap(), "person");
    }

    fn files_and_commits_of_an_agents_work_tree_belong_to_the_repository(terminal: Terminal) {
        let project = create_repository(project(&terminal));
        let tree = create_work_tree(&project, "agent-a1");
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.send("SessionStart", &json!({ "source": "startup" }));
        session.prompt("isolate");
        session.send_agent_call("t1", "do");
        session.send("SubagentStart", &in_directory(&tree, json!({ "agent_id": "a1", "agent_type": "general-purpose" })));
        session.send("PostToolUse", &in_directory(&tree, by_agent("a1", write_file_event("t2", &tree.join("src/b.rs")))));
        fs::write(tree.join("src/generated.rs"), "g\n").unwrap();
        session.send("PostToolUse", &in_directory(&tree, by_agent("a1", shell("make"))));
        session.send("SubagentStop", &in_directory(&tree, subagent_stop("a1", "written")));
        session.send("SubagentStart", &in_directory(&tree, json!({ "agent_id": "a1", "agent_type": "general-purpose" })));
        let hash = commit(&tree, "by a1");
        session.send("PostToolUse", &in_directory(&tree, by_agent("a1", shell("git commit"))));
        assert_eq!(why(&terminal, tree.join("src/b.rs")).unwrap().0, "file src/b.rs");
        git(&project, &["merge", "-q", "--ff-only", "agent-a1"]);
        assert_eq!(why(&terminal, project.join("src/b.rs")).unwrap().0, "file src/b.rs");
        assert_eq!(why(&terminal, project.join("src/b.rs:1")).unwrap().0, "file src/b.rs:1");
        assert_eq!(why(&terminal, project.join("src/generated.rs")).unwrap().0, "file src/generated.rs (observed)");
        let chain = terminal.json(&["why", &hash])["chain"].clone();
        assert_eq!(chain[0]["label"], format!("commit {} by a1", &hash[..8]));
        assert_eq!(chain[2]["label"], "general-purpose@project");
        assert_eq!(column(&terminal.json(&["workspace", "list"]), "name"), ["project"]);
    }

    fn ingest_attributes_files_of_a_removed_work_tree_to_the_repository(terminal: Terminal) {
        let project = create_repository(project(&terminal));
        let folder = TranscriptFolder::new(&terminal);
        let spawn = json!({ "prompt": "do", "description": "do", "subagent_type": "general-purpose" });
        let created = json!({ "type": "create", "structuredPatch": [] });
        let (tree, removed) = (create_work_tree(&project, "agent-a1"), project.join(".claude/worktrees/agent-a2"));
        let hash = commit(&tree, "by a1");
        let mut main = TranscriptWriter::new(SESSION, project.to_str().unwrap());
        folder.append(None, &(main.prompt("isolate") + &main.tool_call("m1", "Agent", "t1", &spawn)));
        let mut agent = TranscriptWriter::new(SESSION, tree.to_str().unwrap()).for_agent(AGENT);
        let mut lines = agent.prompt("do");
        for (number, directory) in [&tree, &removed].into_iter().enumerate() {
            let path = directory.join(format!("src/b{number}.rs"));
            lines += &agent.tool_call(&format!("m2{number}"), "Write", &format!("t2{number}"), &json!({ "file_path": path, "content": "x\n" }));
            lines += &agent.tool_result(&format!("t2{number}"), "File created", &created);
        }
        lines += &agent.tool_call("m3", "Bash", "t3", &json!({ "command": "git commit" }));
        lines += &agent.tool_result("t3", "", &json!({ "stdout": format!("[agent-a1 {}] by a1\n", &hash[..7]) }));
        folder.append(Some(AGENT), &lines);
        ingest(&terminal);
        for number in 0..2 {
            let name = format!("src/b{number}.rs");
            assert_eq!(why(&terminal, project.join(&name)).unwrap().0, format!("file {name}"));
        }
        assert_eq!(why(&terminal, &hash).unwrap().0, format!("commit {} by a1", &hash[..8]));
        assert_eq!(column(&terminal.json(&["workspace", "list"]), "name"), ["project"]);
    }

    fn ingest_keeps_the_file_that_a_hook_recorded_before_its_work_tree_was_removed(terminal: Terminal) {
        let project = create_repository(project(&terminal));
        let tree = terminal.home.path().join("tree");
        git(&project, &["worktree", "add", "-q", tree.to_str().unwrap()]);
        let session = HookSession { terminal: &terminal, id: SESSION };
        let path = tree.join("b.rs");
        session.send("UserPromptSubmit", &json!({ "prompt": "go" }));
        session.send("PostToolUse", &in_directory(&tree, write_file_event("t1", &path)));
        git(&project, &["worktree", "remove", "--force", tree.to_str().unwrap()]);
        let mut main = TranscriptWriter::new(SESSION, tree.to_str().unwrap());
        let lines = main.prompt("go") + &main.tool_call("m1", "Write", "t1", &json!({ "file_path": path, "content": "x\n" })) + &main.tool_result("t1", "File created", &json!({ "type": "create", "structuredPatch": [] }));
        TranscriptFolder::new(&terminal).append(None, &lines);
        ingest(&terminal);
        let files = crate::hook::connection(&terminal).query::<(String,)>("select path from files", &[]).unwrap();
        assert_eq!(files, [("b.rs".to_owned(),)]);
    }

    fn session_that_changes_directory_is_recorded_in_both_repositories(terminal: Terminal) {
        let (first, second) = (create_repository(project(&terminal)), create_repository(terminal.home.path().join("second")));
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.send("SessionStart", &json!({ "source": "startup" }));
        session.prompt("go");
        session.send("PostToolUse", &write_file_event("t1", &first.join("a.txt")));
        session.send("PostToolUse", &in_directory(&second, write_file_event("t2", &second.join("b.txt"))));
        fs::write(first.join("built.txt"), "x\n").unwrap();
        let there = commit(&second, "there");
        session.send("PostToolUse", &in_directory(&second, shell("git commit")));
        let again = commit(&second, "again");
        session.send("PostToolUse", &in_directory(&second, shell("git commit")));
        let here = commit(&first, "here");
        fs::write(first.join("later.txt"), "x\n").unwrap();
        session.send("PostToolUse", &shell("make"));
        session.send("Stop", &in_directory(&second, json!({ "last_assistant_message": "done" })));
        assert_eq!(why(&terminal, second.join("b.txt")), expected_answer("file b.txt", "go"));
        assert_eq!(why(&terminal, first.join("later.txt")), expected_answer("file later.txt (observed)", "go"));
        for (hash, subject) in [(&there, "there"), (&again, "again"), (&here, "here")] {
            assert_eq!(why(&terminal, hash), expected_answer(&format!("commit {} {subject}", &hash[..8]), "go"));
        }
        let mut workspaces = column(&terminal.json(&["workspace", "list"]), "name");
        workspaces.sort();
        assert_eq!(workspaces, ["project", "second"]);
    }

    fn hooks_attribute_commits_made_by_a_script_to_its_agent(terminal: Terminal) {
        let project = create_repository(project(&terminal));
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.send("SessionStart", &json!({ "source": "startup" }));
        session.prompt("go");
        session.send_agent_call("t1", "do");
        session.send_subagent_start("a1");
        let during = commit(&project, "during");
        session.send("PostToolUse", &by_agent("a1", shell("./save.sh")));
        // The script commits again in the background, after its command returned.
        let after = commit(&project, "after");
        session.send("SubagentStop", &subagent_stop("a1", "saved"));
        session.send("Stop", &json!({ "last_assistant_message": "done" }));
        for hash in [during, after] {
            let chain = terminal.json(&["why", &hash])["chain"].clone();
            assert_eq!((&chain[0]["kind"], &chain[2]["label"]), (&json!("resource"), &json!("general-purpose@project")));
        }
    }

    fn ingest_finds_commits_made_while_any_command_ran(terminal: Terminal) {
        let project = create_repository(project(&terminal));
        let mut main = TranscriptWriter::new(SESSION, project.to_str().unwrap());
        let mut lines = main.prompt("release");
        let mut hashes = Vec::new();
        // The first two commits happen while a command runs. The third commit happens between two commands, so it does
        // not belong to the run.
        for (number, second) in [2, 5, 7].into_iter().enumerate() {
            let subject = format!("number {number}");
            git_at(&project, &format!("2026-02-27T09:00:{second:02}Z"), &["commit", "-q", "--allow-empty", "-m", &subject]);
            hashes.push(head(&project));
        }
        let printed = [format!("[main {}] number 0\n", &hashes[0][..7]), "quiet\n".to_owned(), format!("[main {}] number 2\n[main 1234567] never\n", &hashes[2][..7])];
        for (number, printed) in printed.iter().enumerate() {
            let (message, call) = (format!("m{number}"), format!("t{number}"));
            lines += &main.tool_call(&message, "Bash", &call, &json!({ "command": "make release" }));
            lines += &main.tool_result(&call, "", &json!({ "stdout": printed }));
            lines += &main.reply(&format!("w{number}"), None, 5, "Released.");
        }
        TranscriptFolder::new(&terminal).append(None, &lines);
        ingest(&terminal);
        let mut made: Vec<String> = column(&terminal.json(&["made", "last"])["touches"], "display_path");
        made.sort();
        let mut expected: Vec<String> = (0..2).map(|number| format!("{} number {number}", &hashes[number][..8])).collect();
        expected.sort();
        assert_eq!(made, expected);
    }

    fn command_that_removes_files_of_earlier_runs_is_recorded_as_deleting_them(terminal: Terminal) {
        // The first commit of the repository is as recent as the session, but no command of the session made it.
        let project = create_repository(project(&terminal));
        let session = HookSession { terminal: &terminal, id: SESSION };
        session.send("SessionStart", &json!({ "source": "startup" }));
        session.prompt("write");
        for (call, path) in [("t1", "a.txt"), ("t2", "old/b.txt"), ("t3", "old/c.txt"), ("t4", "kept.txt"), ("t5", "older.txt")] {
            session.send("PostToolUse", &write_file_event(call, &project.join(path)));
        }
        session.send("Stop", &json!({ "last_assistant_message": "written" }));
        session.prompt("clean up");
        let before = Clock::system().now().to_string();
        fs::remove_file(project.join("a.txt")).unwrap();
        fs::remove_dir_all(project.join("old")).unwrap();
        session.send("PostToolUse", &shell("rm -rf a.txt old never.txt kept.txt"));
        session.send("Stop", &json!({ "last_assistant_message": "clean" }));
        let deleted = || {
            let touches = terminal.json(&["made", "last"])["touches"].clone();
            let touches = touches.as_array().unwrap().iter();
            let mut deleted: Vec<_> = touches.map(|touch| (text(&touch["action_type"]), text(&touch["display_path"]), touch["times"].to_string())).collect();
            deleted.sort();
            deleted
        };
        let expected = ["a.txt", "old/b.txt", "old/c.txt"].map(|path| ("delete".to_owned(), path.to_owned(), "1".to_owned()));
        assert_eq!(deleted(), expected);
        // The transcript reports the same command again, with a slightly earlier time.
        let mut main = TranscriptWriter::new(SESSION, project.to_str().unwrap());
        let lines = main.prompt("clean up") + &main.tool_call("m1", "Bash", "b1", &json!({ "command": "rm -rf a.txt old never.txt kept.txt" }))
            + &main.tool_result("b1", "", &json!({ "stdout": "" }));
        let lines = ["1", "2", "3"].iter().fold(lines, |lines, second| lines.replace(&format!("2026-02-27T09:00:0{second}.000Z"), &before));
        TranscriptFolder::new(&terminal).append(None, &lines);
        ingest(&terminal);
        assert_eq!(deleted(), expected);
    }

    fn file_written_by_one_agent_and_removed_by_another_is_recorded_as_deleted(terminal: Terminal) {
        let project = create_repository(project(&terminal));
        let folder = TranscriptFolder::new(&terminal);
        let writing = |session| TranscriptWriter::new(session, project.to_str().unwrap());
        let mut agent = writing(SESSION).for_agent(AGENT);
        let mut lines_of_agent = agent.prompt("write");
        for (call, path) in [("t1", "a.txt"), ("t2", "b.txt"), ("t3", "kept.txt")] {
            lines_of_agent += &agent.tool_call(call, "Write", call, &json!({ "file_path": project.join(path), "content": "x\n" }));
            lines_of_agent += &agent.tool_result(call, "File created", &json!({ "type": "create", "structuredPatch": [] }));
        }
        // Both times, ingest reads the removal before the write. The first time, the agent's transcript does not exist
        // yet. The second time, ingest reads the transcript of the session before the transcript of the agent.
        for (session, prompt, call, path) in [(SESSION, "clean", "t4", "a.txt"), (OTHER, "and the rest", "t5", "b.txt")] {
            let mut main = writing(session);
            (0..200).for_each(|_| drop(main.line("time-passes", &json!({}))));
            let lines = main.prompt(prompt) + &main.tool_call(call, "Bash", call, &json!({ "command": format!("rm {path}") }))
                + &main.tool_result(call, "", &json!({ "stdout": "" }));
            folder.write(&format!("{session}.jsonl"), lines.as_bytes());
            if session == SESSION {
                ingest(&terminal);
                folder.append(Some(AGENT), &lines_of_agent);
            }
        }
        ingest(&terminal);
        let mut runs = column(&terminal.json(&["run", "list"]), "id");
        runs.sort();
        assert_eq!(made_by_run(&terminal, &runs[0]), ["create a.txt", "create b.txt", "create kept.txt"]);
        let mut deleted = runs[1..].iter().map(|run| made_by_run(&terminal, run)).collect::<Vec<_>>();
        deleted.sort();
        assert_eq!(deleted, [["delete a.txt"], ["delete b.txt"]]);
    }

    fn removing_a_repository_deletes_the_files_in_it(terminal: Terminal) {
        let removed = create_repository(terminal.home.path().join("work/gone"));
        let inner = create_repository(removed.join("inner"));
        let beside = create_repository(terminal.home.path().join("work/gone-not"));
        let session = HookSession { terminal: &terminal, id: SESSION };
        session.send("SessionStart", &json!({ "source": "startup" }));
        session.prompt("write");
        for (call, path) in [("t1", removed.join("a.txt")), ("t2", inner.join("b.txt")), ("t3", beside.join("c.txt"))] {
            session.send("PostToolUse", &write_file_event(call, &path));
        }
        session.send("Stop", &json!({ "last_assistant_message": "written" }));
        session.prompt("clean up");
        fs::remove_dir_all(&removed).unwrap();
        session.send("PostToolUse", &in_directory(terminal.home.path(), shell("rm -rf work/gone")));
        assert_eq!(made_by_run(&terminal, "last"), ["delete a.txt", "delete b.txt"]);
    }

    fn commit_belongs_to_the_run_whose_command_printed_it(terminal: Terminal) {
        let project = create_repository(project(&terminal));
        let session = HookSession { terminal: &terminal, id: SESSION };
        session.send("SessionStart", &json!({ "source": "startup" }));
        session.prompt("go");
        session.send_agent_call("t1", "do");
        session.send_subagent_start(AGENT);
        let hash = commit(&project, "by the agent");
        // The main agent runs a command while the subagent's command is still running.
        session.send("PostToolUse", &shell("ls"));
        let agent_of = |hash: &str| text(&terminal.json(&["why", hash])["chain"][2]["label"]);
        assert_eq!(agent_of(&hash), "main@project");
        let mut agent = TranscriptWriter::new(SESSION, project.to_str().unwrap()).for_agent(AGENT);
        let lines = agent.prompt("do") + &agent.tool_call("m1", "Bash", "t2", &json!({ "command": "git commit && make" }))
            + &agent.tool_result("t2", "", &json!({ "stdout": format!("[main {}] by the agent\n", &hash[..7]) }));
        let folder = TranscriptFolder::new(&terminal);
        folder.append(Some(AGENT), &lines);
        ingest(&terminal);
        assert_eq!(agent_of(&hash), "general-purpose@project");
        let touches = terminal.json(&["why", &hash])["touched_by"].clone();
        assert_eq!(column(&touches, "action_type"), ["create"]);
    }

    fn commit_without_output_belongs_to_the_agent_that_ran_git_commit_or_to_the_main_agent(terminal: Terminal) {
        let project = create_repository(project(&terminal));
        let folder = TranscriptFolder::new(&terminal);
        let mut main = TranscriptWriter::new(SESSION, project.to_str().unwrap());
        folder.append(None, &main.prompt("go"));
        let hashes = [42, 44].map(|second| {
            git_at(&project, &format!("2026-02-27T09:01:{second}Z"), &["commit", "-q", "--allow-empty", "-m", "quiet"]);
            head(&project)
        });
        // The agents run their commands at the same times, two commands each.
        for (agent, role, commands) in
            [("a1", "cook", ["make", "./cook.sh"]), ("a2", "smith", ["git commit -qm quiet", "./forge.sh"]), ("a3", "guard", ["ls", "git log"])]
        {
            let mut working = TranscriptWriter::new(SESSION, project.to_str().unwrap()).for_agent(agent);
            let mut lines = working.prompt(&format!("[ROLE:{role}] work"));
            for (call, command) in ["t1", "t2"].map(|call| format!("{agent}{call}")).iter().zip(commands) {
                lines += &working.tool_call(call, "Bash", call, &json!({ "command": command }));
                lines += &working.tool_result(call, "", &json!({ "stdout": "" }));
            }
            folder.append(Some(agent), &lines);
            ingest(&terminal);
        }
        let agent_of = |hash: &str| text(&terminal.json(&["why", hash])["chain"][2]["label"]);
        assert_eq!(hashes.each_ref().map(|hash| agent_of(hash)), ["smith@project", "main@project"]);
        for hash in &hashes {
            assert_eq!(column(&terminal.json(&["why", hash])["touched_by"], "action_type"), ["create"]);
        }
    }

    fn why_names_the_latest_creator_or_else_the_latest_editor_of_a_file(terminal: Terminal) {
        let folder = TranscriptFolder::new(&terminal);
        let mut main = TranscriptWriter::new(SESSION, "/ship");
        let mut lines = String::new();
        for number in 0..24 {
            let made = if number % 10 == 2 { "File created" } else { "updated" };
            lines += &main.prompt(&format!("go {number}"));
            for (name, result) in [("old.rs", "updated"), ("again.rs", made)] {
                let call = format!("{name}-{number}");
                lines += &main.tool_call(&format!("m-{call}"), "Write", &call, &json!({ "file_path": format!("/ship/{name}"), "content": "x\n" }));
                lines += &main.tool_result(&call, result, &Value::Null);
            }
            lines += &main.reply(&format!("m{number}"), Some("end_turn"), 3, "Done.");
        }
        folder.append(None, &lines);
        ingest(&terminal);
        assert_eq!(why(&terminal, "/ship/old.rs"), expected_answer("file old.rs", "go 23"));
        assert_eq!(why(&terminal, "/ship/again.rs"), expected_answer("file again.rs", "go 22"));
    }

    fn file_deleted_by_hand_before_a_run_is_not_attributed_to_the_run(terminal: Terminal) {
        let project = create_repository(project(&terminal));
        let session = HookSession { terminal: &terminal, id: "s1" };
        session.send("SessionStart", &json!({ "source": "startup" }));
        session.prompt("write");
        session.send("PostToolUse", &write_file_event("t1", &project.join("mine.txt")));
        session.send("PostToolUse", &write_file_event("t2", &project.join("own.txt")));
        commit(&project, "both");
        session.send("PostToolUse", &shell("git commit"));
        session.send("Stop", &json!({ "last_assistant_message": "done" }));
        fs::remove_file(project.join("mine.txt")).unwrap();
        session.prompt("go on");
        session.send("PostToolUse", &write_file_event("t3", &project.join("own.txt")));
        fs::remove_file(project.join("own.txt")).unwrap();
        fs::write(project.join("other.txt"), "o\n").unwrap();
        session.send("PostToolUse", &shell("rm own.txt; echo o > other.txt"));
        session.send("Stop", &json!({ "last_assistant_message": "done" }));
        assert_eq!(made_by_run(&terminal, "last"), ["create other.txt", "create own.txt", "delete own.txt"]);
    }

    fn forget_removes_commits_and_reverts_scratchpads(terminal: Terminal) {
        let project = create_repository(project(&terminal));
        let run_with_scratchpad = |id: &str, agent: &str, scratchpad: &str| {
            let session = HookSession { terminal: &terminal, id };
            session.prompt("go");
            session.send_agent_call(&format!("call-{agent}"), "do");
            session.send_subagent_start(agent);
            let stop = session.event("SubagentStop", &subagent_stop(agent, "done")).to_string();
            let output = crate::terminal::run_command_with_input(terminal.command(&["hook"]), stop.as_bytes());
            assert!(output.stdout.contains("\"block\""), "{output:?}");
            let mut answer = subagent_stop(agent, &json!({ "scratchpad": scratchpad }).to_string());
            answer["stop_hook_active"] = json!(true);
            session.send("SubagentStop", &answer);
        };
        let scratchpad = || {
            let scratchpad = terminal.json(&["scratchpad", "get", "--agent", "general-purpose@project"]);
            (text(&scratchpad["content"]), scratchpad["revision"].clone())
        };
        let forget = |id: &str| column(&json!([json!({ "notices": terminal.json(&["forget", id, "--yes"])["notices"] })]), "notices");

        run_with_scratchpad("secret-1", "a1", "SECRET one");
        let session = HookSession { terminal: &terminal, id: "secret-1" };
        fs::write(project.join("SECRET.txt"), "s\n").unwrap();
        let hash = commit(&project, "SECRET subject");
        session.send("PostToolUse", &shell("git commit"));
        assert_eq!(why(&terminal, &hash), expected_answer(&format!("commit {} SECRET subject", &hash[..8]), "go"));
        assert_eq!(terminal.expect_error(&["forget", "secret-1"]), (2, "forget \"secret-1\" requires --yes without a terminal".into()));
        assert_eq!(forget("secret-1"), [r#"["the scratchpad of general-purpose@project was written by runs of this session: the scratchpad is now empty"]"#]);
        assert_eq!((why(&terminal, &hash), scratchpad()), (None, (String::new(), json!(0))));

        run_with_scratchpad("kept", "a2", "kept");
        run_with_scratchpad("secret-2", "a3", "SECRET two");
        assert_eq!(forget("secret-2"), [r#"["the scratchpad of general-purpose@project was written by runs of this session: its previous content was restored"]"#]);
        assert_eq!(scratchpad(), ("kept".into(), json!(3)));
        let history = terminal.json(&["scratchpad", "history", "--agent", "general-purpose@project"]);
        assert_eq!(column(&history, "revision"), ["3", "1"]);
        assert_eq!(terminal.json(&["scratchpad", "diff", "--agent", "general-purpose@project"])["from"], 1);

        let all = terminal.run(&["export", "-"]).stdout;
        assert!(all.contains("kept") && !all.contains("SECRET"));
    }
}
