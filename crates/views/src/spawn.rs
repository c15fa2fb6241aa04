//! Spawns: the tool calls that started subagents.

use serde::{Deserialize, Serialize};
use trackway_domain::{Ref, Time, kind};
use trackway_store::{Reader, Result, display::SpawnRow, params, table::DisplayRow, tables::SpawnMatch};

use crate::{
    page::{Filter, ListPage, Order, Page},
    view::View,
};

/// List the tool calls that started subagents, oldest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListSpawns {
    /// Only spawns of this session
    #[arg(long)]
    pub session: Option<Ref<kind::Session>>,
    /// Only spawns whose prompt has a role tag
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub tagged: Option<bool>,
    /// Only spawns without a matched subagent
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub unmatched: Option<bool>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListSpawns {
    const COMMAND: (&'static str, &'static str) = ("spawn", "list");
    const COLUMNS: &'static [&'static str] =
        &["tool_use_id", "description", "role", "subagent_type", "agent_id", "evidence", "tentative", "session_id"];
    type Output = ListPage<SpawnRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let session = read.resolve_optional(self.session.as_ref())?;
        let mut filter = Filter::default().require_if_some("s.session_id = ?", session.as_ref());
        if let Some(tagged) = self.tagged {
            let is = if tagged { "=" } else { "<>" };
            filter = filter.require(&format!("coalesce(s.role_source, '') {is} 'prompt_tag'"));
        }
        if let Some(unmatched) = self.unmatched {
            let is = if unmatched { "is null" } else { "is not null" };
            filter = filter.require(&format!("s.matched_agent_id {is}"));
        }
        self.page
            .read(read, SpawnRow::select(), "s", filter, Order::OldestFirst, |shown: &SpawnRow| shown.spawn.id.uuid())
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}

/// Show a tool call that started a subagent, with the evidence for each match
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowSpawn {
    /// The id of the tool call, or the last characters of the spawn's id
    pub tool_use_id: String,
    /// The session of the call, if several sessions have a call with this id
    #[arg(long)]
    pub session: Option<Ref<kind::Session>>,
}

/// A spawn with all matches, including withdrawn ones.
#[derive(Debug, PartialEq, Serialize)]
pub struct SpawnDetails {
    #[serde(flatten)]
    pub spawn: SpawnRow,
    pub matches: Vec<SpawnMatch>,
}

impl View for ShowSpawn {
    const COMMAND: (&'static str, &'static str) = ("spawn", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = SpawnDetails;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<SpawnDetails> {
        let session = read.resolve_optional(self.session.as_ref())?;
        let named = read.display_rows::<SpawnRow>(
            "where s.tenant_id = ?1 and s.tool_use_id = ?2 order by s.id desc limit 100",
            params![self.tool_use_id],
        )?;
        let found = named.into_iter().find(|shown| session.is_none_or(|session| shown.spawn.session_id == session));
        let spawn = match found {
            Some(spawn) => spawn,
            None => {
                let id = read.resolve(&Ref::<kind::Spawn>::new(&self.tool_use_id))?;
                read.display_row_by_id("s", id)?
            }
        };
        let matches = read.rows(
            "where tenant_id = ?1 and spawn_id = ?2 order by created_at, agent_id, evidence",
            params![spawn.spawn.id],
        )?;
        Ok(SpawnDetails { spawn, matches })
    }
}
