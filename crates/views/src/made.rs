//! The resources that a run created or changed, from its touches.

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

/// List the resources that a run created or changed
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListMade {
    /// The run, by id; `last` is the newest run
    pub run: Ref<kind::Run>,
    /// Only resources of this kind
    #[arg(long)]
    pub kind: Option<ResourceType>,
    /// Only touches by this kind of action
    #[arg(long)]
    pub action: Option<ActionType>,
    /// Include the touches of all its descendant runs
    #[arg(long)]
    #[serde(default)]
    pub tree: bool,
    /// Maximum number of touches [default: all]
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: Option<i64>,
    /// Skip the first NUMBER touches
    #[arg(long, value_name = "NUMBER")]
    pub after: Option<u32>,
}

row! {
    /// A touch with the current name of its resource.
    pub struct TouchRow {
        resource_type: ResourceType,
        resource_id: Uuid,
        action_type: ActionType,
        studio: Option<String>,
        display_path: String,
        /// How often the run touched the resource in this way.
        times: i64,
        deleted: bool,
        first_at: Time,
        last_at: Time,
        run_id: Id<kind::Run>,
    }
}

#[derive(Debug, PartialEq, Serialize)]
pub struct RunTouches {
    pub run_id: Id<kind::Run>,
    pub touches: Vec<TouchRow>,
    /// The number of matching touches on all pages.
    pub total: usize,
    /// The flag that requests the next page.
    #[serde(skip)]
    pub next_page: Option<String>,
}

const COLUMNS: &str =
    "select t.resource_type, t.resource_id, t.action_type, s.name, coalesce(g.display_path, t.display_path), t.times,
    g.deleted_at is not null, t.first_at, t.last_at, t.run_id";
const JOINS: &str = "left join studios s on s.id = t.resource_studio_id left join registry g on g.id = t.resource_id";

/// All touches of one run, oldest first.
pub fn touches(read: &mut Reader<'_>, run: Id<kind::Run>) -> Result<Vec<TouchRow>> {
    read.query(
        &format!(
            "{COLUMNS} from run_resources t {JOINS} where t.tenant_id = ?1 and t.run_id = ?2 order by t.first_at, t.id"
        ),
        params![run],
    )
}

/// All touches of a run and its descendants, oldest first.
fn touches_of_tree(read: &mut Reader<'_>, run: Id<kind::Run>) -> Result<Vec<TouchRow>> {
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

impl View for ListMade {
    const COMMAND: (&'static str, &'static str) = ("", "made");
    type Output = RunTouches;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<RunTouches> {
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
        Ok(RunTouches { run_id, touches, total, next_page: (next < total).then(|| format!("--after {next}")) })
    }

    fn next_page(output: &RunTouches) -> Option<String> {
        output.next_page.clone()
    }
}
