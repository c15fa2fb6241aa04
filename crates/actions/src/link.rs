//! Links between tasks: one task blocks, follows up, duplicates, fixes, supersedes or relates to another.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Ref, Variant, enums::LinkType, kind};
use trackway_store::{
    Writer, params,
    tables::{Task, TaskLink},
};

use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    error::Result,
    task::{
        lineage::{recount_blockers, refuse_blocking_cycle},
        set::{lock_task, resource},
    },
    touched::{Touch, action_type},
};

/// Link one task to another
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct AddLink {
    /// Task that the link starts from
    #[arg(long, value_name = "TASK")]
    pub from: Ref<kind::Task>,
    /// Task that the link leads to
    #[arg(long, value_name = "TASK")]
    pub to: Ref<kind::Task>,
    /// Relation of the first task to the second
    #[arg(long = "type")]
    #[serde(rename = "type")]
    pub link_type: LinkType,
}

/// A link, with the variants of its tasks.
#[derive(Debug, Serialize)]
pub struct TaskLinkView {
    pub id: Id<kind::Link>,
    pub from: Variant,
    pub to: Variant,
    pub from_id: Id<kind::Task>,
    pub to_id: Id<kind::Task>,
    pub r#type: LinkType,
    pub new: bool,
}

impl Action for AddLink {
    const NAME: &'static str = "add_link";
    const COMMAND: (&'static str, &'static str) = ("link", "add");
    type Touched = (Touch<kind::Task, action_type::Update>, Touch<kind::Link, action_type::Create>);
    type Output = TaskLinkView;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        write.lock_catalog()?;
        let from = lock_task(write, &self.from)?;
        let to = lock_task(write, &self.to)?;
        if from.id == to.id {
            return Err(Rule::conflict(format!("{} cannot be linked to itself", from.variant)).into());
        }
        let linked = |id, new| TaskLinkView {
            id,
            from: from.variant.clone(),
            to: to.variant.clone(),
            from_id: from.id,
            to_id: to.id,
            r#type: self.link_type,
            new,
        };
        let present = write.one::<(Id<kind::Link>,)>(
            "select id from task_links where tenant_id = ?1 and from_task_id = ?2 and to_task_id = ?3 and link_type = ?4 and deleted_at is null",
            params![from.id, to.id, self.link_type],
        )?;
        if let Some((id,)) = present {
            return Ok(ActionOutcome::unchanged(linked(id, false)));
        }
        if self.link_type == LinkType::Blocks {
            refuse_blocking_cycle(write, &from, &to)?;
        }
        let link = TaskLink {
            id: write.new_id(),
            tenant_id: context.tenant,
            from_task_id: from.id,
            to_task_id: to.id,
            link_type: self.link_type,
            created_at: write.now,
            deleted_at: None,
        };
        write.insert(&link)?;
        let linked = linked(link.id, true);
        linked.resource().register(context, write)?;
        if self.link_type == LinkType::Blocks {
            recount_blockers(write, to.lineage_id)?;
        }
        let resource = resource(&from);
        let touched = (Touch::one(resource.clone()), Touch::one(linked.resource()));
        Ok(ActionOutcome::changed(linked, &resource, touched))
    }
}

impl TaskLinkView {
    pub(crate) fn resource(&self) -> Resource<kind::Link> {
        Resource::new(self.id, format!("{} {} {}", self.from, self.r#type, self.to))
    }
}

/// Remove a link between tasks
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct DeleteLink {
    /// Id of the link
    pub link: Ref<kind::Link>,
}

impl Action for DeleteLink {
    const NAME: &'static str = "delete_link";
    const CAPABILITY: &'static str = "delete";
    const COMMAND: (&'static str, &'static str) = ("link", "delete");
    const IS_DESTRUCTIVE: bool = true;
    type Touched = (Touch<kind::Task, action_type::Update>, Touch<kind::Link, action_type::Delete>);
    type Output = TaskLinkView;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        write.lock_catalog()?;
        let id = write.resolve(&self.link)?;
        let not_found = || Rule::not_found(format!("there is no link {:?}", self.link));
        let mut link = write.row::<TaskLink>("where tenant_id = ?1 and id = ?2", params![id])?.ok_or_else(not_found)?;
        let mut task = |id| write.row_locked::<Task>("where tenant_id = ?1 and id = ?2", params![id]);
        let from = task(link.from_task_id)?.ok_or_else(not_found)?;
        let to = task(link.to_task_id)?.ok_or_else(not_found)?;
        link.deleted_at = Some(write.now);
        write.update(&link)?;
        if link.link_type == LinkType::Blocks {
            recount_blockers(write, to.lineage_id)?;
        }
        write.mark_deleted(link.id)?;
        let resource = resource(&from);
        let output = TaskLinkView {
            id,
            from: from.variant,
            to: to.variant,
            from_id: from.id,
            to_id: to.id,
            r#type: link.link_type,
            new: false,
        };
        let touched = (Touch::one(resource.clone()), Touch::one(output.resource()));
        Ok(ActionOutcome::changed(output, &resource, touched))
    }
}
