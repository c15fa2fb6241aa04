//! Subagents of client sessions.

use serde::Deserialize;
use trackway_domain::{Ref, Time, kind};
use trackway_store::{Reader, Result, display::SubagentRow, table::DisplayRow};

use crate::{
    page::{Filter, ListPage, Order, Page},
    view::View,
};

/// List the subagents of sessions, oldest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListSubagents {
    /// Only subagents of this session
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
    type Output = ListPage<SubagentRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let session = read.resolve_optional(self.session.as_ref())?;
        let filter =
            Filter::default().require_if_some("a.session_id = ?", session.as_ref()).require("a.cleared_at is null");
        self.page.read(read, SubagentRow::select(), "a", filter, Order::OldestFirst, |shown: &SubagentRow| {
            shown.subagent.id.uuid()
        })
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}
