//! Taking away what is no longer wanted of sessions. Each says how much it removed, and the log keeps that.

use serde::{Deserialize, Serialize};
use serde_json::json;
use trackway_domain::{Error as Rule, Id, Ref, kind};
use trackway_store::{
    Writer, params,
    sql::Param,
    tables::{Agent, ReportHead, Scratchpad, ScratchpadRevision, Session},
};

use crate::{
    action::{Action, Done, Resource},
    context::Context,
    conversation::content,
    error::Result,
    report,
    scratchpad::write_revision,
    touched::Nothing,
};

/// The runs and spawns of a session, in a statement about it.
const RUNS: &str = "(select id from runs where tenant_id = ?1 and session_id = ?2)";
const SPAWNS: &str = "(select id from task_spawns where tenant_id = ?1 and session_id = ?2)";

/// What was removed.
#[derive(Debug, Serialize)]
pub struct Removed {
    pub removed: i64,
}

/// Remove spawns without an agent, but for the newest of a session
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupOldSpawns {
    /// The session
    #[arg(long)]
    pub session: Ref<kind::Session>,
    /// How many of its newest spawns stay, matched or not
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    #[serde(default = "keep")]
    #[schemars(range(min = 0))]
    pub keep: i64,
}

fn keep() -> i64 {
    100
}

impl Action for CleanupOldSpawns {
    const NAME: &'static str = "cleanup_old_spawns";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "old-spawns");
    type Touched = Nothing;
    type Output = Removed;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        if self.keep < 0 {
            return Err(Rule::usage("--keep is 0 or more").into());
        }
        let session = find(write, &self.session)?;
        let old = format!(
            "session_id = ?2 and matched_agent_id is null and id not in (select id from task_spawns where tenant_id = ?1 and session_id = ?2 order by id desc limit {})",
            self.keep
        );
        remove_spawns(write, &session, &old)
    }
}

/// Remove spawns that have no role and no agent
///
/// `ingest --full` restores those that stand in a transcript.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupNullRole {
    /// Only of this session
    #[arg(long)]
    pub session: Option<Ref<kind::Session>>,
    /// Remove spawns that have an agent, too
    #[arg(long)]
    #[serde(default)]
    pub matched: bool,
}

impl Action for CleanupNullRole {
    const NAME: &'static str = "cleanup_null_role";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "null-role");
    const REMOVES: bool = true;
    type Touched = Nothing;
    type Output = Removed;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let which = if self.matched { "role is null" } else { "role is null and matched_agent_id is null" };
        match &self.session {
            Some(session) => {
                let session = find(write, session)?;
                remove_spawns(write, &session, &format!("session_id = ?2 and {which}"))
            }
            None => {
                let tenant = Resource::<kind::Tenant>::outside(context.tenant, "spawns without a role");
                let removed = delete_spawns(write, which, &[])?;
                Ok(Done::changed(Removed { removed }, &tenant, Nothing).with_detail(json!({ "removed": removed })))
            }
        }
    }
}

/// Remove the live state of a session's subagents; their spawns and runs stay
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupSession {
    /// The session
    pub session: Ref<kind::Session>,
}

impl Action for CleanupSession {
    const NAME: &'static str = "cleanup_session";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "session");
    type Touched = Nothing;
    type Output = Removed;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let session = find(write, &self.session)?;
        let now = write.now;
        let removed = write.execute(
            "update subagents set cleared_at = ?3, stopped_at = coalesce(stopped_at, ?3) where tenant_id = ?1 and session_id = ?2 and cleared_at is null",
            params![session.id, now],
        )?;
        let removed = i64::try_from(removed).unwrap_or(i64::MAX);
        Ok(Done::changed(Removed { removed }, &resource(&session), Nothing).with_detail(json!({ "removed": removed })))
    }
}

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
        let session = find(write, &self.session)?;
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
        let resource = resource(&session);
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

fn find(write: &mut Writer<'_>, session: &Ref<kind::Session>) -> Result<Session> {
    let id = write.resolve(session)?;
    write
        .row_locked::<Session>("where tenant_id = ?1 and id = ?2", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no session {session:?}")).into())
}

fn resource(session: &Session) -> Resource<kind::Session> {
    Resource::outside(session.id, session.session_id.clone())
}

fn remove_spawns<A: Action<Touched = Nothing, Output = Removed>>(
    write: &mut Writer<'_>,
    session: &Session,
    which: &str,
) -> Result<Done<A>> {
    let removed = delete_spawns(write, which, params![session.id])?;
    Ok(Done::changed(Removed { removed }, &resource(session), Nothing).with_detail(json!({ "removed": removed })))
}

fn delete_spawns(write: &mut Writer<'_>, which: &str, params: &[Param<'_>]) -> Result<i64> {
    let chosen = format!("(select id from task_spawns where tenant_id = ?1 and {which})");
    // The run that a spawn started stays, without its cause.
    write.execute(
        &format!(
            "update runs set cause_kind = null, cause_id = null where tenant_id = ?1
             and session_id in (select session_id from task_spawns where tenant_id = ?1 and {which}) and cause_kind = 'spawn' and cause_id in {chosen}"
        ),
        params,
    )?;
    // A subagent without any spawn left has no place in the transcript of its parent.
    write.execute(
        &format!(
            "update subagents set task_match_index = null where tenant_id = ?1 and task_match_index is not null
             and exists (select 1 from task_spawns s where s.tenant_id = ?1 and s.session_id = subagents.session_id
                 and s.matched_agent_id = subagents.agent_id and s.id in {chosen})
             and not exists (select 1 from task_spawns s where s.tenant_id = ?1 and s.session_id = subagents.session_id
                 and s.matched_agent_id = subagents.agent_id and s.id not in {chosen})"
        ),
        params,
    )?;
    write.execute(&format!("delete from spawn_matches where tenant_id = ?1 and spawn_id in {chosen}"), params)?;
    write.execute(&format!("delete from registry where tenant_id = ?1 and id in {chosen}"), params)?;
    let removed = write.execute(&format!("delete from task_spawns where tenant_id = ?1 and id in {chosen}"), params)?;
    Ok(i64::try_from(removed).unwrap_or(i64::MAX))
}
