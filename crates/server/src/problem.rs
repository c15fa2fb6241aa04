//! What went wrong, with an honest status, in the form that was asked for.

use axum::{
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use trackway_domain::{Error as Rule, ErrorKind, Sentence, text};

use crate::{format::Format, html, markdown, nouns::Noun, page::Block, sentence::rendered};

/// Why a request failed, for the log.
#[derive(Debug, Clone)]
pub struct Why(pub String);

/// A failure on its way out.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: Sentence,
    pub hint: Option<Sentence>,
    /// The methods there are, when it was asked with another.
    pub allow: Option<&'static str>,
    /// The question that failed, to be asked again.
    pub ask: Option<Box<Block>>,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<Sentence>) -> Self {
        Self { status, code, message: message.into(), hint: None, allow: None, ask: None }
    }

    pub fn unauthorised(message: impl Into<Sentence>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorised", message)
            .hint("send `Authorization: Bearer TOKEN` with a person's token (trackway token create) or a run's; in a browser, use the link that `trackway open` prints")
    }

    pub fn malformed(message: impl Into<Sentence>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", message)
    }

    /// Work that did not come back.
    pub fn crashed(_: tokio::task::JoinError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "something went wrong here")
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<Sentence>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says where the things are that there are, when the one asked for is not there.
    #[must_use]
    pub fn leading_to(mut self, noun: &Noun) -> Self {
        if self.status == StatusCode::NOT_FOUND && self.hint.is_none() && noun.list.is_some() {
            self.hint = Some(format!("`/{}` lists what there is", noun.path).into());
        }
        self
    }

    /// Leaves the question there, with what was said.
    #[must_use]
    pub fn asking(mut self, ask: Block) -> Self {
        self.ask = Some(Box::new(ask));
        self
    }

    /// A method that is not for a path.
    pub fn method(method: &Method, path: &str, allow: &'static str) -> Self {
        let problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method", format!("{method} is not for {path}"));
        Self { allow: Some(allow), ..problem }
    }

    /// Answers with it.
    pub fn respond(&self, format: Format) -> Response {
        // What callers sent may stand in a message: it is data here too.
        let message = text::clean(&rendered(&self.message));
        let hint = self.hint.as_ref().map(|hint| text::clean(&rendered(hint)));
        let body = match format {
            Format::Json => json!({
                "schema_version": 1,
                "error": { "code": self.code, "message": message, "hint": hint },
            })
            .to_string(),
            Format::Markdown => markdown::problem(self.status.as_u16(), &message, hint.as_deref()),
            Format::Html => html::problem(self.status, &message, hint.as_deref(), self.ask.as_deref()),
        };
        let mut response = (self.status, [(header::CONTENT_TYPE, format.content_type())], body).into_response();
        response.extensions_mut().insert(Why(message));
        let headers = response.headers_mut();
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"trackway\""));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE || self.status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

fn of_kind(kind: ErrorKind, message: Sentence, hint: Option<Sentence>) -> Problem {
    let status = StatusCode::from_u16(kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Problem { status, code: kind.code(), message, hint, allow: None, ask: None }
}

impl From<Rule> for Problem {
    fn from(rule: Rule) -> Self {
        of_kind(rule.kind, rule.message, rule.hint)
    }
}

impl From<trackway_actions::Error> for Problem {
    fn from(error: trackway_actions::Error) -> Self {
        of_kind(error.kind(), error.message(), error.hint())
    }
}

impl From<trackway_store::Error> for Problem {
    fn from(error: trackway_store::Error) -> Self {
        trackway_actions::Error::from(error).into()
    }
}
