use serde::Deserialize;
use trackway_domain::{
    Duration, Error as Rule, Id, Patch, Ref, capability,
    enums::{Runner, RunnerParser, Switch},
    field, kind,
    patch::{self, UNSET},
    queue::MAX_STEPS_LIMIT,
    sentence, text,
};
use trackway_store::{Writer, display::AgentRow, params, tables::Agent};

use crate::{
    action::{Action, ActionOutcome},
    context::{Actor, Context},
    definition::{UpsertResult, definition, outcome_without_touch, save, subject},
    error::Result,
    limits,
    touched::NoTouches,
};

definition!(Agent, kind::Agent, handle);

/// `--capability none`: the agent may do nothing that needs a capability.
const NO_CAPABILITIES: &str = "none";

/// Create or update an agent
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetAgent {
    /// Handle of the agent
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NAME_PATTERN))]
    pub handle: String,
    /// Name for people to read
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub name: Patch<String>,
    /// Role that the agent works under
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub role: Patch<Ref<kind::Role>>,
    /// Person who owns the agent [default for a new agent: you]
    #[arg(long)]
    pub owner: Option<Ref<kind::Person>>,
    /// Parent agent, if this is a subagent
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub parent: Patch<Ref<kind::Agent>>,
    /// Runner that executes the agent's runs
    #[arg(long, value_parser = RunnerParser)]
    pub runner: Option<Runner>,
    /// Model that the agent uses
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub model: Patch<String>,
    /// Identity text at the start of the agent's prompt
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub identity: Patch<String>,
    /// Capability of the agent. Repeatable; 'none' for no capabilities, empty for the default ones
    #[arg(long = "capability", value_name = "NAME", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub capabilities: Option<Vec<String>>,
    /// Number of queue items that the agent may hold at once (empty for no limit)
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "NUMBER")]
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_items: Patch<i64>,
    /// Maximum model turns per run, 1 to 200. Tasks and queue items can override it [default: 30]
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "NUMBER")]
    #[serde(default)]
    #[schemars(range(min = 1, max = MAX_STEPS_LIMIT))]
    pub max_steps: Patch<i64>,
    /// Timeout of a run, such as 90m or 1h30m. Tasks and queue items can override it
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub timeout: Patch<Duration>,
    /// Whether to prompt the agent for its scratchpad and report when a run ends. Tasks and queue items can override it
    #[arg(long)]
    pub end_of_run: Option<Switch>,
    /// Maximum daily spend of the agent. Tasks and queue items can override it
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "AMOUNT")]
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub spend_limit: Patch<f64>,
    /// Whether the agent is archived. An archived agent cannot start runs
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub archived: Option<bool>,
}

impl Action for SetAgent {
    const NAME: &'static str = "set_agent";
    const COMMAND: (&'static str, &'static str) = ("agent", "set");
    type Touched = NoTouches;
    type Output = UpsertResult<AgentRow>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self {
            handle,
            name,
            role,
            owner,
            parent,
            runner,
            model,
            identity,
            capabilities: granted,
            max_items,
            max_steps,
            timeout,
            end_of_run,
            spend_limit,
            archived,
        } = self;
        let handle = text::check_name("handle", handle)?;
        let before = write
            .row_locked::<Agent>("where tenant_id = ?1 and handle = ?2 and deleted_at is null", params![handle])?;
        let owner = match (write.resolve_optional(owner.as_ref())?, &before, context.actor) {
            (Some(owner), ..) => owner,
            (None, Some(agent), _) => agent.owner_id,
            (None, None, Actor::Person(person)) => person,
            (None, None, Actor::Agent(_)) => {
                return Err(Rule::usage(sentence!["a new agent needs an ", field!(owner)]).into());
            }
        };
        let agent = before.clone().unwrap_or_else(|| new(context, write, handle, owner));
        let agent = Agent {
            id: agent.id,
            tenant_id: agent.tenant_id,
            handle: agent.handle,
            name: name.line("name", text::LINE_MAX)?.apply(agent.name),
            owner_id: owner,
            role_id: role.clone().try_map(|role| write.resolve(&role))?.apply(agent.role_id),
            parent_id: parent.clone().try_map(|parent| write.resolve(&parent))?.apply(agent.parent_id),
            runner: runner.unwrap_or(agent.runner),
            model: model.line("model", text::LINE_MAX)?.apply(agent.model),
            identity: identity.body("identity", text::TEXT_MAX)?.apply(agent.identity),
            capabilities: match patch::clean_list("capability", granted.as_deref())? {
                Some(given) => parse_capabilities(given)?,
                None => agent.capabilities,
            },
            max_items: max_items.clone().apply(agent.max_items),
            max_steps: limits::check_max_steps(max_steps)?.apply(agent.max_steps),
            timeout: timeout.clone().apply(agent.timeout),
            end_of_run: end_of_run.map_or(agent.end_of_run, Switch::is_on),
            spend_limit: limits::check_spend_limit(spend_limit)?.apply(agent.spend_limit),
            archived: archived.unwrap_or(agent.archived),
            observed: agent.observed,
            created_at: agent.created_at,
            updated_at: agent.updated_at,
            deleted_at: agent.deleted_at,
        };
        if agent.max_items.is_some_and(|items| items < 1) {
            return Err(Rule::usage(sentence![field!(max_items), " must be at least 1"]).into());
        }
        require_no_parent_cycle(write, &agent)?;
        let (agent, saved) = save(context, write, before.as_ref(), agent)?;
        let subject = subject(&agent);
        let shown = write.display_row_by_id::<AgentRow>("a", agent.id)?;
        outcome_without_touch!(shown, saved, subject)
    }
}

/// An empty list means the default capabilities (`None`); the single word `none` means no capabilities.
fn parse_capabilities(given: Vec<String>) -> Result<Option<Vec<String>>> {
    match given.as_slice() {
        [] => Ok(None),
        [only] if only == NO_CAPABILITIES => Ok(Some(Vec::new())),
        _ => {
            capability::check_grant(&given)?;
            Ok(Some(given))
        }
    }
}

fn require_no_parent_cycle(write: &mut Writer<'_>, agent: &Agent) -> Result<()> {
    let mut above = agent.parent_id;
    if above.is_some() {
        // The lock serialises these transactions, because the check reads rows that the others may change.
        write.lock_catalog()?;
    }
    while let Some(parent) = above {
        if parent == agent.id {
            return Err(Rule::conflict(format!("agent {} cannot be its own ancestor", agent.handle)).into());
        }
        let next = write.one::<(Option<Id<kind::Agent>>,)>(
            "select parent_id from agents where tenant_id = ?1 and id = ?2",
            params![parent],
        )?;
        above = next.and_then(|(next,)| next);
    }
    Ok(())
}

pub(crate) fn new(context: &Context, write: &Writer<'_>, handle: String, owner: Id<kind::Person>) -> Agent {
    Agent {
        id: write.new_id(),
        tenant_id: context.tenant,
        handle,
        name: None,
        owner_id: owner,
        parent_id: None,
        role_id: None,
        runner: Runner::Agent,
        model: None,
        identity: None,
        capabilities: None,
        max_items: Some(1),
        max_steps: None,
        timeout: None,
        end_of_run: true,
        spend_limit: None,
        archived: false,
        observed: false,
        created_at: write.now,
        updated_at: write.now,
        deleted_at: None,
    }
}
