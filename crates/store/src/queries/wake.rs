//! Builds the wake context: what an agent needs to know when it starts. A section that cannot be read is marked as
//! unavailable, with the reason, and does not affect the others.

use trackway_domain::{
    Id, Time, Variant, kind,
    wake_context::{self, Cut, Section, SectionName, WakeContext, fenced, fenced_excerpt, fenced_facts},
    wake_document::LinkedTasks,
};

use crate::{
    current_reports::ReportScope,
    display::{AgentRow, StickieRow, TaskRow},
    error::Result,
    linked_tasks::LinkedTasksResult,
    params,
    replacements::{EarlierVersion, InheritedPart},
    row,
    store::Reader,
    tables::{Board, Report, RunWake, Scratchpad, TaskLink},
};

/// Maximum number of boards in a wake context, and of stickies per board.
const BOARDS_MAX: i64 = 3;
const STICKIES_MAX: usize = 100;
/// Maximum number of changes in a wake context.
const CHANGES_MAX: usize = 50;

/// The agent, task and run that a wake context is for.
#[derive(Debug, Clone, Copy, Default)]
pub struct WakeRequest {
    pub agent: Option<Id<kind::Agent>>,
    pub task: Option<Id<kind::Task>>,
    pub run: Option<Id<kind::Run>>,
}

row! {
    /// The limits of a run, the request of its queue item, and the message that it answers.
    pub struct Budget {
        max_steps: i64,
        steps: i64,
        lease_expires: Option<Time>,
        message_id: Option<Id<kind::Message>>,
        message: Option<String>,
        sender: Option<String>,
        sender_run: Option<Id<kind::Run>>,
        item_id: Option<Id<kind::QueueItem>>,
        description: Option<String>,
        why: Option<String>,
    }
}

/// Formats the author and the run of a text: `ada, in run 1a2b3c4d`.
fn written_by(author: Option<&str>, run: Option<Id<kind::Run>>) -> Option<String> {
    let run = run.map(|run| format!("in run {}", run.short()));
    let parts: Vec<String> = author.map(ToOwned::to_owned).into_iter().chain(run).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Builds the sections of a wake context.
struct ContextBuilder<'read, 'store> {
    read: &'read mut Reader<'store>,
    request: WakeRequest,
    now: Time,
    cuts: Vec<Cut>,
}

impl Reader<'_> {
    pub fn wake_context(&mut self, request: WakeRequest, now: Time) -> WakeContext {
        let mut builder = ContextBuilder { read: self, request, now, cuts: Vec::new() };
        let sections = builder.sections();
        WakeContext { sections, cuts: builder.cuts }
    }
}

impl ContextBuilder<'_, '_> {
    fn sections(&mut self) -> Vec<Section> {
        let linked = self.request.task.map(|task| self.read.linked_tasks(task, self.now));
        let task = self.section(SectionName::Task, Self::task);
        let (identity, scratchpad) = (
            self.section(SectionName::Identity, Self::identity),
            self.section(SectionName::Scratchpad, Self::scratchpad),
        );
        let changes = self.changes(linked.as_ref().map(|linked| &linked.tasks));
        let linked = self.linked(linked);
        let own = self.section(SectionName::OwnReport, Self::own_report);
        let budget = self.budget();
        let message = match &budget {
            Ok(budget) => self.message(budget.as_ref()),
            Err(reason) => Section::unavailable(SectionName::InboundMessage, reason),
        };
        let budget = match &budget {
            Ok(budget) => self.section(SectionName::Budget, |builder| builder.limits(budget.as_ref())),
            Err(reason) => Section::unavailable(SectionName::Budget, reason),
        };
        let board = self.section(SectionName::Board, Self::board);
        vec![identity, scratchpad, task, board, linked, own, message, changes, budget]
    }

    /// Builds a section, or an unavailable section if that fails.
    fn section(&mut self, name: SectionName, make: impl FnOnce(&mut Self) -> Result<Section>) -> Section {
        self.with_savepoint(make).unwrap_or_else(|reason| Section::unavailable(name, &reason))
    }

    fn with_savepoint<T>(&mut self, make: impl FnOnce(&mut Self) -> Result<T>) -> std::result::Result<T, String> {
        let cuts = self.cuts.len();
        let outcome = self.read.begin_savepoint().and_then(|()| make(self));
        let outcome = self.read.end_savepoint(outcome);
        if outcome.is_err() {
            self.cuts.truncate(cuts);
        }
        outcome.map_err(|error| error.to_string())
    }

    fn identity(&mut self) -> Result<Section> {
        const NAME: SectionName = SectionName::Identity;
        let Some(agent) = self.request.agent else {
            return Ok(Section::none(NAME, "no agent was named"));
        };
        let row = self.read.display_row_by_id::<AgentRow>("a", agent)?;
        let mut text = fenced_facts(&[
            ("agent", Some(row.agent.handle.clone())),
            ("name", row.agent.name.clone()),
            ("role", row.role),
            ("owner", Some(row.owner)),
            ("part of", row.parent),
            ("model", row.agent.model.clone()),
        ]);
        if let Some(identity) = row.agent.identity.filter(|identity| !identity.trim().is_empty()) {
            text += "\n\nYour owner's description of you:\n\n";
            text += &fenced("text", &identity);
        }
        Ok(Section::present(NAME, vec![format!("agent:{agent}")], text))
    }

    fn scratchpad(&mut self) -> Result<Section> {
        const NAME: SectionName = SectionName::Scratchpad;
        let Some(agent) = self.request.agent else {
            return Ok(Section::none(NAME, "no agent was named"));
        };
        let found = self.read.row::<Scratchpad>("where tenant_id = ?1 and agent_id = ?2", params![agent])?;
        match found.filter(|pad| !pad.content.trim().is_empty()) {
            None => Ok(Section::none(
                NAME,
                "it is empty; write one with the action update_scratchpad (in a shell: `trackway scratchpad update`)",
            )),
            Some(pad) => {
                let source = format!("scratchpad:{agent}@{}", pad.revision);
                Ok(Section::present(NAME, vec![source], fenced("text", &pad.content)))
            }
        }
    }

    fn task(&mut self) -> Result<Section> {
        const NAME: SectionName = SectionName::Task;
        let Some(task) = self.request.task else {
            return Ok(Section::none(NAME, "the run has no task"));
        };
        let row = self.read.display_row_by_id::<TaskRow>("t", task)?;
        let task = &row.task;
        let mut text = fenced_facts(&[
            ("task", Some(task.variant.to_string())),
            ("revision", Some(task.revision.to_string())),
            ("title", task.title.clone()),
            ("workflow", Some(row.workflow.clone())),
            ("role", row.role.clone()),
            ("status", Some(task.status.to_string())),
            ("priority", Some(task.priority.to_string())),
            ("estimate", task.estimate.map(|estimate| estimate.to_string())),
            ("workspace", row.workspace.clone()),
            ("language", task.language.clone()),
            ("labels", (!task.labels.is_empty()).then(|| task.labels.join(", "))),
        ]);
        let source = format!("task:{}@{}", task.id, task.revision);
        let show_command = format!("trackway task get {}", task.variant);
        let texts = [
            ("Description", &task.description),
            ("Motivation", &task.motivation),
            ("Notes", &task.notes),
            ("Script", &task.script),
        ];
        for (title, long) in texts {
            if let Some(long) = long.as_ref().filter(|long| !long.trim().is_empty()) {
                text +=
                    &format!("\n\n{title}:\n\n{}", fenced_excerpt(NAME, &source, long, &show_command, &mut self.cuts));
            }
        }
        Ok(Section::present(NAME, vec![source], text))
    }

    /// The stickies of the boards that are pinned to the task, sorted by priority.
    fn board(&mut self) -> Result<Section> {
        const NAME: SectionName = SectionName::Board;
        let Some(task) = self.request.task else {
            return Ok(Section::none(NAME, "the run has no task"));
        };
        let Some(version) = self.read.nearest_version_with(task, InheritedPart::Boards)? else {
            return Ok(Section::none(NAME, "no board is pinned to the task"));
        };
        let boards = self.read.rows::<Board>(
            "where tenant_id = ?1 and task_id = ?2 and archived_at is null and deleted_at is null order by id limit ?3",
            params![version.id, BOARDS_MAX],
        )?;
        let pinned_to = (version.steps > 0).then(|| format!("{}, which this task replaces", version.variant));
        let (mut texts, mut sources) = (Vec::new(), Vec::new());
        for board in boards {
            let source = format!("board:{}@{}", board.id, board.edit_count);
            texts.push(self.stickies(&board, &source, pinned_to.clone())?);
            sources.push(source);
        }
        Ok(Section::present(NAME, sources, texts.join("\n\n")))
    }

    fn stickies(&mut self, board: &Board, source: &str, pinned_to: Option<String>) -> Result<String> {
        let mut stickies = self.read.display_rows::<StickieRow>(
            "where s.tenant_id = ?1 and s.board_id = ?2 and s.archived_at is null and s.deleted_at is null
             order by case s.priority when 'must' then 1 when 'should' then 2 when 'could' then 3 when 'wont' then 5 else 4 end, s.id",
            params![board.id],
        )?;
        let total = stickies.len();
        let show_command = format!("trackway board get {}", board.id);
        if total > STICKIES_MAX {
            stickies.truncate(STICKIES_MAX);
            self.cuts.push(Cut {
                section: SectionName::Board,
                what: "rows".to_owned(),
                kept: STICKIES_MAX,
                of: total,
                source: Some(source.to_owned()),
                whole: Some(show_command.clone()),
            });
        }
        let header = fenced_facts(&[
            ("board", Some(board.name.clone().unwrap_or_else(|| board.id.short()))),
            ("pinned to", pinned_to),
            ("guidelines", board.guidelines.clone()),
            ("background", board.background.clone()),
        ]);
        let lines: Vec<String> = stickies
            .iter()
            .map(|StickieRow { stickie, author, .. }| {
                let by = written_by(author.as_deref(), stickie.created_by_run_id);
                let by = by.map_or_else(String::new, |by| format!(" ({by})"));
                let priority = stickie.priority.map_or_else(String::new, |priority| format!("[{priority}] "));
                let name = stickie.name.clone().unwrap_or_else(|| stickie.id.short());
                format!("{priority}{name}{by}: {}", stickie.note.as_deref().unwrap_or_default())
            })
            .collect();
        let lines = fenced_excerpt(SectionName::Board, source, &lines.join("\n"), &show_command, &mut self.cuts);
        Ok(format!("{header}\n\n{lines}"))
    }

    fn variant(&mut self) -> Option<Variant> {
        let task = self.request.task?;
        let found = self.with_savepoint(|builder| {
            builder.read.one::<(Variant,)>("select variant from tasks where tenant_id = ?1 and id = ?2", params![task])
        });
        found.ok().flatten().map(|(variant,)| variant)
    }

    fn linked(&mut self, linked: Option<LinkedTasksResult>) -> Section {
        const NAME: SectionName = SectionName::LinkedTasks;
        let Some(linked) = linked else {
            return Section::none(NAME, "the run has no task");
        };
        if let Some(reason) = &linked.failure {
            return Section::unavailable(NAME, reason);
        }
        let problems = linked.problems();
        let variant = self.variant().map_or_else(|| "TASK".to_owned(), |variant| variant.to_string());
        let show_command = format!("trackway wake {variant} --linked");
        Section { problems, ..wake_context::linked_tasks_section(linked.tasks, &show_command, &mut self.cuts) }
    }

    fn own_report(&mut self) -> Result<Section> {
        const NAME: SectionName = SectionName::OwnReport;
        let (Some(agent), Some(task)) = (self.request.agent, self.request.task) else {
            return Ok(Section::none(NAME, "no agent and task were named"));
        };
        let own = self.read.current_report_of(agent, task)?;
        let found = match own {
            Some(report) => Some((report, None)),
            None => self.report_before(agent, task)?,
        };
        let Some((report, version)) = found else {
            return Ok(Section::none(
                NAME,
                "there is none; write one with the action update_report (in a shell: `trackway report update`)",
            ));
        };
        let source = format!("report:{}", report.id);
        let show_command = match report.task_id {
            Some(task) => format!("trackway report get --task {task} --agent {}", report.agent_id),
            None => format!("trackway report history --agent {}", report.agent_id),
        };
        let by = match &version {
            Some(_) if report.agent_id != agent => Some(self.read.display_row_by_id::<AgentRow>("a", report.agent_id)?),
            _ => None,
        };
        let header = fenced_facts(&[
            ("on", version.map(|version| format!("{}, which this task replaces", version.variant))),
            ("by", by.map(|row| row.agent.handle)),
            ("when", Some(report.created_at.to_string())),
            ("summary", Some(report.one_liner)),
        ]);
        let content = fenced_excerpt(NAME, &source, &report.content, &show_command, &mut self.cuts);
        let text = format!("{header}\n\n{}\n\n{content}", fenced("text", &report.tldr));
        Ok(Section::present(NAME, vec![source], text))
    }

    /// Returns a report on the nearest earlier version, for a task without a report of its own. This agent's report
    /// takes precedence over the current report of that version.
    fn report_before(
        &mut self,
        agent: Id<kind::Agent>,
        task: Id<kind::Task>,
    ) -> Result<Option<(Report, Option<EarlierVersion>)>> {
        let Some(version) =
            self.read.nearest_version_with(task, InheritedPart::Report)?.filter(|version| version.steps > 0)
        else {
            return Ok(None);
        };
        if let Some(report) = self.read.current_report_of(agent, version.id)? {
            return Ok(Some((report, Some(version))));
        }
        let Some(current) = self.read.current_reports(ReportScope::Version(version.id))?.into_iter().next() else {
            return Ok(None);
        };
        let report = self.read.row::<Report>("where tenant_id = ?1 and id = ?2", params![current.report_id])?;
        Ok(report.map(|report| (report, Some(version))))
    }

    fn budget(&mut self) -> std::result::Result<Option<Budget>, String> {
        let Some(run) = self.request.run else {
            return Ok(None);
        };
        self.with_savepoint(|builder| {
            builder.read.one::<Budget>(
                "select r.max_steps, (select count(*) from run_steps s where s.tenant_id = ?1 and s.run_id = r.id and s.step_type = 'think'),
                 q.lease_expires, q.message_id, c.body, (select g.display_path from registry g where g.id = m.from_actor_id), m.from_run_id, q.id, q.description, q.why
                 from runs r left join queue_items q on q.id = r.queue_item_id left join messages m on m.id = q.message_id
                 left join contents c on c.id = m.content_id where r.tenant_id = ?1 and r.id = ?2",
                params![run],
            )
        })
    }

    /// The description of the queue item, and the message that the run answers.
    fn message(&mut self, budget: Option<&Budget>) -> Section {
        const NAME: SectionName = SectionName::InboundMessage;
        let not_blank = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let (mut texts, mut sources) = (Vec::new(), Vec::new());
        if let Some((budget, item)) = budget.and_then(|budget| Some((budget, budget.item_id?)))
            && (not_blank(&budget.description).is_some() || not_blank(&budget.why).is_some())
        {
            let source = format!("queue_item:{item}");
            let show_command = format!("trackway queue get {item}");
            for (title, long) in [("Request", &budget.description), ("Why", &budget.why)] {
                if let Some(long) = not_blank(long) {
                    texts.push(format!(
                        "{title}:\n\n{}",
                        fenced_excerpt(NAME, &source, &long, &show_command, &mut self.cuts)
                    ));
                }
            }
            sources.push(source);
        }
        if let Some((budget, id, body)) =
            budget.and_then(|budget| Some((budget, budget.message_id?, budget.message.as_ref()?)))
        {
            let source = format!("message:{id}");
            let text = fenced_excerpt(NAME, &source, body, &format!("trackway message get {id}"), &mut self.cuts);
            texts.push(match written_by(budget.sender.as_deref(), budget.sender_run) {
                Some(by) => format!("From {by}:\n\n{text}"),
                None => text,
            });
            sources.push(source);
        }
        if texts.is_empty() {
            return Section::none(NAME, "there is no request and no message");
        }
        Section::present(NAME, sources, texts.join("\n\n"))
    }

    fn limits(&mut self, budget: Option<&Budget>) -> Result<Section> {
        const NAME: SectionName = SectionName::Budget;
        let limit = match self.request.agent {
            None => None,
            Some(agent) => {
                let found = self.read.one::<(Option<f64>,)>(
                    "select coalesce(q.spend_limit, t.spend_limit, a.spend_limit) from agents a left join runs r on r.id = ?3
                     left join queue_items q on q.id = r.queue_item_id left join tasks t on t.id = coalesce(r.task_id, ?4)
                     where a.tenant_id = ?1 and a.id = ?2",
                    params![agent, self.request.run, self.request.task],
                )?;
                found.and_then(|(limit,)| limit)
            }
        };
        if budget.is_none() && limit.is_none() {
            return Ok(Section::none(NAME, "no run has started yet"));
        }
        let text = fenced_facts(&[
            ("steps left", budget.map(|budget| (budget.max_steps - budget.steps).max(0).to_string())),
            ("steps in total", budget.map(|budget| budget.max_steps.to_string())),
            ("lease expires", budget.and_then(|budget| budget.lease_expires).map(|lease| lease.to_string())),
            ("spend limit per day", limit.map(|limit| limit.to_string())),
        ]);
        let sources = self.request.run.map(|run| format!("run:{run}")).into_iter().collect();
        Ok(Section::present(NAME, sources, text))
    }

    fn changes(&mut self, linked: Option<&LinkedTasks>) -> Section {
        self.section(SectionName::Changes, |builder| builder.changes_since(linked))
    }

    fn changes_since(&mut self, linked: Option<&LinkedTasks>) -> Result<Section> {
        const NAME: SectionName = SectionName::Changes;
        let (Some(agent), Some(task)) = (self.request.agent, self.request.task) else {
            return Ok(Section::none(NAME, "no agent and task were named"));
        };
        let last = self.read.row::<RunWake>(
            "where tenant_id = ?1 and agent_id = ?2 and task_id = ?3 order by created_at desc, position desc limit 1",
            params![agent, task],
        )?;
        let Some(last) = last else {
            return Ok(Section::none(NAME, "this is the first wake on this task"));
        };
        let mut changes = self.changes_of_task(&last, agent, task)?;
        for row in linked.into_iter().flat_map(LinkedTasks::rows) {
            if row.status_since > last.created_at {
                changes.push(format!("linked task {} became {} at {}", row.id, row.status, row.status_since));
            }
            if let Some(report) = row.report.as_ref().filter(|report| report.created_at > last.created_at) {
                changes.push(format!("linked task {} got a report at {}", row.id, report.created_at));
            }
        }
        // A task in both lists would appear twice.
        changes.sort_unstable();
        changes.dedup();
        if changes.is_empty() {
            return Ok(Section::none(NAME, "there are no recorded changes"));
        }
        let total = changes.len();
        if total > CHANGES_MAX {
            changes.truncate(CHANGES_MAX);
            self.cuts.push(Cut {
                section: NAME,
                what: "lines".to_owned(),
                kept: CHANGES_MAX,
                of: total,
                source: None,
                whole: None,
            });
        }
        let text = format!("Since {}:\n\n{}", last.created_at, fenced("text", &changes.join("\n")));
        Ok(Section::present(NAME, vec![format!("run:{}", last.run_id)], text))
    }

    fn changes_of_task(&mut self, last: &RunWake, agent: Id<kind::Agent>, task: Id<kind::Task>) -> Result<Vec<String>> {
        let since = last.created_at;
        let mut changes = Vec::new();
        let revisions = self.read.query::<(i64, Time)>(
            "select number, created_at from task_revisions where tenant_id = ?1 and task_id = ?2 and created_at > ?3 order by number desc limit 20",
            params![task, since],
        )?;
        changes.extend(revisions.iter().map(|(number, at)| format!("the task changed to revision {number} at {at}")));
        let status = self.read.one::<(String, Time)>(
            "select status, status_since from tasks where tenant_id = ?1 and id = ?2 and status_since > ?3",
            params![task, since],
        )?;
        changes.extend(status.map(|(status, at)| format!("the task became {status} at {at}")));
        let links = self.read.rows::<TaskLink>(
            "where tenant_id = ?1 and (from_task_id = ?2 or to_task_id = ?2) and deleted_at is null and created_at > ?3 order by created_at desc limit 20",
            params![task, since],
        )?;
        changes.extend(links.iter().map(|link| {
            let (other, word) = if link.from_task_id == task {
                (link.to_task_id, link.link_type.as_str())
            } else {
                (link.from_task_id, link.link_type.inverse())
            };
            format!("the task {word} {other} since {}", link.created_at)
        }));
        let reports = self.read.query::<(String, Time)>(
            "select a.handle, r.created_at from reports r join agents a on a.id = r.agent_id
             where r.tenant_id = ?1 and r.task_id = ?2 and r.agent_id <> ?3 and r.created_at > ?4 order by r.id desc limit 20",
            params![task, agent, since],
        )?;
        changes.extend(reports.iter().map(|(handle, at)| format!("{handle} reported on the task at {at}")));
        let edits = self.read.query::<(i64, Time)>(
            "select revision, created_at from scratchpad_revisions where tenant_id = ?1 and agent_id = ?2 and actor_kind = 'person' and created_at > ?3 order by revision desc limit 20",
            params![agent, since],
        )?;
        changes.extend(
            edits
                .iter()
                .map(|(revision, at)| format!("your owner wrote revision {revision} of your scratchpad at {at}")),
        );
        Ok(changes)
    }
}
