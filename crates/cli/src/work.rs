//! `work`: a worker in the foreground; `task run`: one task, here and now.

use std::{
    io::Write,
    path::Path,
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};
use trackway_actions::{
    Context,
    queue::{AddItem, Claim},
};
use trackway_client_claude::settings::Wanted;
use trackway_domain::{
    Duration as Span, Error as Rule, Ref, kind, queue,
    words::{Memory, RunStatus},
};
use trackway_runner::{
    Event, Note, Serves, Settings, Stopping, agent::Means, executor::Ended, service, signals::Signals, worker,
};
use trackway_store::display::TaskShown;
use trackway_views::{View, package::ResolvePackage, run::ShowRun, task};

use crate::{
    client,
    config::ModelConfig,
    door::{House, Outcome},
    failure::Failure,
    model,
    render::Shape,
};

/// The lease of a worker, which keeps it alive by itself: short, so that what a killed worker held is taken soon.
const LEASE_SECONDS: i64 = 60;
/// How long a script may take when the task does not say.
const TIMEOUT: &str = "1h";
/// How long running scripts may go on when the worker is to stop.
const GRACE: &str = "30s";

pub fn command() -> Command {
    Command::new("work")
        .about("Take queue items and run them, until stopped")
        .long_about(
            "Take queue items and run them, until stopped.\n\nWithout --agent it is the worker who takes: what names no agent and has a script. What drives the agent that takes an item decides how it is run. `shell`, as for the worker: the script of the task runs in its shell, in the directory of its workspace, with the run's token in its environment, and what it does with `trackway` is done in the run. `agent`: a model works on the task through pages and actions. `claude_code`: Claude Code does, in that directory. Stop with Ctrl-C or SIGTERM: nothing new is taken, what runs may finish; the second time it is given back to the queue at once.",
        )
        .args(arguments())
        .arg(Arg::new("once").long("once").action(ArgAction::SetTrue).help("Stop when nothing is ready"))
}

/// What a worker is told, alone or beside a server.
pub fn arguments() -> Vec<Arg> {
    vec![
        Arg::new("agent")
            .long("agent")
            .value_name("AGENT")
            .action(ArgAction::Append)
            .help("Whose items to take; repeat for several"),
        Arg::new("concurrency")
            .long("concurrency")
            .value_name("NUMBER")
            .default_value("1")
            .value_parser(clap::value_parser!(u64).range(1..=1_000))
            .help("How many to run at once, of each agent"),
        Arg::new("lease")
            .long("lease")
            .value_name("SECONDS")
            .value_parser(clap::value_parser!(i64).range(1..=queue::LEASE_SECONDS_MAX))
            .help("After how long without a sign of life from this worker others may take what it holds (60)"),
        span("timeout", TIMEOUT, "How long a task may take that does not say it itself"),
        span("grace", GRACE, "How long running tasks may go on once the worker is to stop"),
    ]
}

/// How a worker is to work, for the agents it is told or else for these.
pub fn settings(matches: &ArgMatches, means: Result<Means, String>, usual: Serves) -> Result<Settings, Failure> {
    require_time(matches, "timeout")?;
    let agents: Vec<String> = matches.get_many::<String>("agent").into_iter().flatten().cloned().collect();
    Ok(Settings {
        serves: if agents.is_empty() { usual } else { Serves::Agents(agents) },
        concurrency: matches.get_one::<u64>("concurrency").map_or(1, |number| usize::try_from(*number).unwrap_or(1)),
        once: matches.try_get_one::<bool>("once").ok().flatten().copied().unwrap_or(false),
        lease_seconds: matches.get_one::<i64>("lease").copied().unwrap_or(LEASE_SECONDS),
        timeout: duration(matches, "timeout"),
        grace: duration(matches, "grace"),
        stopping: Stopping::GiveBack,
        program: std::env::current_exe()?,
        means,
        claude_settings: claude_code(),
    })
}

fn span(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("DURATION")
        .default_value(default)
        .value_parser(clap::value_parser!(Span))
        .help(help)
}

pub fn run_command() -> Command {
    Command::new("run").about("Run a task now and show its output; the exit code is 0 when it completed").args([
        Arg::new("task").value_name("TASK").help("The task, by variant or id"),
        Arg::new("variant").long("variant").value_name("VARIANT").conflicts_with("task").help("The same"),
        Arg::new("role")
            .long("role")
            .value_name("ROLE")
            .help("The version that this role uses (the current one, when it is not said)"),
        Arg::new("workspace").long("workspace").value_name("WORKSPACE").help("Where (the task's workspace)"),
        Arg::new("agent").long("agent").value_name("AGENT").help("Who does it (the worker, by the task's script)"),
        Arg::new("detach").long("detach").action(ArgAction::SetTrue).help("Only queue it, and let a worker run it"),
        span("timeout", TIMEOUT, "How long it may take, where the task does not say it"),
    ])
}

/// Works until it is told to stop, or nothing is ready.
pub fn work(house: &House, config: &ModelConfig, matches: &ArgMatches) -> Result<Outcome, Failure> {
    let context = people_only(house)?;
    let means = model::means(config, || model::site(house.core.store().url()));
    let settings = settings(matches, means, Serves::Worker)?;
    let tally = follow(house, &context, &settings, &|event| tell(event))?;
    Ok(Outcome::new(json!(tally), Shape::Fields))
}

/// Runs one task, and shows what it says.
pub fn run_task(house: &House, config: &ModelConfig, matches: &ArgMatches) -> Result<Outcome, Failure> {
    let context = people_only(house)?;
    let given = matches.get_one::<String>("task").or_else(|| matches.get_one::<String>("variant"));
    let given: Ref<kind::Task> =
        Ref::new(given.ok_or_else(|| Rule::usage("which task?").hint("trackway task run VARIANT"))?.as_str());
    let role = matches.get_one::<String>("role").map(Ref::<kind::Role>::new);
    let workspace = matches.get_one::<String>("workspace").map(Ref::<kind::Workspace>::new);
    let agent = matches.get_one::<String>("agent");
    let (asked, shown) = house.core.read(&context, |reader| {
        let asked = reader.resolve(&given)?;
        let task = match &role {
            Some(role) => {
                let pinned = ResolvePackage { role: role.clone(), variant: asked.into() };
                pinned.answer(reader, house.core.now())?.task_id
            }
            None => task::latest(reader, asked)?.id,
        };
        Ok((asked, reader.shown_by_id::<TaskShown>("t", task)?))
    })?;
    let (task, variant) = (shown.task.id, &shown.task.variant);
    if matches.get_flag("detach") {
        let add = AddItem { workspace, role, agent: agent.map(Ref::new), ..AddItem::of(task.into()) };
        return Ok(Outcome::new(json!(house.core.execute(&context, &add)?), Shape::Fields));
    }
    let settings = Settings {
        serves: agent.map_or(Serves::Worker, |agent| Serves::Agents(vec![agent.clone()])),
        concurrency: 0,
        once: true,
        lease_seconds: LEASE_SECONDS,
        timeout: duration(matches, "timeout"),
        grace: Duration::ZERO,
        // Whoever runs it here does not want others to run it later.
        stopping: Stopping::Cancel,
        program: std::env::current_exe()?,
        means: model::means(config, || model::site(house.core.store().url())),
        claude_settings: claude_code(),
    };
    require_time(matches, "timeout")?;
    if agent.is_none() && !shown.task.has_script() {
        return Err(Rule::conflict(format!("task {variant} has no script"))
            .hint(format!(
                "give it one: trackway task set --workflow {} --variant {variant} --script ...; or let an agent do it: trackway task run {variant} --agent A",
                shown.workflow
            ))
            .into());
    }
    service::check(&house.core, &context, &settings)?;
    // Before anything is taken: from then on a signal must not just end this.
    let (tell, notes) = mpsc::channel();
    listen_for_signals(tell.clone())?;
    let claim =
        Claim { task: Some(task.into()), workspace, role, lease: Some(LEASE_SECONDS), agent: agent.map(Ref::new) };
    let taken = house.core.execute(&context, &claim)?;
    let Some(taken) = taken.into_iter().next() else {
        return Err(Rule::conflict("the task cannot be run now").into());
    };
    let json = matches.get_flag("json");
    let show = |event: &Event<'_>| {
        if let Event::Said { output, .. } = event {
            // Live, and apart from the data.
            let written =
                if json { write!(std::io::stderr(), "{output}") } else { write!(std::io::stdout(), "{output}") };
            let _ = written.and_then(|()| std::io::stdout().flush());
        }
    };
    let run = taken.run_id;
    worker::work_on(vec![taken], &house.core, &context, &settings, (&tell, &notes), &show)?;
    let shown = house
        .core
        .read(&context, |reader| Ok(ShowRun { run: run.into(), wake: false }.answer(reader, house.core.now())?))?;
    let data = serde_json::to_value(shown).map_err(|error| Rule::usage(error.to_string()))?;
    let completed = data["status"] == RunStatus::Completed.word();
    let error = data["error"].as_str().map(|error| format!(": {}", first_line(error)));
    // Another version may have taken its place.
    let of = if task == asked { String::new() } else { format!(" of {variant}") };
    let status = data["status"].as_str().unwrap_or_default();
    let remark = format!("run {}{of} {status}{}", run.short(), error.unwrap_or_default());
    let data = if json { data } else { Value::String(String::new()) };
    let mut outcome = Outcome::new(data, Shape::Text);
    outcome.failed = !completed;
    outcome.remarks.push(remark);
    Ok(outcome)
}

/// What makes the settings of Claude Code, or why it cannot be started.
fn claude_code() -> Result<fn() -> String, String> {
    client::is_there().map(|()| claude_settings as fn() -> String)
}

/// The settings that Claude Code is started with: our hooks, whether or not it is connected otherwise.
fn claude_settings() -> String {
    let program = client::program().unwrap_or_else(|_| "trackway".to_owned());
    let wanted = Wanted { program, memory: Memory::default(), client: client::version() };
    json!({ "hooks": wanted.hooks() }).to_string()
}

/// A worker acts for a person: it makes runs for agents, and is in none itself.
pub fn people_only(house: &House) -> Result<Context, Failure> {
    let context = house.context()?;
    if context.run.is_some() {
        return Err(Rule::denied("a run cannot be a worker").hint("unset TRACKWAY_TOKEN").into());
    }
    Ok(context)
}

/// Refuses no time at all, in which nothing can be done.
fn require_time(matches: &ArgMatches, name: &str) -> Result<(), Failure> {
    if duration(matches, name).is_zero() {
        return Err(Rule::usage(format!("--{name} is no time at all")).hint("give it in full: 30s, 10m, 1h30m").into());
    }
    Ok(())
}

fn duration(matches: &ArgMatches, name: &str) -> Duration {
    let seconds = matches.get_one::<Span>(name).map_or(0, |span| span.seconds());
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn follow(
    house: &House,
    context: &Context,
    settings: &Settings,
    watch: worker::Watch<'_>,
) -> Result<worker::Tally, Failure> {
    let (tell, notes) = mpsc::channel();
    listen_for_signals(tell.clone())?;
    Ok(worker::work(&house.core, context, settings, (&tell, &notes), watch)?)
}

/// Hands the signals to stop on.
fn listen_for_signals(tell: mpsc::Sender<Note>) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    thread::spawn(move || {
        loop {
            signals.wait();
            if tell.send(Note::Stop).is_err() {
                return;
            }
        }
    });
    Ok(())
}

pub fn tell(event: &Event<'_>) {
    if let Some(line) = line(event) {
        let _ = writeln!(anstream::stderr(), "{line}");
    }
}

/// One line for each thing that happens.
fn line(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::Took(taken) => format!("took {} {} (attempt {})", taken.id.short(), taken.variant, taken.attempt),
        Event::Said { .. } => return None,
        Event::Ended { taken, ended, took } => {
            let how = match ended {
                Ended::Completed { .. } => "completed".to_owned(),
                Ended::TimedOut { error } | Ended::SpendLimit { error, .. } => first_line(error).to_owned(),
                Ended::MaxSteps { steps } => format!("incomplete: max steps reached ({steps})"),
                Ended::Cancelled => "cancelled".to_owned(),
                Ended::Failed { error }
                | Ended::AgentError { error }
                | Ended::Impossible { error }
                | Ended::Exception { error } => {
                    format!("failed: {}", first_line(error))
                }
                Ended::Released => "given back".to_owned(),
                Ended::Unready { error } => format!("given back: {}", first_line(error)),
                Ended::Lost => "given up: cancelled, taken by another, or the database did not answer".to_owned(),
            };
            format!("{} {} {how} ({:.1}s)", taken.id.short(), taken.variant, took.as_secs_f64())
        }
        Event::NotServed { agent, why } => format!("agent {agent} is not served: {why}"),
        Event::Left(left) => format!("left alone: {}", left.advice()),
        Event::Trouble(error) => format!("{error}; trying again"),
        Event::Recovered => "the database answers again".to_owned(),
    })
}

/// Works until nothing is ready, and says what happened, for a story.
pub fn work_once(
    house: &House,
    agent: Option<&str>,
    means: Result<Means, String>,
    program: &Path,
) -> Result<Vec<String>, Failure> {
    let settings = Settings {
        serves: agent.map_or(Serves::Worker, |agent| Serves::Agents(vec![agent.to_owned()])),
        concurrency: 1,
        once: true,
        lease_seconds: LEASE_SECONDS,
        timeout: Duration::from_mins(1),
        grace: Duration::ZERO,
        stopping: Stopping::GiveBack,
        program: program.to_owned(),
        means,
        claude_settings: claude_code(),
    };
    let lines = Mutex::new(Vec::new());
    let keep = |event: &Event<'_>| lines.lock().unwrap_or_else(PoisonError::into_inner).extend(line(event));
    follow(house, &house.context()?, &settings, &keep)?;
    Ok(lines.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
