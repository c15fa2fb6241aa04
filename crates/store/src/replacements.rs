//! Walking from a task to the one that stands in for it now.

use trackway_domain::{Id, Variant, kind, words::Level};

use crate::{error::Result, params, row, store::Reader};

row! {
    /// A version on the way to the current one; the first is where the walk began and has no level.
    pub struct Step {
        id: Id<kind::Task>,
        variant: Variant,
        level: Option<Level>,
        usable: bool,
    }
}

impl Reader<'_> {
    /// The way from a task to its live successor. At each fork the newest edge, then the smallest id, among those
    /// that lead to an answer: `replaced` is kept so that no step has to be taken back.
    pub fn replacement_path(&mut self, from: Id<kind::Task>) -> Result<Vec<Step>> {
        self.query(
            "with recursive walk (id, previous_id, depth) as (
                 select t.id, t.id, 0 from tasks t where t.tenant_id = ?1 and t.id = ?2
                 union all
                 select n.id, w.id, w.depth + 1 from walk w join tasks n on n.id = (
                     select e.new_task_id from task_replaces e join tasks s on s.id = e.new_task_id
                     where e.old_task_id = w.id and (s.replaced or (s.deleted_at is null and not s.archived))
                     order by e.created_at desc, e.new_task_id limit 1)
             )
             select t.id, t.variant, e.level, (t.deleted_at is null and not t.archived)
             from walk w join tasks t on t.id = w.id
             left join task_replaces e on e.new_task_id = w.id and e.old_task_id = w.previous_id
             order by w.depth",
            params![from],
        )
    }
}

/// The last usable version that can be reached without a bigger step than `level`.
pub fn up_to(path: &[Step], level: Level) -> Option<&Step> {
    let bigger = |step: &&Step| step.level.is_none_or(|step| step <= level);
    path.iter().take_while(bigger).filter(|step| step.usable).last()
}
