//! What a run that was made for a queue item is to do.

use trackway_domain::{
    Duration, Id, Time, Variant, kind,
    words::{RunStatus, Runner},
};
use trackway_store::{Reader, Result, params, row, sql::Param};

row! {
    /// A task, where it happens, and what it answers.
    pub struct Assignment {
        variant: Variant,
        script: Option<String>,
        shell: Option<String>,
        timeout: Option<Duration>,
        directory: Option<String>,
        workspace: Option<String>,
        runner: Runner,
        message_id: Option<Id<kind::Message>>,
        message_body: Option<String>,
        item_id: Option<Id<kind::QueueItem>>,
    }
}

/// What a run is to do. The task is as it is now: its revision was resolved when the item was taken.
pub fn of_run(read: &mut Reader<'_>, run: Id<kind::Run>) -> Result<Option<Assignment>> {
    read.one(
        "select t.variant, t.script, t.shell, t.timeout, w.directory, w.name, a.runner, q.message_id, c.body, r.queue_item_id
         from runs r join tasks t on t.id = r.task_id join agents a on a.id = r.agent_id
         left join workspaces w on w.id = r.workspace_id left join queue_items q on q.id = r.queue_item_id
         left join messages m on m.id = q.message_id left join contents c on c.id = m.content_id
         where r.tenant_id = ?1 and r.id = ?2",
        params![run],
    )
}

/// Which of these runs have ended meanwhile.
pub fn ended(read: &mut Reader<'_>, runs: &[Id<kind::Run>]) -> Result<Vec<Id<kind::Run>>> {
    let places: Vec<_> = (0..runs.len()).map(|index| format!("?{}", index + 2)).collect();
    let params: Vec<_> = runs.iter().map(|run| Param::Uuid(run.uuid())).collect();
    let found = read.query::<(Id<kind::Run>,)>(
        &format!(
            "select id from runs where tenant_id = ?1 and status <> '{}' and id in ({})",
            RunStatus::Running,
            places.join(", ")
        ),
        &params,
    )?;
    Ok(found.into_iter().map(|(run,)| run).collect())
}

/// When the queue changes by itself next: something that waits is due, or a lease is over.
pub fn next_change(read: &mut Reader<'_>) -> Result<Option<Time>> {
    let found = read.one::<(Option<Time>, Option<Time>)>(
        "select (select min(not_before) from queue_items where tenant_id = ?1 and status = 'waiting'),
                (select min(lease_expires) from queue_items where tenant_id = ?1 and status = 'running')",
        &[],
    )?;
    Ok(found.and_then(|(due, expires)| [due, expires].into_iter().flatten().min()))
}
