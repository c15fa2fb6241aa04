//! Follows the replacements of tasks: forward to the current version, and back to earlier versions.

use trackway_domain::{Id, Variant, enums::Level, kind, text::WHITESPACE};

use crate::{error::Result, params, row, store::Reader};

row! {
    /// A version on the path to the current one. The first version is the start of the path and has no level.
    pub struct PathStep {
        id: Id<kind::Task>,
        variant: Variant,
        level: Option<Level>,
        usable: bool,
    }
}

row! {
    pub struct EarlierVersion {
        id: Id<kind::Task>,
        variant: Variant,
        /// Number of replacements between this version and the task; 0 for the task itself.
        steps: i64,
    }
}

/// Data that a version inherits from the version it replaces, until it has its own. The SQL condition refers to a
/// version `c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InheritedPart {
    /// Links to or from other lineages, even if the linked tasks are deleted or archived.
    Links,
    /// Boards that are pinned to the version, including archived ones.
    Boards,
    /// A current report that is not blank. `?3` contains the characters that count as blank.
    Report,
}

impl InheritedPart {
    /// SQL for the result of [`Reader::nearest_version_with`] for the task `?2`, as `source (id, lineage_id, steps)`.
    /// To be used after `with recursive`.
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
    /// Returns the version whose links, boards or report apply to a task: the task itself if it has any, or else the
    /// nearest earlier version that has some. Of equally near versions, the one replaced last wins.
    pub fn nearest_version_with(
        &mut self,
        task: Id<kind::Task>,
        part: InheritedPart,
    ) -> Result<Option<EarlierVersion>> {
        let sql = format!(
            "with recursive {} select t.id, t.variant, cast(s.steps as bigint) from source s join tasks t on t.id = s.id",
            part.source()
        );
        match part {
            InheritedPart::Report => self.one(&sql, params![task, WHITESPACE]),
            InheritedPart::Links | InheritedPart::Boards => self.one(&sql, params![task]),
        }
    }

    /// Returns the path from a task to its live successor. If a task has several replacements, the path takes the
    /// newest one; of equally new ones, the one with the smallest id. `tasks.replaced` excludes dead ends, so the query
    /// never has to backtrack.
    pub fn replacement_path(&mut self, from: Id<kind::Task>) -> Result<Vec<PathStep>> {
        self.walk(from, "", "")
    }

    /// Returns the path from a task to the last usable version that is reachable by replacements of at most `level`. If
    /// a task has several replacements, the path prefers the newest one whose version is usable, because the versions
    /// after an unusable one may not be reachable.
    pub fn replacement_path_up_to(&mut self, from: Id<kind::Task>, level: Level) -> Result<Vec<PathStep>> {
        if level == Level::Major {
            return self.replacement_path(from);
        }
        let allowed: Vec<String> =
            Level::ALL.iter().filter(|allowed| **allowed <= level).map(|allowed| format!("'{allowed}'")).collect();
        let usable_first = "(case when s.deleted_at is null and not s.archived then 0 else 1 end), ";
        let mut path = self.walk(from, &format!(" and e.level in ({})", allowed.join(", ")), usable_first)?;
        let last = path.iter().rposition(|step| step.usable);
        path.truncate(last.map_or(0, |last| last + 1));
        Ok(path)
    }

    fn walk(&mut self, from: Id<kind::Task>, allowed: &str, order_prefix: &str) -> Result<Vec<PathStep>> {
        self.query(
            &format!(
                "with recursive walk (id, previous_id, depth) as (
                 select t.id, t.id, 0 from tasks t where t.tenant_id = ?1 and t.id = ?2
                 union all
                 select n.id, w.id, w.depth + 1 from walk w join tasks n on n.id = (
                     select e.new_task_id from task_replaces e join tasks s on s.id = e.new_task_id
                     where e.old_task_id = w.id and (s.replaced or (s.deleted_at is null and not s.archived)){allowed}
                     order by {order_prefix}e.created_at desc, e.new_task_id limit 1)
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
