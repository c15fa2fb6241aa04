//! Tasks: which one is current, and which comes next.

pub mod history;
pub mod related;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Error as Rule, Id, Ref, Time, Variant, command, kind, sentence,
    words::{Level, TaskStatus, Words},
};
use trackway_store::{Reader, Result, display::TaskShown, params, sql::ToParam, table::Shown};

use self::related::Related;
use crate::{
    page::{Filter, Listed, Order, Page, cut_texts},
    view::View,
};

/// What a list of tasks shows only the beginning of.
pub(crate) const LONG_TEXTS: &[&str] = &["t.description", "t.motivation", "t.notes", "t.script"];
/// Steps of the way that are shown.
pub const PATH_MAX: usize = 50;

/// Show a task, and what refers to it
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetTask {
    /// Which one, by variant or id
    pub task: Ref<kind::Task>,
}

impl View for GetTask {
    const COMMAND: (&'static str, &'static str) = ("task", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = TaskInFull;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<TaskInFull> {
        let id = read.resolve(&self.task)?;
        let task = read.shown_by_id("t", id)?;
        Ok(TaskInFull { related: related::of_task(read, &task, now)?, task })
    }
}

/// A task, and what refers to it.
#[derive(Debug, PartialEq, Serialize)]
pub struct TaskInFull {
    #[serde(flatten)]
    pub task: TaskShown,
    #[serde(flatten)]
    pub related: Related,
}

/// List tasks
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListTasks {
    /// Only of this workflow
    #[arg(long)]
    pub workflow: Option<Ref<kind::Workflow>>,
    /// Only for this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Only in this status
    #[arg(long)]
    pub status: Option<TaskStatus>,
    /// Archived ones too
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
    type Output = Listed<TaskShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let workflow = read.resolve_optional(self.workflow.as_ref())?;
        let role = read.resolve_optional(self.role.as_ref())?;
        let mut filter = Filter::default()
            .always("t.deleted_at is null")
            .and("t.workflow_id = ?", workflow.as_ref())
            .and("t.role_id = ?", role.as_ref())
            .and("t.status = ?", self.status.as_ref());
        if !self.archived {
            filter = filter.always("not t.archived");
        }
        self.page.read(
            read,
            &cut_texts(TaskShown::select(), LONG_TEXTS),
            "t",
            filter,
            Order::OldestFirst,
            |shown: &TaskShown| shown.task.id.uuid(),
        )
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

/// Find the current version of a task
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[group(required = true, multiple = false)]
pub struct LatestTask {
    /// From this variant
    #[arg(long)]
    pub variant: Option<Ref<kind::Task>>,
    /// From this task
    #[arg(long)]
    pub id: Option<Ref<kind::Task>>,
}

/// The current version, and the way to it.
#[derive(Debug, PartialEq, Serialize)]
pub struct Latest {
    pub id: Id<kind::Task>,
    pub variant: Variant,
    /// The variants on the way, the last 50.
    pub path: Vec<Variant>,
}

impl View for LatestTask {
    const COMMAND: (&'static str, &'static str) = ("task", "latest");
    type Output = Latest;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Latest> {
        let from = self.variant.as_ref().or(self.id.as_ref()).ok_or_else(|| Rule::usage("give a variant or an id"))?;
        let id = read.resolve(from)?;
        latest(read, id)
    }
}

/// The live successor of a task; one that nothing replaces answers itself.
pub fn latest(read: &mut Reader<'_>, from: Id<kind::Task>) -> Result<Latest> {
    let path = read.replacement_path(from)?;
    let found = path.last().filter(|step| step.usable).cloned();
    let Some(found) = found else {
        let variant = path.first().map_or_else(String::new, |step| step.variant.to_string());
        return Err(Rule::not_found(format!("{variant} is archived, and nothing live replaces it"))
            .hint(sentence![
                "bring it back: ",
                command!("task set", workflow = "NAME", variant = "VARIANT", archived = false),
            ])
            .into());
    };
    let skipped = path.len().saturating_sub(PATH_MAX);
    Ok(Latest {
        id: found.id,
        variant: found.variant,
        path: path.into_iter().skip(skipped).map(|step| step.variant).collect(),
    })
}

/// Find the version that directly replaces a task
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct NextTask {
    /// From this task
    #[arg(long)]
    pub id: Ref<kind::Task>,
    /// By exactly this step: patch, minor, major, or any
    #[arg(long)]
    #[schemars(extend("enum" = ["patch", "minor", "major", "any"]))]
    pub level: String,
}

/// A direct successor.
#[derive(Debug, PartialEq, Serialize)]
pub struct Next {
    pub id: Id<kind::Task>,
    pub variant: Variant,
    pub level: Level,
}

impl View for NextTask {
    const COMMAND: (&'static str, &'static str) = ("task", "next");
    type Output = Next;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Next> {
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
            next.ok_or_else(|| Rule::not_found(format!("nothing replaces {:?} by level {}", self.id, self.level)))?;
        Ok(Next { id, variant, level })
    }
}
