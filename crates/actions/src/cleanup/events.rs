//! Removing old entries of the event log, in parts: each is a transaction of its own, so that no writer waits long.

use serde::{Deserialize, Serialize};
use serde_json::json;
use trackway_domain::{Time, kind};
use trackway_store::{Writer, params};

use super::refuse_to_come;
use crate::{
    action::{Action, Done, Resource},
    context::Context,
    error::Result,
    touched::Nothing,
};

/// Entries of the log that are looked at together.
const EVENTS_TOGETHER: i64 = 10_000;
/// Remove entries of the event log that are older than a time
///
/// Everything they tell of stays as it is: `why` and `made` do not ask the log. The log itself begins later.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupEvents {
    /// What was logged before this day or time is removed, as in 2026-01-31
    #[arg(long, value_name = "TIME")]
    pub before: Time,
    /// Where the next part begins.
    #[arg(skip)]
    #[serde(skip)]
    after: i64,
}

/// What was removed of the log.
#[derive(Debug, Serialize)]
pub struct RemovedEvents {
    pub removed: i64,
    #[serde(skip)]
    next: Option<i64>,
}

impl Action for CleanupEvents {
    const NAME: &'static str = "cleanup_events";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "events");
    const REMOVES: bool = true;
    type Touched = Nothing;
    type Output = RemovedEvents;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        refuse_to_come(self.before, write.now)?;
        let part = write.one::<(Option<i64>, i64, i64)>(
            "select max(position), count(*), coalesce(sum(case when created_at < ?3 then 1 else 0 end), 0)
             from (select position, created_at from events where tenant_id = ?1 and position > ?2 order by position limit ?4) part",
            params![self.after, self.before, EVENTS_TOGETHER],
        )?;
        let Some((Some(last), looked_at, removed @ 1..)) = part else {
            return Ok(Done::unchanged(RemovedEvents { removed: 0, next: None }));
        };
        write.execute(
            "delete from events where tenant_id = ?1 and position > ?2 and position <= ?3 and created_at < ?4",
            params![self.after, last, self.before],
        )?;
        // Where none was old, none that comes after it is; a clock that was set back makes it a few more parts.
        let output = RemovedEvents { removed, next: (looked_at == EVENTS_TOGETHER).then_some(last) };
        let tenant = Resource::<kind::Tenant>::outside(context.tenant, "entries of the log");
        let detail = json!({ "removed": removed, "before": self.before });
        Ok(Done::changed(output, &tenant, Nothing).with_detail(detail))
    }

    fn rest(&self, said: &RemovedEvents) -> Option<Self> {
        said.next.map(|after| Self { before: self.before, after })
    }

    fn together(said: RemovedEvents, next: RemovedEvents) -> RemovedEvents {
        RemovedEvents { removed: said.removed + next.removed, ..next }
    }
}
