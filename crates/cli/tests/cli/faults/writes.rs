//! A cycle of write commands, each with the field of its answer that names the subject of the write. The other commands
//! are in `further_writes`.

use std::{
    fs,
    io::{Read, Seek, SeekFrom, Write},
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use uuid::Uuid;

use super::{ProcessGroup, SeededRandom, audit::AcknowledgedWrite, further_writes::FURTHER_COMMANDS};
use crate::terminal::{Terminal, text};

/// Runs write commands and remembers the acknowledged writes. Later commands use ids from the answers of earlier ones.
pub struct Writer<'a> {
    pub terminal: &'a Terminal,
    name: String,
    /// The number of attempts. It makes names unique.
    number: usize,
    /// The number of attempts at commands of the cycle.
    cycle_position: usize,
    run: Option<(Uuid, String)>,
    note: Option<String>,
    decision: Option<String>,
    commitment: Option<String>,
    tasks: Vec<String>,
    stickies: Vec<String>,
    taken: Option<Value>,
    pub acknowledged: Vec<AcknowledgedWrite>,
    /// The average duration of recent commands that were not killed. A kill happens within 5/4 of this time.
    typical_duration: Duration,
    /// Checks for acknowledged writes that append no event: SQL `from` clauses, each of which must match one row.
    pub rows: Vec<String>,
}

/// A command, and how its answer names the subject of the write.
pub struct Attempt {
    pub arguments: Vec<String>,
    pub action: &'static str,
    pub subject: Subject,
    pub in_run: bool,
    pub input: Option<Value>,
}

pub enum Subject {
    Field(&'static str),
    Known(Uuid),
    /// No event names the subject. This `from` clause, if given, must match one row.
    Row(Option<String>),
}

/// Whether, and when, a command is killed.
pub enum Interruption<'a> {
    Never,
    /// The kill hits the command and all processes that it started.
    AtRandomMoment(&'a mut SeededRandom),
}

pub fn attempt(action: &'static str, subject: &'static str, in_run: bool, arguments: &[&str]) -> Attempt {
    let arguments = arguments.iter().map(ToString::to_string).collect();
    Attempt { arguments, action, subject: Subject::Field(subject), in_run, input: None }
}

/// The number of commands in the cycle. The last one is no action, but a hook event.
pub const CYCLE_LENGTH: usize = 29;
/// The number of all commands.
pub const COMMAND_COUNT: usize = CYCLE_LENGTH + FURTHER_COMMANDS.len();
pub const CYCLE_ACTIONS: &[&str] = &[
    "start_run",
    "create_note",
    "update_note",
    "confirm_read",
    "create_decision",
    "vote",
    "create_commitment",
    "commit",
    "send_message",
    "record_step",
    "record_usage",
    "wake_run",
    "update_report",
    "set_stickie",
    "relate_stickies",
    "end_run",
    "set_role",
    "set_task",
    "replace_task",
    "add_link",
    "set_package",
    "queue_add",
    "queue_take",
    "queue_complete",
    "create_token",
    "set_scratchpad",
    "set_conversation",
    "import_beads",
];
/// The assumed duration of a command before the first measurement.
const INITIAL_DURATION: Duration = Duration::from_millis(40);
/// Texts of this length make SQLite checkpoint its write-ahead log now and then.
const LONG_TEXT_CHARACTERS: usize = 30_000;

impl<'a> Writer<'a> {
    /// Creates the subjects of the commands. These commands are not killed.
    pub fn new(terminal: &'a Terminal, name: &str) -> Self {
        for arguments in [
            &["workflow", "set", "--name", "ops"][..],
            &["task", "set", "--workflow", "ops", "--variant", "work/again", "--recurring", "true"],
            &["route", "set", "--tag", "work", "--task", "work/again"],
            &["role", "set", "--name", "coder"],
            &["board", "set", "--name", "wall"],
            &["agent", "set", "--handle", &format!("{name}-bot")],
        ] {
            terminal.json(arguments);
        }
        Self {
            terminal,
            name: name.to_owned(),
            number: 0,
            cycle_position: 0,
            run: None,
            note: None,
            decision: None,
            commitment: None,
            tasks: Vec::new(),
            stickies: Vec::new(),
            taken: None,
            acknowledged: Vec::new(),
            typical_duration: INITIAL_DURATION,
            rows: Vec::new(),
        }
    }

    pub fn agent(&self) -> String {
        format!("{}-bot", self.name)
    }

    /// The command at this position of the cycle, or `None` while it lacks an id from an earlier answer.
    fn cycle_attempt(&self, index: usize) -> Option<Attempt> {
        let name = format!("{}-{}", self.name, self.number);
        let run = self.run.as_ref().map(|(run, _)| run.to_string());
        let bot = self.agent();
        let long = format!("{name} {}", "x".repeat(LONG_TEXT_CHARACTERS));
        Some(match index % CYCLE_LENGTH {
            0 => attempt("start_run", "run_id", false, &["run", "start", "--agent", &bot, "--task", "work/again"]),
            1 => attempt("create_note", "id", true, &["note", "create", "--studio", "main", "--title", &name]),
            2 => attempt("update_note", "id", true, &["note", "update", self.note.as_ref()?, "--body", &long]),
            3 => attempt("confirm_read", "id", true, &["note", "confirm", self.note.as_ref()?]),
            4 => attempt(
                "create_decision",
                "id",
                true,
                &["decision", "create", "--studio", "main", "--question", &name, "--option", "a", "--option", "b"],
            ),
            5 => {
                attempt("vote", "id", true, &["decision", "vote", self.decision.as_ref()?, "--option", "a", "--accept"])
            }
            6 => attempt(
                "create_commitment",
                "id",
                true,
                &["commitment", "create", "--studio", "main", "--title", &name, "--critical-mass", "3"],
            ),
            7 => attempt("commit", "id", true, &["commitment", "commit", self.commitment.as_ref()?]),
            8 => attempt("send_message", "id", true, &["message", "send", "--body", &long, "--tag", "work"]),
            9 => attempt("record_step", "run_id", true, &["run", "step", &run?, "--type", "think"]),
            10 => attempt(
                "record_usage",
                "run_id",
                true,
                &["run", "usage", &run?, "--input-tokens", "1", "--message-id", &name],
            ),
            11 => attempt("wake_run", "run_id", true, &["run", "wake", &run?]),
            12 => attempt(
                "update_report",
                "id",
                true,
                &["report", "update", "--one-liner", &name, "--tldr", "t", "--content", "c"],
            ),
            13 => attempt("set_stickie", "id", true, &["stickie", "set", "--board", "wall", "--name", &name]),
            14 => {
                let [.., from, to] = self.stickies.as_slice() else { return None };
                attempt(
                    "relate_stickies",
                    "from_id",
                    true,
                    &["stickie", "relate", "--from", from, "--to", to, "--type", "USES"],
                )
            }
            15 => attempt("end_run", "id", true, &["run", "end", &run?, "--status", "completed"]),
            16 => attempt("set_role", "id", false, &["role", "set", "--name", &name]),
            17 => attempt(
                "set_task",
                "id",
                false,
                &["task", "set", "--workflow", "ops", "--variant", &format!("task/{name}"), "--title", &name],
            ),
            18 => {
                let [.., old, newer] = self.tasks.as_slice() else { return None };
                attempt("replace_task", "new_id", false, &["task", "replace", newer, old])
            }
            19 => {
                let [.., blocked] = self.tasks.as_slice() else { return None };
                attempt(
                    "add_link",
                    "from_id",
                    false,
                    &["link", "add", "--from", "work/again", "--to", blocked, "--type", "blocks"],
                )
            }
            20 => attempt(
                "set_package",
                "task_id",
                false,
                &["package", "set", "--role", "coder", "--task", self.tasks.last()?],
            ),
            21 => attempt("queue_add", "id", false, &["queue", "add", "--task", "work/again"]),
            22 => attempt("queue_take", "id", false, &["queue", "take", "--lease", "2"]),
            23 => {
                let taken = self.taken.as_ref()?;
                let (item, fence) = (text(&taken["id"]), taken["fence"].to_string());
                attempt("queue_complete", "id", false, &["queue", "complete", "--id", &item, "--fence", &fence])
            }
            24 => attempt("create_token", "id", false, &["token", "create", "--name", &name]),
            25 => {
                let agent = self.terminal.json(&["agent", "get", &bot]);
                let mut set =
                    attempt("set_scratchpad", "", false, &["scratchpad", "set", "--agent", &bot, "--content", &name]);
                set.subject = Subject::Known(text(&agent["id"]).parse().unwrap());
                set
            }
            26 => attempt("set_conversation", "id", false, &["conversation", "set", "--title", &name]),
            27 => self.import_attempt(&name),
            _ => self.hook_event_attempt(),
        })
    }

    /// An import of two linked issues of another tracker. It must be written completely or not at all.
    fn import_attempt(&self, command: &str) -> Attempt {
        let file = self.terminal.home.path().join(format!("{command}.jsonl"));
        let blocks = json!([{ "issue_id": "i-2", "depends_on_id": "i-1", "type": "blocks" }]);
        let issues = [
            json!({ "id": "i-1", "title": "keel", "status": "open", "priority": 1 }),
            json!({ "id": "i-2", "title": "sail", "status": "open", "priority": 1, "dependencies": blocks }),
        ];
        fs::write(&file, issues.map(|issue| format!("{issue}\n")).concat()).unwrap();
        let mut import =
            attempt("import_beads", "", false, &["import", "beads", file.to_str().unwrap(), "--command", command]);
        import.subject = Subject::Row(Some(format!(
            "task_links l join tasks a on a.id = l.from_task_id join tasks b on b.id = l.to_task_id
             where a.variant = '{command}/i-1' and b.variant = '{command}/i-2'"
        )));
        import
    }

    /// The next hook event of a session, in the order of a real client. Each event has a new tool call id.
    fn hook_event_attempt(&self) -> Attempt {
        let (number, agent) = (self.number, format!("a{}", self.number));
        let call = format!("{}-call-{number}", self.name);
        let spawn = json!({ "prompt": "[ROLE:mate] mend", "description": "mend", "subagent_type": "general-purpose" });
        let mut event = match self.cycle_position / CYCLE_LENGTH % 9 {
            0 => json!({ "hook_event_name": "SessionStart", "source": "startup" }),
            1 => json!({ "hook_event_name": "UserPromptSubmit", "prompt": format!("go {number}") }),
            2 | 7 => json!({
                "hook_event_name": "PreToolUse", "tool_name": "Agent", "tool_use_id": call, "tool_input": spawn,
            }),
            3 => json!({ "hook_event_name": "SubagentStart", "agent_id": agent, "agent_type": "general-purpose" }),
            4 => json!({
                "hook_event_name": "PostToolUse", "tool_name": "Write", "tool_use_id": call,
                "tool_input": { "file_path": format!("f{number}.txt"), "content": "x\n" },
                "tool_response": { "type": "create", "structuredPatch": [] },
            }),
            5 => json!({ "hook_event_name": "SubagentStop", "agent_id": agent, "last_assistant_message": "mended" }),
            6 => json!({ "hook_event_name": "Stop", "stop_hook_active": false, "last_assistant_message": "done" }),
            _ => json!({ "hook_event_name": "SessionEnd", "reason": "exit" }),
        };
        event["session_id"] = json!(format!("session-of-{}", self.name));
        event["cwd"] = json!(self.terminal.home.path());
        Attempt {
            arguments: vec!["hook".to_owned()],
            action: "hook",
            subject: Subject::Row((!event["tool_use_id"].is_null()).then(|| {
                format!(
                    "(select tool_use_id from task_spawns union all select tool_use_id from file_changes) c
                     where tool_use_id = '{call}'"
                )
            })),
            in_run: false,
            input: Some(event),
        }
    }

    /// Runs the next command of the cycle, and remembers an acknowledged write.
    pub fn write(&mut self, interruption: Interruption<'_>) {
        self.cycle_position += 1;
        self.write_with_command(self.cycle_position % CYCLE_LENGTH, interruption);
    }

    /// Runs the command with this index. Returns its exit code, or `None` if it was skipped or killed.
    pub fn write_with_command(&mut self, index: usize, interruption: Interruption<'_>) -> Option<i32> {
        self.number += 1;
        let attempt = match index.checked_sub(CYCLE_LENGTH).and_then(|further| FURTHER_COMMANDS.get(further)) {
            Some((_, prepare)) => prepare(self, &format!("{}-{}", self.name, self.number)),
            None => self.cycle_attempt(index),
        };
        let attempt = attempt?;
        if attempt.in_run && self.run.is_none() {
            return None;
        }
        let (code, answer, errors) = self.run_attempt(&attempt, interruption);
        let Some(code) = code else {
            // The answer of a killed command is an acknowledgement if it is complete.
            if let Some(answer) = answer {
                self.record_acknowledgement(&attempt, &answer);
            }
            return None;
        };
        match (code, answer) {
            (0, Some(answer)) => self.record_acknowledgement(&attempt, &answer),
            (0, None) if attempt.action == "hook" => self.record_acknowledgement(&attempt, &Value::Null),
            // A killed command may have taken effect. Then this command conflicts with it, or the run has already
            // ended.
            (4 | 6, _) => self.discard_stale_state(&attempt),
            // The events of the session may still be in the spool, so that the session is unknown.
            (3, _) if index >= CYCLE_LENGTH => {}
            _ => panic!("{:?}: {code} {errors}", attempt.arguments),
        }
        Some(code)
    }

    /// Runs the command and perhaps kills it. Returns the exit code unless it was killed, the answer, and the error
    /// text.
    fn run_attempt(
        &mut self,
        attempt: &Attempt,
        interruption: Interruption<'_>,
    ) -> (Option<i32>, Option<Value>, String) {
        let arguments: Vec<&str> = attempt.arguments.iter().map(String::as_str).collect();
        let mut command = self.terminal.command(&arguments);
        let (mut stdout, mut stderr) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        command.stdout(Stdio::from(stdout.try_clone().unwrap())).stderr(Stdio::from(stderr.try_clone().unwrap()));
        if attempt.in_run {
            command.envs(self.run.as_ref().map(|(_, token)| ("TRACKWAY_TOKEN", token)));
        }
        match &attempt.input {
            Some(input) => {
                let mut file = tempfile::tempfile().unwrap();
                write!(file, "{input}").unwrap();
                file.seek(SeekFrom::Start(0)).unwrap();
                command.stdin(Stdio::from(file));
            }
            None => {
                command.arg("--json");
            }
        }
        let timeout = match interruption {
            Interruption::Never => Duration::from_mins(1),
            Interruption::AtRandomMoment(random) => random.duration_below(self.typical_duration * 5 / 4),
        };
        let started = Instant::now();
        let mut group = ProcessGroup::spawn(&mut command);
        let code = group.wait_for_exit(timeout.saturating_sub(started.elapsed()));
        if code.is_some() {
            self.typical_duration = (self.typical_duration * 3 + started.elapsed()) / 4;
        }
        group.kill();
        let mut texts = [String::new(), String::new()];
        for (file, text) in [&mut stdout, &mut stderr].into_iter().zip(&mut texts) {
            file.seek(SeekFrom::Start(0)).unwrap();
            file.read_to_string(text).unwrap();
        }
        let [stdout, stderr] = texts;
        let answer = serde_json::from_str::<Value>(&stdout).ok().map(|answer| answer["data"].clone());
        (code, answer, stderr)
    }

    fn record_acknowledgement(&mut self, attempt: &Attempt, answer: &Value) {
        let row = if answer.is_array() { &answer[0] } else { answer };
        let subject = match &attempt.subject {
            Subject::Row(row) => return self.rows.extend(row.clone()),
            Subject::Known(id) => *id,
            // No item was ready.
            Subject::Field(_) if attempt.action == "queue_take" && row.is_null() => return,
            Subject::Field(field) => text(&row[field]).parse().unwrap(),
        };
        // The command found its subject already written, and wrote nothing.
        if row["new"] == false || row["duplicate"] == true {
            return;
        }
        let run = self.run.as_ref().filter(|_| attempt.in_run).map(|(run, _)| *run);
        self.acknowledged.push(AcknowledgedWrite { action: attempt.action.to_owned(), subject, run });
        match attempt.action {
            "start_run" => self.run = Some((subject, text(&row["token"]))),
            "end_run" => self.run = None,
            "create_note" => self.note = Some(subject.to_string()),
            "create_decision" => self.decision = Some(subject.to_string()),
            "create_commitment" => self.commitment = Some(subject.to_string()),
            "set_task" => self.tasks.push(text(&row["variant"])),
            "set_stickie" => self.stickies.push(subject.to_string()),
            "queue_take" => self.taken = Some(row.clone()),
            "queue_complete" => self.taken = None,
            _ => {}
        }
    }

    /// Discards remembered ids that a conflict has shown to be stale.
    fn discard_stale_state(&mut self, attempt: &Attempt) {
        match attempt.action {
            "queue_complete" => self.taken = None,
            "replace_task" | "add_link" => self.tasks.clear(),
            _ if attempt.in_run => self.run = None,
            _ => {}
        }
    }
}
