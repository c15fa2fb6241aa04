//! Calls that started agents.

use serde::{Deserialize, Serialize};
use trackway_domain::{Ref, Time, kind};
use trackway_store::{Reader, Result, display::SpawnShown, params, table::Shown, tables::SpawnMatch};

use crate::{
    page::{Filter, Listed, Order, Page},
    view::View,
};

/// List the calls that started agents
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListSpawns {
    /// Only of this session
    #[arg(long)]
    pub session: Option<Ref<kind::Session>>,
    /// Only those whose prompt has a role tag
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub tagged: Option<bool>,
    /// Only those without an agent
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
    type Output = Listed<SpawnShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let session = read.resolve_optional(self.session.as_ref())?;
        let mut filter = Filter::default().and("s.session_id = ?", session.as_ref());
        if let Some(tagged) = self.tagged {
            let is = if tagged { "=" } else { "<>" };
            filter = filter.always(&format!("coalesce(s.role_source, '') {is} 'prompt_tag'"));
        }
        if let Some(unmatched) = self.unmatched {
            let is = if unmatched { "is null" } else { "is not null" };
            filter = filter.always(&format!("s.matched_agent_id {is}"));
        }
        self.page.read(read, SpawnShown::select(), "s", filter, Order::OldestFirst, |shown: &SpawnShown| {
            shown.spawn.id.uuid()
        })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

/// Show a call that started an agent, with all evidence for which one
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowSpawn {
    /// The id of the call, or the end of the spawn's id
    pub tool_use_id: String,
    /// The session it is in, where several have such a call
    #[arg(long)]
    pub session: Option<Ref<kind::Session>>,
}

/// A spawn in full.
#[derive(Debug, PartialEq, Serialize)]
pub struct SpawnInFull {
    #[serde(flatten)]
    pub spawn: SpawnShown,
    pub matches: Vec<SpawnMatch>,
}

impl View for ShowSpawn {
    const COMMAND: (&'static str, &'static str) = ("spawn", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = SpawnInFull;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<SpawnInFull> {
        let session = read.resolve_optional(self.session.as_ref())?;
        let named = read.shown::<SpawnShown>(
            "where s.tenant_id = ?1 and s.tool_use_id = ?2 order by s.id desc limit 100",
            params![self.tool_use_id],
        )?;
        let found = named.into_iter().find(|shown| session.is_none_or(|session| shown.spawn.session_id == session));
        let spawn = match found {
            Some(spawn) => spawn,
            None => {
                let id = read.resolve(&Ref::<kind::Spawn>::new(&self.tool_use_id))?;
                read.shown_by_id("s", id)?
            }
        };
        let matches = read.rows(
            "where tenant_id = ?1 and spawn_id = ?2 order by created_at, agent_id, evidence",
            params![spawn.spawn.id],
        )?;
        Ok(SpawnInFull { spawn, matches })
    }
}
