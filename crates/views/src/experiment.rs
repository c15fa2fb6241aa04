use serde::Deserialize;
use trackway_domain::{Ref, Time, enums::ExperimentStatus, kind};
use trackway_store::{Reader, Result, display::ExperimentRow, table::DisplayRow};

use crate::{
    page::{Filter, ListPage, Order, Page, shorten_columns},
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
    type Output = ExperimentRow;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<ExperimentRow> {
        let id = read.resolve(&self.experiment)?;
        read.display_row_by_id("x", id)
    }
}

/// List experiments, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListExperiments {
    /// Only experiments of this conversation
    #[arg(long)]
    pub conversation: Option<Ref<kind::Conversation>>,
    /// Only experiments with this status
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
    type Output = ListPage<ExperimentRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let conversation = read.resolve_optional(self.conversation.as_ref())?;
        let filter = Filter::default()
            .require("x.deleted_at is null")
            .require_if_some("x.conversation_id = ?", conversation.as_ref())
            .require_if_some("x.status = ?", self.status.as_ref());
        let select = shorten_columns(ExperimentRow::select(), &["x.outcome"]);
        self.page
            .read(read, &select, "x", filter, Order::NewestFirst, |shown: &ExperimentRow| shown.experiment.id.uuid())
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}
