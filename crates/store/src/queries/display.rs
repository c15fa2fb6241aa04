//! Display rows: rows of tables with ids resolved to names.

use trackway_domain::{Id, Time, Variant, enums::RunStatus, kind};

use crate::{
    display_row,
    queue::{ROLE_OF_ROUTED_ITEM, version_of_item, version_to_run},
    tables::{
        Agent, Board, Commitment, Conversation, Decision, Experiment, Message, Note, Package, QueueItem, Report, Route,
        Run, Session, Spawn, Stickie, StickieRelation, Subagent, Task, TaskLink, Testcase, Token, Workflow,
    },
};

display_row! {
    pub struct WorkflowRow of workflow: Workflow as "w" {
        role: Option<String> = "r.name",
    } from "workflows w left join roles r on r.id = w.role_id"
}

display_row! {
    pub struct AgentRow of agent: Agent as "a" {
        role: Option<String> = "r.name",
        owner: String = "o.handle",
        parent: Option<String> = "p.handle",
    } from "agents a left join roles r on r.id = a.role_id join people o on o.id = a.owner_id left join agents p on p.id = a.parent_id"
}

display_row! {
    pub struct TaskRow of task: Task as "t" {
        workflow: String = "w.name",
        role: Option<String> = "r.name",
        workspace: Option<String> = "s.name",
    } from "tasks t join workflows w on w.id = t.workflow_id left join roles r on r.id = t.role_id left join workspaces s on s.id = t.workspace_id"
}

display_row! {
    pub struct TaskLinkRow of link: TaskLink as "l" {
        from: Variant = "f.variant",
        to: Variant = "t.variant",
    } from "task_links l join tasks f on f.id = l.from_task_id join tasks t on t.id = l.to_task_id"
}

display_row! {
    pub struct PackageRow of package: Package as "p" {
        role: String = "r.name",
        variant: Variant = "t.variant",
    } from "packages p join roles r on r.id = p.role_id join tasks t on t.id = p.task_id"
}

display_row! {
    pub struct RunRow of run: Run as "u" {
        agent: String = "a.handle",
        role: Option<String> = "r.name",
        task: Option<Variant> = "t.variant",
        workspace: Option<String> = "s.name",
        initiated_by: Option<String> = "p.handle",
        session_id: Option<String> = "e.session_id",
        subagent: Option<String> = "b.agent_id",
    } from "runs u join agents a on a.id = u.agent_id left join roles r on r.id = u.role_id left join tasks t on t.id = u.task_id left join workspaces s on s.id = u.workspace_id left join people p on p.id = u.initiated_by left join sessions e on e.id = u.session_id left join subagents b on b.id = u.subagent_id"
}

impl RunRow {
    /// Duration of the run in seconds; of a running run, up to `now`.
    pub fn seconds(&self, now: Time) -> i64 {
        self.run.ended_at.unwrap_or(now).seconds_since(self.run.started_at)
    }
}

display_row! {
    /// A report with a flag that says whether it is the current one.
    pub struct ReportRow of report: Report as "p" {
        agent: String = "a.handle",
        task: Option<Variant> = "t.variant",
        current: bool = "h.report_id is not null",
    } from "reports p join agents a on a.id = p.agent_id left join tasks t on t.id = p.task_id left join report_heads h on h.report_id = p.id"
}

display_row! {
    /// A note with the author and run of its first revision.
    pub struct NoteRow of note: Note as "n" {
        studio: String = "s.name",
        about: Option<String> = "g.display_path",
        author: Option<String> = "(select a.display_path from note_revisions v join registry a on a.id = v.actor_id where v.note_id = n.id and v.number = 1)",
        run_id: Option<Id<kind::Run>> = "(select v.run_id from note_revisions v where v.note_id = n.id and v.number = 1)",
    } from "notes n join studios s on s.id = n.studio_id left join registry g on g.id = n.about_id"
}

display_row! {
    /// A decision with the person or agent who opened it, and the run.
    pub struct DecisionRow of decision: Decision as "d" {
        studio: String = "s.name",
        author: Option<String> = "(select a.display_path from registry g join registry a on a.id = g.created_by where g.id = d.id)",
        run_id: Option<Id<kind::Run>> = "(select x.run_id from run_resources x where x.resource_id = d.id and x.resource_type = 'decision' and x.action_type = 'create' order by x.first_at limit 1)",
    } from "decisions d join studios s on s.id = d.studio_id"
}

display_row! {
    /// A commitment with the person or agent who proposed it, and the run.
    pub struct CommitmentRow of commitment: Commitment as "c" {
        studio: String = "s.name",
        author: Option<String> = "(select a.display_path from registry g join registry a on a.id = g.created_by where g.id = c.id)",
        run_id: Option<Id<kind::Run>> = "(select x.run_id from run_resources x where x.resource_id = c.id and x.resource_type = 'commitment' and x.action_type = 'create' order by x.first_at limit 1)",
        members: i64 = "(select count(*) from commitment_members m where m.commitment_id = c.id)",
    } from "commitments c join studios s on s.id = c.studio_id"
}

display_row! {
    pub struct TokenRow of token: Token as "k" {
        actor: Option<String> = "coalesce(p.handle, a.handle)",
    } from "tokens k left join people p on p.id = k.actor_id left join agents a on a.id = k.actor_id"
}

display_row! {
    pub struct SessionRow of session: Session as "e" {
        workspace: Option<String> = "w.name",
        continues: Option<String> = "c.session_id",
        runs: i64 = "(select count(*) from runs r where r.tenant_id = e.tenant_id and r.session_id = e.id)",
        subagents: i64 = "(select count(*) from subagents a where a.tenant_id = e.tenant_id and a.session_id = e.id)",
        /// The beginning of the first prompt.
        prompt: Option<String> = "(select substr(b.body, 1, 200) from runs r join messages m on m.id = r.cause_id join contents b on b.id = m.content_id where r.tenant_id = e.tenant_id and r.session_id = e.id and r.subagent_id is null and r.cause_kind = 'message' order by r.id limit 1)",
    } from "sessions e left join workspaces w on w.id = e.workspace_id left join sessions c on c.id = e.continues_id"
}

display_row! {
    /// A subagent with its latest run.
    pub struct SubagentRow of subagent: Subagent as "a" {
        session_id: String = "e.session_id",
        run_id: Option<Id<kind::Run>> = "r.id",
        status: Option<RunStatus> = "r.status",
    } from "subagents a join sessions e on e.id = a.session_id left join runs r on r.id = (select l.id from runs l where l.tenant_id = a.tenant_id and l.session_id = a.session_id and l.subagent_id = a.id order by l.id desc limit 1)"
}

display_row! {
    pub struct SpawnRow of spawn: Spawn as "s" {
        session_id: String = "e.session_id",
    } from "task_spawns s join sessions e on e.id = s.session_id"
}

display_row! {
    /// A message with its own role and task, or else those of its run.
    pub struct MessageRow of message: Message as "m" {
        from: Option<String> = "coalesce(a.handle, p.handle)",
        to: Option<String> = "(select g.display_path from registry g where g.id = m.to_id)",
        role: Option<String> = "(select r.name from roles r where r.id = coalesce(m.role_id, u.role_id))",
        task: Option<Variant> = "(select t.variant from tasks t where t.id = coalesce(m.from_task_id, u.task_id))",
        conversation: Option<String> = "(select v.title from conversations v where v.id = m.conversation_id)",
        experiment: Option<String> = "(select x.title from experiments x where x.id = m.experiment_id)",
        session_id: Option<String> = "e.session_id",
        body: String = "c.body",
    } from "messages m join contents c on c.id = m.content_id left join agents a on a.id = m.from_actor_id left join people p on p.id = m.from_actor_id left join runs u on u.id = m.from_run_id left join sessions e on e.id = m.session_id"
}

display_row! {
    pub struct ConversationRow of conversation: Conversation as "c" {
        role: Option<String> = "r.name",
        experiments: i64 = "(select count(*) from experiments x where x.tenant_id = c.tenant_id and x.conversation_id = c.id and x.deleted_at is null)",
        messages: i64 = "(select count(*) from messages m where m.tenant_id = c.tenant_id and m.conversation_id = c.id)",
    } from "conversations c left join roles r on r.id = c.role_id"
}

display_row! {
    pub struct ExperimentRow of experiment: Experiment as "x" {
        conversation: String = "c.title",
        messages: i64 = "(select count(*) from messages m where m.tenant_id = x.tenant_id and m.experiment_id = x.id)",
        testcases: i64 = "(select count(*) from testcases t where t.tenant_id = x.tenant_id and t.experiment_id = x.id)",
    } from "experiments x join conversations c on c.id = x.conversation_id"
}

display_row! {
    pub struct RouteRow of route: Route as "o" {
        role: Option<String> = "r.name",
        task: Variant = "t.variant",
        workspace: Option<String> = "s.name",
        task_deleted: bool = "t.deleted_at is not null",
        /// The version that a message would run now. None if no version is live.
        would_run: Option<Variant> = format!("(select n.variant from tasks n where n.id = {})", version_to_run("o.task_id", ROLE_OF_ROUTED_ITEM, "o.exact")),
    } from "routes o join tasks t on t.id = o.task_id left join roles r on r.id = o.role_id left join workspaces s on s.id = o.workspace_id"
}

display_row! {
    pub struct TestcaseRow of testcase: Testcase as "t" {
        role: Option<String> = "r.name",
        experiment: Option<String> = "x.title",
    } from "testcases t left join roles r on r.id = t.role_id left join experiments x on x.id = t.experiment_id"
}

display_row! {
    pub struct QueueItemRow of item: QueueItem as "q" {
        /// The requested version.
        variant: Variant = "t.variant",
        /// The version that the last take ran.
        run_variant: Option<Variant> = "(select n.variant from tasks n where n.id = q.run_task_id)",
        /// The version that the next take would run. None if no version is live, or if the item cannot be taken any
        /// more.
        would_run: Option<Variant> = format!("case when q.status in ('waiting', 'blocked', 'ready') then (select n.variant from tasks n where n.id = {}) end", version_of_item("q")),
        role: Option<String> = "r.name",
        agent: Option<String> = "a.handle",
        workspace: Option<String> = "w.name",
        taken_by: Option<String> = "h.handle",
        initiated_by: Option<String> = "p.handle",
    } from "queue_items q join tasks t on t.id = q.task_id left join roles r on r.id = q.role_id left join agents a on a.id = q.agent_id left join workspaces w on w.id = q.workspace_id left join agents h on h.id = q.taken_by left join people p on p.id = q.initiated_by"
}

display_row! {
    pub struct BoardRow of board: Board as "b" {
        role: Option<String> = "r.name",
        conversation: Option<String> = "c.title",
        task: Option<Variant> = "t.variant",
        stickie_count: i64 = "(select count(*) from stickies s where s.tenant_id = b.tenant_id and s.board_id = b.id and s.deleted_at is null and s.archived_at is null)",
    } from "boards b left join roles r on r.id = b.role_id left join conversations c on c.id = b.conversation_id left join tasks t on t.id = b.task_id"
}

display_row! {
    /// A stickie with its author. The run is in the stickie's own row.
    pub struct StickieRow of stickie: Stickie as "s" {
        board: Option<String> = "b.name",
        author: Option<String> = "(select a.display_path from registry g join registry a on a.id = g.created_by where g.id = s.id)",
        created_by_task: Option<Variant> = "t.variant",
        archived: bool = "s.archived_at is not null",
    } from "stickies s join boards b on b.id = s.board_id left join tasks t on t.id = s.created_by_task_id"
}

display_row! {
    pub struct StickieRelationRow of relation: StickieRelation as "e" {
        from: Option<String> = "f.name",
        to: Option<String> = "t.name",
    } from "stickie_relations e join stickies f on f.id = e.from_id join stickies t on t.id = e.to_id"
}
