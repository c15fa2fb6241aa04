//! A model that plays a scenario, over real HTTP on loopback.
//!
//! It implements Anthropic's Messages API and OpenAI's chat completions, streamed and complete. It answers a request to
//! count tokens with a constant, and all other requests with an empty object, because clients also call endpoints that
//! they do not need.

mod anthropic;
mod delivery;
mod openai;
mod reply;
mod scenario;

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::Write,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, header},
    response::Response,
};
use futures_util::future;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{runtime, sync::oneshot};

pub use scenario::{Actor, Block, Scenario, Usage};

use anthropic::AnthropicMessages;
use delivery::Delivery;
use openai::ChatCompletions;
use reply::{ApiFormat, Reply};
use scenario::TurnKey;

/// The first words of every end-of-run prompt.
const CLOSING_PROMPT_PREFIX: &str = "[Trackway: end of run]";

/// A running model. Dropping it stops the server and drops its connections.
#[derive(Debug)]
pub struct ScriptedModel {
    pub address: SocketAddr,
    state: Arc<ModelState>,
    server: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// A request that the model received.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    pub method: String,
    /// The path with the query, if there is one.
    pub path: String,
    pub headers: BTreeMap<String, String>,
    /// The body as JSON: null if there was none, a string if it is not JSON.
    pub body: Value,
}

/// Options for starting a model.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Becomes part of the message ids. If one client uses several models in turn, their ids must differ.
    pub series: usize,
    /// File to which requests are appended as they arrive, one JSON object per line.
    pub requests_file: Option<PathBuf>,
}

#[derive(Debug)]
struct ModelState {
    scenario: Scenario,
    series: usize,
    log: Mutex<Log>,
}

#[derive(Debug)]
struct Log {
    requests: Vec<ModelRequest>,
    file: Option<File>,
    request_counts: HashMap<TurnKey, usize>,
}

impl ScriptedModel {
    pub fn start(scenario: Scenario) -> Self {
        Self::start_with(scenario, Options::default())
    }

    pub fn start_with(scenario: Scenario, options: Options) -> Self {
        let file = options.requests_file.map(|path| File::options().create(true).append(true).open(path).unwrap());
        let log = Mutex::new(Log { requests: Vec::new(), file, request_counts: HashMap::new() });
        let state = Arc::new(ModelState { scenario, series: options.series, log });

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&state));
        let thread = thread::spawn(move || serve(listener, router, stopped));
        Self { address, state, server: Some((stop, thread)) }
    }

    /// The base URL for clients: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests received so far, in order.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.state.log.lock().unwrap().requests.clone()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.server.take() {
            drop(stop);
            // A panic of the server thread is already in the test's output.
            let _ = thread.join();
        }
    }
}

impl ModelRequest {
    /// Reads a file of requests. A missing file holds none.
    pub fn read_all(file: &Path) -> Vec<Self> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The text of the first user message.
    fn first_user_text(&self) -> String {
        match self.messages().iter().find(|message| message["role"] == "user").map(|message| &message["content"]) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(blocks)) => {
                blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join(" ")
            }
            _ => String::new(),
        }
    }

    /// The runner's end-of-run prompt, if the last user message ends with it.
    pub fn closing_prompt(&self) -> Option<String> {
        let last = self.messages().last().filter(|message| message["role"] == "user")?;
        let text = match &last["content"] {
            Value::String(text) => text.clone(),
            content => content.as_array()?.last()?["text"].as_str()?.to_owned(),
        };
        (text.starts_with(CLOSING_PROMPT_PREFIX) && text.contains("## Task Complete")).then_some(text)
    }

    fn reply_count(&self) -> usize {
        self.messages().iter().filter(|message| message["role"] == "assistant").count()
    }

    fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// Serves until the sender of `stopped` is dropped.
fn serve(listener: TcpListener, router: Router, stopped: oneshot::Receiver<()>) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let server = axum::serve(listener, router).into_future();
        future::select(Box::pin(server), stopped).await;
    });
}

async fn answer(State(state): State<Arc<ModelState>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let request = ModelRequest {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: header_texts(&parts.headers),
        body: match &*body {
            [] => Value::Null,
            bytes => serde_json::from_slice(bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(bytes))),
        },
    };
    state.log_request(&request);

    match (request.method.as_str(), parts.uri.path()) {
        ("POST", path) if path.ends_with("/messages") => state.reply(&AnthropicMessages, &request).await,
        ("POST", path) if path.ends_with("/messages/count_tokens") => {
            json_response(200, &json!({ "input_tokens": 100 }))
        }
        ("POST", path) if path.ends_with("/chat/completions") => {
            state.reply(&ChatCompletions::for_request(&request.body), &request).await
        }
        _ => json_response(200, &json!({})),
    }
}

impl ModelState {
    fn log_request(&self, request: &ModelRequest) {
        let mut log = self.log.lock().unwrap();
        if let Some(file) = &mut log.file {
            let mut line = serde_json::to_vec(request).unwrap();
            line.push(b'\n');
            file.write_all(&line).unwrap();
        }
        log.requests.push(request.clone());
    }

    async fn reply(&self, format: &(dyn ApiFormat + Sync), request: &ModelRequest) -> Response {
        if !request.body.is_object() {
            return json_response(400, &format.error(400));
        }
        let closing = request.closing_prompt();
        let turn_key = self.scenario.turn_key(&request.first_user_text(), closing.as_deref(), request.reply_count());
        let earlier_requests = self.count_request(turn_key);
        let blocks = self.scenario.blocks(turn_key, earlier_requests);
        let id = format!("s{}_a{}_t{}_n{earlier_requests}", self.series, turn_key.actor, turn_key.turn);
        let streamed = request.body["stream"] == json!(true);

        let mut response = Response::builder().header("request-id", format!("req_{id}"));
        let reply = Reply::new(id, &request.body, &blocks);
        let (status, complete_body) = match override_body(format, &blocks) {
            Some((status, body)) => (status, Some(body)),
            None if streamed => (200, None),
            None => (200, Some(format.complete(&reply).to_string())),
        };
        let delivery = match complete_body {
            Some(body) => {
                response = response.header(header::CONTENT_LENGTH, body.len());
                Delivery::complete(body, &blocks)
            }
            None => Delivery::stream(format, &reply, &blocks),
        };
        if let Some(seconds) = retry_after_s(&blocks) {
            response = response.header(header::RETRY_AFTER, seconds);
        }
        let content_type = if streamed && status == 200 { "text/event-stream" } else { "application/json" };
        response = response.status(status).header(header::CONTENT_TYPE, content_type);
        response.body(delivery.begin().await).unwrap()
    }

    /// Counts this request, and returns the number of earlier requests with the same key.
    fn count_request(&self, turn_key: TurnKey) -> usize {
        let mut log = self.log.lock().unwrap();
        let count = log.request_counts.entry(turn_key).or_default();
        *count += 1;
        *count - 1
    }
}

/// The status and body that a block specifies instead of a reply.
fn override_body(format: &dyn ApiFormat, blocks: &[Block]) -> Option<(u16, String)> {
    blocks.iter().find_map(|block| match block {
        Block::Error { error, .. } => Some((*error, format.error(*error).to_string())),
        Block::Raw { raw, status, .. } => Some((status.unwrap_or(200), raw.clone())),
        _ => None,
    })
}

fn retry_after_s(blocks: &[Block]) -> Option<u64> {
    blocks.iter().find_map(|block| match block {
        Block::Error { retry_after_s, .. } => *retry_after_s,
        _ => None,
    })
}

fn json_response(status: u16, body: &Value) -> Response {
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    response.body(Body::from(body.to_string())).unwrap()
}

fn header_texts(headers: &HeaderMap) -> BTreeMap<String, String> {
    headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect()
}
