//! Conversations, the tries made in them and their results, and the routes from messages to tasks.

use serde::Deserialize;
use trackway_domain::{
    Ref, Time, kind,
    words::{ExperimentStatus, TestcaseStatus},
};
use trackway_store::{
    Reader, Result,
    display::{ConversationShown, ExperimentShown, RouteShown, TestcaseShown},
    table::Shown,
};

use crate::{
    page::{Filter, Listed, Order, Page, cut_texts},
    view::View,
};

/// Show a conversation
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetConversation {
    /// The conversation
    pub conversation: Ref<kind::Conversation>,
}

impl View for GetConversation {
    const COMMAND: (&'static str, &'static str) = ("conversation", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = ConversationShown;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<ConversationShown> {
        let id = read.resolve(&self.conversation)?;
        read.shown_by_id("c", id)
    }
}

/// List conversations, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListConversations {
    /// Only held in this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Only of this project
    #[arg(long)]
    pub project: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListConversations {
    const COMMAND: (&'static str, &'static str) = ("conversation", "list");
    const COLUMNS: &'static [&'static str] =
        &["id", "title", "project", "role", "tags", "experiments", "messages", "created_at"];
    type Output = Listed<ConversationShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let role = read.resolve_optional(self.role.as_ref())?;
        let filter = Filter::default()
            .always("c.deleted_at is null")
            .and("c.role_id = ?", role.as_ref())
            .and("c.project = ?", self.project.as_ref());
        let select = cut_texts(ConversationShown::select(), &["c.description", "c.notes"]);
        self.page.read(read, &select, "c", filter, Order::NewestFirst, |shown: &ConversationShown| {
            shown.conversation.id.uuid()
        })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

/// Show an experiment
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetExperiment {
    /// The experiment
    pub experiment: Ref<kind::Experiment>,
}

impl View for GetExperiment {
    const COMMAND: (&'static str, &'static str) = ("experiment", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = ExperimentShown;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<ExperimentShown> {
        let id = read.resolve(&self.experiment)?;
        read.shown_by_id("x", id)
    }
}

/// List experiments, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListExperiments {
    /// Only in this conversation
    #[arg(long)]
    pub conversation: Option<Ref<kind::Conversation>>,
    /// Only those that stand so
    #[arg(long)]
    pub status: Option<ExperimentStatus>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListExperiments {
    const COMMAND: (&'static str, &'static str) = ("experiment", "list");
    const COLUMNS: &'static [&'static str] =
        &["id", "title", "conversation", "status", "outcome", "messages", "testcases", "created_at", "ended_at"];
    type Output = Listed<ExperimentShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let conversation = read.resolve_optional(self.conversation.as_ref())?;
        let filter = Filter::default()
            .always("x.deleted_at is null")
            .and("x.conversation_id = ?", conversation.as_ref())
            .and("x.status = ?", self.status.as_ref());
        let select = cut_texts(ExperimentShown::select(), &["x.outcome"]);
        self.page
            .read(read, &select, "x", filter, Order::NewestFirst, |shown: &ExperimentShown| shown.experiment.id.uuid())
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

/// Show a route
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetRoute {
    /// The route
    pub route: Ref<kind::Route>,
}

impl View for GetRoute {
    const COMMAND: (&'static str, &'static str) = ("route", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = RouteShown;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<RouteShown> {
        let id = read.resolve(&self.route)?;
        read.shown_by_id("o", id)
    }
}

/// List routes
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListRoutes {
    /// Only for messages with this tag
    #[arg(long)]
    pub tag: Option<String>,
    /// Only to this task
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListRoutes {
    const COMMAND: (&'static str, &'static str) = ("route", "list");
    const COLUMNS: &'static [&'static str] = &["id", "tag", "role", "task", "would_run", "workspace"];
    type Output = Listed<RouteShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let task = read.resolve_optional(self.task.as_ref())?;
        let filter = Filter::default()
            .always("o.deleted_at is null")
            .and("o.tag = ?", self.tag.as_ref())
            .and("o.task_id = ?", task.as_ref());
        self.page.read(read, RouteShown::select(), "o", filter, Order::OldestFirst, |shown: &RouteShown| {
            shown.route.id.uuid()
        })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

/// Show a test case
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetTestcase {
    /// The test case
    pub testcase: Ref<kind::Testcase>,
}

impl View for GetTestcase {
    const COMMAND: (&'static str, &'static str) = ("testcase", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = TestcaseShown;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<TestcaseShown> {
        let id = read.resolve(&self.testcase)?;
        read.shown_by_id("t", id)
    }
}

/// List test cases, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListTestcases {
    /// Only results of this experiment
    #[arg(long)]
    pub experiment: Option<Ref<kind::Experiment>>,
    /// Only those that went so
    #[arg(long)]
    pub status: Option<TestcaseStatus>,
    /// Only tested in this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListTestcases {
    const COMMAND: (&'static str, &'static str) = ("testcase", "list");
    const COLUMNS: &'static [&'static str] =
        &["id", "status", "title", "file", "line", "duration_ms", "experiment", "role", "error"];
    type Output = Listed<TestcaseShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let experiment = read.resolve_optional(self.experiment.as_ref())?;
        let role = read.resolve_optional(self.role.as_ref())?;
        let filter = Filter::default()
            .and("t.experiment_id = ?", experiment.as_ref())
            .and("t.status = ?", self.status.as_ref())
            .and("t.role_id = ?", role.as_ref());
        let select = cut_texts(TestcaseShown::select(), &["t.error"]);
        self.page.read(read, &select, "t", filter, Order::NewestFirst, |shown: &TestcaseShown| shown.testcase.id.uuid())
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}
