//! Replacements: edges from a newer task to the older task that it replaces.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Ref, Variant, enums::Level, kind, replacement_graph, text};
use trackway_store::{
    Writer, params,
    tables::{Package, Task, TaskReplace},
};
use uuid::Uuid;

use super::{
    lineage::{refresh_versions, refuse_joining_cycle},
    set::{lock_task, resource},
};
use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    error::Result,
    package::package_resource,
    touched::{Touch, action_type},
};

/// Replace a task by a newer one, or change the level or comment of a replacement
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ReplaceTask {
    /// Newer task
    pub new: Ref<kind::Task>,
    /// Older task
    pub old: Ref<kind::Task>,
    /// Level of the replacement [default for a new replacement: minor]
    #[arg(long)]
    pub level: Option<Level>,
    /// Reason for the replacement
    #[arg(long)]
    pub comment: Option<String>,
}

/// A replacement after it was written.
#[derive(Debug, Serialize)]
pub struct ReplaceTaskResult {
    pub new: Variant,
    pub old: Variant,
    pub new_id: Id<kind::Task>,
    pub old_id: Id<kind::Task>,
    pub level: Level,
    pub comment: Option<String>,
    /// Other changes that the replacement required.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

impl Action for ReplaceTask {
    const NAME: &'static str = "replace_task";
    const COMMAND: (&'static str, &'static str) = ("task", "replace");
    type Touched = (Touch<kind::Task, action_type::Update>, Touch<kind::Package, action_type::Delete>);
    type Output = ReplaceTaskResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        write.lock_catalog()?;
        let new = lock_task(write, &self.new)?;
        let old = lock_task(write, &self.old)?;
        let (replaced, unpinned) = replace(context, write, &new, &old, self.level, self.comment.as_deref())?;
        let resource = resource(&new);
        Ok(ActionOutcome::changed(replaced, &resource, (Touch::one(resource.clone()), unpinned)))
    }
}

/// Adds the replacement, or updates an existing one of the same pair. Also returns the pins that were removed. The
/// caller has locked the catalog.
pub(crate) fn replace(
    context: &Context,
    write: &mut Writer<'_>,
    new: &Task,
    old: &Task,
    level: Option<Level>,
    comment: Option<&str>,
) -> Result<(ReplaceTaskResult, Touch<kind::Package, action_type::Delete>)> {
    let comment = comment.map(|comment| text::check_body("comment", comment, text::TEXT_MAX)).transpose()?;
    if new.id == old.id {
        return Err(Rule::conflict(format!("{} cannot replace itself", new.variant)).into());
    }
    let before = write.row::<TaskReplace>(
        "where tenant_id = ?1 and new_task_id = ?2 and old_task_id = ?3",
        params![new.id, old.id],
    )?;
    let edge = TaskReplace {
        new_task_id: new.id,
        old_task_id: old.id,
        tenant_id: context.tenant,
        level: level.or(before.as_ref().map(|edge| edge.level)).unwrap_or(Level::Minor),
        comment: comment.or_else(|| before.as_ref().and_then(|edge| edge.comment.clone())),
        created_at: before.as_ref().map_or(write.now, |edge| edge.created_at),
        updated_at: write.now,
    };
    let (mut notices, mut unpinned) = (Vec::new(), Touch::none());
    if before.is_some() {
        write.post(
            "update task_replaces set level = ?4, comment = ?5, updated_at = ?6 where tenant_id = ?1 and new_task_id = ?2 and old_task_id = ?3",
            params![edge.new_task_id, edge.old_task_id, edge.level, edge.comment, edge.updated_at],
        )?;
    } else {
        let lineage = if new.lineage_id == old.lineage_id {
            refuse_cycle(write, new, old)?;
            new.lineage_id
        } else {
            refuse_joining_cycle(write, new, old)?;
            let joined = join_lineages(write, new, old)?;
            (notices, unpinned) = (joined.notices, Touch::many(joined.unpinned));
            joined.lineage
        };
        write.insert(&edge)?;
        refresh_versions(write, lineage)?;
    }
    let replaced = ReplaceTaskResult {
        new: new.variant.clone(),
        old: old.variant.clone(),
        new_id: new.id,
        old_id: old.id,
        level: edge.level,
        comment: edge.comment,
        notices,
    };
    Ok((replaced, unpinned))
}

/// Rejects a replacement that would close a cycle of replacements. This can only happen within one lineage.
fn refuse_cycle(write: &mut Writer<'_>, new: &Task, old: &Task) -> Result<()> {
    let edges = write.query::<(Id<kind::Task>, Id<kind::Task>)>(
        "select e.new_task_id, e.old_task_id from tasks t join task_replaces e on e.new_task_id = t.id where t.tenant_id = ?1 and t.lineage_id = ?2",
        params![new.lineage_id],
    )?;
    let Some(path_back) = replacement_graph::shortest_path(&edges, old.id, new.id) else {
        return Ok(());
    };
    let mut names = vec![new.variant.to_string()];
    names.extend(variants(write, &path_back)?);
    Err(replacement_graph::cycle_error("replaces", &names).into())
}

/// The variants of tasks, in the order given.
pub(crate) fn variants(write: &mut Writer<'_>, tasks: &[Id<kind::Task>]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for id in tasks {
        let name = write.one::<(String,)>("select variant from tasks where tenant_id = ?1 and id = ?2", params![id])?;
        names.extend(name.map(|(name,)| name));
    }
    Ok(names)
}

/// The result of joining two lineages.
struct JoinedLineage {
    lineage: Uuid,
    notices: Vec<String>,
    unpinned: Vec<Resource<kind::Package>>,
}

/// Joins two lineages: the smaller one takes the id of the other. If a role has pins in both, the newer pin stays.
fn join_lineages(write: &mut Writer<'_>, new: &Task, old: &Task) -> Result<JoinedLineage> {
    let mut size =
        |lineage| write.count("select count(*) from tasks where tenant_id = ?1 and lineage_id = ?2", params![lineage]);
    let (smaller, larger) = if size(new.lineage_id)? <= size(old.lineage_id)? {
        (new.lineage_id, old.lineage_id)
    } else {
        (old.lineage_id, new.lineage_id)
    };
    let now = write.now;
    let (mut notices, mut unpinned) = (Vec::new(), Vec::new());
    let packages =
        write.rows::<Package>("where tenant_id = ?1 and lineage_id = ?2 and deleted_at is null", params![smaller])?;
    for mut package in packages {
        let other = write.row::<Package>(
            "where tenant_id = ?1 and role_id = ?2 and lineage_id = ?3 and deleted_at is null",
            params![package.role_id, larger],
        )?;
        if let Some(mut other) = other {
            let removed_pin = if other.updated_at > package.updated_at { &mut package } else { &mut other };
            removed_pin.deleted_at = Some(now);
            let removed_pin = removed_pin.clone();
            write.update(&removed_pin)?;
            write.mark_deleted(removed_pin.id)?;
            let role = write.one::<(String,)>(
                "select name from roles where tenant_id = ?1 and id = ?2",
                params![removed_pin.role_id],
            )?;
            let role = role.map_or_else(String::new, |(role,)| role);
            let variant = variants(write, &[removed_pin.task_id])?.join("");
            notices.push(format!("role {role} had a pin in both lineages: {variant} is no longer pinned"));
            unpinned.push(package_resource(removed_pin.id, &role, variant));
        }
        package.lineage_id = larger;
        write.update(&package)?;
    }
    write.execute(
        "update tasks set lineage_id = ?3 where tenant_id = ?1 and lineage_id = ?2",
        params![smaller, larger],
    )?;
    Ok(JoinedLineage { lineage: larger, notices, unpinned })
}
