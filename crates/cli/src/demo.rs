//! A small story, told with the real commands in a temporary database.

mod agents;

use std::{
    env,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;
use trackway_actions::{Core, founding};
use trackway_clients::CLIENTS;
use trackway_store::{Store, Url};

use crate::{
    arguments,
    door::{self, House, Outcome},
    failure::Failure,
    ingest, recorded,
    render::{Output, Shape},
    user, work,
};

/// The teller: runs each command as a user would, and writes down what was typed and answered.
struct Teller {
    house: House,
    /// This program, called `trackway` whatever it is called elsewhere: scripts of the story call it so.
    program: PathBuf,
    story: String,
}

impl Teller {
    fn says(&mut self, text: &str) {
        let bold = anstyle::Style::new().bold();
        let _ = writeln!(self.story, "\n{bold}{text}{bold:#}\n");
    }

    /// Types a command and keeps its answer; shows what was typed.
    fn types(&mut self, arguments: &[&str]) -> Result<Value, Failure> {
        Ok(self.typed(arguments)?.data)
    }

    /// Types a command and shows what was answered, too.
    fn asks(&mut self, arguments: &[&str]) -> Result<(), Failure> {
        let outcome = self.typed(arguments)?;
        for line in Output::plain().rendered(&outcome).lines() {
            let _ = writeln!(self.story, "    {line}");
        }
        Ok(())
    }

    /// Asks something that the story needs to know, and does not show it.
    fn quietly(&self, arguments: &[&str]) -> Result<Value, Failure> {
        let line = std::iter::once("trackway").chain(arguments.iter().copied());
        Ok(self.house.answer(&arguments::command().try_get_matches_from(line)?)?.data)
    }

    fn typed(&mut self, arguments: &[&str]) -> Result<Outcome, Failure> {
        let line = std::iter::once("trackway").chain(arguments.iter().copied());
        let outcome = self.house.answer(&arguments::command().try_get_matches_from(line)?)?;
        let shown: Vec<String> = arguments.iter().map(|argument| quoted(argument)).collect();
        self.wrote(&format!("trackway {}", shown.join(" ")));
        Ok(outcome)
    }

    /// Shows what was typed.
    fn wrote(&mut self, line: &str) {
        let green = anstyle::AnsiColor::Green.on_default();
        let _ = writeln!(self.story, "  {green}${green:#} {line}");
    }

    /// Ends the run, and acts as a person again.
    fn ends_run(&mut self, arguments: &[&str]) -> Result<(), Failure> {
        self.types(arguments)?;
        self.house.token = None;
        self.wrote("unset TRACKWAY_TOKEN");
        Ok(())
    }

    /// Starts a run and acts in it from here on.
    fn starts_run(&mut self, arguments: &[&str]) -> Result<String, Failure> {
        let started = self.types(arguments)?;
        self.house.token = started["token"].as_str().map(str::to_owned);
        self.wrote("export TRACKWAY_TOKEN=...");
        Ok(id(&started, "run_id"))
    }
}

fn quoted(argument: &str) -> String {
    if argument.contains([' ', '?', '\'']) {
        format!("'{}'", argument.replace('\'', "'\\''"))
    } else {
        argument.to_owned()
    }
}

/// The last digits of an id in an answer, as people type them.
fn id(answer: &Value, field: &str) -> String {
    let full = answer[field].as_str().unwrap_or_default();
    full[full.len().saturating_sub(8)..].to_owned()
}

pub fn command() -> Command {
    Command::new("demo")
        .about("Tell a small story in a temporary database: no network, no key")
        .arg(Arg::new("open").long("open").action(ArgAction::SetTrue).help("Then leave its pages running, to look at"))
}

/// Tells the story, and leaves its pages running when that is wanted.
pub fn demo(matches: &ArgMatches) -> Result<Outcome, Failure> {
    let (outcome, file) = tell()?;
    if !matches.get_flag("open") {
        return Ok(outcome);
    }
    Output::plain().print(&outcome)?;
    let database = format!("sqlite:{}", file.display());
    let line = ["trackway", "--db", &database, "up", "--no-work", "--open", "--listen", "127.0.0.1:0"];
    door::answer(&arguments::command().try_get_matches_from(line)?)
}

/// Tells the story; where it happened is left for who wants to look.
fn tell() -> Result<(Outcome, PathBuf), Failure> {
    // A name that nobody can have taken before.
    let directory = env::temp_dir().join(format!("trackway-demo-{}", uuid::Uuid::new_v4().simple()));
    fs::create_dir(&directory)?;
    let file = directory.join("trackway.db");
    let core = Core::new(Store::create(Url::sqlite(&file))?);
    core.found(founding::LOCAL_TENANT, &user::handle())?;
    let program = directory.join("bin/trackway");
    fs::create_dir(directory.join("bin"))?;
    std::os::unix::fs::symlink(env::current_exe()?, &program)?;
    let house = House::over(core, founding::LOCAL_TENANT);
    let mut teller = Teller { house, program, story: String::new() };

    versions(&mut teller)?;
    let (run, note, decision) = two_runs(&mut teller)?;
    teller.says("Afterwards: what did the run make, and where does a thing come from?");
    teller.asks(&["made", &run])?;
    teller.asks(&["why", &note])?;
    agents::work_and_remember(&mut teller, &directory, &decision)?;
    a_message_is_work(&mut teller)?;
    a_recorded_session(&mut teller, &directory)?;
    teller.says("It is all still there.");
    let _ = writeln!(teller.story, "  export TRACKWAY_DB=sqlite:{}\n  trackway why {note}", file.display());
    Ok((Outcome::new(Value::String(teller.story), Shape::Text), file))
}

/// A message, a route, a task, a worker; and the way back from what came out.
fn a_message_is_work(teller: &mut Teller) -> Result<(), Failure> {
    teller.says("A message arrives. A route makes it work for a task, and a worker runs the task's script.");
    let script = "read -r what\ntrackway note create --studio main --title \"Looked into: $what\" > /dev/null\necho \"looked into: $what\"";
    teller.types(&["workflow", "set", "--name", "support"])?;
    teller.types(&[
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
    teller.types(&["route", "set", "--tag", "bug", "--task", "triage"])?;
    teller.asks(&["message", "send", "--tag", "bug", "--body", "The kettle reports 212 degrees"])?;
    teller.wrote("trackway work --once");
    for line in work::work_once(&teller.house, None, Err(String::new()), &teller.program)? {
        let _ = writeln!(teller.story, "    {line}");
    }
    teller.says("Its output is a message, in answer to the first; what it wrote is a note, and `why` leads back.");
    teller.asks(&["search", "kettle"])?;
    let made = teller.quietly(&["made", "last"])?;
    let note = made["touches"].as_array().into_iter().flatten().find(|touch| touch["resource_type"] == "note");
    teller.asks(&["why", &note.map(|note| id(note, "resource_id")).unwrap_or_default()])
}

/// A recorded session, read from its transcripts.
fn a_recorded_session(teller: &mut Teller, directory: &Path) -> Result<(), Failure> {
    let clients = CLIENTS.display_names();
    teller.says(&format!("And {clients}: from its transcripts, as if the hooks had been there."));
    let transcripts = directory.join("projects");
    recorded::write(&transcripts, &directory.join("kitchen"))?;
    let context = teller.house.context()?;
    ingest::ingest_folder(&teller.house.core, &context, &transcripts)?;
    teller.wrote("trackway ingest");
    teller.asks(&["session", "show", recorded::session()])?;
    teller.says("Who wrote the second line of tea.js, on whose word?");
    teller.asks(&["why", &format!("{}:2", recorded::FILE)])
}

fn versions(teller: &mut Teller) -> Result<(), Failure> {
    teller.says("A workflow owns a task. The task gets better, twice; nobody loses the old versions.");
    teller.types(&["role", "set", "--name", "coder"])?;
    teller.types(&["role", "set", "--name", "reviewer"])?;
    teller.types(&["workflow", "set", "--name", "quality", "--role", "coder"])?;
    teller.types(&[
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
    teller.types(&[
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
    teller.types(&[
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
    teller.asks(&["task", "latest", "--variant", "unit/go"])?;
    teller.types(&["package", "set", "--role", "coder", "--task", "unit/go-race"])?;
    teller.asks(&["package", "outdated"])?;
    Ok(())
}

/// Two agents in two studios; the first run, the note it wrote and the decision it asks for.
fn two_runs(teller: &mut Teller) -> Result<(String, String, String), Failure> {
    teller.says("Two agents, two studios. Each works in a run, and what it does is the run's.");
    teller.types(&["studio", "set", "--name", "lab"])?;
    teller.types(&["agent", "set", "--handle", "ada", "--role", "coder"])?;
    teller.types(&["agent", "set", "--handle", "grace", "--role", "reviewer"])?;
    let first = teller.starts_run(&["run", "start", "--agent", "ada", "--task", "unit/go-race"])?;
    let note = teller.types(&[
        "note",
        "create",
        "--studio",
        "main",
        "--title",
        "Race in the cache",
        "--body",
        "Two writers, one map.",
    ])?;
    let note = id(&note, "id");
    let decision = teller.types(&[
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
    let decision = id(&decision, "id");
    teller.types(&["decision", "vote", &decision, "--option", "a lock", "--accept"])?;
    teller.types(&[
        "scratchpad",
        "update",
        "--content",
        "The cache is not safe for two writers. Decision is open in the lab.",
    ])?;
    teller.ends_run(&["run", "end", &first, "--status", "completed", "--message", "Found it."])?;

    let second = teller.starts_run(&["run", "start", "--agent", "grace"])?;
    teller.types(&["note", "confirm", &note])?;
    teller.types(&["decision", "vote", &decision, "--option", "a channel", "--prefer"])?;
    teller.types(&["decision", "vote", &decision, "--option", "a lock", "--accept"])?;
    teller.ends_run(&["run", "end", &second, "--status", "completed"])?;
    teller.asks(&["decision", "results", &decision])?;
    Ok((first, note, decision))
}
