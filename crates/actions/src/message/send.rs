//! Sending a message, and what becomes work by it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Error as Rule, Id, Ref, field,
    kind::{self, Kind},
    patch, sentence, text,
    words::MessageStatus,
};
use trackway_store::{
    Writer, params,
    tables::{Message, Registered},
};
use uuid::Uuid;

use super::{
    OfRun,
    content::{self, Kept},
    lookup::Known,
};
use crate::{
    action::{Action, Done, LongText, Resource},
    context::Context,
    error::Result,
    queue::{self, NewItem, enqueue_all},
    route::{Destination, Way},
    touched::{Touch, did},
};

/// Send a message
///
/// What it says is kept once, however often it is sent.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// What it says, to 1,000,000 characters
    #[arg(long, default_value = "", hide_default_value = true)]
    #[schemars(length(min = 1, max = text::BODY_MAX), regex(pattern = text::SAYS_SOMETHING))]
    pub body: String,
    /// The conversation it is part of (the experiment's, else that of the message it answers)
    #[arg(long)]
    pub conversation: Option<Ref<kind::Conversation>>,
    /// The experiment it is part of
    #[arg(long)]
    pub experiment: Option<Ref<kind::Experiment>>,
    /// The role it is sent in (the run's, when it is not said)
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// A tag; repeat for several. Routes go by it
    #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub tags: Option<Vec<String>>,
    /// Whom it is for: an agent, a person or a role; agent:NAME, person:NAME or role:NAME where a name is not enough
    #[arg(long, value_name = "NAME", conflicts_with = "to_task")]
    pub to: Option<String>,
    /// The task it is work for: it is queued at once
    #[arg(long, value_name = "TASK")]
    pub to_task: Option<Ref<kind::Task>>,
    /// Queue exactly this version of the task, not the pin of its role or the current version
    #[arg(long, requires = "to_task")]
    #[serde(default)]
    pub exact: bool,
    /// The message it answers
    #[arg(long, value_name = "MESSAGE")]
    pub reply_to: Option<Ref<kind::Message>>,
    /// Its title
    #[arg(long)]
    pub title: Option<String>,
    /// What is to be reached
    #[arg(long)]
    pub goal: Option<String>,
    /// What you say about it (ingested, when it is not said)
    #[arg(long)]
    pub status: Option<MessageStatus>,
    /// What went wrong
    #[arg(long)]
    pub error_message: Option<String>,
}

/// A message that was sent.
#[derive(Debug, Serialize)]
pub struct Sent {
    pub id: Id<kind::Message>,
    pub content_id: Uuid,
    /// Whether nobody had said this before.
    pub content_new: bool,
    /// The first of the queue items it made.
    pub queue_item_id: Option<Id<kind::QueueItem>>,
    pub queue_items: Vec<Id<kind::QueueItem>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

impl Action for SendMessage {
    const NAME: &'static str = "send_message";
    const COMMAND: (&'static str, &'static str) = ("message", "send");
    const LONG_TEXT: Option<LongText> = Some(LongText::Flag { field: "body", characters_max: text::BODY_MAX });
    type Touched = (Touch<kind::Message, did::Send>, Touch<kind::QueueItem, did::Create>);
    type Output = Sent;

    fn put_text(&mut self, text: String) {
        self.body = text;
    }

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let dones = Self::perform_all(std::slice::from_ref(self), context, write)?;
        dones.into_iter().next().ok_or_else(|| Rule::usage("there is nothing to send").into())
    }

    fn perform_all(actions: &[Self], context: &Context, write: &mut Writer<'_>) -> Result<Vec<Done<Self>>> {
        let bodies = actions.iter().map(Self::cleaned_body).collect::<Result<Vec<_>>>()?;
        let of_run = OfRun::of(context, write)?;
        let mut known = Known::default();
        let mut messages = Vec::with_capacity(actions.len());
        let mut destinations = Vec::new();
        for action in actions {
            let message = action.message(context, write, of_run, &mut known)?;
            let ways = action.destinations(write, &message, &mut known)?;
            destinations.extend(ways.into_iter().map(|to| (messages.len(), to)));
            messages.push(message);
        }
        let contents = content::keep_all(context, write, &bodies.iter().map(String::as_str).collect::<Vec<_>>())?;
        for (message, content) in messages.iter_mut().zip(&contents) {
            message.content_id = content.id;
        }
        write.insert_all(&messages)?;
        let resources: Vec<_> = messages.iter().map(resource).collect();
        let entries: Vec<_> = resources
            .iter()
            .map(|resource| Registered::new(write, context.actor.id(), resource.id, &resource.path))
            .collect();
        write.insert_all(&entries)?;
        let mut items = queued(context, write, &messages, &destinations)?;
        let done = |((message, content), resource): ((&Message, &Kept), Resource<kind::Message>)| {
            let (queue_items, notices) = items.remove(&message.id).unwrap_or_default();
            let queued = Touch::many(queue_items.iter().copied().map(queue::resource));
            let sent = Sent {
                id: message.id,
                content_id: content.id,
                content_new: content.new,
                queue_item_id: queue_items.first().copied(),
                queue_items,
                notices,
            };
            Done::changed(sent, &resource, (Touch::one(resource.clone()), queued))
        };
        Ok(messages.iter().zip(&contents).zip(resources).map(done).collect())
    }
}

fn resource(message: &Message) -> Resource<kind::Message> {
    Resource::outside(message.id, format!("messages/{}", message.id.short()))
}

/// The conversation and the experiment that a message is part of.
type Place = (Option<Id<kind::Conversation>>, Option<Id<kind::Experiment>>);

impl SendMessage {
    fn cleaned_body(&self) -> Result<String> {
        let body = text::body("body", &self.body, text::BODY_MAX)?;
        if body.trim().is_empty() {
            return Err(Rule::usage("body is empty").hint(sentence!["give a text with ", field!(body)]).into());
        }
        Ok(body)
    }

    /// The message, but for its content.
    fn message(&self, context: &Context, write: &mut Writer<'_>, of_run: OfRun, known: &mut Known) -> Result<Message> {
        let line = |field, given: &Option<String>| {
            given.as_deref().map(|given| text::line(field, given, text::LINE_MAX)).transpose()
        };
        let body = |field, given: &Option<String>| {
            given.as_deref().map(|given| text::body(field, given, text::TEXT_MAX)).transpose()
        };
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        let (to_kind, to_id) = self.addressee(write, known)?.unzip();
        let in_reply_to = known.resolve(write, self.reply_to.as_ref())?;
        let (conversation_id, experiment_id) = self.place(write, in_reply_to, known)?;
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
            from_task_id: of_run.task,
            to_kind,
            to_id,
            in_reply_to,
            conversation_id,
            experiment_id,
            role_id: known.resolve(write, self.role.as_ref())?.or(of_run.role),
            status: self.status.unwrap_or(MessageStatus::Ingested),
            error_message: said(body("error message", &self.error_message)?),
            title: said(line("title", &self.title)?),
            goal: said(body("goal", &self.goal)?),
            tags: patch::list("tag", self.tags.as_deref())?.unwrap_or_default(),
        })
    }

    fn addressee(&self, write: &mut Writer<'_>, known: &mut Known) -> Result<Option<(Kind, Uuid)>> {
        match (&self.to, &self.to_task) {
            (Some(_), Some(_)) => Err(Rule::usage("a message is for one: an actor, a role or a task").into()),
            (Some(to), None) => known.addressee(write, to).map(Some),
            (None, Some(task)) => Ok(Some((Kind::Task, known.task(write, task, self.exact)?.task.uuid()))),
            (None, None) => Ok(None),
        }
    }

    /// Where it belongs. An answer stays where the question was, unless it is said.
    fn place(
        &self,
        write: &mut Writer<'_>,
        in_reply_to: Option<Id<kind::Message>>,
        known: &mut Known,
    ) -> Result<Place> {
        let conversation = known.resolve(write, self.conversation.as_ref())?;
        if let Some(experiment) = &self.experiment {
            let experiment = known.experiment(write, experiment)?;
            if conversation.is_some_and(|conversation| conversation != experiment.conversation_id) {
                return Err(Rule::usage(format!(
                    "the experiment {:?} is part of another conversation",
                    experiment.title
                ))
                .hint(sentence!["leave out ", field!(conversation), ": the experiment tells it"])
                .into());
            }
            return Ok((Some(experiment.conversation_id), Some(experiment.id)));
        }
        if let (None, Some(question)) = (conversation, in_reply_to) {
            let place = write.one(
                "select conversation_id, experiment_id from messages where tenant_id = ?1 and id = ?2",
                params![question],
            )?;
            return Ok(place.unwrap_or_default());
        }
        Ok((conversation, None))
    }

    /// What it is work for: the task it is sent to, then where routes lead by its tags and its role, the oldest first.
    fn destinations(&self, write: &mut Writer<'_>, message: &Message, known: &mut Known) -> Result<Vec<Destination>> {
        let mut ways: Vec<Way> = Vec::new();
        for tag in &message.tags {
            ways.extend_from_slice(known.ways(write, tag)?);
        }
        ways.retain(|way| way.only.is_none() || way.only == message.role_id);
        ways.sort_unstable_by_key(|way| way.route);
        let sent_to = self.to_task.as_ref().map(|task| known.task(write, task, self.exact)).transpose()?;
        Ok(sent_to.into_iter().chain(ways.into_iter().map(|way| way.to)).collect())
    }
}

/// The queue items of each message, and what is to be known of them.
type Queued = HashMap<Id<kind::Message>, (Vec<Id<kind::QueueItem>>, Vec<String>)>;

/// Queues messages, each by its place among them, for what they are work for.
fn queued(
    context: &Context,
    write: &mut Writer<'_>,
    messages: &[Message],
    destinations: &[(usize, Destination)],
) -> Result<Queued> {
    let item = |(index, to): &(usize, Destination)| NewItem {
        description: messages[*index].title.clone(),
        tags: messages[*index].tags.clone(),
        role: to.role,
        workspace: to.workspace,
        message: Some(messages[*index].id),
        is_sent_now: true,
        route: to.route,
        exact: to.exact,
        without_version: to.without_version.clone(),
        ..NewItem::of(to.task)
    };
    let added = enqueue_all(context, write, destinations.iter().map(item).collect())?;
    let mut queued = Queued::new();
    for ((index, _), added) in destinations.iter().zip(added) {
        let (items, notices) = queued.entry(messages[*index].id).or_default();
        items.push(added.id);
        notices.extend(added.notices);
    }
    Ok(queued)
}
