//! The interface to models: requests, responses and errors. The submodules implement the providers.

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

pub trait Model: Send + Sync + fmt::Debug {
    /// Sends a request, and retries transient failures until the deadline.
    fn ask(&self, request: &Request, deadline: &Deadline) -> ModelResponse;

    /// The model of agents without a model of their own.
    fn name(&self) -> &str;
}

/// A conversation so far, to which the model replies.
#[derive(Debug, Clone)]
pub struct Request {
    pub model: String,
    pub system: String,
    pub turns: Vec<Turn>,
    pub tools: &'static [Tool],
    /// Whether the reply may call the tools. Providers require the tools of a conversation that contains calls, even if
    /// the reply may call none.
    pub may_call: bool,
}

#[derive(Debug)]
pub struct Tool {
    pub name: &'static str,
    pub description: &'static str,
    /// The name, type and description of each parameter, and whether it is required.
    pub parameters: &'static [(&'static str, &'static str, &'static str, bool)],
}

impl Tool {
    /// The JSON schema of the tool's input.
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

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    /// A message to the model, in parts.
    User(Vec<String>),
    Model {
        text: String,
        calls: Vec<Call>,
    },
    /// The results of the model's calls.
    Results(Vec<CallResult>),
}

/// A call of a tool by the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// A string if the input is not valid JSON.
    pub input: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    pub call: String,
    pub text: String,
    pub is_error: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    pub text: String,
    pub calls: Vec<Call>,
}

/// The usage of one model call, as far as the provider reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallUsage {
    pub message_id: Option<String>,
    pub model: Option<String>,
    pub input_tokens: Option<i64>,
    pub output_tokens: Option<i64>,
    pub cache_creation_tokens: Option<i64>,
    pub cache_read_tokens: Option<i64>,
}

#[derive(Debug)]
pub struct ModelResponse {
    pub outcome: Result<Reply, ModelError>,
    /// The usage of each call, including failed calls.
    pub usage: Vec<CallUsage>,
    /// The errors of calls that were retried.
    pub retried: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The response is too long.
    #[error("{0}")]
    Unreadable(String),
    /// The provider rejects the request, for example because the conversation is too long for the model.
    #[error("{0}")]
    Rejected(String),
    /// No response, or an error response.
    #[error("{0}")]
    Failed(String),
}

/// The time at which to stop a model call. The run can cancel the call earlier.
#[derive(Debug, Clone)]
pub struct Deadline {
    pub time: Instant,
    is_cancelled: Arc<AtomicBool>,
}

impl Deadline {
    pub fn at(time: Instant) -> Self {
        Self { time, is_cancelled: Arc::default() }
    }

    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed) || Instant::now() >= self.time
    }
}
