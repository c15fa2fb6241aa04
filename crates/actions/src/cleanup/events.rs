//! Removing old events. The cleanup runs in several transactions, so that it never blocks other writers for long.

use serde::{Deserialize, Serialize};
use serde_json::json;
use trackway_domain::{Time, kind};
use trackway_store::{Writer, params};

use super::refuse_future_time;
use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    error::Result,
    touched::NoTouches,
};

/// Number of events that one transaction examines.
const EVENTS_PER_TRANSACTION: i64 = 10_000;

/// Remove events that are older than a time
///
/// Only the event log becomes shorter. `why` and `made` do not use it, so they still find everything.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupEvents {
    /// Remove events before this day or time, such as 2026-01-31
    #[arg(long, value_name = "TIME")]
    pub before: Time,
    /// The position after which this part begins.
    #[arg(skip)]
    #[serde(skip)]
    after: i64,
}

#[derive(Debug, Serialize)]
pub struct EventCleanupResult {
    pub removed: i64,
    #[serde(skip)]
    next: Option<i64>,
}

impl Action for CleanupEvents {
    const NAME: &'static str = "cleanup_events";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "events");
    const IS_DESTRUCTIVE: bool = true;
    type Touched = NoTouches;
    type Output = EventCleanupResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        refuse_future_time(self.before, write.now)?;
        let part = write.one::<(Option<i64>, i64, i64)>(
            "select max(position), count(*), coalesce(sum(case when created_at < ?3 then 1 else 0 end), 0)
             from (select position, created_at from events where tenant_id = ?1 and position > ?2 order by position limit ?4) part",
            params![self.after, self.before, EVENTS_PER_TRANSACTION],
        )?;
        let Some((Some(last), looked_at, removed @ 1..)) = part else {
            return Ok(ActionOutcome::unchanged(EventCleanupResult { removed: 0, next: None }));
        };
        write.execute(
            "delete from events where tenant_id = ?1 and position > ?2 and position <= ?3 and created_at < ?4",
            params![self.after, last, self.before],
        )?;
        // Events are ordered by time, except after the clock was set back. So the cleanup ends at the first part
        // without old events.
        let output = EventCleanupResult { removed, next: (looked_at == EVENTS_PER_TRANSACTION).then_some(last) };
        let tenant = Resource::<kind::Tenant>::new(context.tenant, "entries of the log");
        let detail = json!({ "removed": removed, "before": self.before });
        Ok(ActionOutcome::changed(output, &tenant, NoTouches).with_detail(detail))
    }

    fn next_part(&self, output: &EventCleanupResult) -> Option<Self> {
        output.next.map(|after| Self { before: self.before, after })
    }

    fn merge_outputs(output: EventCleanupResult, next: EventCleanupResult) -> EventCleanupResult {
        EventCleanupResult { removed: output.removed + next.removed, ..next }
    }
}
