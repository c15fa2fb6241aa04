//! The protocol over HTTP: one request, one answer, nothing remembered between them. Who calls is checked as everywhere.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{Request, header, request::Parts},
    response::Response,
};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};
use trackway_actions::context::Context;

use super::{Entered, Mcp};
use crate::{
    caller::{self, By},
    format::Format,
    problem::Problem,
    site::{Question, Site},
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
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(usize::MAX)
        .disable_allowed_hosts();
    let mcp = Mcp::new(move || Ok(Entered { site: site.clone(), context: context.clone(), remark: None }));
    let service = StreamableHttpService::new(move || Ok(mcp.clone()), Arc::new(NeverSessionManager::default()), config);
    service.handle(Request::from_parts(parts, Body::from(body))).await.map(Body::new)
}

/// A page of another origin is refused whatever it brings: the protocol asks for that.
fn enter(site: &Site, question: &Question) -> Result<Context, Problem> {
    if question.headers.contains_key(header::ORIGIN) {
        caller::refuse_foreign_pages(question, By::Cookie)?;
    }
    site.context(question)
}
