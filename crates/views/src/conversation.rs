use serde::Deserialize;
use trackway_domain::{Ref, Time, kind};
use trackway_store::{Reader, Result, display::ConversationRow, table::DisplayRow};

use crate::{
    page::{Filter, ListPage, Order, Page, shorten_columns},
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
    type Output = ConversationRow;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<ConversationRow> {
        let id = read.resolve(&self.conversation)?;
        read.display_row_by_id("c", id)
    }
}

/// List conversations, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListConversations {
    /// Only conversations of this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Only conversations of this project
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
    type Output = ListPage<ConversationRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let role = read.resolve_optional(self.role.as_ref())?;
        let filter = Filter::default()
            .require("c.deleted_at is null")
            .require_if_some("c.role_id = ?", role.as_ref())
            .require_if_some("c.project = ?", self.project.as_ref());
        let select = shorten_columns(ConversationRow::select(), &["c.description", "c.notes"]);
        self.page.read(read, &select, "c", filter, Order::NewestFirst, |shown: &ConversationRow| {
            shown.conversation.id.uuid()
        })
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}
