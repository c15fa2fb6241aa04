//! What a run made: every resource it touched.

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time,
    kind::{self, ActionType, ResourceType},
};
use trackway_store::{Reader, Result, params, row};
use uuid::Uuid;

use crate::{
    page::{LIMIT_MAX, Page},
    view::View,
};

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
    /// How many to show (all)
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: Option<i64>,
    /// Skip the first NUMBER touches
    #[arg(long, value_name = "NUMBER")]
    pub after: Option<u32>,
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
    /// How many there are, of which these are a part.
    pub total: usize,
    /// The flag that shows the next part.
    #[serde(skip)]
    pub more: Option<String>,
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
        let total = touches.len();
        let after = usize::try_from(self.after.unwrap_or(0)).unwrap_or(usize::MAX).min(total);
        touches.drain(..after);
        if let Some(limit) = self.limit {
            let limit = Page { limit: Some(limit), after: None }.limit_or(LIMIT_MAX)?;
            touches.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        let next = after + touches.len();
        Ok(MadeByRun { run_id, touches, total, more: (next < total).then(|| format!("--after {next}")) })
    }

    fn more(output: &MadeByRun) -> Option<String> {
        output.more.clone()
    }
}
