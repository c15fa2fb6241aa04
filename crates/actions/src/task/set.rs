//! Creates and updates tasks by variant. The task, its revision, the claim of the variant and the replacement are
//! written in one transaction.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use trackway_domain::{
    Duration, Error as Rule, Id, Patch, Ref, Variant, command,
    enums::{Heading, Level, Priority, Switch, TaskStatus},
    field, kind,
    patch::{self, UNSET},
    queue::MAX_STEPS_LIMIT,
    sentence, text,
};
use trackway_store::{
    Writer, params,
    tables::{Task, TaskRevision, TaskVariant, Workflow},
};
use uuid::Uuid;

use super::{
    lineage::{recount_blockers_of_blocked_lineages, refresh_versions},
    replace::replace,
};
use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    error::Result,
    limits,
    touched::{CreatedOrUpdated, Touch, action_type},
};

/// Maximum characters of a script.
const SCRIPT_MAX: usize = 1_000_000;

/// Create or update a task
#[derive(Debug, Default, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetTask {
    /// Workflow that owns the variant (required for a new task that does not replace another)
    #[arg(long)]
    pub workflow: Option<Ref<kind::Workflow>>,
    /// First part of the variant, such as `unit` in `unit/go`
    #[arg(long)]
    pub command: Option<String>,
    /// Variant. A variant without '/' is appended to the command
    #[arg(long)]
    pub variant: Option<String>,
    /// Title
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub title: Patch<String>,
    /// Description: what to do
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub description: Patch<String>,
    /// Motivation: why to do it
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub motivation: Patch<String>,
    /// Free text about the task, beside its description
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub notes: Patch<String>,
    /// Shell that runs the script
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub shell: Patch<String>,
    /// Script to run
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub script: Patch<String>,
    /// Timeout of a run, such as 90m or 1h30m
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub timeout: Patch<Duration>,
    /// Maximum model turns of a run, 1 to 200 [default: the agent's]
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "NUMBER")]
    #[serde(default)]
    #[schemars(range(min = 1, max = MAX_STEPS_LIMIT))]
    pub max_steps: Patch<i64>,
    /// Stop runs of this task once their agent has spent this much today [default: the agent's spend limit]
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "AMOUNT")]
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub spend_limit: Patch<f64>,
    /// Whether to prompt the agent for its scratchpad and report when a run ends: on or off [default: the agent's]
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub end_of_run: Patch<Switch>,
    /// Retry when the agent itself reports an error, instead of blocking the task
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub retry_on_error: Option<bool>,
    /// Role that works on the task
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub role: Patch<Ref<kind::Role>>,
    /// Workspace of the task's runs
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub workspace: Patch<Ref<kind::Workspace>>,
    /// Tag. Repeatable; empty for no tags
    #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub tags: Option<Vec<String>>,
    /// Key of a label. Repeatable; empty for no labels
    #[arg(long = "label", value_name = "KEY", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub labels: Option<Vec<String>>,
    /// Status of the task
    #[arg(long)]
    pub status: Option<TaskStatus>,
    /// Priority, P0 is the most urgent
    #[arg(long)]
    pub priority: Option<Priority>,
    /// Estimated duration, such as 90m or 40h
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub estimate: Patch<Duration>,
    /// Language to work in, such as en or pt-BR
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub language: Patch<String>,
    /// Heading level, h1 to h6; stored, without effect
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub heading: Patch<Heading>,
    /// Whether the task is recurring. A run does not change the status of a recurring task
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub recurring: Option<bool>,
    /// Whether the task is archived. An archived task cannot be run
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub archived: Option<bool>,
    /// Older task that this one replaces
    #[arg(long, value_name = "TASK")]
    pub replaces: Option<Ref<kind::Task>>,
    /// Level of the replacement [default for a new replacement: minor]
    #[arg(long, requires = "replaces")]
    pub level: Option<Level>,
    /// Reason for the replacement
    #[arg(long, requires = "replaces")]
    pub comment: Option<String>,
    /// Fail unless the task is at this revision
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<i64>,
}

/// A task after it was written.
#[derive(Debug, Serialize)]
pub struct SetTaskResult {
    pub id: Id<kind::Task>,
    pub variant: Variant,
    pub workflow: String,
    pub revision: i64,
    pub new: bool,
    /// Other changes that the replacement required.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

impl Action for SetTask {
    const NAME: &'static str = "set_task";
    const COMMAND: (&'static str, &'static str) = ("task", "set");
    type Touched = (CreatedOrUpdated<kind::Task>, Touch<kind::Package, action_type::Delete>);
    type Output = SetTaskResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let variant = Variant::select(self.command.as_deref(), self.variant.as_deref())?;
        write.lock_catalog()?;
        let before = write
            .row_locked::<Task>("where tenant_id = ?1 and variant = ?2 and deleted_at is null", params![variant])?;
        let old = self.replaces.as_ref().map(|old| lock_task(write, old)).transpose()?;
        let workflow = match (&self.workflow, before.as_ref().or(old.as_ref())) {
            (Some(workflow), _) => write.resolve(workflow)?,
            (None, Some(task)) => task.workflow_id,
            (None, None) => {
                return Err(Rule::usage("a new task needs a workflow")
                    .hint(sentence!["name one with ", field!(workflow), " W"])
                    .into());
            }
        };
        let workflow = write
            .row::<Workflow>("where tenant_id = ?1 and id = ?2", params![workflow])?
            .ok_or_else(|| Rule::not_found("there is no such workflow"))?;
        claim_variant(context, write, &variant, &workflow)?;
        self.check_revision(before.as_ref())?;

        let base = match (&before, &old) {
            (Some(before), _) => before.clone(),
            (None, None) => new(context, write, &variant, &workflow),
            (None, Some(old)) => inherit_definition(new(context, write, &variant, &workflow), old),
        };
        let mut task = self.apply(write, base)?;
        let changed = before.as_ref() != Some(&task);
        if changed {
            save(context, write, before.as_ref(), &mut task)?;
        }
        let (mut notices, mut unpinned) = (Vec::new(), Touch::none());
        if let Some(old) = &old {
            let (replaced, pins) = replace(context, write, &task, old, self.level, self.comment.as_deref())?;
            (notices, unpinned) = (replaced.notices, pins);
        }

        let resource = resource(&task);
        let output = SetTaskResult {
            id: task.id,
            variant,
            workflow: workflow.name,
            revision: task.revision,
            new: before.is_none(),
            notices,
        };
        if !changed && self.replaces.is_none() {
            return Ok(ActionOutcome::unchanged(output));
        }
        let touched = if before.is_none() {
            CreatedOrUpdated::created(resource.clone())
        } else {
            CreatedOrUpdated::updated(resource.clone())
        };
        Ok(ActionOutcome::changed(output, &resource, (touched, unpinned)))
    }
}

impl SetTask {
    fn check_revision(&self, before: Option<&Task>) -> Result<()> {
        let revision = before.map_or(0, |task| task.revision);
        match self.if_revision {
            Some(expected) if expected != revision => {
                Err(Rule::conflict(format!("the task is at revision {revision}, not {expected}"))
                    .hint(sentence!["read the task again: ", command!("task get")])
                    .into())
            }
            _ => Ok(()),
        }
    }

    /// The task with the given fields changed. The code names every field of the action and every column of the row, so
    /// that the compiler reports a new one that is missing here.
    fn apply(&self, write: &mut Writer<'_>, task: Task) -> Result<Task> {
        let Self {
            workflow: _,
            command,
            variant: _,
            title,
            description,
            motivation,
            notes,
            shell,
            script,
            timeout,
            max_steps,
            spend_limit,
            end_of_run,
            retry_on_error,
            role,
            workspace,
            tags,
            labels,
            status,
            priority,
            estimate,
            language,
            heading,
            recurring,
            archived,
            replaces: _,
            level: _,
            comment: _,
            if_revision: _,
        } = self;
        let command = command.as_deref().map(str::trim).filter(|command| !command.is_empty());
        let new_status = status.filter(|status| *status != task.status);
        Ok(Task {
            id: task.id,
            tenant_id: task.tenant_id,
            variant: task.variant,
            command: command.map_or(task.command, str::to_owned),
            workflow_id: task.workflow_id,
            title: title.line("title", text::LINE_MAX)?.apply(task.title),
            description: description.body("description", text::TEXT_MAX)?.apply(task.description),
            motivation: motivation.body("motivation", text::TEXT_MAX)?.apply(task.motivation),
            notes: notes.body("notes", text::TEXT_MAX)?.apply(task.notes),
            shell: shell.line("shell", text::LINE_MAX)?.apply(task.shell),
            script: script.body("script", SCRIPT_MAX)?.apply(task.script),
            timeout: timeout.clone().apply(task.timeout),
            max_steps: limits::check_max_steps(max_steps)?.apply(task.max_steps),
            spend_limit: limits::check_spend_limit(spend_limit)?.apply(task.spend_limit),
            end_of_run: limits::end_of_run_column(end_of_run).apply(task.end_of_run),
            retry_on_error: retry_on_error.unwrap_or(task.retry_on_error),
            role_id: role.clone().try_map(|role| write.resolve(&role))?.apply(task.role_id),
            workspace_id: workspace.clone().try_map(|workspace| write.resolve(&workspace))?.apply(task.workspace_id),
            tags: patch::clean_list("tag", tags.as_deref())?.unwrap_or(task.tags),
            labels: patch::clean_list("label", labels.as_deref())?.unwrap_or(task.labels),
            status: new_status.unwrap_or(task.status),
            status_since: if new_status.is_some() { write.now } else { task.status_since },
            status_reason: task.status_reason.filter(|_| new_status.is_none()),
            priority: priority.unwrap_or(task.priority),
            estimate: estimate.clone().apply(task.estimate),
            language: language.line("language", text::LINE_MAX)?.apply(task.language),
            heading: heading.clone().apply(task.heading),
            recurring: recurring.unwrap_or(task.recurring),
            archived: archived.unwrap_or(task.archived),
            revision: task.revision,
            lineage_id: task.lineage_id,
            open_blockers: task.open_blockers,
            replaced: task.replaced,
            current_id: task.current_id,
            created_at: task.created_at,
            updated_at: task.updated_at,
            deleted_at: task.deleted_at,
        })
    }
}

/// Claims the variant for a workflow. Fails with a conflict if another workflow owns it.
fn claim_variant(context: &Context, write: &mut Writer<'_>, variant: &Variant, workflow: &Workflow) -> Result<()> {
    let owner = write.one::<(Id<kind::Workflow>, String)>(
        "select w.id, w.name from task_variants v join workflows w on w.id = v.workflow_id where v.tenant_id = ?1 and v.variant = ?2 and v.released_at is null",
        params![variant],
    )?;
    match owner {
        Some((owner, _)) if owner == workflow.id => Ok(()),
        Some((_, owner)) => Err(Rule::conflict(format!("variant {variant} belongs to workflow {owner}"))
            .hint(sentence!["use ", field!(workflow), format!(" {owner}, or another variant")])
            .into()),
        None => Ok(write.insert(&TaskVariant {
            id: write.new_id::<kind::Task>().uuid(),
            tenant_id: context.tenant,
            variant: variant.clone(),
            workflow_id: workflow.id,
            claimed_at: write.now,
            released_at: None,
        })?),
    }
}

/// A new task. All optional columns are empty.
fn new(context: &Context, write: &Writer<'_>, variant: &Variant, workflow: &Workflow) -> Task {
    let id = write.new_id();
    Task {
        id,
        tenant_id: context.tenant,
        variant: variant.clone(),
        command: variant.command().to_owned(),
        workflow_id: workflow.id,
        role_id: None,
        title: None,
        description: None,
        motivation: None,
        notes: None,
        shell: None,
        script: None,
        timeout: None,
        max_steps: None,
        spend_limit: None,
        end_of_run: None,
        retry_on_error: false,
        workspace_id: None,
        tags: Vec::new(),
        labels: Vec::new(),
        heading: None,
        recurring: false,
        archived: false,
        status: TaskStatus::Open,
        status_since: write.now,
        status_reason: None,
        priority: Priority::P2,
        estimate: None,
        language: None,
        revision: 0,
        lineage_id: id.uuid(),
        open_blockers: 0,
        replaced: false,
        current_id: Some(id),
        created_at: write.now,
        updated_at: write.now,
        deleted_at: None,
    }
}

/// The new task with the definition of the task that it replaces.
fn inherit_definition(new: Task, old: &Task) -> Task {
    let old = old.clone();
    Task {
        id: new.id,
        tenant_id: new.tenant_id,
        variant: new.variant,
        command: new.command,
        workflow_id: new.workflow_id,
        role_id: old.role_id,
        title: old.title,
        description: old.description,
        motivation: old.motivation,
        notes: old.notes,
        shell: old.shell,
        script: old.script,
        timeout: old.timeout,
        max_steps: old.max_steps,
        spend_limit: old.spend_limit,
        end_of_run: old.end_of_run,
        retry_on_error: old.retry_on_error,
        workspace_id: old.workspace_id,
        tags: old.tags,
        labels: old.labels,
        heading: old.heading,
        recurring: old.recurring,
        archived: new.archived,
        status: new.status,
        status_since: new.status_since,
        status_reason: new.status_reason,
        priority: old.priority,
        estimate: old.estimate,
        language: old.language,
        revision: new.revision,
        lineage_id: new.lineage_id,
        open_blockers: new.open_blockers,
        replaced: new.replaced,
        current_id: new.current_id,
        created_at: new.created_at,
        updated_at: new.updated_at,
        deleted_at: new.deleted_at,
    }
}

/// Writes a task and its next revision, and updates everything that depends on its status and on the live versions.
fn save(context: &Context, write: &mut Writer<'_>, before: Option<&Task>, task: &mut Task) -> Result<()> {
    task.revision += 1;
    task.updated_at = write.now;
    match before {
        None => {
            task.current_id = task.is_usable().then_some(task.id);
            write.insert(task)?;
            resource(task).register(context, write)?;
        }
        Some(before) => {
            write.update(task)?;
            if before.is_usable() == task.is_usable() {
                recount_after_status_change(write, before, task)?;
            } else {
                refresh_versions(write, task.lineage_id)?;
            }
        }
    }
    let definition = definition(task);
    write.insert(&TaskRevision {
        task_id: task.id,
        tenant_id: context.tenant,
        number: task.revision,
        digest: digest(&definition),
        definition,
        actor_kind: context.actor.kind(),
        actor_id: context.actor.id(),
        run_id: context.run,
        created_at: write.now,
    })?;
    Ok(())
}

/// Recounts the open blockers of the tasks that this one blocks, if the new status changes whether it blocks them.
pub(crate) fn recount_after_status_change(write: &mut Writer<'_>, before: &Task, after: &Task) -> Result<()> {
    if before.status.releases_blocked() == after.status.releases_blocked() {
        return Ok(());
    }
    recount_blockers_of_blocked_lineages(write, after.lineage_id)
}

/// The JSON definition that a revision stores: all columns that `set_task` can set. The code names the other columns
/// too, so that the compiler reports a new column that is missing here.
fn definition(task: &Task) -> Value {
    let Task {
        id: _,
        tenant_id: _,
        variant,
        command: _,
        workflow_id,
        role_id,
        title,
        description,
        motivation,
        notes,
        shell,
        script,
        timeout,
        max_steps,
        spend_limit,
        end_of_run,
        retry_on_error,
        workspace_id,
        tags,
        labels,
        heading,
        recurring,
        archived,
        status,
        status_since: _,
        status_reason: _,
        priority,
        estimate,
        language,
        revision: _,
        lineage_id: _,
        open_blockers: _,
        replaced: _,
        current_id: _,
        created_at: _,
        updated_at: _,
        deleted_at: _,
    } = task;
    let id = |id: Option<Uuid>| id.map(|id| id.to_string());
    json!({
        "variant": variant, "workflow_id": workflow_id, "role_id": id(role_id.map(Id::uuid)),
        "title": title, "description": description, "motivation": motivation, "notes": notes,
        "shell": shell, "script": script, "timeout": timeout,
        "max_steps": max_steps, "spend_limit": spend_limit, "end_of_run": end_of_run, "retry_on_error": retry_on_error,
        "workspace_id": id(workspace_id.map(Id::uuid)), "tags": tags, "labels": labels,
        "heading": heading, "recurring": recurring, "archived": archived, "status": status,
        "priority": priority, "estimate": estimate, "language": language,
    })
}

fn digest(definition: &Value) -> String {
    let hash = Sha256::digest(definition.to_string().as_bytes());
    hash.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

pub(crate) fn resource(task: &Task) -> Resource<kind::Task> {
    Resource::new(task.id, task.variant.as_str())
}

/// Finds and locks a task.
pub(crate) fn lock_task(write: &mut Writer<'_>, reference: &Ref<kind::Task>) -> Result<Task> {
    let id = write.resolve(reference)?;
    Ok(write
        .row_locked::<Task>("where tenant_id = ?1 and id = ?2", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no task {reference:?}")))?)
}
