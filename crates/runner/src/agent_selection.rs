//! Selects the agents whose queue items a worker takes: only the worker itself, agents by name, or everyone it can run.

use std::collections::BTreeSet;

use trackway_actions::{Context, Core, Result, tenant::WORKER};
use trackway_domain::{
    Error as Rule, command,
    enums::{Driver, Runner},
    sentence,
};
use trackway_store::queue::UnassignedFilter;
use trackway_views::assignment;

use crate::{
    client,
    worker::{EventHandler, Settings, WorkerEvent},
};

/// The agents whose items a worker takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentSelection {
    /// Items that name no agent, and whose task has a script.
    Worker,
    Agents(Vec<String>),
    /// The worker, and every agent whose model or client is available here.
    Everyone,
}

/// An agent whose items are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServedAgent {
    /// None for the worker itself.
    pub agent: Option<String>,
    /// Which items without an agent are also taken.
    pub unassigned: UnassignedFilter,
}

const THE_WORKER: ServedAgent = ServedAgent { agent: None, unassigned: UnassignedFilter::Scripted };

/// Rejects agents that cannot run here: their items would be taken and could not be executed.
pub fn check(core: &Core, context: &Context, settings: &Settings) -> Result<()> {
    let AgentSelection::Agents(agents) = &settings.selection else { return Ok(()) };
    for agent in agents {
        let runner = core.read(context, |reader| Ok(assignment::runner_of(reader, agent)?))?;
        if runner == Some(Runner::External) {
            return Err(Rule::usage(format!("agent {agent} is external: a worker cannot run it"))
                .hint(sentence!["an external agent takes its own items: ", command!("queue take", agent = agent)])
                .into());
        }
        if let Some(why) = runner.and_then(|runner| settings.unavailable_reason(runner)) {
            return Err(Rule::usage(format!("agent {agent} cannot run here: {why}")).into());
        }
    }
    Ok(())
}

impl Settings {
    /// The reason why agents with this runner cannot run here, or `None` if they can.
    pub(crate) fn unavailable_reason(&self, runner: Runner) -> Option<&str> {
        match runner.driver() {
            Driver::Model => self.backend.as_ref().err().map(String::as_str),
            Driver::Script | Driver::External => None,
            Driver::Client(name) => client::find(&self.clients, name).err(),
        }
    }

    /// The selected agents that can run now. For each selected agent that cannot run, reports the reason once.
    pub(crate) fn served_agents(
        &self,
        core: &Core,
        context: &Context,
        not_served: &mut BTreeSet<String>,
        on_event: EventHandler<'_>,
    ) -> Result<Vec<ServedAgent>> {
        match &self.selection {
            AgentSelection::Worker => Ok(vec![THE_WORKER]),
            AgentSelection::Agents(agents) => agents.iter().map(|agent| named(core, context, agent)).collect(),
            AgentSelection::Everyone => {
                let mut served = vec![THE_WORKER];
                for agent in core.read(context, |reader| Ok(assignment::servable_agents(reader)?))? {
                    match self.unavailable_reason(agent.runner) {
                        // The worker itself takes the items with a script. A client changes files, so it takes an item
                        // without an agent only if its role matches.
                        None => served.push(ServedAgent {
                            agent: Some(agent.handle),
                            unassigned: match agent.runner.driver() {
                                Driver::Client(_) => UnassignedFilter::UnscriptedOfOwnRole,
                                Driver::Model | Driver::Script | Driver::External => UnassignedFilter::Unscripted,
                            },
                        }),
                        Some(why) => {
                            if not_served.insert(agent.handle.clone()) {
                                on_event(&WorkerEvent::NotServed { agent: &agent.handle, why });
                            }
                        }
                    }
                }
                Ok(served)
            }
        }
    }
}

fn named(core: &Core, context: &Context, agent: &str) -> Result<ServedAgent> {
    if agent == WORKER {
        return Ok(THE_WORKER);
    }
    let runner = core.read(context, |reader| Ok(assignment::runner_of(reader, agent)?))?;
    // A shell agent runs scripts; other agents work on tasks without a script.
    let unassigned =
        if runner == Some(Runner::Shell) { UnassignedFilter::Scripted } else { UnassignedFilter::Unscripted };
    Ok(ServedAgent { agent: Some(agent.to_owned()), unassigned })
}
