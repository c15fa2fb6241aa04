//! Scratchpads, their revisions, and differences between revisions.

use serde::{Deserialize, Serialize};
use similar::TextDiff;
use trackway_domain::{
    Error as Rule, Id, Ref, Time,
    capability::{self, READ_SCRATCHPADS},
    kind,
};
use trackway_store::{
    Reader, Result, params, row,
    tables::{Scratchpad, ScratchpadRevision},
};

use crate::{rights, view::View};

/// Checks that the caller may read an agent's scratchpad. An agent needs a capability to read the scratchpad of another
/// agent. People may read all scratchpads of their tenant.
pub fn require_readable(read: &mut Reader<'_>, agent: Id<kind::Agent>) -> Result<()> {
    let Some(caller) = read.calling_agent().filter(|caller| *caller != agent) else {
        return Ok(());
    };
    let (handle, capabilities) = rights::agent_capabilities(read, caller)?.unwrap_or_default();
    Ok(capability::check_agent(&handle, capabilities.as_deref(), READ_SCRATCHPADS)?)
}

/// The scratchpad of an agent. `None` if nobody has written it yet.
pub fn find_scratchpad(read: &mut Reader<'_>, agent: Id<kind::Agent>) -> Result<Option<Scratchpad>> {
    read.row("where tenant_id = ?1 and agent_id = ?2", params![agent])
}

/// Resolves an agent and checks that the caller may read its scratchpad.
fn resolve_readable(read: &mut Reader<'_>, agent: &Ref<kind::Agent>) -> Result<Id<kind::Agent>> {
    let agent = read.resolve_including_deleted(agent)?;
    require_readable(read, agent)?;
    Ok(agent)
}

/// Show an agent's scratchpad
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetScratchpad {
    /// The agent
    #[arg(long)]
    pub agent: Ref<kind::Agent>,
}

/// A scratchpad. Before the first write the content is empty and the revision is 0.
#[derive(Debug, PartialEq, Serialize)]
pub struct ScratchpadRow {
    pub content: String,
    pub revision: i64,
    pub updated_at: Option<Time>,
}

impl View for GetScratchpad {
    const COMMAND: (&'static str, &'static str) = ("scratchpad", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = ScratchpadRow;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<ScratchpadRow> {
        let agent = resolve_readable(read, &self.agent)?;
        let scratchpad = find_scratchpad(read, agent)?;
        Ok(scratchpad.map_or_else(
            || ScratchpadRow { content: String::new(), revision: 0, updated_at: None },
            |row| ScratchpadRow { content: row.content, revision: row.revision, updated_at: Some(row.updated_at) },
        ))
    }
}

/// List the revisions of an agent's scratchpad, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ScratchpadHistory {
    /// The agent
    #[arg(long)]
    pub agent: Ref<kind::Agent>,
}

row! {
    pub struct ScratchpadRevisionRow {
        revision: i64,
        run_id: Option<Id<kind::Run>>,
        by: Option<String>,
        created_at: Time,
        characters: i64,
    }
}

impl View for ScratchpadHistory {
    const COMMAND: (&'static str, &'static str) = ("scratchpad", "history");
    const COLUMNS: &'static [&'static str] = &["revision", "run_id", "by", "created_at", "characters"];
    type Output = Vec<ScratchpadRevisionRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let agent = resolve_readable(read, &self.agent)?;
        read.query(
            "select r.revision, r.run_id, g.display_path, r.created_at, length(r.content) from scratchpad_revisions r
             left join registry g on g.id = r.actor_id where r.tenant_id = ?1 and r.agent_id = ?2 order by r.revision desc",
            params![agent],
        )
    }
}

/// Compare two revisions of an agent's scratchpad
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ScratchpadDiff {
    /// The agent
    #[arg(long)]
    pub agent: Ref<kind::Agent>,
    /// Older revision [default: the revision before the newer one]
    #[arg(long, value_name = "NUMBER")]
    pub from: Option<i64>,
    /// Newer revision [default: the current revision]
    #[arg(long, value_name = "NUMBER")]
    pub to: Option<i64>,
}

/// The difference in the format of `diff -u`.
#[derive(Debug, PartialEq, Serialize)]
pub struct ScratchpadDifference {
    pub from: i64,
    pub to: i64,
    pub diff: String,
}

impl View for ScratchpadDiff {
    const COMMAND: (&'static str, &'static str) = ("scratchpad", "diff");
    type Output = ScratchpadDifference;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<ScratchpadDifference> {
        let agent = resolve_readable(read, &self.agent)?;
        let newest = read.count(
            "select coalesce(max(revision), 0) from scratchpad_revisions where tenant_id = ?1 and agent_id = ?2",
            params![agent],
        )?;
        let to = self.to.unwrap_or(newest);
        // `forget` removes revisions, so the previous one need not have the previous number.
        let before = read.count(
            "select coalesce(max(revision), 0) from scratchpad_revisions where tenant_id = ?1 and agent_id = ?2 and revision < ?3",
            params![agent, to],
        )?;
        let from = self.from.unwrap_or(before);
        let mut content = |revision: i64| -> Result<String> {
            if revision == 0 {
                return Ok(String::new());
            }
            let found = read.row::<ScratchpadRevision>(
                "where tenant_id = ?1 and agent_id = ?2 and revision = ?3",
                params![agent, revision],
            )?;
            found.map(|found| found.content).ok_or_else(|| {
                Rule::not_found(format!("the scratchpad has no revision {revision}"))
                    .hint(format!("the scratchpad is at revision {newest}"))
                    .into()
            })
        };
        let (old, new) = (content(from)?, content(to)?);
        let diff = TextDiff::from_lines(&old, &new);
        let diff = diff.unified_diff().header(&format!("revision {from}"), &format!("revision {to}")).to_string();
        Ok(ScratchpadDifference { from, to, diff })
    }
}
