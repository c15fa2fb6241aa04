//! The rows that refer to a task: boards, queue items, pins, routes and messages.

use serde::Serialize;
use trackway_domain::{Id, Time, kind};
use trackway_store::{
    Engine, Reader, Result,
    display::{BoardRow, MessageRow, PackageRow, QueueItemRow, RouteRow, TaskRow},
    newest_per_row::messages_of_each,
    params,
    sql::Param,
    table::DisplayRow,
};

use crate::{package::Pin, page::shorten_columns, queue};

/// Maximum number of rows of each kind that are shown.
pub const ROWS_MAX: usize = 10;
/// One row more than is shown, to find out whether the list was cut.
const ROWS_READ: i64 = 11;
/// Number of newest runs that are searched for queue items and messages.
const RUNS_MAX: i64 = 10;
/// Number of newest versions that are searched for messages.
const VERSIONS_MAX: i64 = 10;

/// The rows that refer to a task, at most [`ROWS_MAX`] of each kind.
#[derive(Debug, PartialEq, Serialize)]
pub struct RelatedRows {
    /// Boards pinned to any version of the task, newest first.
    pub boards: Vec<BoardRow>,
    /// Unfinished queue items, newest first.
    pub queue_items: Vec<QueueItemRow>,
    /// The finished queue item of the newest run that has one.
    pub last_finished_item: Option<QueueItemRow>,
    /// Pins of any version of the task.
    pub pins: Vec<Pin>,
    /// Routes to any version of the task.
    pub routes: Vec<RouteRow>,
    /// Messages to and from the newest versions of the task, and from its newest runs, newest first.
    pub messages: Vec<MessageRow>,
    /// The lists that were cut, and where to find the complete ones.
    pub more: Vec<TruncatedList>,
}

/// A list that was cut, with the command and the page that show all of it.
#[derive(Debug, PartialEq, Serialize)]
pub struct TruncatedList {
    /// The field of [`RelatedRows`] that was cut.
    pub of: &'static str,
    pub command: String,
    /// The path of the page.
    pub path: String,
}

/// SQL: unfinished items of all versions of a task. It orders by `in_queue_since` because no index has this order. With
/// an indexed order PostgreSQL would walk the index over the items of all tasks.
const UNFINISHED: &str = "where q.tenant_id = ?1 and q.task_id in (select v.id from tasks v where v.tenant_id = ?1
        and v.lineage_id = (select n.lineage_id from tasks n where n.tenant_id = ?1 and n.id = ?2)) and q.finished_at is null
    order by q.in_queue_since desc, q.id desc limit ?3";
/// SQL: the finished item of the newest run that has one. It starts from the runs, because finished items have no index
/// by task.
const LAST_FINISHED: &str = "where q.tenant_id = ?1 and q.id = (
        select f.id from (
            select u.id, u.queue_item_id from runs u where u.tenant_id = ?1 and u.task_id = ?2 and u.task_id is not null
            order by u.id desc limit ?3
        ) r cross join queue_items f
        where f.tenant_id = ?1 and f.id = r.queue_item_id and f.finished_at is not null order by r.id desc limit 1
    )";
const BOARDS: &str = "where b.tenant_id = ?1 and b.task_id in (select v.id from tasks v where v.tenant_id = ?1
        and v.lineage_id = (select n.lineage_id from tasks n where n.tenant_id = ?1 and n.id = ?2)) and b.archived_at is null and b.deleted_at is null
    order by b.created_at desc, b.id desc limit ?3";
const PINS: &str = "where p.tenant_id = ?1 and p.lineage_id = ?2 and p.deleted_at is null and t.deleted_at is null
    order by r.name, p.id limit ?3";
const ROUTES: &str = "where t.tenant_id = ?1 and t.lineage_id = ?2 and o.tenant_id = ?1 and o.deleted_at is null
    order by o.created_at, o.id limit ?3";

/// SQL for the newest messages to and from the newest versions of the task and from its newest runs. It takes the
/// newest messages of each version and run, and then the newest of all of these.
fn messages_sql(engine: Engine) -> String {
    let versions = "(select v.id from tasks v where v.tenant_id = ?1 and v.lineage_id = (select n.lineage_id from tasks n where n.tenant_id = ?1 and n.id = ?2)
            order by (case when v.id = ?2 then 0 else 1 end), v.generation desc, v.id desc limit ?5) v";
    let [addressed, sent] = ["to_id", "from_task_id"].map(|column| messages_of_each(engine, column, "v"));
    let of_runs = messages_of_each(engine, "from_run_id", "r");
    format!(
        "select id from (
            select i.id, i.created_at from {versions} join {addressed}
            union select i.id, i.created_at from {versions} join {sent}
            union select i.id, i.created_at from (
                select u.id from runs u where u.tenant_id = ?1 and u.task_id = ?2 and u.task_id is not null order by u.id desc limit ?4
            ) r join {of_runs}
        ) found order by created_at desc, id desc limit ?3"
    )
}

/// The newest messages of a task. A separate query finds the ids first. In a single query, PostgreSQL would scan all
/// messages to join them with the few ids.
fn newest_messages(read: &mut Reader<'_>, task: Id<kind::Task>) -> Result<Vec<MessageRow>> {
    let sql = messages_sql(read.engine());
    let ids = read.query::<(Id<kind::Message>,)>(&sql, params![task, ROWS_READ, RUNS_MAX, VERSIONS_MAX])?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let placeholders: Vec<_> = (0..ids.len()).map(|index| format!("?{}", index + 2)).collect();
    let bound: Vec<_> = ids.iter().map(|(id,)| Param::Uuid(id.uuid())).collect();
    let select = shorten_columns(MessageRow::select(), &["c.body"]);
    let placeholders = placeholders.join(", ");
    read.query(
        &format!("{select} where m.tenant_id = ?1 and m.id in ({placeholders}) order by m.created_at desc, m.id desc"),
        &bound,
    )
}

/// Reads the rows that refer to a task. The number of queries is fixed, and their cost does not grow with the history.
pub fn of_task(read: &mut Reader<'_>, task: &TaskRow, now: Time) -> Result<RelatedRows> {
    let (id, lineage): (Id<kind::Task>, _) = (task.task.id, task.task.lineage_id);
    let limit = ROWS_READ;
    let item = shorten_columns(QueueItemRow::select(), queue::LONG_TEXTS);
    let board = shorten_columns(BoardRow::select(), &["b.background", "b.guidelines"]);
    let mut boards = read.query::<BoardRow>(&format!("{board} {BOARDS}"), params![id, limit])?;
    let mut queue_items = read.query::<QueueItemRow>(&format!("{item} {UNFINISHED}"), params![id, limit])?;
    let last_finished_item = read.one::<QueueItemRow>(&format!("{item} {LAST_FINISHED}"), params![id, RUNS_MAX])?;
    let pins = read.display_rows::<PackageRow>(PINS, params![lineage, limit])?;
    let mut pins: Vec<Pin> = pins.into_iter().map(Pin::from).collect();
    let mut routes = read.display_rows::<RouteRow>(ROUTES, params![lineage, limit])?;
    let mut messages = newest_messages(read, id)?;
    for item in &mut queue_items {
        queue::mark_due_as_ready(item, now);
    }
    let variant = task.task.variant.as_str();
    let mut more = Vec::new();
    let mut cut = |of, length: usize, list: &str, path: &str| {
        if length > ROWS_MAX {
            more.push(TruncatedList { of, command: format!("trackway {list}"), path: path.to_owned() });
        }
    };
    cut("boards", boards.len(), &format!("board list --task {variant}"), &format!("/boards?task={variant}"));
    cut("queue_items", queue_items.len(), &format!("queue list --task {variant}"), &format!("/queue?task={variant}"));
    cut("pins", pins.len(), &format!("package list --task {variant}"), &format!("/packages?task={variant}"));
    cut("routes", routes.len(), &format!("route list --task {variant}"), &format!("/routes?task={variant}"));
    cut("messages", messages.len(), &format!("message list --task {variant}"), &format!("/messages?task={variant}"));
    boards.truncate(ROWS_MAX);
    queue_items.truncate(ROWS_MAX);
    pins.truncate(ROWS_MAX);
    routes.truncate(ROWS_MAX);
    messages.truncate(ROWS_MAX);
    Ok(RelatedRows { boards, queue_items, last_finished_item, pins, routes, messages, more })
}
