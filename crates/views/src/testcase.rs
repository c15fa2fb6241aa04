use serde::Deserialize;
use trackway_domain::{Ref, Time, enums::TestcaseStatus, kind};
use trackway_store::{Reader, Result, display::TestcaseRow, table::DisplayRow};

use crate::{
    page::{Filter, ListPage, Order, Page, shorten_columns},
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
    type Output = TestcaseRow;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<TestcaseRow> {
        let id = read.resolve(&self.testcase)?;
        read.display_row_by_id("t", id)
    }
}

/// List test cases, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListTestcases {
    /// Only test cases of this experiment
    #[arg(long)]
    pub experiment: Option<Ref<kind::Experiment>>,
    /// Only test cases with this status
    #[arg(long)]
    pub status: Option<TestcaseStatus>,
    /// Only test cases of this role
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
    type Output = ListPage<TestcaseRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let experiment = read.resolve_optional(self.experiment.as_ref())?;
        let role = read.resolve_optional(self.role.as_ref())?;
        let filter = Filter::default()
            .require_if_some("t.experiment_id = ?", experiment.as_ref())
            .require_if_some("t.status = ?", self.status.as_ref())
            .require_if_some("t.role_id = ?", role.as_ref());
        let select = shorten_columns(TestcaseRow::select(), &["t.error"]);
        self.page.read(read, &select, "t", filter, Order::NewestFirst, |shown: &TestcaseRow| shown.testcase.id.uuid())
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}
