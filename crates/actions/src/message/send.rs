//! Sending messages, and queueing the tasks that they are sent or routed to.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Error as Rule, Id, Ref,
    enums::MessageStatus,
    field,
    kind::{self, Kind},
    patch, sentence, text,
};
use trackway_store::{
    Writer, params,
    tables::{Message, NewRegistryEntry},
};
use uuid::Uuid;

use super::{
    RunDefaults,
    content::{self, StoredContent},
    lookup::LookupCache,
};
use crate::{
    action::{Action, ActionOutcome, LongText, Resource},
    context::Context,
    error::Result,
    queue::{self, NewItem, enqueue_all},
    route::{Destination, MatchingRoute},
    touched::{Touch, action_type},
};

/// Send a message
///
/// Messages with the same body share one stored copy of it.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// Body, at most 1,000,000 characters
    #[arg(long, default_value = "", hide_default_value = true)]
    #[schemars(length(min = 1, max = text::BODY_MAX), regex(pattern = text::NOT_BLANK_PATTERN))]
    pub body: String,
    /// Conversation of the message [default: the experiment's, else that of the --reply-to message]
    #[arg(long)]
    pub conversation: Option<Ref<kind::Conversation>>,
    /// Experiment that the message is part of
    #[arg(long)]
    pub experiment: Option<Ref<kind::Experiment>>,
    /// Role that the message is sent in [default: the run's]
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Tag that routes can match. Repeatable
    #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub tags: Option<Vec<String>>,
    /// Addressee: an agent, a person or a role. Write agent:NAME, person:NAME or role:NAME if the name is ambiguous
    #[arg(long, value_name = "NAME", conflicts_with = "to_task")]
    pub to: Option<String>,
    /// Task to queue for this message
    #[arg(long, value_name = "TASK")]
    pub to_task: Option<Ref<kind::Task>>,
    /// Run exactly this version of the task, not the version pinned for the role or the current version
    #[arg(long, requires = "to_task")]
    #[serde(default)]
    pub exact: bool,
    /// Message that this one replies to
    #[arg(long, value_name = "MESSAGE")]
    pub reply_to: Option<Ref<kind::Message>>,
    /// Title
    #[arg(long)]
    pub title: Option<String>,
    /// Goal
    #[arg(long)]
    pub goal: Option<String>,
    /// Status [default: ingested]
    #[arg(long)]
    pub status: Option<MessageStatus>,
    /// Error message
    #[arg(long)]
    pub error_message: Option<String>,
}

/// A message that was sent.
#[derive(Debug, Serialize)]
pub struct SentMessage {
    pub id: Id<kind::Message>,
    pub content_id: Uuid,
    /// Whether this is the first message with this body.
    pub content_new: bool,
    /// The first of `queue_items`.
    pub queue_item_id: Option<Id<kind::QueueItem>>,
    pub queue_items: Vec<Id<kind::QueueItem>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

impl Action for SendMessage {
    const NAME: &'static str = "send_message";
    const COMMAND: (&'static str, &'static str) = ("message", "send");
    const LONG_TEXT: Option<LongText> = Some(LongText::Flag { field: "body", characters_max: text::BODY_MAX });
    type Touched = (Touch<kind::Message, action_type::Send>, Touch<kind::QueueItem, action_type::Create>);
    type Output = SentMessage;

    fn set_long_text(&mut self, text: String) {
        self.body = text;
    }

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let outcomes = Self::perform_all(std::slice::from_ref(self), context, write)?;
        outcomes.into_iter().next().ok_or_else(|| Rule::usage("no message was given").into())
    }

    fn perform_all(actions: &[Self], context: &Context, write: &mut Writer<'_>) -> Result<Vec<ActionOutcome<Self>>> {
        let bodies = actions.iter().map(Self::cleaned_body).collect::<Result<Vec<_>>>()?;
        let run_defaults = RunDefaults::of(context, write)?;
        let mut cache = LookupCache::default();
        let mut messages = Vec::with_capacity(actions.len());
        let mut destinations = Vec::new();
        for action in actions {
            let message = action.message(context, write, run_defaults, &mut cache)?;
            let routes = action.destinations(write, &message, &mut cache)?;
            destinations.extend(routes.into_iter().map(|to| (messages.len(), to)));
            messages.push(message);
        }
        let contents = content::store_all(context, write, &bodies.iter().map(String::as_str).collect::<Vec<_>>())?;
        for (message, content) in messages.iter_mut().zip(&contents) {
            message.content_id = content.id;
        }
        write.insert_all(&messages)?;
        let resources: Vec<_> = messages.iter().map(resource).collect();
        let entries: Vec<_> = resources
            .iter()
            .map(|resource| NewRegistryEntry::new(write, context.actor.id(), resource.id, &resource.path))
            .collect();
        write.insert_all(&entries)?;
        let mut items = enqueue_destinations(context, write, &messages, &destinations)?;
        let outcome = |((message, content), resource): ((&Message, &StoredContent), Resource<kind::Message>)| {
            let (queue_items, notices) = items.remove(&message.id).unwrap_or_default();
            let queued = Touch::many(queue_items.iter().copied().map(queue::resource));
            let sent = SentMessage {
                id: message.id,
                content_id: content.id,
                content_new: content.new,
                queue_item_id: queue_items.first().copied(),
                queue_items,
                notices,
            };
            ActionOutcome::changed(sent, &resource, (Touch::one(resource.clone()), queued))
        };
        Ok(messages.iter().zip(&contents).zip(resources).map(outcome).collect())
    }
}

fn resource(message: &Message) -> Resource<kind::Message> {
    Resource::new(message.id, format!("messages/{}", message.id.short()))
}

type ConversationAndExperiment = (Option<Id<kind::Conversation>>, Option<Id<kind::Experiment>>);

impl SendMessage {
    fn cleaned_body(&self) -> Result<String> {
        let body = text::check_body("body", &self.body, text::BODY_MAX)?;
        if body.trim().is_empty() {
            return Err(Rule::usage("body is empty").hint(sentence!["pass the text with ", field!(body)]).into());
        }
        Ok(body)
    }

    /// The message row, without its content id.
    fn message(
        &self,
        context: &Context,
        write: &mut Writer<'_>,
        run_defaults: RunDefaults,
        cache: &mut LookupCache,
    ) -> Result<Message> {
        let line = |field, given: &Option<String>| {
            given.as_deref().map(|given| text::check_line(field, given, text::LINE_MAX)).transpose()
        };
        let body = |field, given: &Option<String>| {
            given.as_deref().map(|given| text::check_body(field, given, text::TEXT_MAX)).transpose()
        };
        let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
        let (to_kind, to_id) = self.addressee(write, cache)?.unzip();
        let in_reply_to = cache.resolve(write, self.reply_to.as_ref())?;
        let (conversation_id, experiment_id) = self.conversation_and_experiment(write, in_reply_to, cache)?;
        Ok(Message {
            id: write.new_id(),
            tenant_id: context.tenant,
            content_id: Uuid::nil(),
            from_actor_kind: context.actor.kind(),
            from_actor_id: context.actor.id(),
            from_run_id: context.run,
            session_id: None,
            line: None,
            created_at: write.now,
            from_task_id: run_defaults.task,
            to_kind,
            to_id,
            in_reply_to,
            conversation_id,
            experiment_id,
            role_id: cache.resolve(write, self.role.as_ref())?.or(run_defaults.role),
            status: self.status.unwrap_or(MessageStatus::Ingested),
            error_message: non_empty(body("error message", &self.error_message)?),
            title: non_empty(line("title", &self.title)?),
            goal: non_empty(body("goal", &self.goal)?),
            tags: patch::clean_list("tag", self.tags.as_deref())?.unwrap_or_default(),
        })
    }

    fn addressee(&self, write: &mut Writer<'_>, cache: &mut LookupCache) -> Result<Option<(Kind, Uuid)>> {
        match (&self.to, &self.to_task) {
            (Some(_), Some(_)) => {
                Err(Rule::usage("a message can have one addressee: an actor, a role or a task").into())
            }
            (Some(to), None) => cache.addressee(write, to).map(Some),
            (None, Some(task)) => Ok(Some((Kind::Task, cache.task(write, task, self.exact)?.task.uuid()))),
            (None, None) => Ok(None),
        }
    }

    /// By default, a reply belongs to the conversation and experiment of the message that it replies to.
    fn conversation_and_experiment(
        &self,
        write: &mut Writer<'_>,
        in_reply_to: Option<Id<kind::Message>>,
        cache: &mut LookupCache,
    ) -> Result<ConversationAndExperiment> {
        let conversation = cache.resolve(write, self.conversation.as_ref())?;
        if let Some(experiment) = &self.experiment {
            let experiment = cache.experiment(write, experiment)?;
            if conversation.is_some_and(|conversation| conversation != experiment.conversation_id) {
                return Err(Rule::usage(format!(
                    "the experiment {:?} is part of another conversation",
                    experiment.title
                ))
                .hint(sentence!["leave out ", field!(conversation), ": it follows from the experiment"])
                .into());
            }
            return Ok((Some(experiment.conversation_id), Some(experiment.id)));
        }
        if let (None, Some(parent)) = (conversation, in_reply_to) {
            let inherited = write.one(
                "select conversation_id, experiment_id from messages where tenant_id = ?1 and id = ?2",
                params![parent],
            )?;
            return Ok(inherited.unwrap_or_default());
        }
        Ok((conversation, None))
    }

    /// The tasks to queue for the message: the one it is sent to, then those of the routes that match its tags and
    /// role, the oldest route first.
    fn destinations(
        &self,
        write: &mut Writer<'_>,
        message: &Message,
        cache: &mut LookupCache,
    ) -> Result<Vec<Destination>> {
        let mut routes: Vec<MatchingRoute> = Vec::new();
        for tag in &message.tags {
            routes.extend_from_slice(cache.routes(write, tag)?);
        }
        routes.retain(|route| route.required_role.is_none() || route.required_role == message.role_id);
        routes.sort_unstable_by_key(|route| route.route);
        let sent_to = self.to_task.as_ref().map(|task| cache.task(write, task, self.exact)).transpose()?;
        Ok(sent_to.into_iter().chain(routes.into_iter().map(|route| route.to)).collect())
    }
}

/// The queue items of each message, and notices about them.
type ItemsByMessage = HashMap<Id<kind::Message>, (Vec<Id<kind::QueueItem>>, Vec<String>)>;

/// Adds a queue item for each destination. A destination names its message by index.
fn enqueue_destinations(
    context: &Context,
    write: &mut Writer<'_>,
    messages: &[Message],
    destinations: &[(usize, Destination)],
) -> Result<ItemsByMessage> {
    let item = |(index, to): &(usize, Destination)| NewItem {
        description: messages[*index].title.clone(),
        tags: messages[*index].tags.clone(),
        role: to.role,
        workspace: to.workspace,
        message: Some(messages[*index].id),
        is_message_new: true,
        route: to.route,
        exact: to.exact,
        variant_without_live_version: to.variant_without_live_version.clone(),
        ..NewItem::of(to.task)
    };
    let added = enqueue_all(context, write, destinations.iter().map(item).collect())?;
    let mut queued = ItemsByMessage::new();
    for ((index, _), added) in destinations.iter().zip(added) {
        let (items, notices) = queued.entry(messages[*index].id).or_default();
        items.push(added.id);
        notices.extend(added.notices);
    }
    Ok(queued)
}
