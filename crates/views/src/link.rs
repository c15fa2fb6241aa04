//! Links between tasks.

use std::collections::HashMap;

use serde::Deserialize;
use trackway_domain::{
    Id, Ref, Time, Variant,
    enums::{LinkType, TaskStatus},
    kind,
};
use trackway_store::{Reader, Result, display::TaskLinkRow, params, row, table::DisplayRow};

use crate::view::View;

/// List the links from and to a task, including its other versions
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListLinks {
    /// The task
    pub task: Ref<kind::Task>,
}

row! {
    /// A link between two tasks. `relation` is the link as seen from the requested task, for example `is_blocked_by`.
    pub struct LinkRow {
        id: Id<kind::Link>,
        from: Variant,
        to: Variant,
        from_id: Id<kind::Task>,
        to_id: Id<kind::Task>,
        r#type: LinkType,
        relation: String,
        /// The current version of the source task. `None` if no version is live.
        from_current: Option<Variant>,
        from_status: Option<TaskStatus>,
        /// The current version of the target task. `None` if no version is live.
        to_current: Option<Variant>,
        /// Whether the link currently keeps the target task from being ready.
        blocks_now: bool,
        created_at: Time,
    }
}

row! {
    /// The current versions at both ends of a link. `is_inside`: both ends are versions of one task, so the link never
    /// blocks. `starts_here`: the source is a version of the requested task.
    pub struct LinkEndVersions {
        link_id: Id<kind::Link>,
        from_current: Option<Variant>,
        from_status: Option<TaskStatus>,
        to_current: Option<Variant>,
        is_inside: bool,
        starts_here: bool,
    }
}

impl View for ListLinks {
    const COMMAND: (&'static str, &'static str) = ("link", "list");
    const COLUMNS: &'static [&'static str] =
        &["id", "from", "type", "to", "from_current", "from_status", "to_current", "blocks_now"];
    type Output = Vec<LinkRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let task = read.resolve(&self.task)?;
        // A union of two selects, because each column has its own index.
        let of_lineage = "in (select v.id from tasks v where v.tenant_id = ?1 and v.lineage_id = (select lineage_id from tasks where tenant_id = ?1 and id = ?2))";
        // A link to or from a deleted version counts as long as another version of that lineage is live.
        let live = "l.deleted_at is null and (f.deleted_at is null or f.current_id is not null) and (t.deleted_at is null or
            exists (select 1 from tasks x where x.tenant_id = ?1 and x.lineage_id = t.lineage_id and x.current_id is not null))";
        let ends =
            ["from_task_id", "to_task_id"].map(|end| format!("l.tenant_id = ?1 and l.{end} {of_lineage} and {live}"));
        let selected = ends.each_ref().map(|condition| format!("{} where {condition}", TaskLinkRow::select()));
        let mut links = read.query::<TaskLinkRow>(&selected.join(" union "), params![task])?;
        links.sort_by_key(|shown| shown.link.id);
        let currents = ends.each_ref().map(|condition| {
            format!(
                "select l.id, fc.variant, fc.status, tc.variant, f.lineage_id = t.lineage_id,
                 f.lineage_id = (select lineage_id from tasks where tenant_id = ?1 and id = ?2)
                 from task_links l join tasks f on f.id = l.from_task_id join tasks t on t.id = l.to_task_id
                 left join tasks fc on fc.id = f.current_id left join tasks tc on tc.id = t.current_id where {condition}"
            )
        });
        let currents = read.query::<LinkEndVersions>(&currents.join(" union "), params![task])?;
        let mut currents: HashMap<_, _> = currents.into_iter().map(|ends| (ends.link_id, ends)).collect();
        let row = |shown: TaskLinkRow| {
            let ends = currents.remove(&shown.link.id);
            let is_outgoing = match &ends {
                Some(ends) if !ends.is_inside => ends.starts_here,
                _ => shown.link.from_task_id == task,
            };
            let link_type = shown.link.link_type;
            let is_open = |ends: &LinkEndVersions| ends.from_status.is_some_and(|status| !status.releases_blocked());
            LinkRow {
                relation: if is_outgoing { link_type.as_str() } else { link_type.inverse() }.to_owned(),
                id: shown.link.id,
                from: shown.from,
                to: shown.to,
                from_id: shown.link.from_task_id,
                to_id: shown.link.to_task_id,
                r#type: link_type,
                blocks_now: link_type == LinkType::Blocks
                    && ends.as_ref().is_some_and(|ends| !ends.is_inside && is_open(ends)),
                from_status: ends.as_ref().and_then(|ends| ends.from_status),
                to_current: ends.as_ref().and_then(|ends| ends.to_current.clone()),
                from_current: ends.and_then(|ends| ends.from_current),
                created_at: shown.link.created_at,
            }
        };
        Ok(links.into_iter().map(row).collect())
    }
}
