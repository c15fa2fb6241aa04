//! What refers to a task: boards pinned to it, its queue items, pins and routes of its versions, and its messages.

use serde::Serialize;
use trackway_domain::{Id, Time, kind};
use trackway_store::{
    Engine, Reader, Result,
    display::{BoardShown, MessageShown, PackageShown, QueueItemShown, RouteShown, TaskShown},
    newest_of_each::messages_of_each,
    params,
    sql::Param,
    table::Shown,
};

use crate::{package::Pin, page::cut_texts, queue};

/// Rows of each kind that are shown.
pub const ROWS_MAX: usize = 10;
/// Rows that are read: one more says that there are more.
const ROWS_READ: i64 = 11;
/// Runs of a task, the newest, whose queue items and messages are looked at.
const RUNS_MAX: i64 = 10;
/// Versions of a task, the newest, whose messages are looked at.
const VERSIONS_MAX: i64 = 10;

/// What refers to a task, at most [`ROWS_MAX`] rows of each kind.
#[derive(Debug, PartialEq, Serialize)]
pub struct Related {
    /// Boards pinned to any version of the task, newest first.
    pub boards: Vec<BoardShown>,
    /// Queue items that are not finished, newest first.
    pub queue_items: Vec<QueueItemShown>,
    /// The finished item of the newest run that was made for one.
    pub last_finished_item: Option<QueueItemShown>,
    /// Roles with a pinned version of the task.
    pub pins: Vec<Pin>,
    /// Routes to any version of the task.
    pub routes: Vec<RouteShown>,
    /// Messages to and from the newest versions of the task, and from its newest runs, newest first.
    pub messages: Vec<MessageShown>,
    /// Lists that go on elsewhere.
    pub more: Vec<Rest>,
}

/// Where the rest of a list is.
#[derive(Debug, PartialEq, Serialize)]
pub struct Rest {
    /// The field that holds the beginning of the list.
    pub of: &'static str,
    /// The command that prints all of it.
    pub command: String,
    /// The page that shows all of it.
    pub path: String,
}

/// Unfinished items of a task and its other versions. No index has this order: PostgreSQL would walk one of all items in order.
const UNFINISHED: &str = "where q.tenant_id = ?1 and q.task_id in (select v.id from tasks v where v.tenant_id = ?1
        and v.lineage_id = (select n.lineage_id from tasks n where n.tenant_id = ?1 and n.id = ?2)) and q.finished_at is null
    order by q.in_queue_since desc, q.id desc limit ?3";
/// The finished item of the newest run that has one. Finished items have no index by task, runs have.
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

/// Messages to and from each of the newest versions of the task, and from each of its newest runs: the newest of each, and of all
/// of them.
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

/// The newest messages of a task. Their ids come first: PostgreSQL would rather read all messages than join them with so few.
fn newest_messages(read: &mut Reader<'_>, task: Id<kind::Task>) -> Result<Vec<MessageShown>> {
    let sql = messages_sql(read.engine());
    let ids = read.query::<(Id<kind::Message>,)>(&sql, params![task, ROWS_READ, RUNS_MAX, VERSIONS_MAX])?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let places: Vec<_> = (0..ids.len()).map(|index| format!("?{}", index + 2)).collect();
    let bound: Vec<_> = ids.iter().map(|(id,)| Param::Uuid(id.uuid())).collect();
    let select = cut_texts(MessageShown::select(), &["c.body"]);
    let places = places.join(", ");
    read.query(
        &format!("{select} where m.tenant_id = ?1 and m.id in ({places}) order by m.created_at desc, m.id desc"),
        &bound,
    )
}

/// Reads what refers to a task: a fixed number of queries, none of which reads more when the history is longer.
pub fn of_task(read: &mut Reader<'_>, task: &TaskShown, now: Time) -> Result<Related> {
    let (id, lineage): (Id<kind::Task>, _) = (task.task.id, task.task.lineage_id);
    let limit = ROWS_READ;
    let item = cut_texts(QueueItemShown::select(), queue::LONG_TEXTS);
    let board = cut_texts(BoardShown::select(), &["b.background", "b.guidelines"]);
    let mut boards = read.query::<BoardShown>(&format!("{board} {BOARDS}"), params![id, limit])?;
    let mut queue_items = read.query::<QueueItemShown>(&format!("{item} {UNFINISHED}"), params![id, limit])?;
    let last_finished_item = read.one::<QueueItemShown>(&format!("{item} {LAST_FINISHED}"), params![id, RUNS_MAX])?;
    let pins = read.shown::<PackageShown>(PINS, params![lineage, limit])?;
    let mut pins: Vec<Pin> = pins.into_iter().map(Pin::from).collect();
    let mut routes = read.shown::<RouteShown>(ROUTES, params![lineage, limit])?;
    let mut messages = newest_messages(read, id)?;
    for item in &mut queue_items {
        queue::stand(item, now);
    }
    let variant = task.task.variant.as_str();
    let mut more = Vec::new();
    let mut cut = |of, length: usize, list: &str, path: &str| {
        if length > ROWS_MAX {
            more.push(Rest { of, command: format!("trackway {list}"), path: path.to_owned() });
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
    Ok(Related { boards, queue_items, last_finished_item, pins, routes, messages, more })
}
