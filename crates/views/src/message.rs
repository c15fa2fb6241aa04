//! Messages: what people and agents said.

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time, Variant,
    kind::{self, Kind},
    text,
    words::{MessageStatus, RunStatus},
};
use trackway_store::{Reader, Result, display::MessageShown, params, row, table::Shown};
use uuid::Uuid;

use crate::{
    page::{Filter, Listed, Order, Page, cut_texts},
    view::View,
};

/// Which messages are wanted
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Which {
    /// Only in this session
    #[arg(long)]
    pub session: Option<Ref<kind::Session>>,
    /// Only from this run; `last` is the newest
    #[arg(long)]
    pub run: Option<Ref<kind::Run>>,
    /// Only from this agent
    #[arg(long)]
    pub agent: Option<Ref<kind::Agent>>,
    /// Only in this role: their own, else their run's
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Only from or to this task, whatever version
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// Only in this conversation
    #[arg(long)]
    pub conversation: Option<Ref<kind::Conversation>>,
    /// Only in this experiment
    #[arg(long)]
    pub experiment: Option<Ref<kind::Experiment>>,
    /// Only answers to this message
    #[arg(long, value_name = "MESSAGE")]
    pub reply_to: Option<Ref<kind::Message>>,
    /// Only for this agent, person, role or task; agent:NAME and so on where a name is not enough
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,
    /// Only with this tag
    #[arg(long)]
    pub tag: Option<String>,
    /// Only from this day or time on, as 2026-02-27
    #[arg(long, value_name = "TIME")]
    pub since: Option<Time>,
    /// Only before this day or time
    #[arg(long, value_name = "TIME")]
    pub until: Option<Time>,
}

/// The same, with what the references name.
#[derive(Debug, Clone)]
pub struct Wanted {
    session: Option<Id<kind::Session>>,
    run: Option<Id<kind::Run>>,
    agent: Option<Id<kind::Agent>>,
    role: Option<Belonging<kind::Role>>,
    task: Option<Belonging<kind::Task>>,
    conversation: Option<Id<kind::Conversation>>,
    experiment: Option<Id<kind::Experiment>>,
    reply_to: Option<Id<kind::Message>>,
    to: Option<Uuid>,
    tag: Option<String>,
    since: Option<Time>,
    until: Option<Time>,
    tagged: String,
}

/// Whom a message can be for.
const ADDRESSEES: &[Kind] = &[Kind::Agent, Kind::Person, Kind::Role, Kind::Task];

impl Which {
    pub fn resolve(&self, read: &mut Reader<'_>) -> Result<Wanted> {
        let role = read.resolve_optional(self.role.as_ref())?;
        let task = read.resolve_optional(self.task.as_ref())?;
        Ok(Wanted {
            session: read.resolve_optional(self.session.as_ref())?,
            run: read.resolve_optional(self.run.as_ref())?,
            agent: read.resolve_optional(self.agent.as_ref())?,
            role: role
                .map(|role| Belonging::find(read, role, OF_ROLE, "coalesce(m.role_id, u.role_id) = ?"))
                .transpose()?,
            task: task
                .map(|task| {
                    let lookup = OF_TASK.replace("{lineage}", LINEAGE);
                    let otherwise = OF_TASK_BY_SCAN.replace("{lineage}", LINEAGE).replace("{id}", "?");
                    Belonging::find(read, task, &lookup, &otherwise)
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
            tagged: read.engine().list_contains("m.tags", "?"),
        })
    }
}

/// A message belongs to the role that it names, else to its run's role; and to the task that it names or is addressed to, else to
/// its run's task, whichever version that is. These queries find such messages by an index for each way.
const OF_ROLE: &str = "select i.id from messages i where i.tenant_id = ?1 and i.role_id = {id} union all
    select i.id from runs r cross join messages i where i.tenant_id = ?1 and i.from_run_id = r.id
    and r.tenant_id = ?1 and r.role_id = {id} and i.role_id is null";
const OF_TASK: &str = "select i.id from tasks v cross join messages i where v.tenant_id = ?1 and v.lineage_id = {lineage}
    and i.tenant_id = ?1 and i.from_task_id = v.id
    union select i.id from tasks v cross join messages i where v.tenant_id = ?1 and v.lineage_id = {lineage}
    and i.tenant_id = ?1 and i.to_id = v.id
    union select i.id from tasks v cross join runs r cross join messages i where v.tenant_id = ?1 and v.lineage_id = {lineage}
    and r.tenant_id = ?1 and r.task_id = v.id and i.tenant_id = ?1 and i.from_run_id = r.id and i.from_task_id is null";
const OF_TASK_BY_SCAN: &str = "exists (select 1 from tasks v where v.tenant_id = ?1 and v.lineage_id = {lineage}
    and v.id in (coalesce(m.from_task_id, u.task_id), m.to_id))";
/// The lineage of the task `{id}`.
const LINEAGE: &str = "(select n.lineage_id from tasks n where n.tenant_id = ?1 and n.id = {id})";
/// Messages up to which they are looked up. Of more, the newest are found sooner by going through all of them backwards.
const FEW: i64 = 1_000;

/// A filter on messages that can be found in two ways.
#[derive(Debug, Clone)]
struct Belonging<K> {
    to: Id<K>,
    condition: String,
}

impl<K> Belonging<K> {
    fn find(read: &mut Reader<'_>, to: Id<K>, lookup: &str, otherwise: &str) -> Result<Self> {
        let counted = read.one::<(i64,)>(
            &format!("select count(*) from (select id from ({}) found limit ?3) few", lookup.replace("{id}", "?2")),
            params![to.uuid(), FEW + 1],
        )?;
        let is_few = counted.is_some_and(|(count,)| count <= FEW);
        let condition =
            if is_few { format!("m.id in ({})", lookup.replace("{id}", "?")) } else { otherwise.to_owned() };
        Ok(Self { to, condition })
    }
}

impl Wanted {
    /// Conditions on a message `m` and its run `u`.
    pub fn filter(&self) -> Filter<'_> {
        let mut filter = Filter::default();
        if let Some(role) = &self.role {
            filter = filter.and(&role.condition, Some(&role.to));
        }
        if let Some(task) = &self.task {
            filter = filter.and(&task.condition, Some(&task.to));
        }
        filter
            .and("m.session_id = ?", self.session.as_ref())
            .and("m.from_run_id = ?", self.run.as_ref())
            .and("m.from_actor_id = ?", self.agent.as_ref())
            .and("m.conversation_id = ?", self.conversation.as_ref())
            .and("m.experiment_id = ?", self.experiment.as_ref())
            .and("m.in_reply_to = ?", self.reply_to.as_ref())
            .and("m.to_id = ?", self.to.as_ref())
            .and(&self.tagged, self.tag.as_ref())
            .and("m.created_at >= ?", self.since.as_ref())
            .and("m.created_at < ?", self.until.as_ref())
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
    type Output = Handled;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Handled> {
        let id = read.resolve(&self.message)?;
        let message = read.shown_by_id::<MessageShown>("m", id)?;
        let handled = handling(read, &message)?;
        Ok(Handled { message, handled })
    }
}

/// A message, and how it was handled.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Handled {
    #[serde(flatten)]
    pub message: MessageShown,
    pub handled: Vec<Handling>,
}

row! {
    /// Work that came of a message: an item of the queue, a run, or both.
    pub struct Handling {
        queue_item: Option<Id<kind::QueueItem>>,
        task: Option<Variant>,
        /// Of the item, else of the run.
        status: String,
        run: Option<Id<kind::Run>>,
        run_status: Option<RunStatus>,
    }
}

/// How a message was handled, read from what came of it: a run for each time its items were taken, or the run that a
/// prompt began.
fn handling(read: &mut Reader<'_>, message: &MessageShown) -> Result<Vec<Handling>> {
    let id = message.message.id;
    let mut handled = read.query::<Handling>(
        "select q.id, t.variant, q.status, r.id, r.status from queue_items q
         left join runs r on r.tenant_id = ?1 and r.queue_item_id = q.id join tasks t on t.id = coalesce(r.task_id, q.run_task_id, q.task_id)
         where q.tenant_id = ?1 and q.message_id = ?2 order by q.id, r.id",
        params![id],
    )?;
    if let Some(session) = message.message.session_id {
        handled.extend(read.query::<Handling>(
            "select null, t.variant, r.status, r.id, r.status from runs r left join tasks t on t.id = r.task_id
             where r.tenant_id = ?1 and r.session_id = ?3 and r.cause_id = ?2 order by r.id",
            params![id, session],
        )?);
    }
    Ok(handled)
}

/// The condition on a status, as a literal: the index of the other statuses leaves out `ingested`, which nearly all have.
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
    /// Only with this status
    #[arg(long)]
    pub status: Option<MessageStatus>,
    #[command(flatten)]
    #[serde(flatten)]
    pub which: Which,
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
    type Output = Listed<MessageShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let wanted = self.which.resolve(read)?;
        let select = cut_texts(MessageShown::select(), &["c.body"]);
        let filter = match self.status {
            None => wanted.filter(),
            Some(status) => wanted.filter().always(status_condition(status)),
        };
        self.page.read(read, &select, "m", filter, Order::NewestFirst, |shown: &MessageShown| shown.message.id.uuid())
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}
