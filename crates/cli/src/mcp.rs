//! `trackway mcp`: agents over the Model Context Protocol, on standard input and output.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::{ArgMatches, Command};
use serde_json::Value;
use trackway_actions::{Context, Core, session::InSession};
use trackway_clients::CLIENTS;
use trackway_domain::Error as Rule;
use trackway_server::{Site, mcp, mcp::Entered, problem::Problem};

use crate::{
    door::{self, Outcome},
    failure::Failure,
    location::Location,
    render::Shape,
};

pub fn command() -> Command {
    Command::new("mcp")
        .about("Serve agents over the Model Context Protocol, on standard input and output")
        .long_about(
            "Serve agents over the Model Context Protocol, on standard input and output.\n\nA client starts it; `trackway connect CLIENT` puts it into the client's settings. TRACKWAY_TOKEN gives agent and run, without it you act as yourself. It ends when its input ends. `trackway up` serves the same at /mcp.",
        )
}

/// Serves until standard input ends.
pub fn mcp(matches: &ArgMatches) -> Result<Outcome, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    // Held until the runtime is gone: a connection to PostgreSQL is not closed inside another's.
    let opened = Arc::new(Opened::default());
    let served = runtime.block_on(mcp::stdio::serve(mcp::Mcp::new(entrance(matches.clone(), opened.clone()))));
    // A thread that waits for input nobody will send is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    served?;
    // Nothing but the protocol goes to standard output, whatever was asked for.
    Ok(Outcome::new(Value::String(String::new()), Shape::Document))
}

/// The database and the tenant, once somebody asked.
type Opened = Mutex<Option<(Arc<Core>, String)>>;

/// Opens the database at the first request that finds it, and looks at each who is asking.
fn entrance(matches: ArgMatches, opened: Arc<Opened>) -> impl Fn() -> Result<Entered, Problem> + Send + Sync + 'static {
    move || {
        let enter = || -> Result<_, Failure> {
            let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
            let (core, tenant) = match &*opened {
                Some(known) => known.clone(),
                None => {
                    let location = Location::find(&matches)?;
                    opened.insert((Arc::new(location.open()?), location.tenant)).clone()
                }
            };
            let token = door::given_token()?;
            let has_token = token.is_some();
            let context = core.enter(&door::credential(token, &tenant))?;
            let (context, remark) = if has_token { (context, None) } else { in_session(&core, context)? };
            Ok(Entered { site: Site::new(core), context, remark })
        };
        enter()
            .map_err(|failure| Problem::from(Rule { kind: failure.kind, message: failure.message, hint: failure.hint }))
    }
}

/// The run of the session that started this process, where the client says which and one run is open in it. Whoever else it
/// could be is not guessed: then the person acts, and is told so.
fn in_session(core: &Core, person: Context) -> Result<(Context, Option<String>), Failure> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut clients = CLIENTS.0.iter();
    let named = clients.find_map(|client| Some((client, set(client.session_variables().session)?)));
    let Some((client, session)) = named else {
        let started_by = CLIENTS.0.iter().find(|client| set(client.session_variables().mark).is_some());
        let remark = started_by.map(|client| {
            format!(
                "You act as this person: this version of {} does not tell its servers which session they are in. With the `run_token` of a claimed task you act as its agent.",
                client.display_name()
            )
        });
        return Ok((person, remark));
    };
    let why = match core.enter_session(&person, client.name(), &session)? {
        InSession::One(run) => {
            let remark = format!(
                "Known by the session {session}, which {} gave this server: this is the one run that is open in it.",
                client.display_name()
            );
            return Ok((*run, Some(remark)));
        }
        InSession::Unknown => {
            let name = client.command_name();
            format!("the session {session} is not recorded; `trackway connect {name}` records the next one")
        }
        InSession::NoneOpen => format!("no run is open in the session {session}"),
        InSession::Several(count) => {
            format!("{count} runs are open in the session {session}, and nothing says which of them this is")
        }
    };
    let remark = format!("You act as this person: {why}. With the `run_token` of a claimed task you act as its agent.");
    Ok((person, Some(remark)))
}
