//! What an action is: one type whose fields are the flags, the JSON body and the tool input, and one method.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use trackway_domain::kind::{Kind, Marker};
use trackway_domain::{Id, kind};
use trackway_store::Writer;
use uuid::Uuid;

use crate::{
    context::Context,
    error::Result,
    touched::{Nothing, Touched},
};

/// A write. Its doc comment is its description at every door.
pub trait Action: DeserializeOwned + schemars::JsonSchema + clap::Args + 'static {
    /// Its name at every door, and in the event log.
    const NAME: &'static str;
    /// The row of the capability table that allows it.
    const CAPABILITY: &'static str = Self::NAME;
    /// Its noun and verb on the command line.
    const COMMAND: (&'static str, &'static str);
    /// Another word for the verb.
    const ALIAS: Option<&'static str> = None;
    /// A text of it that the command line reads from a file.
    const LONG_TEXT: Option<LongText> = None;
    /// Whether it takes something away, so that people are asked first.
    const REMOVES: bool = false;
    /// Whether it only tells of the run that acts: nothing has to be known of that run but that it may.
    const ONLY_TELLS: bool = false;
    /// What it touches. There is no default: forgetting attribution does not compile.
    type Touched: Touched;
    type Output: Serialize;

    /// Takes the text that was read for [`Self::LONG_TEXT`].
    fn put_text(&mut self, _: String) {}

    /// Does it, inside the transaction that will also hold its touches and its event. May be called again after
    /// another writer was in the way, so it takes nothing with it.
    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>>;

    /// What is left to do of one that is done in parts, so that nobody waits long for the database.
    fn rest(&self, _: &Self::Output) -> Option<Self> {
        None
    }

    /// What several parts say together.
    fn together(_: Self::Output, next: Self::Output) -> Self::Output {
        next
    }

    /// Does several of them. One that is often done by the hundred does better than one after the other.
    fn perform_all(actions: &[Self], context: &Context, write: &mut Writer<'_>) -> Result<Vec<Done<Self>>> {
        actions.iter().map(|action| action.perform(context, write)).collect()
    }
}

/// A field whose text the command line reads from a file. At other doors the text itself is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LongText {
    /// A flag with the text; beside it there is `--file`, and without either, standard input.
    Flag { field: &'static str, characters_max: usize },
    /// An argument that names the file.
    File { field: &'static str, bytes_max: u64 },
}

/// The outcome of an action: what to answer, what it was about, what it touched.
#[derive(Debug)]
pub struct Done<A: Action> {
    pub output: A::Output,
    pub(crate) change: Option<Change<A::Touched>>,
}

/// What is to be recorded of an action that changed something.
#[derive(Debug)]
pub(crate) struct Change<T> {
    /// What it was about: an event each.
    pub about: Vec<About>,
    pub touched: T,
    /// What changed, where the rows do not keep it themselves.
    pub detail: Option<Value>,
}

impl<A: Action> Done<A> {
    /// Something changed.
    pub fn changed(output: A::Output, about: impl Into<About>, touched: A::Touched) -> Self {
        Self::changed_several(output, vec![about.into()], touched)
    }

    /// Several things changed.
    pub fn changed_several(output: A::Output, about: Vec<About>, touched: A::Touched) -> Self {
        Self { output, change: Some(Change { about, touched, detail: None }) }
    }

    /// Something changed, and the statement that did it appended it to the log. It touched nothing.
    pub(crate) fn logged(output: A::Output) -> Self
    where
        A: Action<Touched = Nothing>,
    {
        Self { output, change: None }
    }

    /// Adds what changed to the event.
    #[must_use]
    pub fn with_detail(mut self, detail: Value) -> Self {
        if let Some(change) = &mut self.change {
            change.detail = Some(detail);
        }
        self
    }

    /// Everything was already so: no touch, no event.
    pub fn unchanged(output: A::Output) -> Self {
        Self { output, change: None }
    }
}

/// A thing with an id, as the event log names it.
#[derive(Debug, Clone)]
pub struct About {
    pub kind: Kind,
    pub id: Uuid,
    pub path: String,
}

/// A thing that can be touched: where it lives is read from the thing itself.
#[derive(Debug, Clone)]
pub struct Resource<K> {
    pub id: Id<K>,
    pub studio: Option<Id<kind::Studio>>,
    pub path: String,
}

impl<K: Marker> From<&Resource<K>> for About {
    fn from(resource: &Resource<K>) -> Self {
        Self { kind: K::KIND, id: resource.id.uuid(), path: resource.path.clone() }
    }
}

impl<K> Resource<K> {
    /// Something that lives outside studios.
    pub fn outside(id: Id<K>, path: impl Into<String>) -> Self {
        Self { id, studio: None, path: path.into() }
    }

    /// Something that lives in a studio.
    pub fn inside(id: Id<K>, studio: Id<kind::Studio>, path: impl Into<String>) -> Self {
        Self { id, studio: Some(studio), path: path.into() }
    }

    /// Enters it into the registry.
    pub(crate) fn register(&self, context: &Context, write: &mut Writer<'_>) -> Result<()>
    where
        K: Marker,
    {
        Ok(write.register(self.id, self.studio, &self.path, Some(context.actor.id()))?)
    }
}
