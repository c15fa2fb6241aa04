//! Removing all rows that were recorded from a session.

use serde::{Deserialize, Serialize};
use serde_json::json;
use trackway_domain::{Id, Ref, kind};
use trackway_store::{
    Writer, params,
    tables::{Agent, ReportHead, Scratchpad, ScratchpadRevision, Session},
};

use crate::{
    action::{Action, ActionOutcome},
    cleanup::{locked_session, session_resource},
    context::Context,
    error::Result,
    message::content,
    report,
    scratchpad::write_revision,
    touched::NoTouches,
};

/// SQL subqueries for the runs and the spawns of a session. The session's id is parameter 2.
const RUNS: &str = "(select id from runs where tenant_id = ?1 and session_id = ?2)";
const SPAWNS: &str = "(select id from task_spawns where tenant_id = ?1 and session_id = ?2)";

/// Remove all data of a session: messages, runs, spawns, usage and touches
///
/// The transcript file stays where the client stores it. The next `ingest` reads it again unless it is excluded or
/// deleted.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// Session to remove
    pub session: Ref<kind::Session>,
}

/// The number of removed rows, and the path of the transcript.
#[derive(Debug, Serialize)]
pub struct ForgetResult {
    pub session_id: String,
    pub runs: i64,
    pub messages: i64,
    pub spawns: i64,
    pub touches: i64,
    pub transcript_path: Option<String>,
    pub notices: Vec<String>,
}

/// SQL subquery for the commits that no remaining run touched.
const COMMITS: &str = "(select m.id from commits m where m.tenant_id = ?1 and ?2 is not null
    and not exists (select 1 from run_resources r where r.tenant_id = ?1 and r.resource_id = m.id))";

/// SQL subquery for the files without a remaining change, commit or touch.
const FILES: &str = "(select f.id from files f where f.tenant_id = ?1 and ?2 is not null
    and not exists (select 1 from file_changes c where c.tenant_id = ?1 and c.file_id = f.id)
    and not exists (select 1 from commit_files c where c.tenant_id = ?1 and c.file_id = f.id)
    and not exists (select 1 from run_resources r where r.tenant_id = ?1 and r.resource_id = f.id))";

impl Action for Forget {
    const NAME: &'static str = "forget_session";
    const COMMAND: (&'static str, &'static str) = ("", "forget");
    const IS_DESTRUCTIVE: bool = true;
    type Touched = NoTouches;
    type Output = ForgetResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let session = locked_session(write, &self.session)?;
        let scratchpad_notices = forget_scratchpads(context, write, &session)?;
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
        let transcript_notice = session.transcript_path.as_ref().map(|path| {
            format!(
                "the transcript is still at {path}; the next ingest reads it again unless it is deleted or excluded"
            )
        });
        let detail = json!({ "runs": runs, "messages": messages, "spawns": spawns, "touches": touches });
        let resource = session_resource(&session);
        let forgotten = ForgetResult {
            session_id: session.session_id,
            runs,
            messages,
            spawns,
            touches,
            transcript_path: session.transcript_path,
            notices: scratchpad_notices.into_iter().chain(transcript_notice).collect(),
        };
        Ok(ActionOutcome::changed(forgotten, &resource, NoTouches).with_detail(detail))
    }
}

/// Removes the messages of a session and those that its runs sent. Replies and queue items stay, but lose their
/// reference to the message.
fn forget_messages(write: &mut Writer<'_>, session: &Session) -> Result<i64> {
    let messages =
        format!("(select id from messages where tenant_id = ?1 and (session_id = ?2 or from_run_id in {RUNS}))");
    for (table, column) in [("messages", "in_reply_to"), ("queue_items", "message_id")] {
        write.execute(
            &format!("update {table} set {column} = null where tenant_id = ?1 and {column} in {messages}"),
            params![session.id],
        )?;
    }
    write.execute(&format!("delete from registry where tenant_id = ?1 and id in {messages}"), params![session.id])?;
    let removed = write
        .execute(&format!("delete from messages where tenant_id = ?1 and id in {messages}"), params![session.id])?;
    content::remove_unused(write)?;
    Ok(i64::try_from(removed).unwrap_or(i64::MAX))
}

/// Removes the scratchpad revisions that runs of a session wrote. If one was the current content, the newest remaining
/// revision is written again. Returns a notice for each scratchpad, because later runs may have copied removed text.
fn forget_scratchpads(context: &Context, write: &mut Writer<'_>, session: &Session) -> Result<Vec<String>> {
    let written = write.query::<(Id<kind::Agent>, String, i64)>(
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
    for (agent, handle, newest) in written {
        write.row_locked::<Agent>("where tenant_id = ?1 and id = ?2", params![agent])?;
        let current = write.row::<Scratchpad>("where tenant_id = ?1 and agent_id = ?2", params![agent])?;
        let left = write.row::<ScratchpadRevision>(
            "where tenant_id = ?1 and agent_id = ?2 order by revision desc limit 1",
            params![agent],
        )?;
        let effect = match (current.is_some_and(|current| current.revision == newest), left) {
            (false, _) => "their revisions are removed; text that later runs copied stays",
            (true, Some(left)) => {
                write_revision(context, write, agent, left.content, None)?;
                "its previous content was restored"
            }
            (true, None) => {
                write.execute("delete from scratchpads where tenant_id = ?1 and agent_id = ?2", params![agent])?;
                "the scratchpad is now empty"
            }
        };
        notices.push(format!("the scratchpad of {handle} was written by runs of this session: {effect}"));
    }
    Ok(notices)
}

/// Removes the reports of a session's runs. If one was the current report, the newest remaining report becomes current.
fn forget_reports(write: &mut Writer<'_>, session: &Session) -> Result<()> {
    let reports = format!("(select id from reports where tenant_id = ?1 and run_id in {RUNS})");
    let which = format!("tenant_id = ?1 and report_id in {reports}");
    let heads = write.rows::<ReportHead>(&format!("where {which}"), params![session.id])?;
    write.execute(&format!("delete from report_heads where {which}"), params![session.id])?;
    write.execute(&format!("delete from reports where tenant_id = ?1 and run_id in {RUNS}"), params![session.id])?;
    report::restore_report_heads(write, heads)
}
