//! Reports of tasks: the current one, and the history.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Ref, Time, command, kind, sentence};
use trackway_store::{Reader, Result, current_reports::ReportScope, display::ReportRow, table::DisplayRow};

use crate::{
    page::{Filter, ListPage, Order, Page, shorten_columns},
    view::View,
};

/// Columns that a list shortens.
const LONG_TEXTS: &[&str] = &["p.tldr", "p.content"];

/// Show the current report of a task
///
/// If several agents have reported on the task, shows the report of the agent that joined the task last.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetReport {
    /// The task
    #[arg(long)]
    pub task: Ref<kind::Task>,
    /// Show the current report of this agent instead
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
}

impl View for GetReport {
    const COMMAND: (&'static str, &'static str) = ("report", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = ReportRow;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<ReportRow> {
        let task = read.resolve_including_deleted(&self.task)?;
        let found = match &self.agent {
            Some(agent) => {
                let agent = read.resolve_including_deleted(agent)?;
                read.current_report_of(agent, task)?.map(|report| report.id)
            }
            None => read.current_reports(ReportScope::Version(task))?.first().map(|report| report.report_id),
        };
        let id = found.ok_or_else(|| {
            let by = self.agent.as_ref().map_or_else(String::new, |agent| format!(" by {agent}"));
            Rule::not_found(format!("there is no report on {}{by}", self.task))
                .hint(sentence!["list all reports: ", command!("report list")])
        })?;
        read.display_row_by_id("p", id)
    }
}

/// List reports, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListReports {
    /// Only reports on this version of a task
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// Only reports by this agent
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// Only reports of this run
    #[arg(long)]
    pub run: Option<Ref<kind::Run>>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListReports {
    const COMMAND: (&'static str, &'static str) = ("report", "list");
    const COLUMNS: &'static [&'static str] = &["id", "agent", "task", "one_liner", "current", "run_id", "created_at"];
    type Output = ListPage<ReportRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let task = self.task.as_ref().map(|task| read.resolve_including_deleted(task)).transpose()?;
        let agent = self.agent.as_ref().map(|agent| read.resolve_including_deleted(agent)).transpose()?;
        let run = read.resolve_optional(self.run.as_ref())?;
        let filter = Filter::default()
            .require_if_some("p.task_id = ?", task.as_ref())
            .require_if_some("p.agent_id = ?", agent.as_ref())
            .require_if_some("p.run_id = ?", run.as_ref());
        let select = shorten_columns(ReportRow::select(), LONG_TEXTS);
        self.page.read(read, &select, "p", filter, Order::NewestFirst, |shown: &ReportRow| shown.report.id.uuid())
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}

/// List all reports on a task with their full text, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ReportHistory {
    /// The task
    #[arg(long)]
    pub task: Ref<kind::Task>,
    /// Only reports by this agent
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ReportHistory {
    const COMMAND: (&'static str, &'static str) = ("report", "history");
    const COLUMNS: &'static [&'static str] = &["id", "agent", "one_liner", "current", "run_id", "created_at"];
    type Output = ListPage<ReportRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let task = read.resolve_including_deleted(&self.task)?;
        let agent = self.agent.as_ref().map(|agent| read.resolve_including_deleted(agent)).transpose()?;
        let filter = Filter::default()
            .require_if_some("p.task_id = ?", Some(&task))
            .require_if_some("p.agent_id = ?", agent.as_ref());
        self.page.read(read, ReportRow::select(), "p", filter, Order::NewestFirst, |shown: &ReportRow| {
            shown.report.id.uuid()
        })
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}
