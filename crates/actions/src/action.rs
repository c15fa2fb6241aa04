//! The [`Action`] trait. The fields of an action type are its command-line flags, its JSON body and its MCP tool input.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use trackway_domain::kind::{Kind, Marker};
use trackway_domain::{Id, kind};
use trackway_store::Writer;
use uuid::Uuid;

use crate::{
    context::Context,
    error::Result,
    touched::{NoTouches, Touched},
};

/// A write. The doc comment of the type is its description on the command line, in the HTTP API and in MCP.
pub trait Action: DeserializeOwned + schemars::JsonSchema + clap::Args + 'static {
    /// The name of the action in the HTTP API, in MCP and in the event log.
    const NAME: &'static str;
    /// The capability that an agent needs for this action.
    const CAPABILITY: &'static str = Self::NAME;
    /// Noun and verb on the command line.
    const COMMAND: (&'static str, &'static str);
    /// A second name for the verb on the command line.
    const ALIAS: Option<&'static str> = None;
    /// The field that the command line can read from a file.
    const LONG_TEXT: Option<LongText> = None;
    /// Destructive actions ask for confirmation.
    const IS_DESTRUCTIVE: bool = false;
    /// True if the action only records telemetry (steps, token usage) of the acting run. An optimistic transaction then
    /// checks and locks the run in one statement with its writes, instead of querying the run first.
    const IS_RUN_TELEMETRY: bool = false;
    /// The touches that the action records. There is no default, so an action that forgets attribution does not
    /// compile.
    type Touched: Touched;
    type Output: Serialize;

    /// Sets the field of [`Self::LONG_TEXT`].
    fn set_long_text(&mut self, _: String) {}

    /// Performs the write in the transaction that will also store its touches and events. After a write conflict the
    /// caller rolls back and calls this again, so it must not change anything outside the transaction.
    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>>;

    /// The next part of an action that runs in several transactions, so that it never blocks other writers for long.
    /// `None` after the last part.
    fn next_part(&self, _: &Self::Output) -> Option<Self> {
        None
    }

    /// Merges the outputs of two parts.
    fn merge_outputs(_: Self::Output, next: Self::Output) -> Self::Output {
        next
    }

    /// Performs several actions. Actions that callers execute by the hundred override this to write in bulk.
    fn perform_all(actions: &[Self], context: &Context, write: &mut Writer<'_>) -> Result<Vec<ActionOutcome<Self>>> {
        actions.iter().map(|action| action.perform(context, write)).collect()
    }
}

/// A field that the command line can read from a file. HTTP and MCP clients pass the text itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LongText {
    /// A flag that holds the text. The command line also offers `--file`, and reads standard input if neither is given.
    Flag { field: &'static str, characters_max: usize },
    /// A positional argument that names the file.
    File { field: &'static str, bytes_max: u64 },
}

/// The outcome of an action: its output, and what to record about the change it made.
#[derive(Debug)]
pub struct ActionOutcome<A: Action> {
    pub output: A::Output,
    pub(crate) change: Option<Change<A::Touched>>,
}

/// The record of a change, for the event log and the touches.
#[derive(Debug)]
pub(crate) struct Change<T> {
    /// The log gets one event per subject.
    pub subjects: Vec<Subject>,
    pub touched: T,
    /// Details of the change that the changed rows do not store themselves.
    pub detail: Option<Value>,
}

impl<A: Action> ActionOutcome<A> {
    /// The action changed one subject.
    pub fn changed(output: A::Output, subject: impl Into<Subject>, touched: A::Touched) -> Self {
        Self::changed_several(output, vec![subject.into()], touched)
    }

    pub fn changed_several(output: A::Output, subjects: Vec<Subject>, touched: A::Touched) -> Self {
        Self { output, change: Some(Change { subjects, touched, detail: None }) }
    }

    /// The statement that made the change has already appended its events to the log. There are no touches.
    pub(crate) fn logged(output: A::Output) -> Self
    where
        A: Action<Touched = NoTouches>,
    {
        Self { output, change: None }
    }

    /// Adds details of the change to its events.
    #[must_use]
    pub fn with_detail(mut self, detail: Value) -> Self {
        if let Some(change) = &mut self.change {
            change.detail = Some(detail);
        }
        self
    }

    /// The rows were already as requested, so the action records no touch and no event.
    pub fn unchanged(output: A::Output) -> Self {
        Self { output, change: None }
    }
}

/// The subject of an event: the row that it describes.
#[derive(Debug, Clone)]
pub struct Subject {
    pub kind: Kind,
    pub id: Uuid,
    pub path: String,
}

/// A resource with its studio and display path.
#[derive(Debug, Clone)]
pub struct Resource<K> {
    pub id: Id<K>,
    pub studio: Option<Id<kind::Studio>>,
    pub path: String,
}

impl<K: Marker> From<&Resource<K>> for Subject {
    fn from(resource: &Resource<K>) -> Self {
        Self { kind: K::KIND, id: resource.id.uuid(), path: resource.path.clone() }
    }
}

impl<K> Resource<K> {
    /// A resource outside studios.
    pub fn new(id: Id<K>, path: impl Into<String>) -> Self {
        Self { id, studio: None, path: path.into() }
    }

    pub fn in_studio(id: Id<K>, studio: Id<kind::Studio>, path: impl Into<String>) -> Self {
        Self { id, studio: Some(studio), path: path.into() }
    }

    /// Adds the resource to the registry.
    pub(crate) fn register(&self, context: &Context, write: &mut Writer<'_>) -> Result<()>
    where
        K: Marker,
    {
        Ok(write.register(self.id, self.studio, &self.path, Some(context.actor.id()))?)
    }
}
