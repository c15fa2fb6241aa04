//! Models: what is asked, what is answered, and what can go wrong. Providers are below.

mod anthropic;
mod http;
mod openai;
mod scripted;
mod settings;
mod stream;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use serde_json::Value;

pub use scripted::Scripted;
pub use settings::{ModelSettings, Price, Provider};

/// A model that can be asked.
pub trait Model: Send + Sync + fmt::Debug {
    /// Asks, tries again where that is worth it, and answers in any case.
    fn ask(&self, request: &Request, patience: &Patience) -> Answer;

    /// The model that is asked when nobody names one.
    fn name(&self) -> &str;
}

/// One question: a conversation so far.
#[derive(Debug, Clone)]
pub struct Request {
    pub model: String,
    pub system: String,
    pub turns: Vec<Turn>,
    pub tools: &'static [Tool],
    /// Whether the reply may call them. A conversation with calls in it has to name its tools even when it may not.
    pub may_call: bool,
}

/// A tool that is offered.
#[derive(Debug)]
pub struct Tool {
    pub name: &'static str,
    pub description: &'static str,
    /// Its parameters: name, type, description, and whether it is needed.
    pub parameters: &'static [(&'static str, &'static str, &'static str, bool)],
}

impl Tool {
    /// The JSON schema of its input.
    pub fn schema(&self) -> Value {
        let properties: serde_json::Map<String, Value> = self
            .parameters
            .iter()
            .map(|(name, kind, about, _)| {
                ((*name).to_owned(), serde_json::json!({ "type": kind, "description": about }))
            })
            .collect();
        let required: Vec<&str> =
            self.parameters.iter().filter(|(.., needed)| *needed).map(|(name, ..)| *name).collect();
        serde_json::json!({ "type": "object", "properties": properties, "required": required })
    }
}

/// What was said.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    /// By us.
    User(Vec<String>),
    /// By the model.
    Model { text: String, calls: Vec<Call> },
    /// What came of its calls, by us.
    Results(Vec<CallResult>),
}

/// A tool that the model calls.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// What could not be read as JSON is a text.
    pub input: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    pub call: String,
    pub text: String,
    pub failed: bool,
}

/// A reply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    pub text: String,
    pub calls: Vec<Call>,
}

/// What one call used; what the provider did not say is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Used {
    pub message_id: Option<String>,
    pub model: Option<String>,
    pub input_tokens: Option<i64>,
    pub output_tokens: Option<i64>,
    pub cache_creation_tokens: Option<i64>,
    pub cache_read_tokens: Option<i64>,
}

/// What came of asking.
#[derive(Debug)]
pub struct Answer {
    pub outcome: Result<Reply, Trouble>,
    /// What each call used, those included that came to nothing.
    pub used: Vec<Used>,
    /// What went wrong on the way, and was tried again.
    pub retried: Vec<String>,
}

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// There is an answer, and nothing can be made of it.
    #[error("{0}")]
    Unreadable(String),
    /// The provider does not take the request, as when the conversation is too long for the model.
    #[error("{0}")]
    Refused(String),
    /// There is none, or only an error.
    #[error("{0}")]
    Failed(String),
}

/// How long to go on asking.
#[derive(Debug, Clone)]
pub struct Patience {
    pub until: Instant,
    given_up: Arc<AtomicBool>,
}

impl Patience {
    pub fn until(until: Instant) -> Self {
        Self { until, given_up: Arc::default() }
    }

    /// Nobody waits for the answer any more.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.given_up.load(Ordering::Relaxed) || Instant::now() >= self.until
    }
}
