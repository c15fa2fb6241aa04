//! Experiments: tries inside a conversation, each with its end.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Patch, Ref, field, kind, patch::UNSET, sentence, text, words::ExperimentStatus};
use trackway_store::{Writer, params, tables::Experiment};

use crate::{
    action::{Action, Done},
    context::Context,
    conversation,
    definition::{Saved, Stands, about, definition, resource, save, touched},
    error::Result,
    touched::{CreatedOrUpdated, Touch, did},
};

definition!(Experiment, kind::Experiment, title);

/// Begin a try inside a conversation, or change what is given of one
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetExperiment {
    /// The experiment (a new one, when left out)
    pub experiment: Option<Ref<kind::Experiment>>,
    /// The conversation it is made in; a new one needs it
    #[arg(long)]
    pub conversation: Option<Ref<kind::Conversation>>,
    /// What people call it; a new one needs it
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::SAYS_SOMETHING))]
    pub title: Option<String>,
    /// What came of it
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
    type Output = Stands<Experiment>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let Self { experiment, conversation, title, outcome } = self;
        let before = experiment.as_ref().map(|reference| live(write, reference)).transpose()?;
        let conversation =
            conversation.as_ref().map(|reference| conversation::live(write, reference)).transpose()?;
        let title = title.as_deref().map(|title| text::required_line("title", title, text::LINE_MAX)).transpose()?;
        let experiment = match (&before, conversation, &title) {
            (Some(before), Some(other), _) if other.id != before.conversation_id => {
                return Err(Rule::usage("an experiment stays in its conversation").into());
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
                    .hint(sentence!["give it ", field!(conversation), " and ", field!(title)])
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
        Ok(touched(experiment, saved))
    }
}

/// End a try
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct EndExperiment {
    /// The experiment
    pub experiment: Ref<kind::Experiment>,
    /// How it ended
    #[arg(long)]
    #[schemars(extend("not" = { "const": "open" }))]
    pub status: ExperimentStatus,
    /// What came of it
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub outcome: Patch<String>,
}

impl Action for EndExperiment {
    const NAME: &'static str = "end_experiment";
    const COMMAND: (&'static str, &'static str) = ("experiment", "end");
    type Touched = Touch<kind::Experiment, did::Close>;
    type Output = Stands<Experiment>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        if self.status == ExperimentStatus::Open {
            return Err(Rule::usage("an experiment does not end as open")
                .hint("one of: succeeded, failed, abandoned")
                .into());
        }
        let before = live(write, &self.experiment)?;
        if before.status != ExperimentStatus::Open && before.status != self.status {
            return Err(Rule::conflict(format!("the experiment {} already", before.status)).into());
        }
        let experiment = Experiment {
            status: self.status,
            outcome: self.outcome.body("outcome", text::TEXT_MAX)?.apply(before.outcome.clone()),
            ended_at: before.ended_at.or(Some(write.now)),
            ..before.clone()
        };
        let (experiment, saved) = save(context, write, Some(&before), experiment)?;
        let (subject, ended) = (about(&experiment), resource(&experiment));
        let output = Stands { row: experiment, new: false };
        Ok(match saved {
            Saved::Changed(detail) => Done::changed(output, subject, Touch::one(ended)).with_detail(detail),
            Saved::New | Saved::Unchanged => Done::unchanged(output),
        })
    }
}

/// The experiment a reference names, held as it is.
pub(crate) fn live(write: &mut Writer<'_>, reference: &Ref<kind::Experiment>) -> Result<Experiment> {
    let id = write.resolve(reference)?;
    Ok(write
        .row_locked::<Experiment>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no experiment {reference:?}")))?)
}
