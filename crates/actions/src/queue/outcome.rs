//! Recording how an attempt at an item ended: completed, failed (retried or not), released or cancelled.

use serde_json::Value;
use trackway_domain::{
    Id, Time,
    enums::{ItemStatus, TaskStatus},
    kind,
    queue::backoff_micros,
    text,
};
use trackway_store::{
    Writer, params,
    queue::version_of_item,
    tables::{QueueItem, Run, Task},
};

use super::{is_claim, require_valid_lease};
use crate::{
    error::Result,
    task::{
        lineage::{is_no_live_version_reason, no_live_version_reason, with_block_reason, without_block_reason},
        set::recount_after_status_change,
    },
};

/// The outcome of an attempt at an item.
#[derive(Debug, Clone)]
pub(crate) enum ItemOutcome {
    Completed { result: Option<Value>, keep_open: bool },
    Failed { error: String, retry: RetryPolicy },
    Released,
    Cancelled { why: Option<String> },
}

/// Whether to retry a failed item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    WhileAttemptsAreLeft,
    /// For errors that the agent itself reported: retry only if the task sets `retry_on_error`.
    IfTaskRetries,
    /// Retry even without attempts left, but not before this time.
    NotBefore(Time),
    Never,
}

/// Writes the outcome of an item, and the resulting status of its task.
pub(crate) fn record_outcome(write: &mut Writer<'_>, item: &QueueItem, outcome: &ItemOutcome) -> Result<QueueItem> {
    let mut item = item.clone();
    let was_running = item.status == ItemStatus::Running;
    item.slot = None;
    item.lease_expires = None;
    let mut blocks_task = false;
    match outcome {
        ItemOutcome::Completed { result, .. } => {
            item.status = ItemStatus::Completed;
            item.result.clone_from(result);
            item.error = None;
        }
        ItemOutcome::Failed { error, retry } => {
            item.error = Some(text::cut(error, text::TEXT_MAX - 1));
            // An item that has to wait was not really tried, so this does not count as an attempt.
            let counts_as_attempt = !matches!(retry, RetryPolicy::NotBefore(_));
            // The agent reported this error itself. A retry would most likely repeat it, so a person has to look at
            // the task.
            blocks_task = *retry == RetryPolicy::IfTaskRetries && !task_retries_on_error(write, item.run_task_id)?;
            let is_last =
                blocks_task || *retry == RetryPolicy::Never || (counts_as_attempt && item.attempt >= item.max_attempts);
            if is_last {
                item.status = ItemStatus::Failed;
            } else {
                let wait = backoff_micros(item.attempt, jitter());
                let soonest = Time::from_micros(write.now.micros() + wait);
                item.status = ItemStatus::Waiting;
                item.not_before = Some(match retry {
                    RetryPolicy::NotBefore(time) => soonest.max(*time),
                    RetryPolicy::WhileAttemptsAreLeft | RetryPolicy::IfTaskRetries | RetryPolicy::Never => soonest,
                });
                item.attempt += i64::from(counts_as_attempt);
                block_if_no_live_version(write, &mut item)?;
                // Notify waiting workers, so that they wait until the new time.
                write.notify_workers_on_commit();
            }
        }
        // Releasing a claim cancels its item, because the task itself is open for the next claim.
        ItemOutcome::Released if is_claim(&item) => {
            item.status = ItemStatus::Cancelled;
            item.error = Some("released".to_owned());
        }
        ItemOutcome::Released => {
            item.status = ItemStatus::Ready;
            block_if_no_live_version(write, &mut item)?;
            write.notify_workers_on_commit();
        }
        ItemOutcome::Cancelled { why } => {
            item.status = ItemStatus::Cancelled;
            // The reason goes into `error`, because `why` holds the reason for the request.
            item.error = why.clone().or(item.error);
        }
    }
    if item.status.is_finished() {
        item.finished_at = Some(write.now);
    } else {
        item.taken_by = None;
    }
    // An item in backoff keeps its concurrency key, so that items behind it do not overtake it.
    if item.status != ItemStatus::Waiting && item.held_key.take().is_some() {
        write.notify_workers_on_commit();
    }
    write.update(&item)?;
    if let Some(task) = item.run_task_id.filter(|_| was_running) {
        let outcome = match outcome {
            ItemOutcome::Completed { keep_open: false, .. } => TaskOutcome::Done,
            _ if blocks_task => TaskOutcome::Blocked(item.error.as_deref()),
            _ => TaskOutcome::Open,
        };
        update_task_status(write, task, outcome)?;
        // A pin may have selected an older version. The request was for the task, so its result also holds for the current
        // version.
        if !matches!(outcome, TaskOutcome::Open)
            && !item.exact
            && let Some(current) = current_version_behind_pin(write, &item, task)?
        {
            update_task_status(write, current, outcome)?;
        }
    }
    Ok(item)
}

/// The current version of the task's lineage, if the pin of the item's role chose this older version. A version that was
/// replaced while its item was leased has no pin: the newer version is new work.
fn current_version_behind_pin(
    write: &mut Writer<'_>,
    item: &QueueItem,
    task: Id<kind::Task>,
) -> Result<Option<Id<kind::Task>>> {
    let sql = "select t.current_id from tasks t where t.tenant_id = ?1 and t.id = ?2 and t.current_id <> t.id and not t.recurring
         and exists (select 1 from packages p where p.tenant_id = ?1 and p.role_id = ?3 and p.task_id = t.id and p.deleted_at is null)";
    Ok(write.one::<(Id<kind::Task>,)>(sql, params![task, item.role_id])?.map(|(current,)| current))
}

/// The version that the item would run now.
pub(super) fn live_version(write: &mut Writer<'_>, item: &QueueItem) -> Result<Option<Id<kind::Task>>> {
    let sql = format!("select {} from queue_items q where q.tenant_id = ?1 and q.id = ?2", version_of_item("q"));
    Ok(write.one::<(Option<Id<kind::Task>>,)>(&sql, params![item.id])?.and_then(|(version,)| version))
}

/// Blocks the item instead of returning it to the queue if there is no live version to run.
fn block_if_no_live_version(write: &mut Writer<'_>, item: &mut QueueItem) -> Result<()> {
    write.lock_live_versions_shared()?;
    if live_version(write, item)?.is_some() {
        return Ok(());
    }
    let variant = write
        .one::<(String,)>("select variant from tasks where tenant_id = ?1 and id = ?2", params![item.task_id])?
        .map_or_else(String::new, |(variant,)| variant);
    item.status = ItemStatus::Blocked;
    item.why = Some(with_block_reason(&no_live_version_reason(&variant, item.exact), item.why.as_deref()));
    Ok(())
}

/// Removes the block reason from `why`. Cancelled items can have one too, if no version of their task was live.
pub(super) fn clear_block_reason(item: &mut QueueItem) {
    if item.status == ItemStatus::Blocked || item.why.as_deref().is_some_and(is_no_live_version_reason) {
        item.why = without_block_reason(item.why.as_deref());
    }
}

fn task_retries_on_error(write: &mut Writer<'_>, task: Option<Id<kind::Task>>) -> Result<bool> {
    let found =
        write.one::<(bool,)>("select retry_on_error from tasks where tenant_id = ?1 and id = ?2", params![task])?;
    Ok(found.is_some_and(|(retries,)| retries))
}

/// The effect of the end of a run on its task.
#[derive(Debug, Clone, Copy)]
enum TaskOutcome<'a> {
    Done,
    Open,
    /// The agent reported this error. The task is blocked, so that nobody claims it before a person has looked at it.
    Blocked(Option<&'a str>),
}

/// Updates the status of a non-recurring task after one of its runs ended. The task stays in progress while another
/// run works on it. After the last run it is done if that run completed, blocked if a run ended with an error
/// reported by its agent, and open otherwise.
fn update_task_status(write: &mut Writer<'_>, task: Id<kind::Task>, outcome: TaskOutcome<'_>) -> Result<()> {
    let moves = |task: &Task| match task.status {
        TaskStatus::InProgress => true,
        // A completed run clears the error of an earlier run; a new error replaces it.
        TaskStatus::Blocked => match outcome {
            TaskOutcome::Done => task.status_reason.is_some(),
            TaskOutcome::Blocked(error) => task.status_reason.as_deref() != error,
            TaskOutcome::Open => false,
        },
        // Somebody reopened the task during the run.
        TaskStatus::Open | TaskStatus::Groomed => !matches!(outcome, TaskOutcome::Open),
        _ => false,
    };
    let once = "where tenant_id = ?1 and id = ?2 and not recurring and deleted_at is null";
    if !write.row::<Task>(once, params![task])?.is_some_and(|task| moves(&task)) {
        return Ok(());
    }
    // The lock protects the counts of open blockers, which a new status can change.
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
    recount_after_status_change(write, &before, &after)
}

/// Rejects changes to a run whose lease has expired. Its item returns to the queue, and the run ends as timed out.
pub(crate) fn require_lease_of_run(write: &mut Writer<'_>, run: &Run) -> Result<()> {
    leased_item_of_run(write, run)?.map_or(Ok(()), |item| require_valid_lease(&item, item.fence, write))
}

/// Records the outcome of a run on its queue item, or on its task if the run has no item.
pub(crate) fn record_run_outcome(write: &mut Writer<'_>, run: &Run, outcome: &ItemOutcome) -> Result<()> {
    if run.queue_item_id.is_none() {
        let Some(task) = run.task_id.filter(|_| run.drives_task && run.parent_run_id.is_none()) else {
            return Ok(());
        };
        let outcome = match outcome {
            ItemOutcome::Completed { keep_open, .. } if !(*keep_open || run.keep_open) => TaskOutcome::Done,
            ItemOutcome::Failed { error, retry: RetryPolicy::IfTaskRetries }
                if !task_retries_on_error(write, Some(task))? =>
            {
                TaskOutcome::Blocked(Some(error))
            }
            _ => TaskOutcome::Open,
        };
        return update_task_status(write, task, outcome);
    }
    if let Some(item) = leased_item_of_run(write, run)? {
        record_outcome(write, &item, outcome)?;
    }
    // Notify the worker that executes the run.
    write.notify_workers_on_commit();
    Ok(())
}

/// Locks the item whose lease the run holds.
fn leased_item_of_run(write: &mut Writer<'_>, run: &Run) -> Result<Option<QueueItem>> {
    let (Some(item), Some(fence)) = (run.queue_item_id, run.fence) else {
        return Ok(None);
    };
    Ok(write
        .row_locked("where tenant_id = ?1 and id = ?2 and fence = ?3 and status = 'running'", params![item, fence])?)
}

/// A random number between 0 and 1.
fn jitter() -> f64 {
    let mut byte = [0; 1];
    // If the random source fails, all backoffs have the same jitter, which does no harm.
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}

/// Reopens a task that an agent's error blocked, because its item is retried.
pub(super) fn unblock_task(write: &mut Writer<'_>, item: &QueueItem) -> Result<()> {
    let now = write.now;
    write.post(
        "update tasks set status = 'open', status_since = ?3, status_reason = null
         where tenant_id = ?1 and (id = ?2 or id = (select current_id from tasks where tenant_id = ?1 and id = ?2))
         and status = 'blocked' and status_reason is not null and deleted_at is null",
        params![item.run_task_id, now],
    )?;
    Ok(())
}

/// Sets an open task to in progress.
pub(crate) fn start_task(write: &mut Writer<'_>, task: Id<kind::Task>) -> Result<()> {
    let now = write.now;
    write.post(
        "update tasks set status = 'in_progress', status_since = ?3 where tenant_id = ?1 and id = ?2 and not recurring and status in ('open', 'groomed')",
        params![task, now],
    )?;
    Ok(())
}
