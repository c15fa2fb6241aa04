//! Agents.

use serde::Deserialize;
use trackway_domain::{
    Duration, Error as Rule, Id, Patch, Ref, capability, field, kind,
    patch::{self, UNSET},
    queue::MAX_STEPS_MAX,
    sentence, text,
    words::{Runner, Switch},
};
use trackway_store::{Writer, display::AgentShown, params, tables::Agent};

use crate::{
    action::{Action, Done},
    context::{Actor, Context},
    definition::{Stands, about, definition, save, stands},
    error::Result,
    limits,
    touched::Nothing,
};

definition!(Agent, kind::Agent, handle);

/// The word for "may do nothing that needs a capability".
const NO_CAPABILITIES: &str = "none";

/// Enter an agent, or change what is given of one
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetAgent {
    /// Its handle
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NAME))]
    pub handle: String,
    /// Its name
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub name: Patch<String>,
    /// The role it works under
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub role: Patch<Ref<kind::Role>>,
    /// The person it belongs to (you, for a new one)
    #[arg(long)]
    pub owner: Option<Ref<kind::Person>>,
    /// The agent it is a subagent of
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub parent: Patch<Ref<kind::Agent>>,
    /// What drives it
    #[arg(long)]
    pub runner: Option<Runner>,
    /// The model it uses
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub model: Patch<String>,
    /// Who it is told to be
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub identity: Patch<String>,
    /// A capability; repeat for several, 'none' for none, empty for the default list
    #[arg(long = "capability", value_name = "NAME", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub capabilities: Option<Vec<String>>,
    /// How many queue items it may hold at once (empty for no limit)
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "NUMBER")]
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_items: Patch<i64>,
    /// Model turns that a run of it may take, 1 to 200 [default: 30]; its tasks and queue items can set their own
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "NUMBER")]
    #[serde(default)]
    #[schemars(range(min = 1, max = MAX_STEPS_MAX))]
    pub max_steps: Patch<i64>,
    /// How long a run of it may take, as 90m or 1h30m; its tasks and queue items can set their own
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub timeout: Patch<Duration>,
    /// Whether it is asked for its scratchpad and report when a run ends; its tasks and queue items can set their own
    #[arg(long)]
    pub end_of_run: Option<Switch>,
    /// What it may spend in a day; its tasks and queue items can set their own
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "AMOUNT")]
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub spend_limit: Patch<f64>,
    /// Whether it is out of use
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub archived: Option<bool>,
}

impl Action for SetAgent {
    const NAME: &'static str = "set_agent";
    const COMMAND: (&'static str, &'static str) = ("agent", "set");
    type Touched = Nothing;
    type Output = Stands<AgentShown>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
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
        let handle = text::name("handle", handle)?;
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
            capabilities: match patch::list("capability", granted.as_deref())? {
                Some(given) => capabilities(given)?,
                None => agent.capabilities,
            },
            max_items: max_items.clone().apply(agent.max_items),
            max_steps: limits::max_steps(max_steps)?.apply(agent.max_steps),
            timeout: timeout.clone().apply(agent.timeout),
            end_of_run: end_of_run.map_or(agent.end_of_run, Switch::is_on),
            spend_limit: limits::spend_limit(spend_limit)?.apply(agent.spend_limit),
            archived: archived.unwrap_or(agent.archived),
            observed: agent.observed,
            created_at: agent.created_at,
            updated_at: agent.updated_at,
            deleted_at: agent.deleted_at,
        };
        if agent.max_items.is_some_and(|items| items < 1) {
            return Err(Rule::usage(sentence![field!(max_items), " is at least 1"]).into());
        }
        refuse_own_ancestor(write, &agent)?;
        let (agent, saved) = save(context, write, before.as_ref(), agent)?;
        let subject = about(&agent);
        let shown = write.shown_by_id::<AgentShown>("a", agent.id)?;
        stands!(shown, saved, subject)
    }
}

/// `None` is the default list; the word `none` is an empty one.
fn capabilities(given: Vec<String>) -> Result<Option<Vec<String>>> {
    match given.as_slice() {
        [] => Ok(None),
        [only] if only == NO_CAPABILITIES => Ok(Some(Vec::new())),
        _ => {
            capability::check_grant(&given)?;
            Ok(Some(given))
        }
    }
}

fn refuse_own_ancestor(write: &mut Writer<'_>, agent: &Agent) -> Result<()> {
    let mut above = agent.parent_id;
    if above.is_some() {
        // The rule looks at rows that others may be changing: one at a time.
        write.lock_catalog()?;
    }
    while let Some(parent) = above {
        if parent == agent.id {
            return Err(Rule::conflict(format!("agent {} would be its own parent", agent.handle)).into());
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
