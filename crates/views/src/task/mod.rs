//! Tasks and their versions: the current version, and the direct successor.

pub mod history;
pub mod related;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Error as Rule, Id, Ref, Time, Variant, command,
    enums::{ClosedEnum, Level, TaskStatus},
    kind, sentence,
};
use trackway_store::{Reader, Result, display::TaskRow, params, sql::ToParam, table::DisplayRow};

use self::related::RelatedRows;
use crate::{
    page::{Filter, ListPage, Order, Page, shorten_columns},
    view::View,
};

/// Columns that a list shortens.
pub(crate) const LONG_TEXTS: &[&str] = &["t.description", "t.motivation", "t.notes", "t.script"];
/// Maximum number of versions of a replacement path that are shown. Older versions are left out.
pub const PATH_MAX: usize = 50;

/// Show a task with its boards, queue items, pins, routes and messages
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetTask {
    /// The task, by variant or id
    pub task: Ref<kind::Task>,
}

impl View for GetTask {
    const COMMAND: (&'static str, &'static str) = ("task", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = TaskDetails;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<TaskDetails> {
        let id = read.resolve(&self.task)?;
        let task = read.display_row_by_id("t", id)?;
        Ok(TaskDetails { related: related::of_task(read, &task, now)?, task })
    }
}

/// A task with the rows that refer to it.
#[derive(Debug, PartialEq, Serialize)]
pub struct TaskDetails {
    #[serde(flatten)]
    pub task: TaskRow,
    #[serde(flatten)]
    pub related: RelatedRows,
}

/// List tasks, oldest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListTasks {
    /// Only tasks of this workflow
    #[arg(long)]
    pub workflow: Option<Ref<kind::Workflow>>,
    /// Only tasks for this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Only tasks with this status
    #[arg(long)]
    pub status: Option<TaskStatus>,
    /// Include archived tasks
    #[arg(long)]
    #[serde(default)]
    pub archived: bool,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListTasks {
    const COMMAND: (&'static str, &'static str) = ("task", "list");
    const COLUMNS: &'static [&'static str] =
        &["id", "variant", "title", "workflow", "role", "status", "priority", "revision"];
    type Output = ListPage<TaskRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let workflow = read.resolve_optional(self.workflow.as_ref())?;
        let role = read.resolve_optional(self.role.as_ref())?;
        let mut filter = Filter::default()
            .require("t.deleted_at is null")
            .require_if_some("t.workflow_id = ?", workflow.as_ref())
            .require_if_some("t.role_id = ?", role.as_ref())
            .require_if_some("t.status = ?", self.status.as_ref());
        if !self.archived {
            filter = filter.require("not t.archived");
        }
        self.page.read(
            read,
            &shorten_columns(TaskRow::select(), LONG_TEXTS),
            "t",
            filter,
            Order::OldestFirst,
            |shown: &TaskRow| shown.task.id.uuid(),
        )
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}

/// Find the current version of a task
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[group(required = true, multiple = false)]
pub struct LatestTask {
    /// Any version of the task, by variant
    #[arg(long)]
    pub variant: Option<Ref<kind::Task>>,
    /// Any version of the task, by id or variant
    #[arg(long)]
    pub id: Option<Ref<kind::Task>>,
}

/// The current version of a task, and the replacements that lead to it.
#[derive(Debug, PartialEq, Serialize)]
pub struct CurrentVersion {
    pub id: Id<kind::Task>,
    pub variant: Variant,
    /// The variants from the requested version to the current one, at most the last 50.
    pub path: Vec<Variant>,
}

impl View for LatestTask {
    const COMMAND: (&'static str, &'static str) = ("task", "latest");
    type Output = CurrentVersion;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<CurrentVersion> {
        let from = self.variant.as_ref().or(self.id.as_ref()).ok_or_else(|| Rule::usage("give a variant or an id"))?;
        let id = read.resolve(from)?;
        current_version(read, id)
    }
}

/// The current version of a task: its newest live successor, or the task itself if no live version replaces it.
pub fn current_version(read: &mut Reader<'_>, from: Id<kind::Task>) -> Result<CurrentVersion> {
    let path = read.replacement_path(from)?;
    let found = path.last().filter(|step| step.usable).cloned();
    let Some(found) = found else {
        let variant = path.first().map_or_else(String::new, |step| step.variant.to_string());
        return Err(Rule::not_found(format!("{variant} is archived, and no live version replaces it"))
            .hint(sentence![
                "unarchive it: ",
                command!("task set", workflow = "NAME", variant = "VARIANT", archived = false),
            ])
            .into());
    };
    let skipped = path.len().saturating_sub(PATH_MAX);
    Ok(CurrentVersion {
        id: found.id,
        variant: found.variant,
        path: path.into_iter().skip(skipped).map(|step| step.variant).collect(),
    })
}

/// Find the direct successor of a task version
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct NextTask {
    /// Version whose successor to find
    #[arg(long)]
    pub id: Ref<kind::Task>,
    /// Level of the replacement: patch, minor, major, or any
    #[arg(long)]
    #[schemars(extend("enum" = ["patch", "minor", "major", "any"]))]
    pub level: String,
}

/// A version that directly replaces another one.
#[derive(Debug, PartialEq, Serialize)]
pub struct DirectSuccessor {
    pub id: Id<kind::Task>,
    pub variant: Variant,
    pub level: Level,
}

impl View for NextTask {
    const COMMAND: (&'static str, &'static str) = ("task", "next");
    type Output = DirectSuccessor;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<DirectSuccessor> {
        let level = match self.level.as_str() {
            "any" => None,
            level => Some(Level::parse(level).map_err(|error| error.hint("one of: patch, minor, major, any"))?),
        };
        let id = read.resolve(&self.id)?;
        let exactly = if level.is_some() { "and e.level = ?3" } else { "" };
        let mut bound = params![id].to_vec();
        bound.extend(level.iter().map(ToParam::to_param));
        let next = read.one::<(Id<kind::Task>, Variant, Level)>(
            &format!(
                "select n.id, n.variant, e.level from task_replaces e join tasks n on n.id = e.new_task_id
                 where e.tenant_id = ?1 and e.old_task_id = ?2 and n.deleted_at is null and not n.archived {exactly}
                 order by e.created_at desc, e.new_task_id limit 1"
            ),
            &bound,
        )?;
        let (id, variant, level) =
            next.ok_or_else(|| Rule::not_found(format!("no version replaces {:?} at level {}", self.id, self.level)))?;
        Ok(DirectSuccessor { id, variant, level })
    }
}
