//! The socket: what comes in is checked, read, answered by [`Site`] on a thread that may wait, and sent back.

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
    problem::{Problem, Why},
    rate::Rate,
    site::{Question, Site},
};

/// Bytes of a body: the largest text an action takes, four bytes a character, and room around it.
const BODY_MAX: usize = 6_000_000;
/// Bytes of a body that is read whoever sends it.
const BODY_SMALL: usize = 65_536;
/// Larger bodies that are read at once.
const BODIES_LARGE: usize = 16;
/// How long a client may take, when it is not said otherwise.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long nothing is accepted when the system has no more to give, such as open files.
const EXHAUSTED: Duration = Duration::from_millis(200);
/// What a connection too many is told, before its request is read.
const FULL: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 46\r\nRetry-After: 1\r\nConnection: close\r\n\r\ntoo many connections are open; try again later";
/// Pages load what is ours, and run nothing that stands in them.
const CONTENT_SECURITY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// How the server stands in its network.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names it may be called by, beside those of this machine.
    pub hosts: Vec<String>,
    /// Requests a second that a token may make; 0 is no limit.
    pub rate: u32,
    /// How many connections may be open.
    pub connections: usize,
    /// How long a client may take to send the head of a request, to send its body, or to take in what it was sent.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { hosts: Vec::new(), rate: 0, connections: 1_000, patience: PATIENCE }
    }
}

#[derive(Debug, Clone)]
struct Door {
    site: Site,
    settings: Settings,
    live: Live,
    rate: Arc<Rate>,
    metrics: Arc<Metrics>,
    large_bodies: Arc<Semaphore>,
}

/// Everything that can be asked for.
pub fn router(site: Site, settings: Settings, stop: watch::Receiver<bool>) -> Router {
    let live = Live::new(site.clone(), stop);
    Router::new().fallback(any(handle)).with_state(Door {
        rate: Arc::new(Rate::new(settings.rate)),
        metrics: Arc::default(),
        large_bodies: Arc::new(Semaphore::new(BODIES_LARGE)),
        site,
        settings,
        live,
    })
}

/// Serves until told to stop; what was begun is finished.
pub async fn serve(
    listener: TcpListener,
    site: Site,
    settings: Settings,
    mut stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(settings.patience);
    let patience = settings.patience;
    let places = Arc::new(Semaphore::new(settings.connections));
    let router = router(site, settings, stop.clone());
    let open = GracefulShutdown::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => {
                    tokio::time::sleep(EXHAUSTED).await;
                    continue;
                }
            },
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            refuse(&stream);
            continue;
        };
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        // Who does not read what it was sent is let go. Who has nothing to say may wait: streams are like that.
        stream.set_write_timeout(Some(patience));
        let service = TowerToHyperService::new(router.clone());
        let connection = open.watch(http.serve_connection(TokioIo::new(Box::pin(stream)), service));
        tokio::spawn(async move {
            // A client that goes away, or is too slow, is no failure of ours.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    open.shutdown().await;
    Ok(())
}

/// Says that there are too many, without waiting for anything.
fn refuse(stream: &TcpStream) {
    let _ = stream.try_write(FULL.as_bytes());
}

/// How the process is, for who watches it: by whatever name, and without a credential.
async fn health(door: &Door, parts: &Parts) -> Option<Response> {
    let path = parts.uri.path();
    if !matches!(path, "/healthz" | "/readyz") {
        return None;
    }
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Some(Problem::method(&parts.method, path, "GET, HEAD").respond(Format::Json));
    }
    if path == "/healthz" {
        return Some("ok\n".into_response());
    }
    let site = door.site.clone();
    Some(match waiting(move || site.is_ready()).await {
        Ok(()) => "ready\n".into_response(),
        // Whatever keeps the database away: there is nothing wrong with the question.
        Err(problem) => Problem { status: StatusCode::SERVICE_UNAVAILABLE, ..problem }.respond(Format::Json),
    })
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
    if let Some(healthy) = health(&door, &parts).await {
        return healthy;
    }
    let format = match Format::of_ending(parts.uri.path()) {
        _ if parts.uri.path().starts_with("/api/") => Format::Json,
        Some((_, format)) => format,
        None => Format::of_accept(&parts.headers),
    };
    if let Err(problem) = called_rightly(&parts, &door.settings) {
        return problem.respond(format);
    }
    // What pages are drawn with is the same for all, and says nothing of anybody.
    if let Some(name) = parts.uri.path().strip_prefix("/assets/") {
        return assets::asset(&parts.method, name);
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
    let body = match body_of(&door, &parts, body).await {
        Ok(body) => body,
        Err(problem) => return problem.respond(format),
    };
    if parts.uri.path() == mcp::http::PATH {
        return mcp::http::answer(door.site, parts, body).await;
    }
    let question = question(parts, body);
    if question.path == "/live" {
        return door.live.stream(question).await.unwrap_or_else(|problem| problem.respond(format));
    }
    if let Some(answer) = door.site.shown_again(&question).await {
        return answer;
    }
    let answered = waiting(move || match question.path.as_str() {
        "/login" => login::login(&door.site, &question),
        "/metrics" => numbers(&door, &question),
        "/logout" => login::logout(&door.site, &question),
        _ => Ok(door.site.answer(&question)),
    });
    answered.await.unwrap_or_else(|problem| problem.respond(format))
}

/// Works on a thread that may wait for the database.
async fn waiting<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Problem::crashed(error)))
}

fn question(parts: Parts, body: Vec<u8>) -> Question {
    Question {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body,
    }
}

/// Reads a body. A large one is read only for who may enter, and few of them at once: what strangers send fills no memory.
async fn body_of(door: &Door, parts: &Parts, body: Body) -> Result<Vec<u8>, Problem> {
    let announced = body.size_hint().upper().and_then(|length| usize::try_from(length).ok());
    let _held = match announced {
        Some(length) if length <= BODY_SMALL => None,
        // What is too large by its own word is not waited for.
        Some(length) if length > BODY_MAX => return Err(too_large()),
        _ => {
            let (site, asked) = (door.site.clone(), question(parts.clone(), Vec::new()));
            waiting(move || site.context(&asked)).await?;
            let place = tokio::time::timeout(door.settings.patience, door.large_bodies.acquire()).await;
            let busy = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "many large bodies are being read");
            Some(place.map_err(busy)?)
        }
    };
    match tokio::time::timeout(door.settings.patience, to_bytes(body, BODY_MAX)).await {
        Ok(Ok(body)) => Ok(body.to_vec()),
        Ok(Err(error)) if is_too_large(&error) => Err(too_large()),
        Ok(Err(_)) => Err(Problem::malformed("the body ended before it was whole")),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow", "the body took too long to arrive")),
    }
}

fn too_large() -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("a body is at most {BODY_MAX} bytes"))
}

fn is_too_large(error: &axum::Error) -> bool {
    matches!(error.source(), Some(source) if source.is::<http_body_util::LengthLimitError>())
}

fn numbers(door: &Door, question: &Question) -> Result<Response, Problem> {
    let context = door.site.context(question)?;
    let text = door.metrics.text(&door.site, &context)?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

/// A page of another name that was led here by its name server is refused.
fn called_rightly(parts: &Parts, settings: &Settings) -> Result<(), Problem> {
    let is_known = |host: &str| {
        let name = caller::port(host).map_or(host, |(name, _)| name);
        // A name may end in the dot of the root, and its letters may be large or small.
        let name = name.strip_suffix('.').unwrap_or(name);
        let mut known =
            ["localhost", "127.0.0.1", "[::1]"].into_iter().chain(settings.hosts.iter().map(String::as_str));
        known.any(|known| known.strip_suffix('.').unwrap_or(known).eq_ignore_ascii_case(name))
    };
    // A request can name a server more than once, in its headers and in its address: whoever reads which, each has to be right.
    let named = parts.headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let mut named = named.chain(parts.uri.authority().map(Authority::as_str)).peekable();
    let is_named = named.peek().is_some();
    let Some(host) = named.find(|host| !is_known(host)).or((!is_named).then_some("")) else {
        return Ok(());
    };
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
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
