//! Routes: rules that queue a task for each message with a tag.

use serde::Deserialize;
use trackway_domain::{Ref, Time, kind};
use trackway_store::{Reader, Result, display::RouteRow, table::DisplayRow};

use crate::{
    page::{Filter, ListPage, Order, Page},
    view::View,
};

/// Show a route
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetRoute {
    /// The route
    pub route: Ref<kind::Route>,
}

impl View for GetRoute {
    const COMMAND: (&'static str, &'static str) = ("route", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = RouteRow;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<RouteRow> {
        let id = read.resolve(&self.route)?;
        read.display_row_by_id("o", id)
    }
}

/// List routes
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListRoutes {
    /// Only routes for messages with this tag
    #[arg(long)]
    pub tag: Option<String>,
    /// Only routes to any version of this task
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListRoutes {
    const COMMAND: (&'static str, &'static str) = ("route", "list");
    const COLUMNS: &'static [&'static str] = &["id", "tag", "role", "task", "would_run", "workspace"];
    type Output = ListPage<RouteRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let task = read.resolve_optional(self.task.as_ref())?;
        let filter = Filter::default()
            .require("o.deleted_at is null")
            .require_if_some("o.tag = ?", self.tag.as_ref())
            .require_if_some(
                "o.task_id in (select v.id from tasks v where v.tenant_id = ?1
                 and v.lineage_id = (select n.lineage_id from tasks n where n.tenant_id = ?1 and n.id = ?))",
                task.as_ref(),
            );
        self.page
            .read(read, RouteRow::select(), "o", filter, Order::OldestFirst, |shown: &RouteRow| shown.route.id.uuid())
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}
