//! Removing old messages that nothing refers to, in parts: each is a transaction of its own, so that no writer waits long.

use serde::{Deserialize, Serialize};
use serde_json::json;
use trackway_domain::{Time, kind};
use trackway_store::{
    Writer, params,
    sql::{Param, ToParam, places},
};
use uuid::Uuid;

use super::refuse_to_come;
use crate::{
    action::{Action, Done, Resource},
    context::Context,
    error::Result,
    message::content,
    touched::Nothing,
};

/// Messages that are looked at together.
const MESSAGES_TOGETHER: i64 = 500;

/// Remove messages that are older than a time and that nothing leads to, with their bodies
///
/// One stays that began a run, that a queue item was made for, or that was answered by one that stays. What a run sent stays
/// in the list of what it made. Transcripts stay where clients keep them. A dry run does not count messages whose answers
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
