//! MCP over HTTP without sessions: each request is authenticated and answered on its own.

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

use super::{Mcp, McpCaller};
use crate::{
    caller::{self, CredentialSource},
    format::Format,
    problem::Problem,
    site::{Site, SiteRequest, json_response},
};

/// The path of the endpoint.
pub const PATH: &str = "/mcp";

/// Answers a request. The caller has checked its host and read its body.
pub async fn answer(site: Site, parts: Parts, body: Vec<u8>) -> Response {
    let request = SiteRequest {
        method: parts.method.clone(),
        path: PATH.to_owned(),
        headers: parts.headers.clone(),
        ..SiteRequest::default()
    };
    let auth_site = site.clone();
    let context = tokio::task::spawn_blocking(move || authenticate(&auth_site, &request)).await;
    let context = match context.unwrap_or_else(|error| Err(Problem::task_failed(error))) {
        Ok(context) => context,
        Err(problem) => return problem.respond(Format::Json),
    };
    if let Some(response) = invalid_message(&parts, &body) {
        return response;
    }
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(usize::MAX)
        .disable_allowed_hosts();
    let mcp = Mcp::new(move || Ok(McpCaller { site: site.clone(), context: context.clone(), remark: None }));
    let service = StreamableHttpService::new(move || Ok(mcp.clone()), Arc::new(NeverSessionManager::default()), config);
    service.handle(Request::from_parts(parts, Body::from(body))).await.map(Body::new)
}

/// The JSON-RPC error for a body that is not a single valid message.
fn invalid_message(parts: &Parts, body: &[u8]) -> Option<Response> {
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if parts.method != Method::POST || !kind.to_ascii_lowercase().starts_with("application/json") {
        return None;
    }
    let (code, text) = match serde_json::from_slice::<Value>(body) {
        Err(error) => (ErrorCode::PARSE_ERROR, format!("the body is not JSON: {error}")),
        Ok(Value::Array(_)) => {
            (ErrorCode::INVALID_REQUEST, "send one message per request: batches are not supported".to_owned())
        }
        Ok(message) if ClientJsonRpcMessage::deserialize(&message).is_err() => {
            (ErrorCode::INVALID_REQUEST, "the body is not a JSON-RPC 2.0 message".to_owned())
        }
        Ok(_) => return None,
    };
    let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": text } });
    Some((StatusCode::BAD_REQUEST, json_response(&error)).into_response())
}

/// Authenticates a request. MCP requires that requests from pages of other origins are rejected, even with a valid
/// token.
fn authenticate(site: &Site, request: &SiteRequest) -> Result<Context, Problem> {
    if request.headers.contains_key(header::ORIGIN) {
        caller::reject_cross_origin(request, CredentialSource::Cookie)?;
    }
    site.context(request)
}
