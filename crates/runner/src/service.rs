//! Whose items a worker takes: the worker's own, those of agents it was told, or of every agent that it can drive.

use std::collections::BTreeSet;

use trackway_actions::{Context, Core, Result, founding::WORKER};
use trackway_domain::{
    Error as Rule, command, sentence,
    words::{Driver, Runner},
};
use trackway_store::queue::Unnamed;
use trackway_views::assignment;

use crate::{
    client,
    worker::{Event, Settings, Watch},
};

/// Whom a worker is to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serves {
    /// The worker: scripts of items that name no agent.
    Worker,
    /// These agents.
    Agents(Vec<String>),
    /// The worker, and every agent that a model or a client drives, as far as there is one.
    Everyone,
}

/// Somebody whose items are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Served {
    /// None is the worker.
    pub agent: Option<String>,
    pub unnamed: Unnamed,
}

const THE_WORKER: Served = Served { agent: None, unnamed: Unnamed::Scripted };

/// Refuses what could only be taken and lost: items of an agent that cannot be driven from here.
pub fn check(core: &Core, context: &Context, settings: &Settings) -> Result<()> {
    let Serves::Agents(agents) = &settings.serves else { return Ok(()) };
    for agent in agents {
        let runner = core.read(context, |reader| Ok(assignment::runner_of(reader, agent)?))?;
        if runner == Some(Runner::External) {
            return Err(Rule::usage(format!("agent {agent} is driven from outside"))
                .hint(sentence!["it takes its items itself: ", command!("queue take", agent = agent)])
                .into());
        }
        if let Some(why) = runner.and_then(|runner| settings.lacks(runner)) {
            return Err(Rule::usage(format!("agent {agent} cannot work here: {why}")).into());
        }
    }
    Ok(())
}

impl Settings {
    /// Why agents of this sort cannot be driven, if they cannot.
    pub(crate) fn lacks(&self, runner: Runner) -> Option<&str> {
        match runner.driver() {
            Driver::Model => self.means.as_ref().err().map(String::as_str),
            Driver::Script | Driver::Outside => None,
            Driver::Client(name) => client::find(&self.clients, name).err(),
        }
    }

    /// Whom to serve, as things are now. Who is left out is told once, with the reason.
    pub(crate) fn served(
        &self,
        core: &Core,
        context: &Context,
        left_out: &mut BTreeSet<String>,
        watch: Watch<'_>,
    ) -> Result<Vec<Served>> {
        match &self.serves {
            Serves::Worker => Ok(vec![THE_WORKER]),
            Serves::Agents(agents) => agents.iter().map(|agent| named(core, context, agent)).collect(),
            Serves::Everyone => {
                let mut served = vec![THE_WORKER];
                for agent in core.read(context, |reader| Ok(assignment::servable(reader)?))? {
                    match self.lacks(agent.runner) {
                        // Scripts are the worker's. A client changes files, so it is started for what it was meant for.
                        None => served.push(Served {
                            agent: Some(agent.handle),
                            unnamed: match agent.runner.driver() {
                                Driver::Client(_) => Unnamed::UnscriptedOfOwnRole,
                                Driver::Model | Driver::Script | Driver::Outside => Unnamed::Unscripted,
                            },
                        }),
                        Some(why) => {
                            if left_out.insert(agent.handle.clone()) {
                                watch(&Event::NotServed { agent: &agent.handle, why });
                            }
                        }
                    }
                }
                Ok(served)
            }
        }
    }
}

fn named(core: &Core, context: &Context, agent: &str) -> Result<Served> {
    if agent == WORKER {
        return Ok(THE_WORKER);
    }
    let runner = core.read(context, |reader| Ok(assignment::runner_of(reader, agent)?))?;
    // A script is run, and not thought about.
    let unnamed = if runner == Some(Runner::Shell) { Unnamed::Scripted } else { Unnamed::Unscripted };
    Ok(Served { agent: Some(agent.to_owned()), unnamed })
}
