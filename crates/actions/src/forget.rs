//! Removing everything stored of a session.

use serde::{Deserialize, Serialize};
use serde_json::json;
use trackway_domain::{Id, Ref, kind};
use trackway_store::{
    Writer, params,
    tables::{Agent, ReportHead, Scratchpad, ScratchpadRevision, Session},
};

use crate::{
    action::{Action, Done},
    cleanup::{locked_session, session_resource},
    context::Context,
    error::Result,
    message::content,
    report,
    scratchpad::write_revision,
    touched::Nothing,
};

/// The runs and spawns of a session, in a statement about it.
const RUNS: &str = "(select id from runs where tenant_id = ?1 and session_id = ?2)";
const SPAWNS: &str = "(select id from task_spawns where tenant_id = ?1 and session_id = ?2)";

/// Remove everything stored of a session: its messages, runs, spawns, usage and touches
///
/// Its transcript stays where the client keeps it: the next `ingest` reads it again unless it is excluded or gone.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// The session
    pub session: Ref<kind::Session>,
}

/// What was removed of a session, and where its transcript is.
#[derive(Debug, Serialize)]
pub struct Forgotten {
    pub session_id: String,
    pub runs: i64,
    pub messages: i64,
    pub spawns: i64,
    pub touches: i64,
    pub transcript_path: Option<String>,
    pub notices: Vec<String>,
}

/// Commits that nothing else tells of.
const COMMITS: &str = "(select m.id from commits m where m.tenant_id = ?1 and ?2 is not null
    and not exists (select 1 from run_resources r where r.tenant_id = ?1 and r.resource_id = m.id))";

/// Files that nothing else tells of.
const FILES: &str = "(select f.id from files f where f.tenant_id = ?1 and ?2 is not null
    and not exists (select 1 from file_changes c where c.tenant_id = ?1 and c.file_id = f.id)
    and not exists (select 1 from commit_files c where c.tenant_id = ?1 and c.file_id = f.id)
    and not exists (select 1 from run_resources r where r.tenant_id = ?1 and r.resource_id = f.id))";

impl Action for Forget {
    const NAME: &'static str = "forget_session";
    const COMMAND: (&'static str, &'static str) = ("", "forget");
    const REMOVES: bool = true;
    type Touched = Nothing;
    type Output = Forgotten;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let session = locked_session(write, &self.session)?;
        let scratchpads = forget_scratchpads(context, write, &session)?;
        let messages = forget_messages(write, &session)?;
        let mut delete = |from: &str| -> Result<i64> {
            let removed = write.execute(&format!("delete from {from}"), params![session.id])?;
            Ok(i64::try_from(removed).unwrap_or(i64::MAX))
        };
        delete(&format!("spawn_matches where tenant_id = ?1 and spawn_id in {SPAWNS}"))?;
        delete(&format!("registry where tenant_id = ?1 and id in {SPAWNS}"))?;
        let spawns = delete("task_spawns where tenant_id = ?1 and session_id = ?2")?;
        delete("transcripts where tenant_id = ?1 and session_id = ?2")?;
        delete("file_changes where tenant_id = ?1 and session_id = ?2")?;
        delete(&format!(
            "registry where tenant_id = ?1 and id in (select id from reports where tenant_id = ?1 and run_id in {RUNS})"
        ))?;
        forget_reports(write, &session)?;
        let mut delete = |from: &str| -> Result<i64> {
            let removed = write.execute(&format!("delete from {from}"), params![session.id])?;
            Ok(i64::try_from(removed).unwrap_or(i64::MAX))
        };
        let touches = delete(&format!("run_resources where tenant_id = ?1 and run_id in {RUNS}"))?;
        for table in ["run_usage", "run_steps", "run_wakes", "tokens"] {
            delete(&format!("{table} where tenant_id = ?1 and run_id in {RUNS}"))?;
        }
        delete(
            "wake_contexts where tenant_id = ?1 and ?2 is not null and not exists (select 1 from run_wakes w where w.tenant_id = ?1 and w.digest = wake_contexts.digest)",
        )?;
        delete(&format!("registry where tenant_id = ?1 and id in {RUNS}"))?;
        write.execute(
            &format!("update runs set parent_run_id = null where tenant_id = ?1 and parent_run_id in {RUNS}"),
            params![session.id],
        )?;
        write.execute(
            &format!("update queue_items set run_id = null where tenant_id = ?1 and run_id in {RUNS}"),
            params![session.id],
        )?;
        write.execute(
            "update sessions set continues_id = null where tenant_id = ?1 and continues_id = ?2",
            params![session.id],
        )?;
        let mut delete = |from: &str| -> Result<i64> {
            let removed = write.execute(&format!("delete from {from}"), params![session.id])?;
            Ok(i64::try_from(removed).unwrap_or(i64::MAX))
        };
        let runs = delete("runs where tenant_id = ?1 and session_id = ?2")?;
        delete(&format!("commit_files where tenant_id = ?1 and commit_id in {COMMITS}"))?;
        delete(&format!("registry where tenant_id = ?1 and id in {COMMITS}"))?;
        delete(&format!("commits where tenant_id = ?1 and id in {COMMITS}"))?;
        delete(&format!("registry where tenant_id = ?1 and id in {FILES}"))?;
        delete(&format!("files where tenant_id = ?1 and id in {FILES}"))?;
        delete(
            "registry where tenant_id = ?1 and id in (select id from subagents where tenant_id = ?1 and session_id = ?2)",
        )?;
        delete("subagents where tenant_id = ?1 and session_id = ?2")?;
        delete("sessions where tenant_id = ?1 and id = ?2")?;
        delete("registry where tenant_id = ?1 and id = ?2")?;
        let still = session.transcript_path.as_ref().map(|path| {
            format!("its transcript is still at {path}: the next ingest reads it again unless it is gone or excluded")
        });
        let detail = json!({ "runs": runs, "messages": messages, "spawns": spawns, "touches": touches });
        let resource = session_resource(&session);
        let forgotten = Forgotten {
            session_id: session.session_id,
            runs,
            messages,
            spawns,
            touches,
            transcript_path: session.transcript_path,
            notices: scratchpads.into_iter().chain(still).collect(),
        };
        Ok(Done::changed(forgotten, &resource, Nothing).with_detail(detail))
    }
}

/// Removes what was said in a session, and what its runs sent; answers and work that came of it stay without it.
fn forget_messages(write: &mut Writer<'_>, session: &Session) -> Result<i64> {
    let said = format!("(select id from messages where tenant_id = ?1 and (session_id = ?2 or from_run_id in {RUNS}))");
    for (table, column) in [("messages", "in_reply_to"), ("queue_items", "message_id")] {
        write.execute(
            &format!("update {table} set {column} = null where tenant_id = ?1 and {column} in {said}"),
            params![session.id],
        )?;
    }
    write.execute(&format!("delete from registry where tenant_id = ?1 and id in {said}"), params![session.id])?;
    let removed =
        write.execute(&format!("delete from messages where tenant_id = ?1 and id in {said}"), params![session.id])?;
    content::sweep(write)?;
    Ok(i64::try_from(removed).unwrap_or(i64::MAX))
}

/// Removes what runs of a session noted for later runs. Where that stood in a scratchpad, what was there before is
/// written again. Says so: later runs may have copied from it.
fn forget_scratchpads(context: &Context, write: &mut Writer<'_>, session: &Session) -> Result<Vec<String>> {
    let noted = write.query::<(Id<kind::Agent>, String, i64)>(
        &format!(
            "select a.id, a.handle, max(r.revision) from scratchpad_revisions r join agents a on a.id = r.agent_id
             where r.tenant_id = ?1 and r.run_id in {RUNS} group by a.id, a.handle order by a.handle"
        ),
        params![session.id],
    )?;
    write.execute(
        &format!("delete from scratchpad_revisions where tenant_id = ?1 and run_id in {RUNS}"),
        params![session.id],
    )?;
    let mut notices = Vec::new();
    for (agent, handle, newest) in noted {
        write.row_locked::<Agent>("where tenant_id = ?1 and id = ?2", params![agent])?;
        let stands = write.row::<Scratchpad>("where tenant_id = ?1 and agent_id = ?2", params![agent])?;
        let left = write.row::<ScratchpadRevision>(
            "where tenant_id = ?1 and agent_id = ?2 order by revision desc limit 1",
            params![agent],
        )?;
        let went = match (stands.is_some_and(|stands| stands.revision == newest), left) {
            (false, _) => "what they noted is removed from its history; what later runs copied of it stays",
            (true, Some(left)) => {
                write_revision(context, write, agent, left.content, None)?;
                "it is again what it was before"
            }
            (true, None) => {
                write.execute("delete from scratchpads where tenant_id = ?1 and agent_id = ?2", params![agent])?;
                "it is empty again"
            }
        };
        notices.push(format!("the scratchpad of {handle} was written by runs of this session: {went}"));
    }
    Ok(notices)
}

/// Removes what runs of a session reported. Where one was the current report, the newest that is left takes its place.
fn forget_reports(write: &mut Writer<'_>, session: &Session) -> Result<()> {
    let said = format!("(select id from reports where tenant_id = ?1 and run_id in {RUNS})");
    let which = format!("tenant_id = ?1 and report_id in {said}");
    let heads = write.rows::<ReportHead>(&format!("where {which}"), params![session.id])?;
    write.execute(&format!("delete from report_heads where {which}"), params![session.id])?;
    write.execute(&format!("delete from reports where tenant_id = ?1 and run_id in {RUNS}"), params![session.id])?;
    report::step_back(write, heads)
}
