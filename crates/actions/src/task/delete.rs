//! The action `delete_task`.

use serde::Deserialize;
use trackway_domain::{Ref, kind};
use trackway_store::{Writer, display::TaskRow, params};

use super::{
    lineage::refresh_versions,
    set::{lock_task, resource},
};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    delete::{delete_packages, mark_deleted},
    error::Result,
    touched::{Touch, action_type},
};

/// Delete a task and free its variant
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct DeleteTask {
    /// Variant or id of the task
    pub task: Ref<kind::Task>,
}

impl Action for DeleteTask {
    const NAME: &'static str = "delete_task";
    const CAPABILITY: &'static str = "delete";
    const COMMAND: (&'static str, &'static str) = ("task", "delete");
    const IS_DESTRUCTIVE: bool = true;
    type Touched = (Touch<kind::Task, action_type::Delete>, Touch<kind::Package, action_type::Delete>);
    type Output = TaskRow;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        write.lock_catalog()?;
        let task = lock_task(write, &self.task)?;
        let shown = write.display_row_by_id::<TaskRow>("t", task.id)?;
        let now = write.now;
        mark_deleted(write, "tasks", task.id)?;
        let packages = delete_packages(write, "task_id", task.id)?;
        write.post(
            "update task_variants set released_at = ?3 where tenant_id = ?1 and variant = ?2 and released_at is null",
            params![task.variant, now],
        )?;
        refresh_versions(write, task.lineage_id)?;
        let resource = resource(&task);
        Ok(ActionOutcome::changed(shown, &resource, (Touch::one(resource.clone()), packages)))
    }
}
