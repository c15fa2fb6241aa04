//! What becomes of an item that was held: done, tried again later, given back, or given up.

use serde_json::Value;
use trackway_domain::{
    Time, kind,
    queue::back_off_micros,
    text,
    words::{ItemStatus, TaskStatus},
};
use trackway_store::{
    Writer, params,
    tables::{QueueItem, Run, Task},
};

use super::{check_held, is_claim};
use crate::{catalog::task::release_blocked, error::Result};

/// How a taker let go of an item.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    Completed { result: Option<Value> },
    Failed { error: String, again: Again },
    Released,
    Cancelled { why: Option<String> },
}

/// Whether what failed is worth another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    WhileAttemptsAreLeft,
    /// The agent itself said error: never, unless its task wants another attempt all the same.
    IfTaskRetries,
    /// However many are left, but not before this.
    NotBefore(Time),
    Never,
}

/// Writes how a held item ended, and what that means for its task.
pub(crate) fn settle(write: &mut Writer<'_>, item: &QueueItem, ending: &Ending) -> Result<QueueItem> {
    let mut item = item.clone();
    let taken = item.status == ItemStatus::Running;
    item.slot = None;
    item.lease_expires = None;
    let mut blocks = false;
    match ending {
        Ending::Completed { result } => {
            item.status = ItemStatus::Completed;
            item.result.clone_from(result);
            item.error = None;
        }
        Ending::Failed { error, again } => {
            item.error = Some(text::cut(error, text::TEXT_MAX - 1));
            // One that may not be tried now was not tried: it costs no attempt.
            let counts = !matches!(again, Again::NotBefore(_));
            // An explicit error is an answer: another attempt would only repeat it.
            blocks = *again == Again::IfTaskRetries && !task_retries_on_error(write, &item)?;
            let is_last = blocks || *again == Again::Never || (counts && item.attempt >= item.max_attempts);
            if !is_last && task_is_there(write, &item)? {
                let wait = back_off_micros(item.attempt, jitter());
                let soonest = Time::from_micros(write.now.micros() + wait);
                item.status = ItemStatus::Waiting;
                item.not_before = Some(match again {
                    Again::NotBefore(time) => soonest.max(*time),
                    Again::WhileAttemptsAreLeft | Again::IfTaskRetries | Again::Never => soonest,
                });
                item.attempt += i64::from(counts);
                // Whoever waits is to know until when.
                write.ring();
            } else {
                item.status = ItemStatus::Failed;
            }
        }
        // A claim that is given back leaves the task to whoever claims it next.
        Ending::Released if is_claim(&item) => {
            item.status = ItemStatus::Cancelled;
            item.error = Some("released".to_owned());
        }
        Ending::Released => {
            item.status = ItemStatus::Ready;
            write.ring();
        }
        Ending::Cancelled { why } => {
            item.status = ItemStatus::Cancelled;
            // Why it was asked for stays as it was said.
            item.error = why.clone().or(item.error);
        }
    }
    if item.status.is_finished() {
        item.finished_at = Some(write.now);
    } else {
        item.taken_by = None;
    }
    // An item in back-off holds its key: what comes after it stays after it.
    if item.status != ItemStatus::Waiting && item.held_key.take().is_some() {
        write.ring();
    }
    write.update(&item)?;
    if taken {
        move_task(write, &item, blocks)?;
    }
    Ok(item)
}

/// Whether there is still something to try again.
pub(super) fn task_is_there(write: &mut Writer<'_>, item: &QueueItem) -> Result<bool> {
    let there = write.count(
        "select count(*) from tasks where tenant_id = ?1 and id = ?2 and deleted_at is null",
        params![item.task_id],
    )?;
    Ok(there > 0)
}

fn task_retries_on_error(write: &mut Writer<'_>, item: &QueueItem) -> Result<bool> {
    let found = write
        .one::<(bool,)>("select retry_on_error from tasks where tenant_id = ?1 and id = ?2", params![item.task_id])?;
    Ok(found.is_some_and(|(retries,)| retries))
}

/// A task that is done once is in progress while its item is held, then done or open again; blocked by an error that the
/// agent gave, so that nobody claims it again before somebody has looked at it.
fn move_task(write: &mut Writer<'_>, item: &QueueItem, blocks: bool) -> Result<()> {
    let is_done = item.status == ItemStatus::Completed;
    let moves = |task: &Task| match task.status {
        TaskStatus::InProgress => true,
        // The error that blocked it did not come again.
        TaskStatus::Blocked => is_done && task.status_reason.is_some(),
        // Somebody opened it again meanwhile, and now it is done.
        TaskStatus::Open | TaskStatus::Groomed => is_done,
        _ => false,
    };
    let once = "where tenant_id = ?1 and id = ?2 and not recurring and deleted_at is null";
    if !write.row::<Task>(once, params![item.task_id])?.is_some_and(|task| moves(&task)) {
        return Ok(());
    }
    // Others count what blocks what while this is held.
    write.lock_catalog()?;
    let Some(before) = write.row_locked::<Task>(once, params![item.task_id])?.filter(moves) else {
        return Ok(());
    };
    let others = write.count(
        "select count(*) from queue_items where tenant_id = ?1 and task_id = ?2 and finished_at is null and status = 'running' and id <> ?3",
        params![item.task_id, item.id],
    )?;
    if others > 0 && !is_done {
        // Somebody else is still at it.
        return Ok(());
    }
    let mut after = before.clone();
    after.status = match (is_done, blocks) {
        (true, _) => TaskStatus::Done,
        (false, true) => TaskStatus::Blocked,
        (false, false) => TaskStatus::Open,
    };
    after.status_reason = if blocks { item.error.clone() } else { None };
    after.status_since = write.now;
    write.update(&after)?;
    release_blocked(write, &before, &after)
}

/// Refuses what is said of a run whose lease is over: its item goes back to the queue, and the run ends as timed out.
pub(crate) fn require_lease(write: &mut Writer<'_>, run: &Run) -> Result<()> {
    held_by(write, run)?.map_or(Ok(()), |held| check_held(&held, held.fence, write))
}

/// Ends the item of a run that ended by itself.
pub(crate) fn settle_with_run(write: &mut Writer<'_>, run: &Run, ending: &Ending) -> Result<()> {
    if run.queue_item_id.is_none() {
        return Ok(());
    }
    if let Some(held) = held_by(write, run)? {
        settle(write, &held, ending)?;
    }
    // Its worker is to hear of it.
    write.ring();
    Ok(())
}

/// The item that a run still holds, locked.
fn held_by(write: &mut Writer<'_>, run: &Run) -> Result<Option<QueueItem>> {
    let (Some(item), Some(fence)) = (run.queue_item_id, run.fence) else {
        return Ok(None);
    };
    Ok(write
        .row_locked("where tenant_id = ?1 and id = ?2 and fence = ?3 and status = 'running'", params![item, fence])?)
}

/// A share between 0 and 1.
fn jitter() -> f64 {
    let mut byte = [0; 1];
    // Without randomness everyone waits equally long, which is no reason to fail.
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}

/// A task that an agent's error blocks is open again once its item is to be tried again.
pub(super) fn unblock_task(write: &mut Writer<'_>, item: &QueueItem) -> Result<()> {
    let now = write.now;
    write.post(
        "update tasks set status = 'open', status_since = ?3, status_reason = null
         where tenant_id = ?1 and id = ?2 and status = 'blocked' and status_reason is not null and deleted_at is null",
        params![item.task_id, now],
    )?;
    Ok(())
}

/// A task begins to be worked on.
pub(super) fn start_task(write: &mut Writer<'_>, task: trackway_domain::Id<kind::Task>) -> Result<()> {
    let now = write.now;
    write.post(
        "update tasks set status = 'in_progress', status_since = ?3 where tenant_id = ?1 and id = ?2 and not recurring and status in ('open', 'groomed')",
        params![task, now],
    )?;
    Ok(())
}
