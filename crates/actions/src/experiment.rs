//! Experiments: attempts at something inside a conversation. Each ends as succeeded, failed or abandoned.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Patch, Ref, enums::ExperimentStatus, field, kind, patch::UNSET, sentence, text};
use trackway_store::{Writer, params, tables::Experiment};

use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    conversation,
    definition::{SaveEffect, UpsertResult, definition, outcome_with_touch, resource, save, subject},
    error::Result,
    touched::{CreatedOrUpdated, Touch, action_type},
};

definition!(Experiment, kind::Experiment, title);

/// Create or update an experiment in a conversation
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetExperiment {
    /// Experiment to update [default: a new one]
    pub experiment: Option<Ref<kind::Experiment>>,
    /// Conversation of the experiment (required for a new experiment)
    #[arg(long)]
    pub conversation: Option<Ref<kind::Conversation>>,
    /// Title (required for a new experiment)
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NOT_BLANK_PATTERN))]
    pub title: Option<String>,
    /// Outcome
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub outcome: Patch<String>,
}

impl Action for SetExperiment {
    const NAME: &'static str = "set_experiment";
    const COMMAND: (&'static str, &'static str) = ("experiment", "set");
    const ALIAS: Option<&'static str> = Some("create");
    type Touched = CreatedOrUpdated<kind::Experiment>;
    type Output = UpsertResult<Experiment>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { experiment, conversation, title, outcome } = self;
        let before = experiment.as_ref().map(|reference| locked_experiment(write, reference)).transpose()?;
        let conversation =
            conversation.as_ref().map(|reference| conversation::locked_conversation(write, reference)).transpose()?;
        let title =
            title.as_deref().map(|title| text::check_required_line("title", title, text::LINE_MAX)).transpose()?;
        let experiment = match (&before, conversation, &title) {
            (Some(before), Some(other), _) if other.id != before.conversation_id => {
                return Err(Rule::usage("an experiment cannot move to another conversation").into());
            }
            (Some(before), ..) => before.clone(),
            (None, Some(conversation), Some(_)) => Experiment {
                id: write.new_id(),
                tenant_id: context.tenant,
                conversation_id: conversation.id,
                title: String::new(),
                status: ExperimentStatus::Open,
                outcome: None,
                created_at: write.now,
                updated_at: write.now,
                ended_at: None,
                deleted_at: None,
            },
            _ => {
                return Err(Rule::usage("a new experiment needs a conversation and a title")
                    .hint(sentence!["add ", field!(conversation), " and ", field!(title)])
                    .into());
            }
        };
        let experiment = Experiment {
            id: experiment.id,
            tenant_id: experiment.tenant_id,
            conversation_id: experiment.conversation_id,
            title: title.unwrap_or(experiment.title),
            status: experiment.status,
            outcome: outcome.body("outcome", text::TEXT_MAX)?.apply(experiment.outcome),
            created_at: experiment.created_at,
            updated_at: experiment.updated_at,
            ended_at: experiment.ended_at,
            deleted_at: experiment.deleted_at,
        };
        let (experiment, saved) = save(context, write, before.as_ref(), experiment)?;
        Ok(outcome_with_touch(experiment, saved))
    }
}

/// End an experiment
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct EndExperiment {
    /// Experiment to end
    pub experiment: Ref<kind::Experiment>,
    /// Final status
    #[arg(long)]
    #[schemars(extend("not" = { "const": "open" }))]
    pub status: ExperimentStatus,
    /// Outcome
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub outcome: Patch<String>,
}

impl Action for EndExperiment {
    const NAME: &'static str = "end_experiment";
    const COMMAND: (&'static str, &'static str) = ("experiment", "end");
    type Touched = Touch<kind::Experiment, action_type::Close>;
    type Output = UpsertResult<Experiment>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { experiment, status, outcome } = self;
        if *status == ExperimentStatus::Open {
            return Err(Rule::usage("an experiment cannot end with status open")
                .hint("use one of: succeeded, failed, abandoned")
                .into());
        }
        let before = locked_experiment(write, experiment)?;
        if before.status != ExperimentStatus::Open && before.status != *status {
            return Err(Rule::conflict(format!("the experiment has already ended as {}", before.status)).into());
        }
        let experiment = Experiment {
            id: before.id,
            tenant_id: before.tenant_id,
            conversation_id: before.conversation_id,
            title: before.title.clone(),
            status: *status,
            outcome: outcome.body("outcome", text::TEXT_MAX)?.apply(before.outcome.clone()),
            created_at: before.created_at,
            updated_at: before.updated_at,
            ended_at: before.ended_at.or(Some(write.now)),
            deleted_at: before.deleted_at,
        };
        let (experiment, saved) = save(context, write, Some(&before), experiment)?;
        let (subject, ended) = (subject(&experiment), resource(&experiment));
        let output = UpsertResult { row: experiment, new: false };
        Ok(match saved {
            SaveEffect::Changed(detail) => {
                ActionOutcome::changed(output, subject, Touch::one(ended)).with_detail(detail)
            }
            SaveEffect::New | SaveEffect::Unchanged => ActionOutcome::unchanged(output),
        })
    }
}

pub(crate) fn locked_experiment(write: &mut Writer<'_>, reference: &Ref<kind::Experiment>) -> Result<Experiment> {
    let id = write.resolve(reference)?;
    Ok(write
        .row_locked::<Experiment>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no experiment {reference:?}")))?)
}
