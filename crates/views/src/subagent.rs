//! Agents that sessions started.

use serde::Deserialize;
use trackway_domain::{Ref, Time, kind};
use trackway_store::{Reader, Result, display::SubagentShown, table::Shown};

use crate::{
    page::{Filter, Listed, Order, Page},
    view::View,
};

/// List the agents that sessions started
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListSubagents {
    /// Only of this session
    #[arg(long)]
    pub session: Option<Ref<kind::Session>>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListSubagents {
    const COMMAND: (&'static str, &'static str) = ("subagent", "list");
    const COLUMNS: &'static [&'static str] =
        &["agent_id", "role", "role_source", "agent_type", "depth", "run_id", "status", "session_id"];
    type Output = Listed<SubagentShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let session = read.resolve_optional(self.session.as_ref())?;
        let filter = Filter::default().and("a.session_id = ?", session.as_ref()).always("a.cleared_at is null");
        self.page.read(read, SubagentShown::select(), "a", filter, Order::OldestFirst, |shown: &SubagentShown| {
            shown.subagent.id.uuid()
        })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}
