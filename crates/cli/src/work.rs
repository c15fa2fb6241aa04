//! `trackway work`: runs a worker in the foreground. `trackway task run`: runs one task now.

use std::{
    io::Write,
    path::Path,
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};
use trackway_actions::{Context, claim::Claim, queue::AddItem};
use trackway_capture::client::Client;
use trackway_clients::CLIENTS;
use trackway_domain::{Duration as Span, Error as Rule, Ref, command, enums::RunStatus, kind, queue, sentence};
use trackway_runner::{
    AgentSelection, OnStop, Settings, WorkerEvent, WorkerMessage, agent::AgentBackend, agent_selection,
    client::launchable_clients, executor::ExecutionEnd, signals::Signals, worker,
};
use trackway_store::display::TaskRow;
use trackway_views::{View, package::ResolvePackage, run::ShowRun, task};

use crate::{
    config::ModelConfig,
    dispatch::{App, CommandOutcome},
    failure::Failure,
    model,
    render::Layout,
};

/// The lease of a worker. The worker extends the lease with heartbeats. The lease is short, so that other workers soon
/// take the items of a killed worker.
const LEASE_SECONDS: i64 = 60;
/// The default timeout.
const TIMEOUT: &str = "1h";
/// The default time that running tasks have to finish after the worker was asked to stop.
const GRACE: &str = "30s";

pub fn command() -> Command {
    Command::new("work")
        .about("Take queue items and run them, until stopped")
        .long_about(
            format!("Take queue items and run them, until stopped.\n\nWithout --agent, the worker takes items that name no agent and whose task has a script. The runner of the agent decides how an item is executed. `shell` (also used without an agent): runs the task's script in its shell, in the directory of its workspace, with the run's token in its environment, so that `trackway` commands in the script belong to the run. `agent`: a model works on the task with pages and actions. {} Stop with Ctrl-C or SIGTERM: the worker takes no new items, and running tasks may finish. A second signal returns them to the queue at once.", client_help()),
        )
        .args(arguments())
        .arg(Arg::new("once").long("once").action(ArgAction::SetTrue).help("Stop when no item is ready"))
}

/// The arguments of a worker, for `work` and `up`.
pub fn arguments() -> Vec<Arg> {
    vec![
        Arg::new("agent")
            .long("agent")
            .value_name("AGENT")
            .action(ArgAction::Append)
            .help("Take the items of this agent. Repeatable"),
        Arg::new("concurrency")
            .long("concurrency")
            .value_name("NUMBER")
            .default_value("1")
            .value_parser(clap::value_parser!(u64).range(1..=1_000))
            .help("Maximum number of concurrent runs for each agent"),
        Arg::new("lease")
            .long("lease")
            .value_name("SECONDS")
            .value_parser(clap::value_parser!(i64).range(1..=queue::LEASE_SECONDS_MAX))
            .help("Lease duration in seconds. If a worker sends no heartbeat for this time, other workers may take its items [default: 60]"),
        duration_argument("timeout", TIMEOUT, "Timeout of a run, if neither its item, its task nor its agent has one"),
        duration_argument("grace", GRACE, "Time for running tasks to finish after the worker was asked to stop"),
    ]
}

/// The part of the help about agent clients.
fn client_help() -> String {
    let clients = CLIENTS.0.iter().filter(|client| client.launcher().is_some());
    let does = |client: &&'static dyn Client| {
        format!("`{}`: {} works on the task, in that directory.", client.name(), client.display_name())
    };
    clients.map(does).collect::<Vec<_>>().join(" ")
}

/// The settings of a worker. `default` selects the agents if the command line names none.
pub fn settings(
    matches: &ArgMatches,
    backend: Result<AgentBackend, String>,
    default: AgentSelection,
) -> Result<Settings, Failure> {
    require_positive(matches, "timeout")?;
    let agents: Vec<String> = matches.get_many::<String>("agent").into_iter().flatten().cloned().collect();
    Ok(Settings {
        selection: if agents.is_empty() { default } else { AgentSelection::Agents(agents) },
        concurrency: matches.get_one::<u64>("concurrency").map_or(1, |number| usize::try_from(*number).unwrap_or(1)),
        once: matches.try_get_one::<bool>("once").ok().flatten().copied().unwrap_or(false),
        lease_seconds: matches.get_one::<i64>("lease").copied().unwrap_or(LEASE_SECONDS),
        timeout: duration(matches, "timeout"),
        grace: duration(matches, "grace"),
        on_stop: OnStop::Release,
        program: std::env::current_exe()?,
        backend,
        clients: launchable_clients(CLIENTS),
    })
}

fn duration_argument(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("DURATION")
        .default_value(default)
        .value_parser(clap::value_parser!(Span))
        .help(help)
}

pub fn run_command() -> Command {
    Command::new("run").about("Run a task now and show its output. The exit code is 0 if it completes").args([
        Arg::new("task").value_name("TASK").help("The task, by variant or id"),
        Arg::new("variant").long("variant").value_name("VARIANT").conflicts_with("task").help("The task, by variant"),
        Arg::new("role")
            .long("role")
            .value_name("ROLE")
            .help("Run the version pinned for this role, else the current version [default: the task's role]"),
        Arg::new("workspace")
            .long("workspace")
            .value_name("WORKSPACE")
            .help("Run in this workspace [default: the task's workspace]"),
        Arg::new("agent")
            .long("agent")
            .value_name("AGENT")
            .help("Let this agent run the task [default: the worker runs the task's script]"),
        Arg::new("detach")
            .long("detach")
            .action(ArgAction::SetTrue)
            .help("Only queue the task, so that a worker runs it"),
        duration_argument("timeout", TIMEOUT, "Timeout, if neither the task nor the agent has one"),
    ])
}

pub fn work(app: &App, config: &ModelConfig, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let context = require_person(app)?;
    let backend = model::backend(config, || model::open_site(app.core.store().url()));
    let settings = settings(matches, backend, AgentSelection::Worker)?;
    let tally = run_worker(app, &context, &settings, &|event| print_event(event))?;
    Ok(CommandOutcome::new(json!(tally), Layout::Fields))
}

pub fn run_task(app: &App, config: &ModelConfig, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let context = require_person(app)?;
    let name = matches.get_one::<String>("task").or_else(|| matches.get_one::<String>("variant"));
    let task_ref: Ref<kind::Task> =
        Ref::new(name.ok_or_else(|| Rule::usage("no task given").hint(command!("task run", ["VARIANT"])))?.as_str());
    let role = matches.get_one::<String>("role").map(Ref::<kind::Role>::new);
    let workspace = matches.get_one::<String>("workspace").map(Ref::<kind::Workspace>::new);
    let agent = matches.get_one::<String>("agent");
    let (requested, shown) = app.core.read(&context, |reader| {
        let requested = reader.resolve(&task_ref)?;
        let own_role = reader.display_row_by_id::<TaskRow>("t", requested)?.task.role_id;
        let task = match role.clone().or_else(|| own_role.map(Ref::from)) {
            Some(role) => ResolvePackage { role, variant: requested.into() }.answer(reader, app.core.now())?.task_id,
            None => task::current_version(reader, requested)?.id,
        };
        Ok((requested, reader.display_row_by_id::<TaskRow>("t", task)?))
    })?;
    let (task, variant) = (shown.task.id, &shown.task.variant);
    if matches.get_flag("detach") {
        let add = AddItem { workspace, role, agent: agent.map(Ref::new), ..AddItem::of(requested.into()) };
        return Ok(CommandOutcome::new(json!(app.core.execute(&context, &add)?), Layout::Fields));
    }
    let settings = Settings {
        selection: agent.map_or(AgentSelection::Worker, |agent| AgentSelection::Agents(vec![agent.clone()])),
        concurrency: 0,
        once: true,
        lease_seconds: LEASE_SECONDS,
        timeout: duration(matches, "timeout"),
        grace: Duration::ZERO,
        // The user runs the task here, and does not expect another worker to run it later.
        on_stop: OnStop::Cancel,
        program: std::env::current_exe()?,
        backend: model::backend(config, || model::open_site(app.core.store().url())),
        clients: launchable_clients(CLIENTS),
    };
    require_positive(matches, "timeout")?;
    if agent.is_none() && !shown.task.has_script() {
        return Err(Rule::conflict(format!("task {variant} has no script"))
            .hint(sentence![
                "set a script: ",
                command!("task set", workflow = shown.workflow, variant = variant, script = "..."),
                "; or let an agent run the task: ",
                command!("task run", [variant], agent = "A"),
            ])
            .into());
    }
    agent_selection::check(&app.core, &context, &settings)?;
    // Listen for signals before taking the item: after that, a signal must cancel the run, not only end the process.
    let (sender, messages) = mpsc::channel();
    listen_for_signals(sender.clone())?;
    let claim = Claim {
        task: Some(requested.into()),
        workspace,
        role,
        by_pin: true,
        lease: Some(LEASE_SECONDS),
        agent: agent.map(Ref::new),
    };
    let taken = app.core.execute(&context, &claim)?;
    let Some(taken) = taken.into_iter().next() else {
        return Err(Rule::conflict("the task cannot run now").into());
    };
    let json = matches.get_flag("json");
    let show = |event: &WorkerEvent<'_>| {
        if let WorkerEvent::Output { output, .. } = event {
            // With --json, stdout is for the data.
            let written =
                if json { write!(std::io::stderr(), "{output}") } else { write!(std::io::stdout(), "{output}") };
            let _ = written.and_then(|()| std::io::stdout().flush());
        }
    };
    let run = taken.run_id;
    worker::work_on(vec![taken], &app.core, &context, &settings, (&sender, &messages), &show)?;
    let shown = app
        .core
        .read(&context, |reader| Ok(ShowRun { run: run.into(), wake: false }.answer(reader, app.core.now())?))?;
    let data = serde_json::to_value(shown).map_err(|error| Rule::usage(error.to_string()))?;
    let completed = data["status"] == RunStatus::Completed.as_str();
    let error = data["error"].as_str().map(|error| format!(": {}", first_line(error)));
    // Name the version if it is not the requested version.
    let of = if task == requested { String::new() } else { format!(" of {variant}") };
    let status = data["status"].as_str().unwrap_or_default();
    let remark = format!("run {}{of} {status}{}", run.short(), error.unwrap_or_default());
    let data = if json { data } else { Value::String(String::new()) };
    let mut outcome = CommandOutcome::new(data, Layout::Text);
    outcome.has_failed = !completed;
    outcome.remarks.push(remark);
    Ok(outcome)
}

/// Rejects run tokens. A worker acts for a person, and starts runs for agents.
pub fn require_person(app: &App) -> Result<Context, Failure> {
    let context = app.context()?;
    if context.run.is_some() {
        return Err(Rule::denied("a worker cannot use the token of a run").hint("unset TRACKWAY_TOKEN").into());
    }
    Ok(context)
}

fn require_positive(matches: &ArgMatches, name: &str) -> Result<(), Failure> {
    if duration(matches, name).is_zero() {
        return Err(Rule::usage(format!("--{name} must be greater than zero"))
            .hint("for example: 30s, 10m, 1h30m")
            .into());
    }
    Ok(())
}

fn duration(matches: &ArgMatches, name: &str) -> Duration {
    let seconds = matches.get_one::<Span>(name).map_or(0, |span| span.seconds());
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn run_worker(
    app: &App,
    context: &Context,
    settings: &Settings,
    on_event: worker::EventHandler<'_>,
) -> Result<worker::Tally, Failure> {
    let (sender, messages) = mpsc::channel();
    listen_for_signals(sender.clone())?;
    Ok(worker::work(&app.core, context, settings, (&sender, &messages), on_event)?)
}

/// Forwards SIGINT and SIGTERM to the worker.
fn listen_for_signals(sender: mpsc::Sender<WorkerMessage>) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    thread::spawn(move || {
        loop {
            signals.wait();
            if sender.send(WorkerMessage::Stop).is_err() {
                return;
            }
        }
    });
    Ok(())
}

pub fn print_event(event: &WorkerEvent<'_>) {
    if let Some(line) = format_event(event) {
        let _ = writeln!(anstream::stderr(), "{line}");
    }
}

/// The log line of an event.
fn format_event(event: &WorkerEvent<'_>) -> Option<String> {
    Some(match event {
        WorkerEvent::Taken(taken) => format!("took {} {} (attempt {})", taken.id.short(), taken.variant, taken.attempt),
        WorkerEvent::Output { .. } => return None,
        WorkerEvent::Finished { taken, end, duration } => {
            let result = match end {
                ExecutionEnd::Completed { .. } => "completed".to_owned(),
                ExecutionEnd::TimedOut { error } | ExecutionEnd::SpendLimit { error, .. } => {
                    first_line(error).to_owned()
                }
                ExecutionEnd::MaxSteps { steps } => format!("incomplete: max steps reached ({steps})"),
                ExecutionEnd::Cancelled => "cancelled".to_owned(),
                ExecutionEnd::Failed { error }
                | ExecutionEnd::AgentError { error }
                | ExecutionEnd::Impossible { error }
                | ExecutionEnd::Exception { error } => {
                    format!("failed: {}", first_line(error))
                }
                ExecutionEnd::Released => "returned to the queue".to_owned(),
                ExecutionEnd::Unavailable { error } => format!("returned to the queue: {}", first_line(error)),
                ExecutionEnd::Lost => {
                    "lost: cancelled, taken by another worker, or the database did not answer".to_owned()
                }
            };
            format!("{} {} {result} ({:.1}s)", taken.id.short(), taken.variant, duration.as_secs_f64())
        }
        WorkerEvent::NotServed { agent, why } => format!("agent {agent} is not served: {why}"),
        WorkerEvent::ItemsSkipped(left) => format!("skipped: {}", left.advice()),
        WorkerEvent::DatabaseUnavailable(error) => format!("{error}; retrying"),
        WorkerEvent::DatabaseAvailable => "the database is available again".to_owned(),
    })
}

/// Runs a worker until no item is ready. Returns its log lines, for the demo.
pub fn work_once(
    app: &App,
    agent: Option<&str>,
    backend: Result<AgentBackend, String>,
    program: &Path,
) -> Result<Vec<String>, Failure> {
    let settings = Settings {
        selection: agent.map_or(AgentSelection::Worker, |agent| AgentSelection::Agents(vec![agent.to_owned()])),
        concurrency: 1,
        once: true,
        lease_seconds: LEASE_SECONDS,
        timeout: Duration::from_mins(1),
        grace: Duration::ZERO,
        on_stop: OnStop::Release,
        program: program.to_owned(),
        backend,
        clients: launchable_clients(CLIENTS),
    };
    let lines = Mutex::new(Vec::new());
    let collect = |event: &WorkerEvent<'_>| {
        lines.lock().unwrap_or_else(PoisonError::into_inner).extend(format_event(event));
    };
    run_worker(app, &app.context()?, &settings, &collect)?;
    Ok(lines.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
