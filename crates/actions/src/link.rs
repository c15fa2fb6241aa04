//! Links between tasks: what blocks, follows up, duplicates, fixes, supersedes or relates to what.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Ref, Variant, kind, words::LinkType};
use trackway_store::{
    Writer, params,
    tables::{Task, TaskLink},
};

use crate::{
    action::{Action, Done, Resource},
    context::Context,
    error::Result,
    task::{
        lineage::{refresh_blockers_of, refuse_blocking_cycle},
        set::{live_task, resource},
    },
    touched::{Touch, did},
};

/// Link one task to another
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct AddLink {
    /// The task the link starts from
    #[arg(long, value_name = "TASK")]
    pub from: Ref<kind::Task>,
    /// The task it leads to
    #[arg(long, value_name = "TASK")]
    pub to: Ref<kind::Task>,
    /// How the first relates to the second
    #[arg(long = "type")]
    #[serde(rename = "type")]
    pub link_type: LinkType,
}

/// A link as it now stands.
#[derive(Debug, Serialize)]
pub struct Linked {
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
    type Touched = (Touch<kind::Task, did::Update>, Touch<kind::Link, did::Create>);
    type Output = Linked;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        write.lock_catalog()?;
        let from = live_task(write, &self.from)?;
        let to = live_task(write, &self.to)?;
        if from.id == to.id {
            return Err(Rule::conflict(format!("{} cannot be linked to itself", from.variant)).into());
        }
        let linked = |id, new| Linked {
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
            return Ok(Done::unchanged(linked(id, false)));
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
            refresh_blockers_of(write, to.lineage_id)?;
        }
        let resource = resource(&from);
        let touched = (Touch::one(resource.clone()), Touch::one(linked.resource()));
        Ok(Done::changed(linked, &resource, touched))
    }
}

impl Linked {
    pub(crate) fn resource(&self) -> Resource<kind::Link> {
        Resource::outside(self.id, format!("{} {} {}", self.from, self.r#type, self.to))
    }
}

/// Remove a link between tasks
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct DeleteLink {
    /// The link's id
    pub link: Ref<kind::Link>,
}

impl Action for DeleteLink {
    const NAME: &'static str = "delete_link";
    const CAPABILITY: &'static str = "delete";
    const COMMAND: (&'static str, &'static str) = ("link", "delete");
    const REMOVES: bool = true;
    type Touched = (Touch<kind::Task, did::Update>, Touch<kind::Link, did::Delete>);
    type Output = Linked;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        write.lock_catalog()?;
        let id = write.resolve(&self.link)?;
        let gone = || Rule::not_found(format!("there is no link {:?}", self.link));
        let mut link = write.row::<TaskLink>("where tenant_id = ?1 and id = ?2", params![id])?.ok_or_else(gone)?;
        let mut task = |id| write.row_locked::<Task>("where tenant_id = ?1 and id = ?2", params![id]);
        let from = task(link.from_task_id)?.ok_or_else(gone)?;
        let to = task(link.to_task_id)?.ok_or_else(gone)?;
        link.deleted_at = Some(write.now);
        write.update(&link)?;
        if link.link_type == LinkType::Blocks {
            refresh_blockers_of(write, to.lineage_id)?;
        }
        write.unregister(link.id)?;
        let resource = resource(&from);
        let output = Linked {
            id,
            from: from.variant,
            to: to.variant,
            from_id: from.id,
            to_id: to.id,
            r#type: link.link_type,
            new: false,
        };
        let touched = (Touch::one(resource.clone()), Touch::one(output.resource()));
        Ok(Done::changed(output, &resource, touched))
    }
}
