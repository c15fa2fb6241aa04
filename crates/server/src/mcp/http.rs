//! The protocol over HTTP: one request, one answer, nothing remembered between them. Who calls is checked as everywhere.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{Method, Request, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use rmcp::{
    model::{ClientJsonRpcMessage, ErrorCode},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use serde::Deserialize;
use serde_json::{Value, json};
use trackway_actions::context::Context;

use super::{Entered, Mcp};
use crate::{
    caller::{self, By},
    format::Format,
    problem::Problem,
    site::{Question, Site, json_response},
};

/// Where it is.
pub const PATH: &str = "/mcp";

/// Answers a request whose host was checked and whose body was read.
pub async fn answer(site: Site, parts: Parts, body: Vec<u8>) -> Response {
    let question = Question {
        method: parts.method.clone(),
        path: PATH.to_owned(),
        headers: parts.headers.clone(),
        ..Question::default()
    };
    let door = site.clone();
    let entered = tokio::task::spawn_blocking(move || enter(&door, &question)).await;
    let context = match entered.unwrap_or_else(|error| Err(Problem::crashed(error))) {
        Ok(context) => context,
        Err(problem) => return problem.respond(Format::Json),
    };
    if let Some(refused) = refused(&parts, &body) {
        return refused;
    }
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(usize::MAX)
        .disable_allowed_hosts();
    let mcp = Mcp::new(move || Ok(Entered { site: site.clone(), context: context.clone(), remark: None }));
    let service = StreamableHttpService::new(move || Ok(mcp.clone()), Arc::new(NeverSessionManager::default()), config);
    service.handle(Request::from_parts(parts, Body::from(body))).await.map(Body::new)
}

/// Says in the protocol's own words that a message cannot be read.
fn refused(parts: &Parts, body: &[u8]) -> Option<Response> {
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if parts.method != Method::POST || !kind.to_ascii_lowercase().starts_with("application/json") {
        return None;
    }
    let (code, said) = match serde_json::from_slice::<Value>(body) {
        Err(error) => (ErrorCode::PARSE_ERROR, format!("the body is not JSON: {error}")),
        Ok(Value::Array(_)) => {
            (ErrorCode::INVALID_REQUEST, "one message at a time: the protocol has batches no more".to_owned())
        }
        Ok(message) if ClientJsonRpcMessage::deserialize(&message).is_err() => {
            (ErrorCode::INVALID_REQUEST, "the body is not a message of JSON-RPC 2.0".to_owned())
        }
        Ok(_) => return None,
    };
    let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": said } });
    Some((StatusCode::BAD_REQUEST, json_response(&error)).into_response())
}

/// A page of another origin is refused whatever it brings: the protocol asks for that.
fn enter(site: &Site, question: &Question) -> Result<Context, Problem> {
    if question.headers.contains_key(header::ORIGIN) {
        caller::refuse_foreign_pages(question, By::Cookie)?;
    }
    site.context(question)
}
