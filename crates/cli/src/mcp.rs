//! `trackway mcp`: an MCP server on standard input and output.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::{ArgMatches, Command};
use serde_json::Value;
use trackway_actions::{Context, Core, session::ActingRun};
use trackway_clients::CLIENTS;
use trackway_domain::Error as Rule;
use trackway_server::{Site, mcp, mcp::McpCaller, problem::Problem};

use crate::{
    dispatch::{self, CommandOutcome},
    failure::Failure,
    location::Location,
    render::Layout,
};

pub fn command() -> Command {
    Command::new("mcp")
        .about("Run an MCP server on standard input and output")
        .long_about(
            "Run an MCP server on standard input and output.\n\nAgent clients start this command; `trackway connect CLIENT` adds it to the settings of a client. With TRACKWAY_TOKEN you act as the agent of that run, otherwise as yourself. The server stops when its input ends. `trackway up` also serves MCP, at /mcp.",
        )
}

/// Runs the server until standard input ends.
pub fn mcp(matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    // Drop the database after the runtime, because a PostgreSQL connection must not be closed inside a runtime.
    let opened = Arc::new(OpenedDatabase::default());
    let result = runtime.block_on(mcp::stdio::serve(mcp::Mcp::new(authenticator(matches.clone(), opened.clone()))));
    // Do not wait for the thread that is blocked reading standard input.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result?;
    // Standard output belongs to the protocol, so print nothing else, even with --json.
    Ok(CommandOutcome::new(Value::String(String::new()), Layout::Document))
}

/// The database and the tenant, after the first request.
type OpenedDatabase = Mutex<Option<(Arc<Core>, String)>>;

/// Authenticates the caller of each request. The first request opens the database. If opening fails, the next request
/// retries.
fn authenticator(
    matches: ArgMatches,
    opened: Arc<OpenedDatabase>,
) -> impl Fn() -> Result<McpCaller, Problem> + Send + Sync + 'static {
    move || {
        let authenticate = || -> Result<_, Failure> {
            let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
            let (core, tenant) = match &*opened {
                Some(known) => known.clone(),
                None => {
                    let location = Location::find(&matches)?;
                    opened.insert((Arc::new(location.open()?), location.tenant)).clone()
                }
            };
            let token = dispatch::token_from_environment()?;
            let has_token = token.is_some();
            let context = core.authenticate(&dispatch::credential(token, &tenant))?;
            let (context, remark) = if has_token { (context, None) } else { find_session_run(&core, context)? };
            Ok(McpCaller { site: Site::new(core), context, remark })
        };
        authenticate()
            .map_err(|failure| Problem::from(Rule { kind: failure.kind, message: failure.message, hint: failure.hint }))
    }
}

/// If the client passes its session and exactly one run is open in that session, returns the context of the run.
/// Otherwise returns the context of the person. The remark explains the choice.
fn find_session_run(core: &Core, person: Context) -> Result<(Context, Option<String>), Failure> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let clients = || CLIENTS.0.iter().filter_map(|client| Some((client, client.session_variables()?)));
    let named = clients().find_map(|(client, names)| Some((client, variable(names.session)?)));
    let Some((client, session)) = named else {
        let started_by = clients().find(|(_, names)| variable(names.marker).is_some());
        let remark = started_by.map(|(client, _)| {
            format!(
                "You act as this person: this version of {} does not pass its session to MCP servers. To act as the agent of a claimed task, pass its `run_token`.",
                client.display_name()
            )
        });
        return Ok((person, remark));
    };
    let why = match core.find_acting_run(&person, client.name(), &session)? {
        ActingRun::One(run) => {
            let remark = format!(
                "Identified by session {session}, which {} passed to this server: exactly one run is open in that session.",
                client.display_name()
            );
            return Ok((*run, Some(remark)));
        }
        ActingRun::UnknownSession => {
            let name = client.command_name();
            format!("session {session} is not recorded; to record sessions: `trackway connect {name}`")
        }
        ActingRun::NoneOpen => format!("no run is open in session {session}"),
        ActingRun::Several(count) => {
            format!("{count} runs are open in session {session}, and Trackway cannot tell which of them you are")
        }
    };
    let remark = format!("You act as this person: {why}. To act as the agent of a claimed task, pass its `run_token`.");
    Ok((person, Some(remark)))
}
