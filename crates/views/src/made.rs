//! What a run made: every resource it touched.

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time,
    kind::{self, ActionType, ResourceType},
};
use trackway_store::{Reader, Result, params, row};
use uuid::Uuid;

use crate::view::View;

/// Show everything a run made or changed
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Made {
    /// The run; `last` is the newest
    pub run: Ref<kind::Run>,
    /// Only this kind of resource
    #[arg(long)]
    pub kind: Option<ResourceType>,
    /// Only this kind of action
    #[arg(long)]
    pub action: Option<ActionType>,
    /// What its child runs made, too
    #[arg(long)]
    #[serde(default)]
    pub tree: bool,
}

row! {
    /// A touch, with what the resource is called now.
    pub struct TouchShown {
        resource_type: ResourceType,
        resource_id: Uuid,
        action_type: ActionType,
        studio: Option<String>,
        display_path: String,
        times: i64,
        deleted: bool,
        first_at: Time,
        last_at: Time,
        run_id: Id<kind::Run>,
    }
}

/// What a run made.
#[derive(Debug, PartialEq, Serialize)]
pub struct MadeByRun {
    pub run_id: Id<kind::Run>,
    pub touches: Vec<TouchShown>,
}

const COLUMNS: &str =
    "select t.resource_type, t.resource_id, t.action_type, s.name, coalesce(g.display_path, t.display_path), t.times,
    g.deleted_at is not null, t.first_at, t.last_at, t.run_id";
const JOINS: &str = "left join studios s on s.id = t.resource_studio_id left join registry g on g.id = t.resource_id";

/// Every touch of one run, in order: one indexed query.
pub fn touches(read: &mut Reader<'_>, run: Id<kind::Run>) -> Result<Vec<TouchShown>> {
    read.query(
        &format!(
            "{COLUMNS} from run_resources t {JOINS} where t.tenant_id = ?1 and t.run_id = ?2 order by t.first_at, t.id"
        ),
        params![run],
    )
}

/// Every touch of a run and its descendants.
fn touches_of_tree(read: &mut Reader<'_>, run: Id<kind::Run>) -> Result<Vec<TouchShown>> {
    read.query(
        &format!(
            "with recursive tree (id) as (
                 select id from runs where tenant_id = ?1 and id = ?2
                 union all select r.id from tree p join runs r on r.tenant_id = ?1 and r.parent_run_id = p.id
             ) {COLUMNS} from tree p cross join run_resources t {JOINS} where t.run_id = p.id order by t.first_at, t.id"
        ),
        params![run],
    )
}

impl View for Made {
    const COMMAND: (&'static str, &'static str) = ("", "made");
    type Output = MadeByRun;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<MadeByRun> {
        let run_id = read.resolve(&self.run)?;
        let mut touches = if self.tree { touches_of_tree(read, run_id)? } else { touches(read, run_id)? };
        touches.retain(|touch| {
            self.kind.is_none_or(|kind| kind == touch.resource_type)
                && self.action.is_none_or(|action| action == touch.action_type)
        });
        Ok(MadeByRun { run_id, touches })
    }
}
