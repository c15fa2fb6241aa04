//! Calls a model over HTTP, with or without streaming. Retries with exponential backoff, until the deadline of the run.

use std::{
    fmt,
    io::BufReader,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use trackway_actions::context::Secret;
use trackway_domain::text;

use super::{
    CallUsage, Deadline, Model, ModelError, ModelResponse, Reply, Request,
    stream::{self, ReadError},
};

/// Maximum number of attempts for one call, including the first.
const ATTEMPTS_MAX: u32 = 4;
/// The longest `Retry-After` that is honoured. A call that would have to wait longer fails.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of characters of a provider's error that our error repeats.
const ERROR_SHOWN_MAX: usize = 300;

/// The requests and responses of a provider's API.
pub trait WireFormat: Send + Sync + fmt::Debug {
    fn path(&self) -> &'static str;
    fn headers(&self, key: &str) -> Vec<(&'static str, String)>;
    fn body(&self, request: &Request, stream: bool) -> Value;
    fn parse_body(&self, body: &Value, reply: &mut Reply, call_usage: &mut CallUsage) -> Result<(), String>;
    /// Adds one event of a stream to the reply.
    fn parse_event(&self, event: &Value, reply: &mut Reply, call_usage: &mut CallUsage) -> Result<StreamState, String>;
}

/// The state of a stream after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamState {
    More,
    /// The reply is complete; its usage may follow.
    UsageMayFollow,
    Ended,
}

#[derive(Debug)]
pub struct HttpModel {
    pub format: Box<dyn WireFormat>,
    /// Keeps connections open between calls.
    pub agent: ureq::Agent,
    pub url: String,
    pub key: Secret,
    pub model: String,
    pub stream: bool,
    /// The timeout of one call.
    pub timeout: Duration,
    /// The delay before the first retry. It doubles with each retry.
    pub back_off: Duration,
}

/// An HTTP client that returns responses of any status, and follows no redirects, so that the API key never leaves the
/// host.
pub fn http_client() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent(concat!("trackway/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

enum CallError {
    /// The call may succeed later. Contains the delay that the provider asks for, if any.
    Retry(String, Option<Duration>),
    Final(ModelError),
}

impl Model for HttpModel {
    fn ask(&self, request: &Request, deadline: &Deadline) -> ModelResponse {
        let mut response = ModelResponse { outcome: Ok(Reply::default()), usage: Vec::new(), retried: Vec::new() };
        let mut back_off = self.back_off;
        for attempt in 1.. {
            let mut call_usage = CallUsage::default();
            let called = self.call(request, deadline, &mut call_usage);
            if call_usage != CallUsage::default() {
                response.usage.push(call_usage);
            }
            let (why, wait) = match called {
                Ok(reply) => {
                    response.outcome = Ok(reply);
                    break;
                }
                Err(CallError::Final(error)) => {
                    response.outcome = Err(error);
                    break;
                }
                Err(CallError::Retry(why, wait)) => (why, wait.unwrap_or(back_off)),
            };
            back_off *= 2;
            let is_too_late = deadline.is_over() || Instant::now() + wait >= deadline.time;
            if attempt >= ATTEMPTS_MAX || wait > RETRY_AFTER_MAX || is_too_late {
                response.outcome = Err(ModelError::Failed(format!("{why} (tried {attempt} times)")));
                break;
            }
            response.retried.push(why);
            thread::sleep(wait);
            if deadline.is_over() {
                response.outcome = Err(ModelError::Failed("the run no longer waits for the model".to_owned()));
                break;
            }
        }
        response
    }

    fn name(&self) -> &str {
        &self.model
    }
}

impl HttpModel {
    fn call(&self, request: &Request, deadline: &Deadline, call_usage: &mut CallUsage) -> Result<Reply, CallError> {
        let left = deadline.time.saturating_duration_since(Instant::now());
        let timeout = self.timeout.min(left).max(Duration::from_millis(1));
        let url = format!("{}{}", self.url.trim_end_matches('/'), self.format.path());
        let mut call = self
            .agent
            .post(&url)
            .config()
            .timeout_global(Some(timeout))
            .timeout_connect(Some(CONNECT_TIMEOUT.min(timeout)))
            .build()
            .header("content-type", "application/json");
        for (name, value) in self.format.headers(&self.key.0) {
            call = call.header(name, value);
        }
        let body = self.format.body(request, self.stream).to_string();
        let http_response = call.send(body).map_err(|error| classify(&error, timeout))?;
        let status = http_response.status().as_u16();
        let retry_after = http_response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok())
            .map(Duration::from_secs);
        let reader = http_response.into_body().into_reader();
        if !(200..300).contains(&status) {
            let body = stream::read_all(reader).unwrap_or_default();
            let why = format!("the model answered {status}: {}", error_message(&body));
            return Err(match status {
                408 | 409 | 429 | 500..=599 => CallError::Retry(why, retry_after),
                400 | 413 | 422 => CallError::Final(ModelError::Rejected(why)),
                _ => CallError::Final(ModelError::Failed(why)),
            });
        }
        let mut reply = Reply::default();
        if self.stream {
            self.read_stream(BufReader::new(reader), &mut reply, call_usage)?;
        } else {
            self.read_body(reader, &mut reply, call_usage)?;
        }
        Ok(reply)
    }

    fn read_body(
        &self,
        reader: impl std::io::Read,
        reply: &mut Reply,
        call_usage: &mut CallUsage,
    ) -> Result<(), CallError> {
        let bytes = stream::read_all(reader).map_err(read_failure)?;
        let body: Value = serde_json::from_slice(&bytes)
            .map_err(|_| CallError::Retry(format!("the answer is not JSON: {}", excerpt(&bytes)), None))?;
        self.format.parse_body(&body, reply, call_usage).map_err(|why| CallError::Retry(why, None))
    }

    fn read_stream(
        &self,
        body: impl std::io::BufRead,
        reply: &mut Reply,
        call_usage: &mut CallUsage,
    ) -> Result<(), CallError> {
        let (mut is_complete, mut problem) = (false, None);
        let read = stream::each_event(body, |data| {
            let state = if data == "[DONE]" {
                Ok(StreamState::Ended)
            } else {
                let event = serde_json::from_str::<Value>(data);
                let event =
                    event.map_err(|_| format!("an event of the answer is not JSON: {}", excerpt(data.as_bytes())));
                event.and_then(|event| self.format.parse_event(&event, reply, call_usage))
            };
            is_complete |= matches!(state, Ok(StreamState::UsageMayFollow | StreamState::Ended));
            problem = state.clone().err();
            state == Ok(StreamState::More) || state == Ok(StreamState::UsageMayFollow)
        });
        parse_inputs(reply);
        match (problem, read) {
            (Some(why), _) => Err(CallError::Retry(why, None)),
            (None, Err(ReadError::TooLong)) => Err(read_failure(ReadError::TooLong)),
            (None, _) if is_complete => Ok(()),
            (None, Err(broken)) => Err(read_failure(broken)),
            (None, Ok(())) => Err(CallError::Retry("the answer is incomplete".to_owned(), None)),
        }
    }
}

fn read_failure(error: ReadError) -> CallError {
    match error {
        ReadError::TooLong => {
            CallError::Final(ModelError::Unreadable(format!("the answer is longer than {} bytes", stream::ANSWER_MAX)))
        }
        ReadError::Broken(error) => CallError::Retry(format!("the answer is incomplete: {error}"), None),
    }
}

fn classify(error: &ureq::Error, timeout: Duration) -> CallError {
    match error {
        ureq::Error::Timeout(_) => CallError::Retry(format!("the model did not answer within {timeout:.1?}"), None),
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
            CallError::Final(ModelError::Failed(format!("invalid model URL: {error}")))
        }
        _ => CallError::Retry(format!("the model cannot be reached: {error}"), None),
    }
}

/// Parses the inputs of calls, which a stream delivers in pieces of JSON text. An input that is not valid JSON stays a
/// string.
pub(super) fn parse_inputs(reply: &mut Reply) {
    for call in &mut reply.calls {
        if let Value::String(collected) = &call.input {
            let text = if collected.trim().is_empty() { "{}" } else { collected };
            if let Ok(input) = serde_json::from_str::<Value>(text)
                && !input.is_string()
            {
                call.input = input;
            }
        }
    }
}

/// The message in an error response. All providers use the same field.
fn error_message(body: &[u8]) -> String {
    let json = serde_json::from_slice::<Value>(body).ok();
    let message = json.as_ref().and_then(|json| json.pointer("/error/message")?.as_str());
    message.map_or_else(|| excerpt(body), |message| text::cut(&text::clean_line(message), ERROR_SHOWN_MAX))
}

fn excerpt(bytes: &[u8]) -> String {
    text::cut(
        &text::clean_line(&String::from_utf8_lossy(&bytes[..bytes.len().min(4 * ERROR_SHOWN_MAX)])),
        ERROR_SHOWN_MAX,
    )
}
