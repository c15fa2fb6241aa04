//! Decisions: a question with options to vote on.

mod vote;

pub use vote::CastVote;

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::json;
use trackway_domain::{
    Error as Rule, Id, Ref, Time, command, enums::DecisionStatus, kind, sentence, text, vote_results::OptionResult,
};
use trackway_store::{
    Writer, params,
    tables::{Decision, DecisionOption},
};

use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    error::Result,
    studio::{in_studio, locked, resource, studio},
    touched::{Touch, action_type},
};

/// Maximum number of options of a decision.
const OPTIONS_MAX: usize = 100;

/// Create a decision: a question with options to vote on
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CreateDecision {
    /// Studio of the decision
    #[arg(long)]
    pub studio: Ref<kind::Studio>,
    /// Question
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NOT_BLANK_PATTERN))]
    pub question: String,
    /// Option to vote on. Repeatable
    #[arg(long = "option", value_name = "OPTION", num_args = 1..)]
    #[serde(default)]
    pub options: Vec<String>,
    /// Description
    #[arg(long)]
    pub description: Option<String>,
    /// Deadline for votes, such as 2026-02-27 or 2026-02-27T09:30:00Z
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<Time>,
}

/// An open decision with its options.
#[derive(Debug, Serialize)]
pub struct OpenDecision {
    pub id: Id<kind::Decision>,
    pub studio: String,
    pub question: String,
    pub options: Vec<DecisionOption>,
}

impl Action for CreateDecision {
    const NAME: &'static str = "create_decision";
    const COMMAND: (&'static str, &'static str) = ("decision", "create");
    type Touched = (Touch<kind::Decision, action_type::Create>, Touch<kind::DecisionOption, action_type::AddOption>);
    type Output = OpenDecision;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { studio: studio_reference, question, options, description, deadline } = self;
        let question = text::check_required_line("question", question, text::LINE_MAX)?;
        let description =
            description.as_deref().map(|text| text::check_body("description", text, text::TEXT_MAX)).transpose()?;
        let studio = studio(write, studio_reference)?;
        let decision = Decision {
            id: write.new_id(),
            tenant_id: context.tenant,
            studio_id: studio.id,
            question,
            description,
            deadline: *deadline,
            status: DecisionStatus::Open,
            outcome: None,
            created_at: write.now,
            updated_at: write.now,
            closed_at: None,
            archived_at: None,
            deleted_at: None,
        };
        write.insert(&decision)?;
        let resource = in_studio(&decision, &studio.name);
        resource.register(context, write)?;
        let (options, touched) = add(context, write, &decision, &resource.path, &[], options)?;
        let opened = OpenDecision { id: decision.id, studio: studio.name, question: decision.question, options };
        Ok(ActionOutcome::changed(opened, &resource, (Touch::one(resource.clone()), Touch::many(touched))))
    }
}

/// Add options to an open decision
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct AddOptions {
    /// Decision to extend
    pub decision: Ref<kind::Decision>,
    /// Option to vote on. Repeatable
    #[arg(long = "option", value_name = "OPTION", required = true)]
    pub options: Vec<String>,
}

impl Action for AddOptions {
    const NAME: &'static str = "add_options";
    const COMMAND: (&'static str, &'static str) = ("decision", "add-options");
    type Touched = Touch<kind::DecisionOption, action_type::AddOption>;
    type Output = OpenDecision;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { decision, options: titles } = self;
        let decision = locked::<Decision>(write, decision)?;
        require_open(&decision, write.now)?;
        let present = options(write, decision.id)?;
        let resource = resource(write, &decision)?;
        let (added, touched) = add(context, write, &decision, &resource.path, &present, titles)?;
        let studio = resource.path.split('/').next().unwrap_or_default().to_owned();
        let opened =
            OpenDecision { id: decision.id, studio, question: decision.question, options: [present, added].concat() };
        Ok(ActionOutcome::changed(opened, &resource, Touch::many(touched)))
    }
}

fn add(
    context: &Context,
    write: &mut Writer<'_>,
    decision: &Decision,
    path: &str,
    present: &[DecisionOption],
    titles: &[String],
) -> Result<(Vec<DecisionOption>, Vec<Resource<kind::DecisionOption>>)> {
    if present.len() + titles.len() > OPTIONS_MAX {
        return Err(Rule::usage(format!("a decision can have at most {OPTIONS_MAX} options")).into());
    }
    let mut taken: HashSet<String> = present.iter().map(|option| option.title.clone()).collect();
    let mut added = Vec::new();
    let mut touched = Vec::new();
    for (title, micros) in titles.iter().zip(0..) {
        let title = text::check_required_line("option", title, text::LINE_MAX)?;
        if !taken.insert(title.clone()) {
            return Err(Rule::conflict(format!("the decision already has an option {title:?}")).into());
        }
        // The times are a microsecond apart, so that sorting by time gives the order of the options.
        let created_at = Time::from_micros(write.now.micros() + micros);
        let option = DecisionOption {
            id: Id::new(created_at),
            tenant_id: context.tenant,
            decision_id: decision.id,
            title,
            created_at,
        };
        write.insert(&option)?;
        let resource = Resource::in_studio(option.id, decision.studio_id, format!("{path}/{}", option.title));
        resource.register(context, write)?;
        touched.push(resource);
        added.push(option);
    }
    Ok((added, touched))
}

fn options(write: &mut Writer<'_>, decision: Id<kind::Decision>) -> Result<Vec<DecisionOption>> {
    Ok(write.rows::<DecisionOption>(
        "where tenant_id = ?1 and decision_id = ?2 order by created_at, id",
        params![decision],
    )?)
}

/// Rejects votes and new options if the decision is closed or its deadline has passed.
fn require_open(decision: &Decision, now: Time) -> Result<()> {
    if decision.status == DecisionStatus::Closed {
        return Err(Rule::conflict(format!("the decision {:?} is closed", decision.question))
            .hint(sentence!["its results: ", command!("decision results", [decision.id.short()])])
            .into());
    }
    match decision.deadline {
        Some(deadline) if deadline <= now => {
            Err(Rule::conflict(format!("the deadline of decision {:?} was {deadline}", decision.question)).into())
        }
        _ => Ok(()),
    }
}

/// Close a decision and store its results
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CloseDecision {
    /// Decision to close
    pub decision: Ref<kind::Decision>,
}

/// A closed decision with its results.
#[derive(Debug, Serialize)]
pub struct ClosedDecision {
    pub id: Id<kind::Decision>,
    pub question: String,
    pub status: DecisionStatus,
    pub results: Vec<OptionResult>,
}

impl Action for CloseDecision {
    const NAME: &'static str = "close_decision";
    const COMMAND: (&'static str, &'static str) = ("decision", "close");
    type Touched = Touch<kind::Decision, action_type::Close>;
    type Output = ClosedDecision;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let mut decision = locked::<Decision>(write, &self.decision)?;
        if decision.status == DecisionStatus::Closed {
            return Err(Rule::conflict(format!("the decision {:?} is already closed", decision.question)).into());
        }
        let results = write.decision_results(decision.id)?;
        decision.status = DecisionStatus::Closed;
        decision.outcome = Some(json!(results));
        decision.closed_at = Some(write.now);
        decision.updated_at = write.now;
        write.update(&decision)?;
        let resource = resource(write, &decision)?;
        let closed = ClosedDecision { id: decision.id, question: decision.question, status: decision.status, results };
        Ok(ActionOutcome::changed(closed, &resource, Touch::one(resource.clone())))
    }
}
