//! Test cases.

use serde::Deserialize;
use trackway_domain::{Ref, Time, kind, words::TestcaseStatus};
use trackway_store::{Reader, Result, display::TestcaseShown, table::Shown};

use crate::{
    page::{Filter, Listed, Order, Page, cut_texts},
    view::View,
};

/// Show a test case
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetTestcase {
    /// The test case
    pub testcase: Ref<kind::Testcase>,
}

impl View for GetTestcase {
    const COMMAND: (&'static str, &'static str) = ("testcase", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = TestcaseShown;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<TestcaseShown> {
        let id = read.resolve(&self.testcase)?;
        read.shown_by_id("t", id)
    }
}

/// List test cases, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListTestcases {
    /// Only results of this experiment
    #[arg(long)]
    pub experiment: Option<Ref<kind::Experiment>>,
    /// Only those that went so
    #[arg(long)]
    pub status: Option<TestcaseStatus>,
    /// Only tested in this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListTestcases {
    const COMMAND: (&'static str, &'static str) = ("testcase", "list");
    const COLUMNS: &'static [&'static str] =
        &["id", "status", "title", "file", "line", "duration_ms", "experiment", "role", "error"];
    type Output = Listed<TestcaseShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let experiment = read.resolve_optional(self.experiment.as_ref())?;
        let role = read.resolve_optional(self.role.as_ref())?;
        let filter = Filter::default()
            .and("t.experiment_id = ?", experiment.as_ref())
            .and("t.status = ?", self.status.as_ref())
            .and("t.role_id = ?", role.as_ref());
        let select = cut_texts(TestcaseShown::select(), &["t.error"]);
        self.page.read(read, &select, "t", filter, Order::NewestFirst, |shown: &TestcaseShown| shown.testcase.id.uuid())
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}
