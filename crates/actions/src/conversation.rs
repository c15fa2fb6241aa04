//! Conversations: groups of messages that belong together.

use serde::Deserialize;
use trackway_domain::{
    Error as Rule, Patch, Ref, field, kind,
    patch::{self, UNSET},
    sentence, text,
};
use trackway_store::{Writer, params, tables::Conversation};

use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    definition::{UpsertResult, definition, outcome_with_touch, save},
    error::Result,
    touched::CreatedOrUpdated,
};

definition!(Conversation, kind::Conversation, title);

/// Create or update a conversation
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetConversation {
    /// Conversation to update [default: a new one]
    pub conversation: Option<Ref<kind::Conversation>>,
    /// Title (required for a new conversation)
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NOT_BLANK_PATTERN))]
    pub title: Option<String>,
    /// Description
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub description: Patch<String>,
    /// Project that the conversation belongs to
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub project: Patch<String>,
    /// Role that the conversation is held in
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub role: Patch<Ref<kind::Role>>,
    /// Tag. Repeatable; empty for no tags
    #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub tags: Option<Vec<String>>,
    /// Notes
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub notes: Patch<String>,
}

impl Action for SetConversation {
    const NAME: &'static str = "set_conversation";
    const COMMAND: (&'static str, &'static str) = ("conversation", "set");
    const ALIAS: Option<&'static str> = Some("create");
    type Touched = CreatedOrUpdated<kind::Conversation>;
    type Output = UpsertResult<Conversation>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { conversation, title, description, project, role, tags, notes } = self;
        let before = conversation.as_ref().map(|reference| locked_conversation(write, reference)).transpose()?;
        let title =
            title.as_deref().map(|title| text::check_required_line("title", title, text::LINE_MAX)).transpose()?;
        let conversation = match (&before, &title) {
            (Some(before), _) => before.clone(),
            (None, None) => {
                return Err(Rule::usage("a new conversation needs a title")
                    .hint(sentence!["add ", field!(title)])
                    .into());
            }
            (None, Some(_)) => Conversation {
                id: write.new_id(),
                tenant_id: context.tenant,
                title: String::new(),
                description: None,
                project: None,
                role_id: None,
                tags: Vec::new(),
                notes: None,
                created_at: write.now,
                updated_at: write.now,
                deleted_at: None,
            },
        };
        let conversation = Conversation {
            id: conversation.id,
            tenant_id: conversation.tenant_id,
            title: title.unwrap_or(conversation.title),
            description: description.body("description", text::TEXT_MAX)?.apply(conversation.description),
            project: project.line("project", text::LINE_MAX)?.apply(conversation.project),
            role_id: role.clone().try_map(|role| write.resolve(&role))?.apply(conversation.role_id),
            tags: patch::clean_list("tag", tags.as_deref())?.unwrap_or(conversation.tags),
            notes: notes.body("notes", text::TEXT_MAX)?.apply(conversation.notes),
            created_at: conversation.created_at,
            updated_at: conversation.updated_at,
            deleted_at: conversation.deleted_at,
        };
        let (conversation, saved) = save(context, write, before.as_ref(), conversation)?;
        Ok(outcome_with_touch(conversation, saved))
    }
}

pub(crate) fn locked_conversation(write: &mut Writer<'_>, reference: &Ref<kind::Conversation>) -> Result<Conversation> {
    let id = write.resolve(reference)?;
    Ok(write
        .row_locked::<Conversation>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no conversation {reference:?}")))?)
}
