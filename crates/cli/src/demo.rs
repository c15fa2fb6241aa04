//! `trackway demo`: a guided demo that runs real commands in a temporary database.

mod agents;

use std::{
    env,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;
use trackway_actions::{Core, tenant};
use trackway_clients::CLIENTS;
use trackway_store::{Store, Url};

use crate::{
    arguments,
    dispatch::{self, App, CommandOutcome},
    failure::Failure,
    ingest, recorded_session,
    render::{Layout, Output},
    user, work,
};

/// Runs commands as a user would, and collects the commands and their output.
struct Demo {
    app: App,
    /// A link to this program with the name `trackway`, which the scripts of the demo call.
    program: PathBuf,
    output: String,
}

impl Demo {
    fn add_heading(&mut self, text: &str) {
        let bold = anstyle::Style::new().bold();
        let _ = writeln!(self.output, "\n{bold}{text}{bold:#}\n");
    }

    /// Runs a command and shows it, without its output.
    fn run(&mut self, arguments: &[&str]) -> Result<Value, Failure> {
        Ok(self.run_command(arguments)?.data)
    }

    /// Runs a command and shows it with its output.
    fn run_and_show(&mut self, arguments: &[&str]) -> Result<(), Failure> {
        let outcome = self.run_command(arguments)?;
        for line in Output::for_demo().render(&outcome).lines() {
            let _ = writeln!(self.output, "    {line}");
        }
        Ok(())
    }

    /// Runs a command without showing it.
    fn run_hidden(&self, arguments: &[&str]) -> Result<Value, Failure> {
        let line = std::iter::once("trackway").chain(arguments.iter().copied());
        Ok(self.app.run_command(&arguments::command().try_get_matches_from(line)?)?.data)
    }

    fn run_command(&mut self, arguments: &[&str]) -> Result<CommandOutcome, Failure> {
        let line = std::iter::once("trackway").chain(arguments.iter().copied());
        let outcome = self.app.run_command(&arguments::command().try_get_matches_from(line)?)?;
        let shown: Vec<String> = arguments.iter().map(|argument| quote(argument)).collect();
        self.show_command(&format!("trackway {}", shown.join(" ")));
        Ok(outcome)
    }

    fn show_command(&mut self, line: &str) {
        let green = anstyle::AnsiColor::Green.on_default();
        let _ = writeln!(self.output, "  {green}${green:#} {line}");
    }

    /// Ends the run, and acts as the person again.
    fn end_run(&mut self, arguments: &[&str]) -> Result<(), Failure> {
        self.run(arguments)?;
        self.app.token = None;
        self.show_command("unset TRACKWAY_TOKEN");
        Ok(())
    }

    /// Starts a run, and acts with its token from here on.
    fn start_run(&mut self, arguments: &[&str]) -> Result<String, Failure> {
        let started = self.run(arguments)?;
        self.app.token = started["token"].as_str().map(str::to_owned);
        self.show_command("export TRACKWAY_TOKEN=...");
        Ok(short_id(&started, "run_id"))
    }
}

fn quote(argument: &str) -> String {
    if argument.contains([' ', '?', '\'']) {
        format!("'{}'", argument.replace('\'', "'\\''"))
    } else {
        argument.to_owned()
    }
}

/// The short form of an id in an output.
fn short_id(output: &Value, field: &str) -> String {
    let full = output[field].as_str().unwrap_or_default();
    full[full.len().saturating_sub(8)..].to_owned()
}

pub fn command() -> Command {
    Command::new("demo").about("Run a guided demo in a temporary database (no network, no API key)").arg(
        Arg::new("open")
            .long("open")
            .action(ArgAction::SetTrue)
            .help("Afterwards serve the pages of the demo database, and open them in a browser"),
    )
}

pub fn demo(matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let (outcome, file) = create_demo()?;
    if !matches.get_flag("open") {
        return Ok(outcome);
    }
    Output::for_demo().print(&outcome)?;
    let database = format!("sqlite:{}", file.display());
    let line = ["trackway", "--db", &database, "up", "--no-work", "--open", "--listen", "127.0.0.1:0"];
    dispatch::dispatch(&arguments::command().try_get_matches_from(line)?)
}

/// Runs the demo. Keeps its database, so that the user can explore it.
fn create_demo() -> Result<(CommandOutcome, PathBuf), Failure> {
    // A random name, so that no other user can have created the directory.
    let directory = env::temp_dir().join(format!("trackway-demo-{}", uuid::Uuid::new_v4().simple()));
    fs::create_dir(&directory)?;
    let file = directory.join("trackway.db");
    let core = Core::new(Store::create(Url::sqlite(&file))?);
    core.init_tenant(tenant::LOCAL_TENANT, &user::handle())?;
    let program = directory.join("bin/trackway");
    fs::create_dir(directory.join("bin"))?;
    std::os::unix::fs::symlink(env::current_exe()?, &program)?;
    let app = App::with_core(core, tenant::LOCAL_TENANT);
    let mut demo = Demo { app, program, output: String::new() };

    show_versions(&mut demo)?;
    let (run, note, decision) = show_two_runs(&mut demo)?;
    demo.add_heading("What did the run create? And which run created this note?");
    demo.run_and_show(&["made", &run])?;
    demo.run_and_show(&["why", &note])?;
    agents::show_agents(&mut demo, &directory, &decision)?;
    show_message_routing(&mut demo)?;
    show_recorded_session(&mut demo, &directory)?;
    demo.add_heading("The demo database is still there. Explore it:");
    let _ = writeln!(demo.output, "  export TRACKWAY_DB=sqlite:{}\n  trackway why {note}", file.display());
    Ok((CommandOutcome::new(Value::String(demo.output), Layout::Text), file))
}

/// A route turns a message into a queue item, and a worker runs the item.
fn show_message_routing(demo: &mut Demo) -> Result<(), Failure> {
    demo.add_heading("A message arrives. A route queues a task for it, and a worker runs the task's script.");
    let script = "read -r what\ntrackway note create --studio main --title \"Looked into: $what\" > /dev/null\necho \"looked into: $what\"";
    demo.run(&["workflow", "set", "--name", "support"])?;
    demo.run(&[
        "task",
        "set",
        "--workflow",
        "support",
        "--variant",
        "triage",
        "--recurring",
        "true",
        "--script",
        script,
    ])?;
    demo.run(&["route", "set", "--tag", "bug", "--task", "triage"])?;
    demo.run_and_show(&["message", "send", "--tag", "bug", "--body", "The kettle reports 212 degrees"])?;
    demo.show_command("trackway work --once");
    for line in work::work_once(&demo.app, None, Err(String::new()), &demo.program)? {
        let _ = writeln!(demo.output, "    {line}");
    }
    demo.add_heading("The script's output became a reply, and the script created a note. `why` follows the note back to the message.");
    demo.run_and_show(&["search", "kettle"])?;
    let made = demo.run_hidden(&["made", "last"])?;
    let note = made["touches"].as_array().into_iter().flatten().find(|touch| touch["resource_type"] == "note");
    demo.run_and_show(&["why", &note.map(|note| short_id(note, "resource_id")).unwrap_or_default()])
}

fn show_recorded_session(demo: &mut Demo, directory: &Path) -> Result<(), Failure> {
    let clients = CLIENTS.display_names();
    demo.add_heading(&format!("Import a session of {clients} from its transcripts. Hooks record the same, live."));
    let transcripts = directory.join("projects");
    recorded_session::write(&transcripts, &directory.join("kitchen"))?;
    let context = demo.app.context()?;
    ingest::ingest_folder(&demo.app.core, &context, &transcripts)?;
    demo.show_command("trackway ingest");
    demo.run_and_show(&["session", "show", recorded_session::session()])?;
    demo.add_heading("Which run wrote the second line of tea.js, and at whose request?");
    demo.run_and_show(&["why", &format!("{}:2", recorded_session::FILE)])
}

fn show_versions(demo: &mut Demo) -> Result<(), Failure> {
    demo.add_heading("A workflow owns a task. Two new versions replace the task, and the old versions stay.");
    demo.run(&["role", "set", "--name", "coder"])?;
    demo.run(&["role", "set", "--name", "reviewer"])?;
    demo.run(&["workflow", "set", "--name", "quality", "--role", "coder"])?;
    demo.run(&[
        "task",
        "set",
        "--workflow",
        "quality",
        "--variant",
        "unit/go",
        "--title",
        "Test the Go code",
        "--role",
        "coder",
    ])?;
    demo.run(&[
        "task",
        "set",
        "--workflow",
        "quality",
        "--variant",
        "unit/go-race",
        "--title",
        "Test with the race detector",
        "--role",
        "coder",
        "--replaces",
        "unit/go",
    ])?;
    demo.run(&[
        "task",
        "set",
        "--workflow",
        "quality",
        "--variant",
        "unit/go-fuzz",
        "--title",
        "Test and fuzz",
        "--role",
        "coder",
        "--replaces",
        "unit/go-race",
        "--level",
        "major",
    ])?;
    demo.run_and_show(&["task", "latest", "--variant", "unit/go"])?;
    demo.run(&["package", "set", "--role", "coder", "--task", "unit/go-race"])?;
    demo.run_and_show(&["package", "outdated"])?;
    Ok(())
}

/// Two agents in two studios. Returns the first run, its note and its decision.
fn show_two_runs(demo: &mut Demo) -> Result<(String, String, String), Failure> {
    demo.add_heading("Two agents work in two studios. Everything an agent does is attributed to its run.");
    demo.run(&["studio", "set", "--name", "lab"])?;
    demo.run(&["agent", "set", "--handle", "ada", "--role", "coder"])?;
    demo.run(&["agent", "set", "--handle", "grace", "--role", "reviewer"])?;
    let first = demo.start_run(&["run", "start", "--agent", "ada", "--task", "unit/go-race"])?;
    let note = demo.run(&[
        "note",
        "create",
        "--studio",
        "main",
        "--title",
        "Race in the cache",
        "--body",
        "Two writers, one map.",
    ])?;
    let note = short_id(&note, "id");
    let decision = demo.run(&[
        "decision",
        "create",
        "--studio",
        "lab",
        "--question",
        "How do we fix it?",
        "--option",
        "a lock",
        "--option",
        "a channel",
    ])?;
    let decision = short_id(&decision, "id");
    demo.run(&["decision", "vote", &decision, "--option", "a lock", "--accept"])?;
    demo.run(&[
        "scratchpad",
        "update",
        "--content",
        "The cache is not safe for two writers. Decision is open in the lab.",
    ])?;
    demo.end_run(&["run", "end", &first, "--status", "completed", "--message", "Found it."])?;

    let second = demo.start_run(&["run", "start", "--agent", "grace"])?;
    demo.run(&["note", "confirm", &note])?;
    demo.run(&["decision", "vote", &decision, "--option", "a channel", "--prefer"])?;
    demo.run(&["decision", "vote", &decision, "--option", "a lock", "--accept"])?;
    demo.end_run(&["run", "end", &second, "--status", "completed"])?;
    demo.run_and_show(&["decision", "results", &decision])?;
    Ok((first, note, decision))
}
