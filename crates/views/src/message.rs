//! Messages: what people and agents said.

use serde::Deserialize;
use trackway_domain::{Id, Ref, Time, kind};
use trackway_store::{Reader, Result, shown::MessageShown, table::Shown};

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
    /// Only from runs in this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Only from runs of this task
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// Only from this time on, as 2026-02-27T09:30:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<Time>,
}

/// The same, with what the references name.
#[derive(Debug, Clone)]
pub struct Wanted {
    session: Option<Id<kind::Session>>,
    run: Option<Id<kind::Run>>,
    agent: Option<Id<kind::Agent>>,
    role: Option<Id<kind::Role>>,
    task: Option<Id<kind::Task>>,
    since: Option<Time>,
}

impl Which {
    pub fn resolve(&self, read: &mut Reader<'_>) -> Result<Wanted> {
        Ok(Wanted {
            session: read.resolve_optional(self.session.as_ref())?,
            run: read.resolve_optional(self.run.as_ref())?,
            agent: read.resolve_optional(self.agent.as_ref())?,
            role: read.resolve_optional(self.role.as_ref())?,
            task: read.resolve_optional(self.task.as_ref())?,
            since: self.since,
        })
    }
}

impl Wanted {
    /// Conditions on a message `m` and its run `u`.
    pub fn filter(&self) -> Filter<'_> {
        Filter::default()
            .and("m.session_id = ?", self.session.as_ref())
            .and("m.from_run_id = ?", self.run.as_ref())
            .and("m.from_actor_id = ?", self.agent.as_ref())
            .and("u.role_id = ?", self.role.as_ref())
            .and("u.task_id = ?", self.task.as_ref())
            .and("m.created_at >= ?", self.since.as_ref())
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
    type Output = MessageShown;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<MessageShown> {
        let id = read.resolve(&self.message)?;
        read.shown_by_id("m", id)
    }
}

/// List messages, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListMessages {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: Which,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListMessages {
    const COMMAND: (&'static str, &'static str) = ("message", "list");
    const COLUMNS: &'static [&'static str] = &["id", "created_at", "from", "role", "body", "session_id"];
    type Output = Listed<MessageShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let wanted = self.which.resolve(read)?;
        let select = cut_texts(MessageShown::select(), &["c.body"]);
        self.page.read(read, &select, "m", wanted.filter(), Order::NewestFirst, |shown: &MessageShown| {
            shown.message.id.uuid()
        })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}
