//! Reports: the one that speaks for a task, and those before it.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Ref, Time, kind};
use trackway_store::{Reader, Result, current_reports::Tasks, display::ReportShown, table::Shown};

use crate::{
    page::{Filter, Listed, Order, Page, cut_texts},
    view::View,
};

/// What a list of reports shows only the beginning of.
const LONG_TEXTS: &[&str] = &["p.tldr", "p.content"];

/// Show the report that speaks for a task
///
/// Of the agents that had to do with it, the one that came last and has a report.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetReport {
    /// The task
    #[arg(long)]
    pub task: Ref<kind::Task>,
    /// The current report of this agent
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
}

impl View for GetReport {
    const COMMAND: (&'static str, &'static str) = ("report", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = ReportShown;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<ReportShown> {
        let task = read.resolve_even_deleted(&self.task)?;
        let found = match &self.agent {
            Some(agent) => {
                let agent = read.resolve_even_deleted(agent)?;
                read.current_report_of(agent, task)?.map(|report| report.id)
            }
            None => read.current_reports(Tasks::One(task))?.first().map(|report| report.report_id),
        };
        let id = found.ok_or_else(|| {
            let by = self.agent.as_ref().map_or_else(String::new, |agent| format!(" by {agent}"));
            Rule::not_found(format!("there is no report on {}{by}", self.task))
                .hint("trackway report list shows those there are")
        })?;
        read.shown_by_id("p", id)
    }
}

/// List reports, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListReports {
    /// Only on this task
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// Only by this agent
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// Only of this run
    #[arg(long)]
    pub run: Option<Ref<kind::Run>>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListReports {
    const COMMAND: (&'static str, &'static str) = ("report", "list");
    const COLUMNS: &'static [&'static str] = &["id", "agent", "task", "one_liner", "current", "run_id", "created_at"];
    type Output = Listed<ReportShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let task = self.task.as_ref().map(|task| read.resolve_even_deleted(task)).transpose()?;
        let agent = self.agent.as_ref().map(|agent| read.resolve_even_deleted(agent)).transpose()?;
        let run = read.resolve_optional(self.run.as_ref())?;
        let filter = Filter::default()
            .and("p.task_id = ?", task.as_ref())
            .and("p.agent_id = ?", agent.as_ref())
            .and("p.run_id = ?", run.as_ref());
        let select = cut_texts(ReportShown::select(), LONG_TEXTS);
        self.page.read(read, &select, "p", filter, Order::NewestFirst, |shown: &ReportShown| shown.report.id.uuid())
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

/// Show every report on a task in full, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ReportHistory {
    /// The task
    #[arg(long)]
    pub task: Ref<kind::Task>,
    /// Only by this agent
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ReportHistory {
    const COMMAND: (&'static str, &'static str) = ("report", "history");
    const COLUMNS: &'static [&'static str] = &["id", "agent", "one_liner", "current", "run_id", "created_at"];
    type Output = Listed<ReportShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let task = read.resolve_even_deleted(&self.task)?;
        let agent = self.agent.as_ref().map(|agent| read.resolve_even_deleted(agent)).transpose()?;
        let filter = Filter::default().and("p.task_id = ?", Some(&task)).and("p.agent_id = ?", agent.as_ref());
        self.page.read(read, ReportShown::select(), "p", filter, Order::NewestFirst, |shown: &ReportShown| {
            shown.report.id.uuid()
        })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}
