//! Packages: the version of a task that a role uses.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Ref, Variant, enums::Level, kind};
use trackway_store::{
    Writer, params,
    tables::{Package, Task},
};

use crate::{
    action::{Action, ActionOutcome, Resource, Subject},
    context::Context,
    error::Result,
    task::{
        lineage::refresh_items,
        set::{lock_task, resource},
    },
    touched::{CreatedOrUpdated, Touch, action_type},
};

/// A role, and the version of a task that it uses.
#[derive(Debug, Serialize)]
pub struct Pin {
    pub role: String,
    pub task_id: Id<kind::Task>,
    pub variant: Variant,
    /// The previously pinned version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was: Option<Variant>,
}

/// Pin a version of a task for a role
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetPackage {
    /// Role that uses the version
    #[arg(long)]
    pub role: Ref<kind::Role>,
    /// Version to pin
    #[arg(long)]
    pub task: Ref<kind::Task>,
}

impl Action for SetPackage {
    const NAME: &'static str = "set_package";
    const COMMAND: (&'static str, &'static str) = ("package", "set");
    type Touched = (Touch<kind::Task, action_type::Pin>, CreatedOrUpdated<kind::Package>);
    type Output = Pin;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { role, task } = self;
        write.lock_catalog()?;
        let role = write.resolve(role)?;
        let task = lock_task(write, task)?;
        let name = role_name(write, role)?;
        let before = find_pin(write, role, &task)?;
        let pinned = |was| Pin { role: name.clone(), task_id: task.id, variant: task.variant.clone(), was };
        match before {
            Some(package) if package.task_id == task.id => return Ok(ActionOutcome::unchanged(pinned(None))),
            Some(package) => {
                let was = write.one::<(Variant,)>(
                    "select variant from tasks where tenant_id = ?1 and id = ?2",
                    params![package.task_id],
                )?;
                let moved = move_pin(write, &package, &name, &task)?;
                refresh_items(write, task.lineage_id)?;
                let resource = resource(&task);
                let touched = (Touch::one(resource.clone()), CreatedOrUpdated::updated(moved));
                return Ok(ActionOutcome::changed(pinned(was.map(|(was,)| was)), &resource, touched));
            }
            None => {}
        }
        let package = Package {
            id: write.new_id(),
            tenant_id: context.tenant,
            role_id: role,
            task_id: task.id,
            lineage_id: task.lineage_id,
            created_at: write.now,
            updated_at: write.now,
            deleted_at: None,
        };
        write.insert(&package)?;
        let created = package_resource(package.id, &name, &task.variant);
        created.register(context, write)?;
        refresh_items(write, task.lineage_id)?;
        let resource = resource(&task);
        let touched = (Touch::one(resource.clone()), CreatedOrUpdated::created(created));
        Ok(ActionOutcome::changed(pinned(None), &resource, touched))
    }
}

pub(crate) fn package_resource(id: Id<kind::Package>, role: &str, variant: impl Display) -> Resource<kind::Package> {
    Resource::new(id, format!("{role} uses {variant}"))
}

fn role_name(write: &mut Writer<'_>, role: Id<kind::Role>) -> Result<String> {
    let name = write.one::<(String,)>("select name from roles where tenant_id = ?1 and id = ?2", params![role])?;
    Ok(name.map(|(name,)| name).ok_or_else(|| Rule::not_found("there is no such role"))?)
}

/// The role's package for this task, whichever version it pins.
fn find_pin(write: &mut Writer<'_>, role: Id<kind::Role>, task: &Task) -> Result<Option<Package>> {
    Ok(write.row_locked::<Package>(
        "where tenant_id = ?1 and role_id = ?2 and lineage_id = ?3 and deleted_at is null",
        params![role, task.lineage_id],
    )?)
}

fn move_pin(write: &mut Writer<'_>, package: &Package, role: &str, task: &Task) -> Result<Resource<kind::Package>> {
    write.update(&Package { task_id: task.id, updated_at: write.now, ..package.clone() })?;
    let resource = package_resource(package.id, role, &task.variant);
    write.update_display_path(package.id, &resource.path)?;
    Ok(resource)
}

/// Remove a role's pin of a task
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct DeletePackage {
    /// Role whose pin to remove
    #[arg(long)]
    pub role: Ref<kind::Role>,
    /// Any version of the task
    #[arg(long)]
    pub task: Ref<kind::Task>,
}

impl Action for DeletePackage {
    const NAME: &'static str = "delete_package";
    const CAPABILITY: &'static str = "delete";
    const COMMAND: (&'static str, &'static str) = ("package", "delete");
    const IS_DESTRUCTIVE: bool = true;
    type Touched = (Touch<kind::Task, action_type::Update>, Touch<kind::Package, action_type::Delete>);
    type Output = Pin;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        write.lock_catalog()?;
        let role = write.resolve(&self.role)?;
        let task = lock_task(write, &self.task)?;
        let name = role_name(write, role)?;
        let package = find_pin(write, role, &task)?
            .ok_or_else(|| Rule::not_found(format!("role {name} has no version of {} pinned", task.variant)))?;
        write.update(&Package { deleted_at: Some(write.now), ..package.clone() })?;
        write.mark_deleted(package.id)?;
        refresh_items(write, task.lineage_id)?;
        let pinned = write
            .row::<Task>("where tenant_id = ?1 and id = ?2", params![package.task_id])?
            .ok_or_else(|| Rule::not_found("the pinned task does not exist"))?;
        let resource = resource(&pinned);
        let unpinned = package_resource(package.id, &name, &pinned.variant);
        let output = Pin { role: name, task_id: pinned.id, variant: pinned.variant, was: None };
        Ok(ActionOutcome::changed(output, &resource, (Touch::one(resource.clone()), Touch::one(unpinned))))
    }
}

/// Move pins to newer versions, following only replacements of at most the given level
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct UpgradePackages {
    /// Highest replacement level to follow
    #[arg(long)]
    pub level: Level,
    /// Move the pins of this role only
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
}

/// A pin that moved.
#[derive(Debug, Serialize)]
pub struct PinMove {
    pub role: String,
    pub from: Variant,
    pub to: Variant,
}

impl Action for UpgradePackages {
    const NAME: &'static str = "upgrade_packages";
    const COMMAND: (&'static str, &'static str) = ("package", "upgrade");
    type Touched = (Touch<kind::Task, action_type::Pin>, Touch<kind::Package, action_type::Update>);
    type Output = Vec<PinMove>;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { level, role } = self;
        write.lock_catalog()?;
        let role = write.resolve_optional(role.as_ref())?;
        let pins = write.rows::<Package>("where tenant_id = ?1 and deleted_at is null order by id", &[])?;
        let mut moved = Vec::new();
        let mut tasks = Vec::new();
        let mut packages = Vec::new();
        for package in pins.into_iter().filter(|pin| role.is_none_or(|role| role == pin.role_id)) {
            let path = write.replacement_path_up_to(package.task_id, *level)?;
            let (Some(from), Some(to)) = (path.first(), path.last()) else {
                continue;
            };
            if to.id == from.id {
                continue;
            }
            let name = role_name(write, package.role_id)?;
            let task = lock_task(write, &Ref::from(to.id))?;
            packages.push(move_pin(write, &package, &name, &task)?);
            refresh_items(write, task.lineage_id)?;
            moved.push(PinMove { role: name, from: from.variant.clone(), to: to.variant.clone() });
            tasks.push(resource(&task));
        }
        if tasks.is_empty() {
            return Ok(ActionOutcome::unchanged(moved));
        }
        let subjects = tasks.iter().map(Subject::from).collect();
        Ok(ActionOutcome::changed_several(moved, subjects, (Touch::many(tasks), Touch::many(packages))))
    }
}
