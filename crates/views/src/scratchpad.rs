//! Scratchpads as they stand, and as they stood.

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

/// Refuses an agent that asks for another agent's scratchpad without the capability. People read all of their tenant.
pub fn require_readable(read: &mut Reader<'_>, agent: Id<kind::Agent>) -> Result<()> {
    let Some(asking) = read.asking_agent().filter(|asking| *asking != agent) else {
        return Ok(());
    };
    let (handle, capabilities) = rights::capabilities(read, asking)?.unwrap_or_default();
    Ok(capability::check_agent(&handle, capabilities.as_deref(), READ_SCRATCHPADS)?)
}

/// The scratchpad of an agent, if it was ever written.
pub fn current(read: &mut Reader<'_>, agent: Id<kind::Agent>) -> Result<Option<Scratchpad>> {
    read.row("where tenant_id = ?1 and agent_id = ?2", params![agent])
}

/// The agent whose scratchpad is asked for, if the caller may read it.
fn readable(read: &mut Reader<'_>, agent: &Ref<kind::Agent>) -> Result<Id<kind::Agent>> {
    let agent = read.resolve_even_deleted(agent)?;
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

/// A scratchpad; one that was never written is empty, at revision 0.
#[derive(Debug, PartialEq, Serialize)]
pub struct ScratchpadShown {
    pub content: String,
    pub revision: i64,
    pub updated_at: Option<Time>,
}

impl View for GetScratchpad {
    const COMMAND: (&'static str, &'static str) = ("scratchpad", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = ScratchpadShown;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<ScratchpadShown> {
        let agent = readable(read, &self.agent)?;
        let present = current(read, agent)?;
        Ok(present.map_or_else(
            || ScratchpadShown { content: String::new(), revision: 0, updated_at: None },
            |pad| ScratchpadShown { content: pad.content, revision: pad.revision, updated_at: Some(pad.updated_at) },
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
    /// A revision.
    pub struct RevisionShown {
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
    type Output = Vec<RevisionShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let agent = readable(read, &self.agent)?;
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
    /// The older revision (the one before the newer)
    #[arg(long, value_name = "NUMBER")]
    pub from: Option<i64>,
    /// The newer revision (the present one)
    #[arg(long, value_name = "NUMBER")]
    pub to: Option<i64>,
}

/// The difference, as `diff -u` shows it.
#[derive(Debug, PartialEq, Serialize)]
pub struct Difference {
    pub from: i64,
    pub to: i64,
    pub diff: String,
}

impl View for ScratchpadDiff {
    const COMMAND: (&'static str, &'static str) = ("scratchpad", "diff");
    type Output = Difference;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Difference> {
        let agent = readable(read, &self.agent)?;
        let present = read.count(
            "select coalesce(max(revision), 0) from scratchpad_revisions where tenant_id = ?1 and agent_id = ?2",
            params![agent],
        )?;
        let to = self.to.unwrap_or(present);
        // What was forgotten leaves gaps.
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
                    .hint(format!("it is at revision {present}"))
                    .into()
            })
        };
        let (old, new) = (content(from)?, content(to)?);
        let diff = TextDiff::from_lines(&old, &new);
        let diff = diff.unified_diff().header(&format!("revision {from}"), &format!("revision {to}")).to_string();
        Ok(Difference { from, to, diff })
    }
}
