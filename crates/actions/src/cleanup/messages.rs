//! Removing old messages that nothing references. The cleanup runs in several transactions, so that it never blocks
//! other writers for long.

use serde::{Deserialize, Serialize};
use serde_json::json;
use trackway_domain::{Time, kind};
use trackway_store::{
    Writer, params,
    sql::{Param, ToParam, placeholders},
};
use uuid::Uuid;

use super::refuse_future_time;
use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    error::Result,
    message::content,
    touched::NoTouches,
};

/// Number of messages that one transaction examines.
const MESSAGES_PER_TRANSACTION: i64 = 500;

/// Remove old messages that nothing references, and their bodies
///
/// A message stays if it started a run, if a queue item was created for it, or if a message that stays replies to it.
/// `made` still lists the removed messages that a run sent. Transcript files are not touched. A dry run does not
/// count messages whose replies would have to be removed first.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupMessages {
    /// Remove messages before this day or time, such as 2026-01-31
    #[arg(long, value_name = "TIME")]
    pub before: Time,
    /// The id before which this part ends. The cleanup goes backwards, because replies have to be removed before the
    /// messages that they reply to.
    #[arg(skip)]
    #[serde(skip)]
    until: Option<Uuid>,
}

#[derive(Debug, Serialize)]
pub struct MessageCleanupResult {
    pub removed: i64,
    pub bodies: i64,
    pub characters: i64,
    #[serde(skip)]
    next: Option<Uuid>,
}

/// SQL condition for an old message that nothing references.
const UNUSED: &str = "m.tenant_id = ?1 and m.created_at < ?2
    and not exists (select 1 from queue_items q where q.tenant_id = ?1 and q.message_id = m.id)
    and not exists (select 1 from messages a where a.tenant_id = ?1 and a.in_reply_to = m.id)
    and not exists (select 1 from runs r where r.tenant_id = ?1 and r.session_id = m.session_id and r.cause_id = m.id)";

impl Action for CleanupMessages {
    const NAME: &'static str = "cleanup_messages";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "messages");
    const IS_DESTRUCTIVE: bool = true;
    type Touched = NoTouches;
    type Output = MessageCleanupResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        refuse_future_time(self.before, write.now)?;
        // The lock stops concurrent transactions from replying to a message that is being removed.
        let lock = write.for_update();
        let part = write.query::<(Uuid,)>(
            &format!("select id from messages where tenant_id = ?1 and id < ?2 order by id desc limit ?3{lock}"),
            params![self.until.unwrap_or_else(|| first_id_after(self.before)), MESSAGES_PER_TRANSACTION],
        )?;
        let part: Vec<Uuid> = part.into_iter().map(|(id,)| id).collect();
        let is_full = i64::try_from(part.len()) == Ok(MESSAGES_PER_TRANSACTION);
        let mut output = MessageCleanupResult {
            removed: 0,
            bodies: 0,
            characters: 0,
            next: part.last().copied().filter(|_| is_full),
        };
        let mut bodies = Vec::new();
        loop {
            let unused = unused_messages(write, self.before, &part)?;
            if unused.is_empty() {
                break;
            }
            output.removed += i64::try_from(unused.len()).unwrap_or(i64::MAX);
            bodies.extend(unused.iter().map(|(_, content)| *content));
            remove(write, &unused.into_iter().map(|(id, _)| id).collect::<Vec<_>>())?;
        }
        if output.removed == 0 {
            return Ok(ActionOutcome::unchanged(output));
        }
        let swept = content::remove_unused_among(write, &bodies)?;
        (output.bodies, output.characters) = (swept.bodies, swept.characters);
        let tenant = Resource::<kind::Tenant>::new(context.tenant, "messages");
        let detail = json!({ "removed": output.removed, "bodies": output.bodies, "before": self.before });
        Ok(ActionOutcome::changed(output, &tenant, NoTouches).with_detail(detail))
    }

    fn next_part(&self, output: &MessageCleanupResult) -> Option<Self> {
        output.next.map(|until| Self { before: self.before, until: Some(until) })
    }

    fn merge_outputs(output: MessageCleanupResult, next: MessageCleanupResult) -> MessageCleanupResult {
        MessageCleanupResult {
            removed: output.removed + next.removed,
            bodies: output.bodies + next.bodies,
            characters: output.characters + next.characters,
            next: next.next,
        }
    }
}

/// The messages in `among` that nothing references now, with their content ids.
fn unused_messages(write: &mut Writer<'_>, before: Time, among: &[Uuid]) -> Result<Vec<(Uuid, Uuid)>> {
    if among.is_empty() {
        return Ok(Vec::new());
    }
    let mut values = vec![before.to_param()];
    values.extend(among.iter().copied().map(Param::Uuid));
    let listed = placeholders(3, among.len());
    Ok(write
        .query(&format!("select m.id, m.content_id from messages m where {UNUSED} and m.id in ({listed})"), &values)?)
}

/// Removes messages. The registry entry of a message that a run sent stays, because a touch references it.
fn remove(write: &mut Writer<'_>, messages: &[Uuid]) -> Result<()> {
    let values: Vec<Param<'_>> = messages.iter().copied().map(Param::Uuid).collect();
    let which = format!("in ({})", placeholders(2, messages.len()));
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

/// An id that is greater than all ids created before the time, because ids grow with time.
fn first_id_after(time: Time) -> Uuid {
    let milliseconds = u128::try_from(time.micros() / 1_000 + 1).unwrap_or_default();
    Uuid::from_u128(milliseconds << 80)
}
