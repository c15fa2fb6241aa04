//! Taking away what is old: entries of the log, and messages that nothing leads to. In parts, each a transaction of its own,
//! so that nobody waits long for the database. Each says how much it removed, and the log keeps that.

use serde::{Deserialize, Serialize};
use serde_json::json;
use trackway_domain::{Error as Rule, Time, kind};
use trackway_store::{
    Writer, params,
    sql::{Param, ToParam, places},
};
use uuid::Uuid;

use crate::{
    action::{Action, Done, Resource},
    context::Context,
    conversation::content,
    error::Result,
    touched::Nothing,
};

/// Entries of the log that are looked at together.
const EVENTS_TOGETHER: i64 = 10_000;
/// Messages that are looked at together.
const MESSAGES_TOGETHER: i64 = 500;

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

/// Remove messages that are older than a time and that nothing leads to, with their bodies
///
/// One stays that began a run, that a queue item was made for, or that was answered by one that stays. What a run sent stays
/// in the list of what it made. Transcripts stay where Claude Code keeps them. A dry run does not count messages whose answers
/// would go first.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupMessages {
    /// What was said before this day or time is removed, as in 2026-01-31
    #[arg(long, value_name = "TIME")]
    pub before: Time,
    /// Where the next part ends: answers come after what they answer, and go first.
    #[arg(skip)]
    #[serde(skip)]
    until: Option<Uuid>,
}

/// What was removed of what was said.
#[derive(Debug, Serialize)]
pub struct RemovedMessages {
    pub removed: i64,
    pub bodies: i64,
    pub characters: i64,
    #[serde(skip)]
    next: Option<Uuid>,
}

/// A message that nothing leads to.
const UNUSED: &str = "m.tenant_id = ?1 and m.created_at < ?2
    and not exists (select 1 from queue_items q where q.tenant_id = ?1 and q.message_id = m.id)
    and not exists (select 1 from messages a where a.tenant_id = ?1 and a.in_reply_to = m.id)
    and not exists (select 1 from runs r where r.tenant_id = ?1 and r.session_id = m.session_id and r.cause_id = m.id)";

impl Action for CleanupMessages {
    const NAME: &'static str = "cleanup_messages";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "messages");
    const REMOVES: bool = true;
    type Touched = Nothing;
    type Output = RemovedMessages;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        refuse_to_come(self.before, write.now)?;
        // Held, so that nobody answers one while it goes.
        let lock = write.for_update();
        let part = write.query::<(Uuid,)>(
            &format!("select id from messages where tenant_id = ?1 and id < ?2 order by id desc limit ?3{lock}"),
            params![self.until.unwrap_or_else(|| first_id_after(self.before)), MESSAGES_TOGETHER],
        )?;
        let part: Vec<Uuid> = part.into_iter().map(|(id,)| id).collect();
        let is_full = i64::try_from(part.len()) == Ok(MESSAGES_TOGETHER);
        let mut output =
            RemovedMessages { removed: 0, bodies: 0, characters: 0, next: part.last().copied().filter(|_| is_full) };
        let mut bodies = Vec::new();
        loop {
            let unused = unused(write, self.before, &part)?;
            if unused.is_empty() {
                break;
            }
            output.removed += i64::try_from(unused.len()).unwrap_or(i64::MAX);
            bodies.extend(unused.iter().map(|(_, content)| *content));
            remove(write, &unused.into_iter().map(|(id, _)| id).collect::<Vec<_>>())?;
        }
        if output.removed == 0 {
            return Ok(Done::unchanged(output));
        }
        let swept = content::sweep_these(write, &bodies)?;
        (output.bodies, output.characters) = (swept.bodies, swept.characters);
        let tenant = Resource::<kind::Tenant>::outside(context.tenant, "messages");
        let detail = json!({ "removed": output.removed, "bodies": output.bodies, "before": self.before });
        Ok(Done::changed(output, &tenant, Nothing).with_detail(detail))
    }

    fn rest(&self, said: &RemovedMessages) -> Option<Self> {
        said.next.map(|until| Self { before: self.before, until: Some(until) })
    }

    fn together(said: RemovedMessages, next: RemovedMessages) -> RemovedMessages {
        RemovedMessages {
            removed: said.removed + next.removed,
            bodies: said.bodies + next.bodies,
            characters: said.characters + next.characters,
            next: next.next,
        }
    }
}

/// The messages among these that nothing leads to now, with their bodies.
fn unused(write: &mut Writer<'_>, before: Time, among: &[Uuid]) -> Result<Vec<(Uuid, Uuid)>> {
    if among.is_empty() {
        return Ok(Vec::new());
    }
    let mut values = vec![before.to_param()];
    values.extend(among.iter().copied().map(Param::Uuid));
    let listed = places(3, among.len());
    Ok(write
        .query(&format!("select m.id, m.content_id from messages m where {UNUSED} and m.id in ({listed})"), &values)?)
}

/// Removes messages. What a run sent keeps its place in the registry, which its touch leads to.
fn remove(write: &mut Writer<'_>, messages: &[Uuid]) -> Result<()> {
    let values: Vec<Param<'_>> = messages.iter().copied().map(Param::Uuid).collect();
    let which = format!("in ({})", places(2, messages.len()));
    let touched = "exists (select 1 from run_resources r where r.tenant_id = ?1 and r.resource_id = registry.id)";
    write.execute(&format!("delete from registry where tenant_id = ?1 and id {which} and not {touched}"), &values)?;
    write.execute(&format!("delete from messages where tenant_id = ?1 and id {which}"), &values)?;
    let now = write.now;
    let mut dated = values;
    dated.push(now.to_param());
    let last = dated.len() + 1;
    write.execute(&format!("update registry set deleted_at = ?{last} where tenant_id = ?1 and id {which}"), &dated)?;
    Ok(())
}

/// Ids grow with time: all that were given before a time are smaller than this one.
fn first_id_after(time: Time) -> Uuid {
    let milliseconds = u128::try_from(time.micros() / 1_000 + 1).unwrap_or_default();
    Uuid::from_u128(milliseconds << 80)
}

/// What is yet to come would include the entry about this.
fn refuse_to_come(before: Time, now: Time) -> Result<()> {
    if before > now {
        return Err(Rule::conflict(format!("{before} is yet to come")).into());
    }
    Ok(())
}
