//! Asking a model over HTTP: streamed or whole, again after a while when it is busy, and never for longer than is left.

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
    Answer, Model, Patience, Reply, Request, Trouble, Used,
    stream::{self, Stopped},
};

/// How often a call is made.
const TRIES: u32 = 4;
/// The longest wait that a busy provider may ask for.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Characters of an error that are repeated.
const ERROR_SHOWN: usize = 300;

/// How an API writes requests and replies.
pub trait Shape: Send + Sync + fmt::Debug {
    fn path(&self) -> &'static str;
    fn headers(&self, key: &str) -> Vec<(&'static str, String)>;
    fn body(&self, request: &Request, stream: bool) -> Value;
    fn whole(&self, body: &Value, reply: &mut Reply, used: &mut Used) -> Result<(), String>;
    /// Takes one event of a stream, and says what is still to come.
    fn event(&self, event: &Value, reply: &mut Reply, used: &mut Used) -> Result<ToCome, String>;
}

/// What is still to come in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToCome {
    More,
    /// The reply is whole; its usage may follow.
    Rest,
    Nothing,
}

/// A model at the other end of a connection.
#[derive(Debug)]
pub struct Remote {
    pub shape: Box<dyn Shape>,
    /// Keeps connections open from call to call.
    pub agent: ureq::Agent,
    pub url: String,
    pub key: Secret,
    pub model: String,
    pub stream: bool,
    /// How long one call may take, and how long it may be silent.
    pub timeout: Duration,
    /// The first wait before another try; each is twice as long as the one before.
    pub back_off: Duration,
}

/// What makes calls: an answer of any status is an answer, and nobody is sent elsewhere with the key.
pub fn caller() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent(concat!("trackway/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

/// Why a call came to nothing.
enum Miss {
    /// Worth another try, after so long where the provider says it.
    Later(String, Option<Duration>),
    Final(Trouble),
}

impl Model for Remote {
    fn ask(&self, request: &Request, patience: &Patience) -> Answer {
        let mut answer = Answer { outcome: Ok(Reply::default()), used: Vec::new(), retried: Vec::new() };
        let mut back_off = self.back_off;
        for attempt in 1.. {
            let mut used = Used::default();
            let called = self.call(request, patience, &mut used);
            if used != Used::default() {
                answer.used.push(used);
            }
            let (why, wait) = match called {
                Ok(reply) => {
                    answer.outcome = Ok(reply);
                    break;
                }
                Err(Miss::Final(trouble)) => {
                    answer.outcome = Err(trouble);
                    break;
                }
                Err(Miss::Later(why, wait)) => (why, wait.unwrap_or(back_off)),
            };
            back_off *= 2;
            if attempt >= TRIES || wait > WAIT_MAX || patience.is_over() || Instant::now() + wait >= patience.until {
                answer.outcome = Err(Trouble::Failed(format!("{why} (tried {attempt} times)")));
                break;
            }
            answer.retried.push(why);
            thread::sleep(wait);
            if patience.is_over() {
                answer.outcome = Err(Trouble::Failed("nobody waits for the answer any more".to_owned()));
                break;
            }
        }
        answer
    }

    fn name(&self) -> &str {
        &self.model
    }
}

impl Remote {
    fn call(&self, request: &Request, patience: &Patience, used: &mut Used) -> Result<Reply, Miss> {
        let left = patience.until.saturating_duration_since(Instant::now());
        let timeout = self.timeout.min(left).max(Duration::from_millis(1));
        let url = format!("{}{}", self.url.trim_end_matches('/'), self.shape.path());
        let mut call = self
            .agent
            .post(&url)
            .config()
            .timeout_global(Some(timeout))
            .timeout_connect(Some(CONNECT.min(timeout)))
            .build()
            .header("content-type", "application/json");
        for (name, value) in self.shape.headers(&self.key.0) {
            call = call.header(name, value);
        }
        let body = self.shape.body(request, self.stream).to_string();
        let answer = call.send(body).map_err(|error| missed(&error, timeout))?;
        let status = answer.status().as_u16();
        let retry_after = answer
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok())
            .map(Duration::from_secs);
        let reader = answer.into_body().into_reader();
        if !(200..300).contains(&status) {
            let said = stream::whole(reader).unwrap_or_default();
            let why = format!("the model answered {status}: {}", error_in(&said));
            return Err(match status {
                408 | 409 | 429 | 500..=599 => Miss::Later(why, retry_after),
                400 | 413 | 422 => Miss::Final(Trouble::Refused(why)),
                _ => Miss::Final(Trouble::Failed(why)),
            });
        }
        let mut reply = Reply::default();
        if self.stream {
            self.streamed(BufReader::new(reader), &mut reply, used)?;
        } else {
            self.whole(reader, &mut reply, used)?;
        }
        Ok(reply)
    }

    fn whole(&self, reader: impl std::io::Read, reply: &mut Reply, used: &mut Used) -> Result<(), Miss> {
        let bytes = stream::whole(reader).map_err(stopped)?;
        let body: Value = serde_json::from_slice(&bytes)
            .map_err(|_| Miss::Later(format!("the answer is not JSON: {}", shown(&bytes)), None))?;
        self.shape.whole(&body, reply, used).map_err(|why| Miss::Later(why, None))
    }

    fn streamed(&self, body: impl std::io::BufRead, reply: &mut Reply, used: &mut Used) -> Result<(), Miss> {
        let (mut is_whole, mut problem) = (false, None);
        let read = stream::each_event(body, |data| {
            let to_come = if data == "[DONE]" {
                Ok(ToCome::Nothing)
            } else {
                let event = serde_json::from_str::<Value>(data);
                let event =
                    event.map_err(|_| format!("an event of the answer is not JSON: {}", shown(data.as_bytes())));
                event.and_then(|event| self.shape.event(&event, reply, used))
            };
            is_whole |= matches!(to_come, Ok(ToCome::Rest | ToCome::Nothing));
            problem = to_come.clone().err();
            to_come == Ok(ToCome::More) || to_come == Ok(ToCome::Rest)
        });
        read_inputs(reply);
        match (problem, read) {
            (Some(why), _) => Err(Miss::Later(why, None)),
            (None, Err(Stopped::TooLong)) => Err(stopped(Stopped::TooLong)),
            (None, _) if is_whole => Ok(()),
            (None, Err(broken)) => Err(stopped(broken)),
            (None, Ok(())) => Err(Miss::Later("the answer broke off".to_owned(), None)),
        }
    }
}

fn stopped(stopped: Stopped) -> Miss {
    match stopped {
        Stopped::TooLong => {
            Miss::Final(Trouble::Unreadable(format!("the answer is longer than {} bytes", stream::ANSWER_MAX)))
        }
        Stopped::Broken(error) => Miss::Later(format!("the answer broke off: {error}"), None),
    }
}

fn missed(error: &ureq::Error, timeout: Duration) -> Miss {
    match error {
        ureq::Error::Timeout(_) => Miss::Later(format!("the model did not answer within {timeout:.1?}"), None),
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
            Miss::Final(Trouble::Failed(format!("the model cannot be asked: {error}")))
        }
        _ => Miss::Later(format!("the model cannot be reached: {error}"), None),
    }
}

/// Turns what was gathered of the inputs of calls into JSON. One that is cut stays a text.
pub(super) fn read_inputs(reply: &mut Reply) {
    for call in &mut reply.calls {
        if let Value::String(gathered) = &call.input {
            let text = if gathered.trim().is_empty() { "{}" } else { gathered };
            if let Ok(input) = serde_json::from_str::<Value>(text)
                && !input.is_string()
            {
                call.input = input;
            }
        }
    }
}

/// What an error says: providers agree on where that stands.
fn error_in(body: &[u8]) -> String {
    let said = serde_json::from_slice::<Value>(body).ok();
    let message = said.as_ref().and_then(|said| said.pointer("/error/message")?.as_str());
    message.map_or_else(|| shown(body), |message| text::cut(&text::clean_line(message), ERROR_SHOWN))
}

fn shown(bytes: &[u8]) -> String {
    text::cut(&text::clean_line(&String::from_utf8_lossy(&bytes[..bytes.len().min(4 * ERROR_SHOWN)])), ERROR_SHOWN)
}
