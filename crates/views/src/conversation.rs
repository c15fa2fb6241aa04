//! Conversations.

use serde::Deserialize;
use trackway_domain::{Ref, Time, kind};
use trackway_store::{Reader, Result, display::ConversationShown, table::Shown};

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
