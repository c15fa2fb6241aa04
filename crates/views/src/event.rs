//! The event log.

use serde::Deserialize;
use trackway_domain::{
    Id, Ref, Time,
    enums::ActorKind,
    field,
    kind::{self, Kind},
    queue::check_range,
};
use trackway_store::{Reader, Result, params, row};
use uuid::Uuid;

use crate::{page::LIMIT_MAX, view::View};

/// List the events of the log, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListEvents {
    /// Only events of this run
    #[arg(long)]
    pub run: Option<Ref<kind::Run>>,
    /// Maximum number of events
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: i64,
    /// Only events before this position in the log
    #[arg(long, value_name = "POSITION")]
    pub before: Option<i64>,
}

fn default_limit() -> i64 {
    50
}

row! {
    /// An event of the log: one action on one subject.
    pub struct EventRow {
        position: i64,
        created_at: Time,
        actor_kind: ActorKind,
        actor: Option<String>,
        actor_id: Uuid,
        run_id: Option<Id<kind::Run>>,
        request_id: Uuid,
        action: String,
        subject_kind: Kind,
        subject_id: Uuid,
        subject: String,
        detail: Option<serde_json::Value>,
    }
}

impl View for ListEvents {
    const COMMAND: (&'static str, &'static str) = ("event", "list");
    const COLUMNS: &'static [&'static str] =
        &["position", "created_at", "actor", "run_id", "action", "subject_kind", "subject"];
    type Output = Vec<EventRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        check_range(field!(limit), self.limit, 1, LIMIT_MAX)?;
        let before = self.before.unwrap_or(i64::MAX);
        let select = "select e.position, e.created_at, e.actor_kind, a.display_path, e.actor_id, e.run_id, e.request_id, e.action, e.subject_kind, e.subject_id, e.subject_path, e.detail
             from events e left join registry a on a.id = e.actor_id where e.tenant_id = ?1 and e.position < ?2";
        match read.resolve_optional(self.run.as_ref())? {
            None => read.query(&format!("{select} order by e.position desc limit ?3"), params![before, self.limit]),
            Some(run) => read.query(
                &format!("{select} and e.run_id = ?3 order by e.position desc limit ?4"),
                params![before, run, self.limit],
            ),
        }
    }
}

row! {
    /// An event with the task, agent, session and queue item of its run.
    pub struct EventWithRun {
        position: i64,
        action: String,
        subject_kind: Kind,
        subject_id: Uuid,
        created_at: Time,
        run_id: Option<Uuid>,
        parent_run_id: Option<Uuid>,
        task_id: Option<Uuid>,
        agent_id: Option<Uuid>,
        session_id: Option<Uuid>,
        queue_item_id: Option<Uuid>,
    }
}

/// A cheap fingerprint of the newest events: the highest position and the sum of the newest positions. It changes when
/// one of the newest events is added or removed.
pub fn log_fingerprint(read: &mut Reader<'_>, newest: i64) -> Result<Option<(Option<i64>, Option<i64>)>> {
    read.one(
        "select max(position), cast(sum(position) as bigint) from (select position from events where tenant_id = ?1 order by position desc limit ?2) e",
        params![newest],
    )
}

/// The newest events after a position, oldest first.
pub fn newest_events(read: &mut Reader<'_>, limit: i64, after: i64) -> Result<Vec<EventWithRun>> {
    read.query(
        "select e.position, e.action, e.subject_kind, e.subject_id, e.created_at, e.run_id, u.parent_run_id, u.task_id, u.agent_id, u.session_id, u.queue_item_id
         from (select * from events where tenant_id = ?1 and position > ?3 order by position desc limit ?2) e
         left join runs u on u.id = case when e.subject_kind = 'run' then e.subject_id else e.run_id end
         order by e.position",
        params![limit, after],
    )
}
