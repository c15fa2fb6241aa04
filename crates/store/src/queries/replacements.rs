//! Walking along replacements: forward to the current version of a task, back to the versions before it.

use trackway_domain::{Id, Variant, kind, text::BLANKS, words::Level};

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

row! {
    /// A version of a task.
    pub struct EarlierVersion {
        id: Id<kind::Task>,
        variant: Variant,
        /// How many replacements it lies behind the task: 0 for the task itself.
        steps: i64,
    }
}

/// A property of a version, as a condition on the version `c` of the lineage `c.lineage_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Has {
    /// Links to or from other lineages, whatever became of the tasks at their other ends.
    Links,
    /// Boards that are pinned to it, archived ones included.
    Boards,
    /// A report that is current and not blank. `?3` are the characters that count as blank.
    Report,
}

impl Has {
    /// The version that [`Reader::version_that_has`] answers for the task `?2`, as `source (id, lineage_id, steps)` for use after
    /// `with recursive`.
    pub(crate) fn source(self) -> String {
        let condition = self.condition();
        format!(
            "earlier (id, lineage_id, steps, replaced_at) as (
                 select t.id, t.lineage_id, 0, t.created_at from tasks t where t.tenant_id = ?1 and t.id = ?2
                 union
                 select e.old_task_id, c.lineage_id, c.steps + 1, e.created_at from earlier c join task_replaces e on e.new_task_id = c.id
                 where not {condition}
             ), source (id, lineage_id, steps) as (
                 select c.id, c.lineage_id, c.steps from earlier c where {condition} order by c.steps, c.replaced_at desc, c.id limit 1)"
        )
    }

    fn condition(self) -> &'static str {
        match self {
            Self::Links => {
                "(exists (select 1 from task_links l cross join tasks o where l.from_task_id = c.id and l.deleted_at is null
                    and o.id = l.to_task_id and o.lineage_id <> c.lineage_id)
                 or exists (select 1 from task_links l cross join tasks o where l.to_task_id = c.id and l.deleted_at is null
                    and o.id = l.from_task_id and o.lineage_id <> c.lineage_id))"
            }
            Self::Boards => {
                "exists (select 1 from boards b where b.tenant_id = ?1 and b.task_id = c.id and b.deleted_at is null)"
            }
            Self::Report => {
                "exists (select 1 from agent_links l cross join report_heads h cross join reports p
                    where l.tenant_id = ?1 and l.to_task_id = c.id and l.link_type = 'agent_task' and h.agent_id = l.from_agent_id and h.task_id = c.id
                    and h.scope = 'current' and p.id = h.report_id and trim(p.content, ?3) <> '')"
            }
        }
    }
}

impl Reader<'_> {
    /// The version whose links, boards or report count for a task: the task itself if it has its own, else the nearest version
    /// before it that has. Of several that are equally near, the one that was replaced last.
    pub fn version_that_has(&mut self, task: Id<kind::Task>, has: Has) -> Result<Option<EarlierVersion>> {
        let sql = format!(
            "with recursive {} select t.id, t.variant, cast(s.steps as bigint) from source s join tasks t on t.id = s.id",
            has.source()
        );
        match has {
            Has::Report => self.one(&sql, params![task, BLANKS]),
            Has::Links | Has::Boards => self.one(&sql, params![task]),
        }
    }

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
