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
        self.walk(from, "", "")
    }

    /// The way from a task to the last usable version that can be reached without a bigger step than `level`. At each fork
    /// the newest edge to a usable version, then any other: what is further on may be too far.
    pub fn replacement_path_up_to(&mut self, from: Id<kind::Task>, level: Level) -> Result<Vec<Step>> {
        if level == Level::Major {
            return self.replacement_path(from);
        }
        let small: Vec<String> =
            Level::ALL.iter().filter(|small| **small <= level).map(|small| format!("'{small}'")).collect();
        let usable_first = "(case when s.deleted_at is null and not s.archived then 0 else 1 end), ";
        let mut path = self.walk(from, &format!(" and e.level in ({})", small.join(", ")), usable_first)?;
        let last = path.iter().rposition(|step| step.usable);
        path.truncate(last.map_or(0, |last| last + 1));
        Ok(path)
    }

    fn walk(&mut self, from: Id<kind::Task>, allowed: &str, first: &str) -> Result<Vec<Step>> {
        self.query(
            &format!(
                "with recursive walk (id, previous_id, depth) as (
                 select t.id, t.id, 0 from tasks t where t.tenant_id = ?1 and t.id = ?2
                 union all
                 select n.id, w.id, w.depth + 1 from walk w join tasks n on n.id = (
                     select e.new_task_id from task_replaces e join tasks s on s.id = e.new_task_id
                     where e.old_task_id = w.id and (s.replaced or (s.deleted_at is null and not s.archived)){allowed}
                     order by {first}e.created_at desc, e.new_task_id limit 1)
             )
             select t.id, t.variant, e.level, (t.deleted_at is null and not t.archived)
             from walk w join tasks t on t.id = w.id
             left join task_replaces e on e.new_task_id = w.id and e.old_task_id = w.previous_id
             order by w.depth"
            ),
            params![from],
        )
    }
}
