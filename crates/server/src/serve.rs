//! The socket: what comes in is checked, read, answered by [`Site`] on a thread that may wait, and sent back.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::to_bytes,
    extract::{Path, Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use tokio::{net::TcpListener, sync::watch};

use crate::{
    api, assets, caller,
    format::Format,
    live::Live,
    login, mcp,
    metrics::Metrics,
    problem::{Problem, Why},
    rate::Rate,
    site::{Question, Site},
};

/// Bytes of a body: the largest text an action takes, four bytes a character, and room around it.
const BODY_MAX: usize = 6_000_000;
/// How long a body may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// Pages load what is ours, and run nothing that stands in them.
const CONTENT_SECURITY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// How the server stands in its network.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Names it may be called by, beside those of this machine.
    pub hosts: Vec<String>,
    /// Requests a second that a token may make; 0 is no limit.
    pub rate: u32,
}

#[derive(Debug, Clone)]
struct Door {
    site: Site,
    settings: Settings,
    live: Live,
    rate: Arc<Rate>,
    metrics: Arc<Metrics>,
}

/// Everything that can be asked for.
pub fn router(site: Site, settings: Settings, stop: watch::Receiver<bool>) -> Router {
    let live = Live::new(site.clone(), stop);
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route(
            "/api/openapi.json",
            get(|| async { ([(header::CONTENT_TYPE, Format::Json.content_type())], api::OPENAPI.as_str()) }),
        )
        .route("/assets/{name}", get(|Path(name): Path<String>| async move { assets::asset(&name) }))
        .fallback(any(handle))
        .with_state(Door { rate: Arc::new(Rate::new(settings.rate)), metrics: Arc::default(), site, settings, live })
}

/// Serves until told to stop; what was begun is finished.
pub async fn serve(
    listener: TcpListener,
    site: Site,
    settings: Settings,
    mut stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let router = router(site, settings, stop.clone());
    let stopped = async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    axum::serve(listener, router).with_graceful_shutdown(stopped).await
}

async fn ready(State(door): State<Door>) -> Response {
    let looked = tokio::task::spawn_blocking(move || door.site.is_ready()).await;
    match looked {
        Ok(Ok(())) => "ready\n".into_response(),
        Ok(Err(problem)) => problem.respond(Format::Json),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn handle(State(door): State<Door>, request: Request) -> Response {
    let begun = Instant::now();
    let metrics = Arc::clone(&door.metrics);
    // Without the query, which may hold a code to log in with.
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = safe(answered(door, request).await);
    let (status, took) = (response.status(), begun.elapsed());
    metrics.count(status.as_u16(), took);
    let why = response.extensions().get::<Why>().map_or("", |why| &why.0);
    if status.is_server_error() {
        tracing::error!(%method, path, status = status.as_u16(), "{why}");
    } else {
        tracing::debug!(%method, path, status = status.as_u16(), ?took, "{why}");
    }
    response
}

async fn answered(door: Door, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let format =
        Format::of_ending(parts.uri.path()).map_or_else(|| Format::of_accept(&parts.headers), |(_, format)| format);
    if let Err(problem) = called_rightly(&parts, &door.settings) {
        return problem.respond(format);
    }
    let who = caller::token(&parts.headers).map_or_else(|_| String::new(), |(token, _)| token);
    if !door.rate.allows(&who, Instant::now()) {
        let problem = Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate",
            format!("more than {} requests a second", door.settings.rate),
        );
        return problem.hint("wait a second; --rate says how many there may be").respond(format);
    }
    let announced =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    // What is too large by its own word is not waited for.
    let read = async {
        match announced.filter(|length| *length > BODY_MAX) {
            Some(_) => None,
            None => to_bytes(body, BODY_MAX).await.ok(),
        }
    };
    let body = match tokio::time::timeout(BODY_PATIENCE, read).await {
        Ok(Some(body)) => body.to_vec(),
        Ok(None) => {
            let problem =
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("a body is at most {BODY_MAX} bytes"));
            return problem.respond(format);
        }
        Err(_) => {
            return Problem::new(StatusCode::REQUEST_TIMEOUT, "slow", "the body took too long to arrive")
                .respond(format);
        }
    };
    if parts.uri.path() == mcp::http::PATH {
        return mcp::http::answer(door.site, parts, body).await;
    }
    let question = Question {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body,
    };
    if question.path == "/live" {
        let site = door.site.clone();
        let entered = tokio::task::spawn_blocking(move || site.context(&question)).await;
        return match entered {
            Ok(Ok(context)) => door.live.stream(context.tenant),
            Ok(Err(problem)) => problem.respond(format),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        };
    }
    if let Some(answer) = door.site.answer_at_once(&question) {
        return answer;
    }
    let answered = tokio::task::spawn_blocking(move || match question.path.as_str() {
        "/login" => login::login(&door.site, &question).unwrap_or_else(|problem| problem.respond(format)),
        "/metrics" => numbers(&door, &question).unwrap_or_else(|problem| problem.respond(format)),
        "/logout" => login::logout(&door.site, &question).unwrap_or_else(|problem| problem.respond(format)),
        _ => door.site.answer(&question),
    })
    .await;
    answered.unwrap_or_else(|_| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "something went wrong here").respond(format)
    })
}

fn numbers(door: &Door, question: &Question) -> Result<Response, Problem> {
    let context = door.site.context(question)?;
    let text = door.metrics.text(&door.site, &context)?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

/// A page of another name that was led here by its name server is refused.
fn called_rightly(parts: &Parts, settings: &Settings) -> Result<(), Problem> {
    let host = parts
        .headers
        .get(header::HOST)
        .and_then(|value| value.to_str().ok())
        .or_else(|| parts.uri.host())
        .unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let is_known = ["localhost", "127.0.0.1", "[::1]"].contains(&name)
        || settings.hosts.iter().any(|known| known.eq_ignore_ascii_case(name));
    if is_known {
        return Ok(());
    }
    Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host", format!("{host:?} is not a name of this server"))
        .hint("use the address that `trackway up` prints, or start it with --host NAME"))
}

/// Adds what keeps pages safe.
fn safe(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
