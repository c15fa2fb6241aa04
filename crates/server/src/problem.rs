//! Errors as HTTP responses, in the format of the request.

use axum::{
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use trackway_domain::{Error as Rule, ErrorKind, Sentence, text};

use crate::{format::Format, html, markdown, nouns::Noun, page::Block, sentence};

/// The reason of a failed request, passed to the log as a response extension.
#[derive(Debug, Clone)]
pub struct FailureReason(pub String);

/// An error with its HTTP status.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: Sentence,
    pub hint: Option<Sentence>,
    /// The allowed methods, if the request used another one.
    pub allow: Option<&'static str>,
    /// The form whose input failed, so that a person can correct it.
    pub form: Option<Box<Block>>,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<Sentence>) -> Self {
        Self { status, code, message: message.into(), hint: None, allow: None, form: None }
    }

    pub fn unauthorised(message: impl Into<Sentence>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorised", message)
            .hint("send `Authorization: Bearer TOKEN` with a person's token (trackway token create) or a run's; in a browser, use the link that `trackway open` prints")
    }

    pub fn malformed(message: impl Into<Sentence>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", message)
    }

    /// The error for work that panicked or was cancelled. Its cause is not shown to the caller.
    pub fn task_failed(_: tokio::task::JoinError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "internal error")
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<Sentence>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// If the requested thing was not found, adds a hint that names the list of existing things.
    #[must_use]
    pub fn suggest_list(mut self, noun: &Noun) -> Self {
        if self.status == StatusCode::NOT_FOUND && self.hint.is_none() && noun.list_verb.is_some() {
            self.hint = Some(format!("`/{}` lists the existing ones", noun.path).into());
        }
        self
    }

    /// Shows the form again, with its input.
    #[must_use]
    pub fn with_form(mut self, form: Block) -> Self {
        self.form = Some(Box::new(form));
        self
    }

    /// The error for a method that a path does not support.
    pub fn method_not_allowed(method: &Method, path: &str, allow: &'static str) -> Self {
        let problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method", format!("{path} does not support {method}"));
        Self { allow: Some(allow), ..problem }
    }

    pub fn respond(&self, format: Format) -> Response {
        // Messages can quote what the caller sent, so control characters are removed.
        let message = text::clean(&sentence::render(&self.message));
        let hint = self.hint.as_ref().map(|hint| text::clean(&sentence::render(hint)));
        let body = match format {
            Format::Json => json!({
                "schema_version": 1,
                "error": { "code": self.code, "message": message, "hint": hint },
            })
            .to_string(),
            Format::Markdown => markdown::problem(self.status.as_u16(), &message, hint.as_deref()),
            Format::Html => html::problem(self.status, &message, hint.as_deref(), self.form.as_deref()),
        };
        let mut response = (self.status, [(header::CONTENT_TYPE, format.content_type())], body).into_response();
        response.extensions_mut().insert(FailureReason(message));
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

fn from_kind(kind: ErrorKind, message: Sentence, hint: Option<Sentence>) -> Problem {
    let status = StatusCode::from_u16(kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Problem { status, code: kind.code(), message, hint, allow: None, form: None }
}

impl From<Rule> for Problem {
    fn from(rule: Rule) -> Self {
        from_kind(rule.kind, rule.message, rule.hint)
    }
}

impl From<trackway_actions::Error> for Problem {
    fn from(error: trackway_actions::Error) -> Self {
        from_kind(error.kind(), error.message(), error.hint())
    }
}

impl From<trackway_store::Error> for Problem {
    fn from(error: trackway_store::Error) -> Self {
        trackway_actions::Error::from(error).into()
    }
}
