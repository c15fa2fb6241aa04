//! The HTTP server: accepts connections, checks hosts, rates and sizes, and runs [`Site`] on threads that may block on
//! the database.

use std::{
    error::Error as _,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, HttpBody, to_bytes},
    extract::{Request, State},
    http::{HeaderName, HeaderValue, Method, StatusCode, header, request::Parts, uri::Authority},
    response::{IntoResponse, Response},
    routing::any,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};
use tokio_io_timeout::TimeoutStream;

use crate::{
    assets, caller,
    format::Format,
    live::Live,
    login, mcp,
    metrics::Metrics,
    problem::{FailureReason, Problem},
    rate::RateLimiter,
    site::{Site, SiteRequest},
};

/// Maximum size of a body, in bytes: the largest text of an action at four bytes per character, plus some space.
const BODY_MAX: usize = 6_000_000;
/// Bodies up to this size, in bytes, are read before the caller is authenticated.
const SMALL_BODY_MAX: usize = 65_536;
/// Number of larger bodies that are read concurrently.
const LARGE_BODIES_MAX: usize = 16;
/// Default of [`Settings::client_timeout`].
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after `accept` failed because the system ran out of a resource, such as file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// The response to a connection above the limit. It is sent before the request is read.
const TOO_MANY_CONNECTIONS: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 46\r\nRetry-After: 1\r\nConnection: close\r\n\r\ntoo many connections are open; try again later";
/// Pages load only assets of this server, and run no inline scripts.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

#[derive(Debug, Clone)]
pub struct Settings {
    /// Additional allowed `Host` headers. `localhost` and its addresses are always allowed.
    pub hosts: Vec<String>,
    /// Maximum number of requests per second and token; 0 is unlimited.
    pub rate: u32,
    /// Maximum number of open connections.
    pub max_connections: usize,
    /// Maximum time that a client may take to send the head of a request, to send its body, or to read the response.
    pub client_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { hosts: Vec::new(), rate: 0, max_connections: 1_000, client_timeout: CLIENT_TIMEOUT }
    }
}

#[derive(Debug, Clone)]
struct AppState {
    site: Site,
    settings: Settings,
    live: Live,
    rate: Arc<RateLimiter>,
    metrics: Arc<Metrics>,
    large_bodies: Arc<Semaphore>,
}

pub fn router(site: Site, settings: Settings, stop: watch::Receiver<bool>) -> Router {
    let live = Live::new(site.clone(), stop);
    Router::new().fallback(any(handle)).with_state(AppState {
        rate: Arc::new(RateLimiter::new(settings.rate)),
        metrics: Arc::default(),
        large_bodies: Arc::new(Semaphore::new(LARGE_BODIES_MAX)),
        site,
        settings,
        live,
    })
}

/// Serves until `stop` becomes true, then finishes the open requests.
pub async fn serve(
    listener: TcpListener,
    site: Site,
    settings: Settings,
    mut stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(settings.client_timeout);
    let client_timeout = settings.client_timeout;
    let permits = Arc::new(Semaphore::new(settings.max_connections));
    let router = router(site, settings, stop.clone());
    let connections = GracefulShutdown::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            reject_connection(&stream);
            continue;
        };
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        // Disconnects clients that do not read their response. There is no read timeout here, because clients of event
        // streams send nothing.
        stream.set_write_timeout(Some(client_timeout));
        let service = TowerToHyperService::new(router.clone());
        let connection = connections.watch(http.serve_connection(TokioIo::new(Box::pin(stream)), service));
        tokio::spawn(async move {
            // A client that disconnects or is too slow is not an error of the server.
            let _ = connection.await;
            drop(permit);
        });
    }
    drop(listener);
    connections.shutdown().await;
    Ok(())
}

/// Rejects a connection above the limit, without waiting for the client.
fn reject_connection(stream: &TcpStream) {
    let _ = stream.try_write(TOO_MANY_CONNECTIONS.as_bytes());
}

/// Answers the health checks `/healthz` and `/readyz`, which need no credential and accept any `Host` header.
async fn health(state: &AppState, parts: &Parts) -> Option<Response> {
    let path = parts.uri.path();
    if !matches!(path, "/healthz" | "/readyz") {
        return None;
    }
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Some(Problem::method_not_allowed(&parts.method, path, "GET, HEAD").respond(Format::Json));
    }
    if path == "/healthz" {
        return Some("ok\n".into_response());
    }
    let site = state.site.clone();
    Some(match run_blocking(move || site.check_ready()).await {
        Ok(()) => "ready\n".into_response(),
        // The probe itself is valid, so every failure is reported as 503.
        Err(problem) => Problem { status: StatusCode::SERVICE_UNAVAILABLE, ..problem }.respond(Format::Json),
    })
}

async fn handle(State(state): State<AppState>, request: Request) -> Response {
    let start = Instant::now();
    let metrics = Arc::clone(&state.metrics);
    // The log must not contain the query, which may hold a login code.
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = add_security_headers(dispatch(state, request).await);
    let (status, duration) = (response.status(), start.elapsed());
    metrics.count(status.as_u16(), duration);
    let reason = response.extensions().get::<FailureReason>().map_or("", |reason| &reason.0);
    if status.is_server_error() {
        tracing::error!(%method, path, status = status.as_u16(), "{reason}");
    } else {
        tracing::debug!(%method, path, status = status.as_u16(), ?duration, "{reason}");
    }
    response
}

async fn dispatch(state: AppState, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if let Some(response) = health(&state, &parts).await {
        return response;
    }
    let format = match Format::of_extension(parts.uri.path()) {
        _ if parts.uri.path().starts_with("/api/") => Format::Json,
        Some((_, format)) => format,
        None => Format::of_accept(&parts.headers),
    };
    if let Err(problem) = check_host(&parts, &state.settings) {
        return problem.respond(format);
    }
    // Assets are the same for everybody and contain no private data, so they need no credential.
    if let Some(name) = parts.uri.path().strip_prefix("/assets/") {
        return assets::asset(&parts.method, name);
    }
    let token = caller::token(&parts.headers).map_or_else(|_| String::new(), |(token, _)| token);
    if !state.rate.allows(&token, Instant::now()) {
        let problem = Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate",
            format!("more than {} requests per second", state.settings.rate),
        );
        return problem.hint("wait a second, or start the server with a higher --rate").respond(format);
    }
    let body = match read_body(&state, &parts, body).await {
        Ok(body) => body,
        Err(problem) => return problem.respond(format),
    };
    if parts.uri.path() == mcp::http::PATH {
        return mcp::http::answer(state.site, parts, body).await;
    }
    let request = site_request(parts, body);
    if request.path == "/live" {
        return state.live.stream(request).await.unwrap_or_else(|problem| problem.respond(format));
    }
    if let Some(response) = state.site.cached_response(&request).await {
        return response;
    }
    let response = run_blocking(move || match request.path.as_str() {
        "/login" => login::login(&state.site, &request),
        "/metrics" => metrics_text(&state, &request),
        "/logout" => login::logout(&state.site, &request),
        _ => Ok(state.site.answer(&request)),
    });
    response.await.unwrap_or_else(|problem| problem.respond(format))
}

/// Runs work that may block, such as database queries, on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Problem::task_failed(error)))
}

fn site_request(parts: Parts, body: Vec<u8>) -> SiteRequest {
    SiteRequest {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body,
    }
}

/// Reads a body. Large bodies are read only from authenticated callers, and only few concurrently, so that strangers
/// cannot exhaust the memory.
async fn read_body(state: &AppState, parts: &Parts, body: Body) -> Result<Vec<u8>, Problem> {
    let announced_length = body.size_hint().upper().and_then(|length| usize::try_from(length).ok());
    let _permit = match announced_length {
        Some(length) if length <= SMALL_BODY_MAX => None,
        // Rejects an oversized `Content-Length` without reading the body.
        Some(length) if length > BODY_MAX => return Err(too_large()),
        _ => {
            let (site, bodiless) = (state.site.clone(), site_request(parts.clone(), Vec::new()));
            run_blocking(move || site.context(&bodiless)).await?;
            let permit = tokio::time::timeout(state.settings.client_timeout, state.large_bodies.acquire()).await;
            let busy = |_| {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "too many large request bodies at the moment")
            };
            Some(permit.map_err(busy)?)
        }
    };
    match tokio::time::timeout(state.settings.client_timeout, to_bytes(body, BODY_MAX)).await {
        Ok(Ok(body)) => Ok(body.to_vec()),
        Ok(Err(error)) if is_too_large(&error) => Err(too_large()),
        Ok(Err(_)) => Err(Problem::malformed("the body ended before it was complete")),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow", "the client took too long to send the body")),
    }
}

fn too_large() -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("the body is larger than {BODY_MAX} bytes"))
}

fn is_too_large(error: &axum::Error) -> bool {
    matches!(error.source(), Some(source) if source.is::<http_body_util::LengthLimitError>())
}

fn metrics_text(state: &AppState, request: &SiteRequest) -> Result<Response, Problem> {
    let context = state.site.context(request)?;
    let text = state.metrics.text(&state.site, &context)?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

/// Rejects unknown host names. This stops DNS rebinding, where a foreign page resolves its own host name to this
/// server.
fn check_host(parts: &Parts, settings: &Settings) -> Result<(), Problem> {
    let is_allowed = |host: &str| {
        let name = caller::split_port(host).map_or(host, |(name, _)| name);
        // Host names are case-insensitive and may end in the dot of the root zone.
        let name = name.strip_suffix('.').unwrap_or(name);
        let mut allowed =
            ["localhost", "127.0.0.1", "[::1]"].into_iter().chain(settings.hosts.iter().map(String::as_str));
        allowed.any(|allowed| allowed.strip_suffix('.').unwrap_or(allowed).eq_ignore_ascii_case(name))
    };
    // A request can name its host several times: in `Host` headers and in its URL. Proxies may read any of them, so
    // each must be allowed.
    let hosts = parts.headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let mut hosts = hosts.chain(parts.uri.authority().map(Authority::as_str)).peekable();
    let has_host = hosts.peek().is_some();
    let Some(host) = hosts.find(|host| !is_allowed(host)).or((!has_host).then_some("")) else {
        return Ok(());
    };
    Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host", format!("unknown host {host:?}"))
        .hint("use the address that `trackway up` prints, or start the server with --host NAME"))
}

fn add_security_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
