//! What becomes of an item that was held: done, tried again later, given back, or given up.

use serde_json::Value;
use trackway_domain::{
    Id, Time, kind,
    queue::back_off_micros,
    text,
    words::{ItemStatus, TaskStatus},
};
use trackway_store::{
    Writer, params,
    queue::version_of,
    tables::{QueueItem, Run, Task},
};

use super::{check_held, is_claim};
use crate::{
    error::Result,
    task::{
        lineage::{names_no_live_version, no_live_version, with_block_reason, without_block_reason},
        set::release_blocked,
    },
};

/// How a taker let go of an item.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    Completed { result: Option<Value>, keep_open: bool },
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
        Ending::Completed { result, .. } => {
            item.status = ItemStatus::Completed;
            item.result.clone_from(result);
            item.error = None;
        }
        Ending::Failed { error, again } => {
            item.error = Some(text::cut(error, text::TEXT_MAX - 1));
            // One that may not be tried now was not tried: it costs no attempt.
            let counts = !matches!(again, Again::NotBefore(_));
            // An explicit error is an answer: another attempt would only repeat it.
            blocks = *again == Again::IfTaskRetries && !task_retries_on_error(write, item.run_task_id)?;
            let is_last = blocks || *again == Again::Never || (counts && item.attempt >= item.max_attempts);
            if is_last {
                item.status = ItemStatus::Failed;
            } else {
                let wait = back_off_micros(item.attempt, jitter());
                let soonest = Time::from_micros(write.now.micros() + wait);
                item.status = ItemStatus::Waiting;
                item.not_before = Some(match again {
                    Again::NotBefore(time) => soonest.max(*time),
                    Again::WhileAttemptsAreLeft | Again::IfTaskRetries | Again::Never => soonest,
                });
                item.attempt += i64::from(counts);
                block_without_version(write, &mut item)?;
                // Waiting workers learn of the new time.
                write.ring();
            }
        }
        // A claim that is given back leaves the task to whoever claims it next.
        Ending::Released if is_claim(&item) => {
            item.status = ItemStatus::Cancelled;
            item.error = Some("released".to_owned());
        }
        Ending::Released => {
            item.status = ItemStatus::Ready;
            block_without_version(write, &mut item)?;
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
    if let Some(task) = item.run_task_id.filter(|_| taken) {
        let outcome = match ending {
            Ending::Completed { keep_open: false, .. } => TaskOutcome::Done,
            _ if blocks => TaskOutcome::Blocked(item.error.as_deref()),
            _ => TaskOutcome::Open,
        };
        move_task(write, task, outcome)?;
        // A pin chooses which version is run. What was asked for is done all the same, so the current version is, too.
        if matches!(outcome, TaskOutcome::Done)
            && !item.exact
            && let Some(current) = newer_version(write, task)?
        {
            move_task(write, current, outcome)?;
        }
    }
    Ok(item)
}

/// The current version of a task's lineage, if it is a newer one.
fn newer_version(write: &mut Writer<'_>, task: Id<kind::Task>) -> Result<Option<Id<kind::Task>>> {
    let sql = "select current_id from tasks where tenant_id = ?1 and id = ?2 and current_id <> id and not recurring";
    Ok(write.one::<(Id<kind::Task>,)>(sql, params![task])?.map(|(current,)| current))
}

/// The version that an item would run now, if one is live.
pub(super) fn live_version(write: &mut Writer<'_>, item: &QueueItem) -> Result<Option<Id<kind::Task>>> {
    let sql = format!("select {} from queue_items q where q.tenant_id = ?1 and q.id = ?2", version_of("q"));
    Ok(write.one::<(Option<Id<kind::Task>>,)>(&sql, params![item.id])?.and_then(|(version,)| version))
}

/// Blocks an item that goes back to the queue and has no live version to run.
fn block_without_version(write: &mut Writer<'_>, item: &mut QueueItem) -> Result<()> {
    write.share_live_versions()?;
    if live_version(write, item)?.is_some() {
        return Ok(());
    }
    let variant = write
        .one::<(String,)>("select variant from tasks where tenant_id = ?1 and id = ?2", params![item.task_id])?
        .map_or_else(String::new, |(variant,)| variant);
    item.status = ItemStatus::Blocked;
    item.why = Some(with_block_reason(&no_live_version(&variant, item.exact), item.why.as_deref()));
    Ok(())
}

/// Removes the reason for the block from an item that is blocked, or was cancelled while no version of its task was live.
pub(super) fn unblock(item: &mut QueueItem) {
    if item.status == ItemStatus::Blocked || item.why.as_deref().is_some_and(names_no_live_version) {
        item.why = without_block_reason(item.why.as_deref());
    }
}

fn task_retries_on_error(write: &mut Writer<'_>, task: Option<Id<kind::Task>>) -> Result<bool> {
    let found = write
        .one::<(bool,)>("select retry_on_error from tasks where tenant_id = ?1 and id = ?2", params![task])?;
    Ok(found.is_some_and(|(retries,)| retries))
}

/// The new status of a task after one of its runs ended.
#[derive(Debug, Clone, Copy)]
enum TaskOutcome<'a> {
    Done,
    Open,
    /// By an error that the agent gave, so that nobody claims the task again before somebody has looked at it.
    Blocked(Option<&'a str>),
}

/// Moves a task that is not recurring after one of its runs ended. It stays in progress while another run works on it. Then it is
/// done if this run completed, blocked if this or an earlier of these runs ended with an agent's error, else open again.
fn move_task(write: &mut Writer<'_>, task: Id<kind::Task>, outcome: TaskOutcome<'_>) -> Result<()> {
    let moves = |task: &Task| match task.status {
        TaskStatus::InProgress => true,
        // A run that completed lifts an earlier error; a new error replaces it.
        TaskStatus::Blocked => match outcome {
            TaskOutcome::Done => task.status_reason.is_some(),
            TaskOutcome::Blocked(error) => task.status_reason.as_deref() != error,
            TaskOutcome::Open => false,
        },
        // Somebody opened it while the run was at work.
        TaskStatus::Open | TaskStatus::Groomed => !matches!(outcome, TaskOutcome::Open),
        _ => false,
    };
    let once = "where tenant_id = ?1 and id = ?2 and not recurring and deleted_at is null";
    if !write.row::<Task>(once, params![task])?.is_some_and(|task| moves(&task)) {
        return Ok(());
    }
    // The number of open blockers of other tasks is counted under this lock.
    write.lock_catalog()?;
    let Some(before) = write.row_locked::<Task>(once, params![task])?.filter(moves) else {
        return Ok(());
    };
    let others = write.count(
        "select (select count(*) from tasks v cross join queue_items q where v.tenant_id = ?1 and v.lineage_id = ?3 and q.tenant_id = ?1
             and q.task_id = v.id and q.finished_at is null and q.status = 'running' and q.run_task_id = ?2)
         + (select count(*) from runs where tenant_id = ?1 and task_id = ?2 and drives_task and status = 'running' and parent_run_id is null)",
        params![task, before.lineage_id],
    )?;
    let mut after = before.clone();
    if let TaskOutcome::Blocked(error) = outcome {
        after.status_reason = error.map(str::to_owned);
    }
    if others == 0 {
        after.status = match outcome {
            TaskOutcome::Done => TaskStatus::Done,
            TaskOutcome::Open if after.status_reason.is_none() => TaskStatus::Open,
            TaskOutcome::Open | TaskOutcome::Blocked(_) => TaskStatus::Blocked,
        };
        after.status_since = write.now;
    }
    if after.status == TaskStatus::Done {
        after.status_reason = None;
    }
    if after == before {
        return Ok(());
    }
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
        let Some(task) = run.task_id.filter(|_| run.drives_task && run.parent_run_id.is_none()) else {
            return Ok(());
        };
        let outcome = match ending {
            Ending::Completed { keep_open, .. } if !(*keep_open || run.keep_open) => TaskOutcome::Done,
            Ending::Failed { error, again: Again::IfTaskRetries } if !task_retries_on_error(write, Some(task))? => {
                TaskOutcome::Blocked(Some(error))
            }
            _ => TaskOutcome::Open,
        };
        return move_task(write, task, outcome);
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
        params![item.run_task_id, now],
    )?;
    Ok(())
}

/// A task begins to be worked on.
pub(crate) fn start_task(write: &mut Writer<'_>, task: Id<kind::Task>) -> Result<()> {
    let now = write.now;
    write.post(
        "update tasks set status = 'in_progress', status_since = ?3 where tenant_id = ?1 and id = ?2 and not recurring and status in ('open', 'groomed')",
        params![task, now],
    )?;
    Ok(())
}
