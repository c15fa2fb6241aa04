//! Experiments.

use serde::Deserialize;
use trackway_domain::{Ref, Time, kind, words::ExperimentStatus};
use trackway_store::{Reader, Result, display::ExperimentShown, table::Shown};

use crate::{
    page::{Filter, Listed, Order, Page, cut_texts},
    view::View,
};

/// Show an experiment
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetExperiment {
    /// The experiment
    pub experiment: Ref<kind::Experiment>,
}

impl View for GetExperiment {
    const COMMAND: (&'static str, &'static str) = ("experiment", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = ExperimentShown;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<ExperimentShown> {
        let id = read.resolve(&self.experiment)?;
        read.shown_by_id("x", id)
    }
}

/// List experiments, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListExperiments {
    /// Only in this conversation
    #[arg(long)]
    pub conversation: Option<Ref<kind::Conversation>>,
    /// Only those that stand so
    #[arg(long)]
    pub status: Option<ExperimentStatus>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListExperiments {
    const COMMAND: (&'static str, &'static str) = ("experiment", "list");
    const COLUMNS: &'static [&'static str] =
        &["id", "title", "conversation", "status", "outcome", "messages", "testcases", "created_at", "ended_at"];
    type Output = Listed<ExperimentShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let conversation = read.resolve_optional(self.conversation.as_ref())?;
        let filter = Filter::default()
            .always("x.deleted_at is null")
            .and("x.conversation_id = ?", conversation.as_ref())
            .and("x.status = ?", self.status.as_ref());
        let select = cut_texts(ExperimentShown::select(), &["x.outcome"]);
        self.page
            .read(read, &select, "x", filter, Order::NewestFirst, |shown: &ExperimentShown| shown.experiment.id.uuid())
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}
