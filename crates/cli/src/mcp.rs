//! `trackway mcp`: agents over the Model Context Protocol, on standard input and output.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::{ArgMatches, Command};
use serde_json::Value;
use trackway_actions::{Core, context::Context};
use trackway_domain::Error as Rule;
use trackway_server::{Site, mcp, problem::Problem};

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
            "Serve agents over the Model Context Protocol, on standard input and output.\n\nA client such as Claude Code starts it; `trackway connect claude-code` says how. TRACKWAY_TOKEN gives agent and run, without it you act as yourself. It ends when its input ends. `trackway up` serves the same at /mcp.",
        )
}

/// Serves until standard input ends.
pub fn mcp(matches: &ArgMatches) -> Result<Outcome, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let served = runtime.block_on(mcp::stdio::serve(mcp::Mcp::new(entrance(matches.clone()))));
    // A thread that waits for input nobody will send is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    served?;
    // Nothing but the protocol goes to standard output, whatever was asked for.
    Ok(Outcome::new(Value::String(String::new()), Shape::Document))
}

/// Opens the database at the first request that finds it, and looks at each who is asking.
fn entrance(matches: ArgMatches) -> impl Fn() -> Result<(Site, Context), Problem> + Send + Sync + 'static {
    let opened: Mutex<Option<(Arc<Core>, String)>> = Mutex::default();
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
            let context = core.enter(&door::credential(door::given_token()?, &tenant))?;
            Ok((Site::new(core), context))
        };
        enter()
            .map_err(|failure| Problem::from(Rule { kind: failure.kind, message: failure.message, hint: failure.hint }))
    }
}
