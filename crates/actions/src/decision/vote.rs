use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Ref, close_matches::close_matches, kind, text};
use trackway_store::{
    Writer, params,
    tables::{Decision, DecisionOption, Vote},
};

use super::{options, require_open};
use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    error::Result,
    studio::{locked, resource},
    touched::{Touch, action_type},
};

/// Vote on an option, or change your vote
///
/// Without --accept and --prefer, your vote is withdrawn.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CastVote {
    /// Decision to vote on
    pub decision: Ref<kind::Decision>,
    /// Option, by title or id
    #[arg(long)]
    pub option: String,
    /// Accept the option: you can live with it
    #[arg(long)]
    #[serde(default)]
    pub accept: bool,
    /// Prefer the option: you like it best. This also accepts it
    #[arg(long)]
    #[serde(default)]
    pub prefer: bool,
}

/// The caller's vote after the action.
#[derive(Debug, Serialize)]
pub struct RecordedVote {
    pub id: Id<kind::Vote>,
    pub option: String,
    pub accepted: bool,
    pub preferred: bool,
}

impl Action for CastVote {
    const NAME: &'static str = "vote";
    const COMMAND: (&'static str, &'static str) = ("decision", "vote");
    type Touched = Touch<kind::Vote, action_type::Vote>;
    type Output = RecordedVote;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { decision, option, accept, prefer } = self;
        let decision = locked::<Decision>(write, decision)?;
        require_open(&decision, write.now)?;
        let option = find_option(write, decision.id, option)?;
        let earlier = write.row::<Vote>(
            "where tenant_id = ?1 and option_id = ?2 and actor_id = ?3",
            params![option.id, context.actor.id()],
        )?;
        let vote = Vote {
            id: earlier.as_ref().map_or_else(|| write.new_id(), |vote| vote.id),
            tenant_id: context.tenant,
            option_id: option.id,
            actor_kind: context.actor.kind(),
            actor_id: context.actor.id(),
            accepted: *accept || *prefer,
            preferred: *prefer,
            created_at: earlier.as_ref().map_or(write.now, |vote| vote.created_at),
            updated_at: write.now,
        };
        let path = format!("{}/{}", resource(write, &decision)?.path, option.title);
        let resource = Resource::in_studio(vote.id, decision.studio_id, path);
        if earlier.is_some() {
            write.update(&vote)?;
        } else {
            write.insert(&vote)?;
            resource.register(context, write)?;
        }
        let voted =
            RecordedVote { id: vote.id, option: option.title, accepted: vote.accepted, preferred: vote.preferred };
        Ok(ActionOutcome::changed(voted, &resource, Touch::one(resource.clone())))
    }
}

/// Finds an option of a decision by its title or id.
fn find_option(write: &mut Writer<'_>, decision: Id<kind::Decision>, given: &str) -> Result<DecisionOption> {
    let titled = write.row::<DecisionOption>(
        "where tenant_id = ?1 and decision_id = ?2 and title = ?3",
        params![decision, text::clean_line(given)],
    )?;
    if let Some(option) = titled {
        return Ok(option);
    }
    let options = options(write, decision)?;
    let by_id = write.entry_by_id_suffix(given, Some(kind::Kind::DecisionOption))?;
    if let Some(option) = by_id.and_then(|entry| options.iter().find(|option| option.id.uuid() == entry.id)) {
        return Ok(option.clone());
    }
    let titles: Vec<_> = options.iter().map(|option| option.title.as_str()).collect();
    let close = close_matches(given, titles.iter().copied());
    let offered = if close.is_empty() { titles.join(", ") } else { close.join(" or ") };
    Err(Rule::not_found(format!("there is no option {given:?}"))
        .hint(format!("use one of the options: {offered}"))
        .into())
}
