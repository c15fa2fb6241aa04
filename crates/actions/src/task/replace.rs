//! Replacement edges: which task a newer one stands in for.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Ref, Variant, kind, replacement_graph, text, words::Level};
use trackway_store::{
    Writer, params,
    tables::{Package, Task, TaskReplace},
};
use uuid::Uuid;

use super::{
    lineage::{refresh_versions, refuse_joining_cycle},
    set::{live_task, resource},
};
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    touched::{Touch, did},
};

/// Say that one task replaces another
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ReplaceTask {
    /// The newer task
    pub new: Ref<kind::Task>,
    /// The older task
    pub old: Ref<kind::Task>,
    /// How big a step it is (minor, when it is not said)
    #[arg(long)]
    pub level: Option<Level>,
    /// Why
    #[arg(long)]
    pub comment: Option<String>,
}

/// An edge as it now stands.
#[derive(Debug, Serialize)]
pub struct Replaced {
    pub new: Variant,
    pub old: Variant,
    pub new_id: Id<kind::Task>,
    pub old_id: Id<kind::Task>,
    pub level: Level,
    pub comment: Option<String>,
    /// What else had to change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

impl Action for ReplaceTask {
    const NAME: &'static str = "replace_task";
    const COMMAND: (&'static str, &'static str) = ("task", "replace");
    type Touched = Touch<kind::Task, did::Update>;
    type Output = Replaced;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        write.lock_catalog()?;
        let new = live_task(write, &self.new)?;
        let old = live_task(write, &self.old)?;
        let replaced = replace(context, write, &new, &old, self.level, self.comment.as_deref())?;
        let resource = resource(&new);
        Ok(Done::changed(replaced, &resource, Touch::one(resource.clone())))
    }
}

/// Adds the edge, or updates it for the same pair. The catalog is locked.
pub(crate) fn replace(
    context: &Context,
    write: &mut Writer<'_>,
    new: &Task,
    old: &Task,
    level: Option<Level>,
    comment: Option<&str>,
) -> Result<Replaced> {
    let comment = comment.map(|comment| text::body("comment", comment, text::TEXT_MAX)).transpose()?;
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
    let mut notices = Vec::new();
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
            notices = joined.notices;
            joined.lineage
        };
        write.insert(&edge)?;
        refresh_versions(write, lineage)?;
    }
    Ok(Replaced {
        new: new.variant.clone(),
        old: old.variant.clone(),
        new_id: new.id,
        old_id: old.id,
        level: edge.level,
        comment: edge.comment,
        notices,
    })
}

/// Within one lineage an edge may close a circle; between two it cannot.
fn refuse_cycle(write: &mut Writer<'_>, new: &Task, old: &Task) -> Result<()> {
    let edges = write.query::<(Id<kind::Task>, Id<kind::Task>)>(
        "select e.new_task_id, e.old_task_id from tasks t join task_replaces e on e.new_task_id = t.id where t.tenant_id = ?1 and t.lineage_id = ?2",
        params![new.lineage_id],
    )?;
    let Some(back) = replacement_graph::path(&edges, old.id, new.id) else {
        return Ok(());
    };
    let mut names = vec![new.variant.to_string()];
    names.extend(variants(write, &back)?);
    Err(replacement_graph::cycle("replaces", &names).into())
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

/// Two lineages that became one.
struct Joined {
    lineage: Uuid,
    notices: Vec<String>,
}

/// Two lineages become one: the smaller takes the other's id. Of two pins of one role the newer stays.
fn join_lineages(write: &mut Writer<'_>, new: &Task, old: &Task) -> Result<Joined> {
    let mut size =
        |lineage| write.count("select count(*) from tasks where tenant_id = ?1 and lineage_id = ?2", params![lineage]);
    let (smaller, larger) = if size(new.lineage_id)? <= size(old.lineage_id)? {
        (new.lineage_id, old.lineage_id)
    } else {
        (old.lineage_id, new.lineage_id)
    };
    let now = write.now;
    let mut notices = Vec::new();
    let moving =
        write.rows::<Package>("where tenant_id = ?1 and lineage_id = ?2 and deleted_at is null", params![smaller])?;
    for mut package in moving {
        let other = write.row::<Package>(
            "where tenant_id = ?1 and role_id = ?2 and lineage_id = ?3 and deleted_at is null",
            params![package.role_id, larger],
        )?;
        if let Some(mut other) = other {
            let dropped = if other.updated_at > package.updated_at { &mut package } else { &mut other };
            dropped.deleted_at = Some(now);
            let dropped = dropped.clone();
            write.update(&dropped)?;
            write.unregister(dropped.id)?;
            let role = write.one::<(String,)>(
                "select name from roles where tenant_id = ?1 and id = ?2",
                params![dropped.role_id],
            )?;
            let names = variants(write, &[dropped.task_id])?;
            notices.push(format!(
                "two pins of role {} became one: {} is no longer pinned",
                role.map_or_else(String::new, |(role,)| role),
                names.join("")
            ));
        }
        package.lineage_id = larger;
        write.update(&package)?;
    }
    write.execute(
        "update tasks set lineage_id = ?3 where tenant_id = ?1 and lineage_id = ?2",
        params![smaller, larger],
    )?;
    Ok(Joined { lineage: larger, notices })
}
