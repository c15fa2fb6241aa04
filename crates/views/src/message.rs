//! Messages of people and agents, and the work that they caused.

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time, Variant,
    enums::{MessageStatus, RunStatus},
    kind::{self, Kind},
    text,
};
use trackway_store::{Reader, Result, display::MessageRow, params, row, table::DisplayRow};
use uuid::Uuid;

use crate::{
    page::{Filter, ListPage, Order, Page, shorten_columns},
    view::View,
};

/// Filters for messages
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct MessageFilter {
    /// Only of this session
    #[arg(long)]
    pub session: Option<Ref<kind::Session>>,
    /// Only from this run; `last` is the newest
    #[arg(long)]
    pub run: Option<Ref<kind::Run>>,
    /// Only from this agent
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// Only of this role, or of runs in it
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Only from or to any version of this task
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// Only of this conversation
    #[arg(long)]
    pub conversation: Option<Ref<kind::Conversation>>,
    /// Only of this experiment
    #[arg(long)]
    pub experiment: Option<Ref<kind::Experiment>>,
    /// Only replies to this message
    #[arg(long, value_name = "MESSAGE")]
    pub reply_to: Option<Ref<kind::Message>>,
    /// Only to this agent, person, role or task (KIND:NAME if ambiguous)
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,
    /// Only with this tag
    #[arg(long)]
    pub tag: Option<String>,
    /// Only at or after this time, such as 2026-02-27
    #[arg(long, value_name = "TIME")]
    pub since: Option<Time>,
    /// Only before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<Time>,
}

/// A [`MessageFilter`] with its references resolved to ids.
#[derive(Debug, Clone)]
pub struct ResolvedMessageFilter {
    session: Option<Id<kind::Session>>,
    run: Option<Id<kind::Run>>,
    agent: Option<Id<kind::Agent>>,
    role: Option<IndexedCondition<kind::Role>>,
    task: Option<IndexedCondition<kind::Task>>,
    conversation: Option<Id<kind::Conversation>>,
    experiment: Option<Id<kind::Experiment>>,
    reply_to: Option<Id<kind::Message>>,
    to: Option<Uuid>,
    tag: Option<String>,
    since: Option<Time>,
    until: Option<Time>,
    /// The SQL condition for `tag`, which depends on the engine.
    tag_condition: String,
}

/// The kinds that a message can be addressed to.
const ADDRESSEES: &[Kind] = &[Kind::Agent, Kind::Person, Kind::Role, Kind::Task];

impl MessageFilter {
    pub fn resolve(&self, read: &mut Reader<'_>) -> Result<ResolvedMessageFilter> {
        let role = read.resolve_optional(self.role.as_ref())?;
        let task = read.resolve_optional(self.task.as_ref())?;
        Ok(ResolvedMessageFilter {
            session: read.resolve_optional(self.session.as_ref())?,
            run: read.resolve_optional(self.run.as_ref())?,
            agent: read.resolve_optional(self.agent.as_ref())?,
            role: role
                .map(|role| {
                    IndexedCondition::choose(read, role, MESSAGES_OF_ROLE, "coalesce(m.role_id, u.role_id) = ?")
                })
                .transpose()?,
            task: task
                .map(|task| {
                    let lookup = MESSAGES_OF_TASK.replace("{lineage}", LINEAGE);
                    let otherwise = IS_MESSAGE_OF_TASK.replace("{lineage}", LINEAGE).replace("{id}", "?");
                    IndexedCondition::choose(read, task, &lookup, &otherwise)
                })
                .transpose()?,
            conversation: read.resolve_optional(self.conversation.as_ref())?,
            experiment: read.resolve_optional(self.experiment.as_ref())?,
            reply_to: read.resolve_optional(self.reply_to.as_ref())?,
            to: self
                .to
                .as_deref()
                .map(|to| read.resolve_among(&text::clean_line(to), ADDRESSEES))
                .transpose()?
                .map(|(_, id)| id),
            tag: self.tag.as_deref().map(text::clean_line),
            since: self.since,
            until: self.until,
            tag_condition: read.engine().list_contains("m.tags", "?"),
        })
    }
}

// A message without a role or task of its own gets the role or task of its run. The messages of a task include those
// addressed to the task, and the messages of its other versions. Each select of a union can use its own index.
const MESSAGES_OF_ROLE: &str = "select i.id from messages i where i.tenant_id = ?1 and i.role_id = {id} union all
    select i.id from runs r cross join messages i where i.tenant_id = ?1 and i.from_run_id = r.id
    and r.tenant_id = ?1 and r.role_id = {id} and i.role_id is null";
const MESSAGES_OF_TASK: &str = "select i.id from tasks v cross join messages i where v.tenant_id = ?1 and v.lineage_id = {lineage}
    and i.tenant_id = ?1 and i.from_task_id = v.id
    union select i.id from tasks v cross join messages i where v.tenant_id = ?1 and v.lineage_id = {lineage}
    and i.tenant_id = ?1 and i.to_id = v.id
    union select i.id from tasks v cross join runs r cross join messages i where v.tenant_id = ?1 and v.lineage_id = {lineage}
    and r.tenant_id = ?1 and r.task_id = v.id and i.tenant_id = ?1 and i.from_run_id = r.id and i.from_task_id is null";
const IS_MESSAGE_OF_TASK: &str = "exists (select 1 from tasks v where v.tenant_id = ?1 and v.lineage_id = {lineage}
    and v.id in (coalesce(m.from_task_id, u.task_id), m.to_id))";
/// The lineage of the task `{id}`.
const LINEAGE: &str = "(select n.lineage_id from tasks n where n.tenant_id = ?1 and n.id = {id})";
/// Up to this many matches, the union finds the messages fastest. With more matches, a backward scan over all messages
/// finds the newest ones sooner.
const FEW_MAX: i64 = 1_000;

/// A filter by role or task, with the SQL condition that is faster for its number of matches.
#[derive(Debug, Clone)]
struct IndexedCondition<K> {
    id: Id<K>,
    condition: String,
}

impl<K> IndexedCondition<K> {
    fn choose(read: &mut Reader<'_>, id: Id<K>, union: &str, scan_condition: &str) -> Result<Self> {
        let counted = read.one::<(i64,)>(
            &format!("select count(*) from (select id from ({}) found limit ?3) few", union.replace("{id}", "?2")),
            params![id.uuid(), FEW_MAX + 1],
        )?;
        let is_few = counted.is_some_and(|(count,)| count <= FEW_MAX);
        let condition =
            if is_few { format!("m.id in ({})", union.replace("{id}", "?")) } else { scan_condition.to_owned() };
        Ok(Self { id, condition })
    }
}

impl ResolvedMessageFilter {
    /// The conditions, for a query in which `m` is the message and `u` its run.
    pub fn conditions(&self) -> Filter<'_> {
        let mut filter = Filter::default();
        if let Some(role) = &self.role {
            filter = filter.require_if_some(&role.condition, Some(&role.id));
        }
        if let Some(task) = &self.task {
            filter = filter.require_if_some(&task.condition, Some(&task.id));
        }
        filter
            .require_if_some("m.session_id = ?", self.session.as_ref())
            .require_if_some("m.from_run_id = ?", self.run.as_ref())
            .require_if_some("m.from_actor_id = ?", self.agent.as_ref())
            .require_if_some("m.conversation_id = ?", self.conversation.as_ref())
            .require_if_some("m.experiment_id = ?", self.experiment.as_ref())
            .require_if_some("m.in_reply_to = ?", self.reply_to.as_ref())
            .require_if_some("m.to_id = ?", self.to.as_ref())
            .require_if_some(&self.tag_condition, self.tag.as_ref())
            .require_if_some("m.created_at >= ?", self.since.as_ref())
            .require_if_some("m.created_at < ?", self.until.as_ref())
    }
}

/// Show a message
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetMessage {
    /// The message
    pub message: Ref<kind::Message>,
}

impl View for GetMessage {
    const COMMAND: (&'static str, &'static str) = ("message", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = MessageDetails;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<MessageDetails> {
        let id = read.resolve(&self.message)?;
        let message = read.display_row_by_id::<MessageRow>("m", id)?;
        let handled = find_handling(read, &message)?;
        Ok(MessageDetails { message, handled })
    }
}

/// A message and the work that it caused.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MessageDetails {
    #[serde(flatten)]
    pub message: MessageRow,
    pub handled: Vec<HandlingRow>,
}

row! {
    /// Work that a message caused: a queue item, a run, or both.
    pub struct HandlingRow {
        queue_item: Option<Id<kind::QueueItem>>,
        task: Option<Variant>,
        /// The status of the queue item, or of the run if there is no item.
        status: String,
        run: Option<Id<kind::Run>>,
        run_status: Option<RunStatus>,
    }
}

/// The queue items of a message with their runs, and the run that started with the message as its prompt.
fn find_handling(read: &mut Reader<'_>, message: &MessageRow) -> Result<Vec<HandlingRow>> {
    let id = message.message.id;
    let mut handled = read.query::<HandlingRow>(
        "select q.id, t.variant, q.status, r.id, r.status from queue_items q
         left join runs r on r.tenant_id = ?1 and r.queue_item_id = q.id join tasks t on t.id = coalesce(r.task_id, q.run_task_id, q.task_id)
         where q.tenant_id = ?1 and q.message_id = ?2 order by q.id, r.id",
        params![id],
    )?;
    if let Some(session) = message.message.session_id {
        handled.extend(read.query::<HandlingRow>(
            "select null, t.variant, r.status, r.id, r.status from runs r left join tasks t on t.id = r.task_id
             where r.tenant_id = ?1 and r.session_id = ?3 and r.cause_id = ?2 order by r.id",
            params![id, session],
        )?);
    }
    Ok(handled)
}

/// The condition on a status. The status is a literal, because the planner uses a partial index only for literals. The
/// index covers all statuses except `ingested`, which nearly all messages have.
fn status_condition(status: MessageStatus) -> &'static str {
    match status {
        MessageStatus::Ingested => "m.status = 'ingested'",
        MessageStatus::Succeeded => "m.status = 'succeeded'",
        MessageStatus::Failed => "m.status = 'failed'",
        MessageStatus::Timeout => "m.status = 'timeout'",
    }
}

/// List messages, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListMessages {
    /// Only messages with this status
    #[arg(long)]
    pub status: Option<MessageStatus>,
    #[command(flatten)]
    #[serde(flatten)]
    pub which: MessageFilter,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListMessages {
    const COMMAND: (&'static str, &'static str) = ("message", "list");
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "created_at",
        "from",
        "from_run_id",
        "to",
        "role",
        "title",
        "tags",
        "status",
        "body",
        "conversation",
        "session_id",
    ];
    type Output = ListPage<MessageRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let filter = self.which.resolve(read)?;
        let select = shorten_columns(MessageRow::select(), &["c.body"]);
        let filter = match self.status {
            None => filter.conditions(),
            Some(status) => filter.conditions().require(status_condition(status)),
        };
        self.page.read(read, &select, "m", filter, Order::NewestFirst, |shown: &MessageRow| shown.message.id.uuid())
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}
