//! Routes of messages to tasks.

use serde::Deserialize;
use trackway_domain::{Ref, Time, kind};
use trackway_store::{Reader, Result, display::RouteShown, table::Shown};

use crate::{
    page::{Filter, Listed, Order, Page},
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
    type Output = RouteShown;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<RouteShown> {
        let id = read.resolve(&self.route)?;
        read.shown_by_id("o", id)
    }
}

/// List routes
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListRoutes {
    /// Only for messages with this tag
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
    type Output = Listed<RouteShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let task = read.resolve_optional(self.task.as_ref())?;
        let filter = Filter::default()
            .always("o.deleted_at is null")
            .and("o.tag = ?", self.tag.as_ref())
            .and(
                "o.task_id in (select v.id from tasks v where v.tenant_id = ?1
                 and v.lineage_id = (select n.lineage_id from tasks n where n.tenant_id = ?1 and n.id = ?))",
                task.as_ref(),
            );
        self.page.read(read, RouteShown::select(), "o", filter, Order::OldestFirst, |shown: &RouteShown| {
            shown.route.id.uuid()
        })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}
