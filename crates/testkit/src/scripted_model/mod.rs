//! A model that says what a scenario tells it to, over real HTTP on loopback.
//!
//! It speaks Anthropic's Messages and OpenAI's chat completions, streamed or whole, and answers everything else with an
//! empty object, as clients ask for more than they need.

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

use anthropic::Messages;
use delivery::Delivery;
use openai::ChatCompletions;
use reply::{Reply, Shape};
use scenario::Cue;

/// Beginning of every end-of-run prompt.
const CLOSES: &str = "[Trackway: end of run]";

/// A running model. Dropping it stops it and breaks off what it was saying.
#[derive(Debug)]
pub struct ScriptedModel {
    pub address: SocketAddr,
    stage: Arc<Stage>,
    server: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    pub method: String,
    /// With the query, if there is one.
    pub path: String,
    pub headers: BTreeMap<String, String>,
    /// Null where there was none, a text where it was not JSON.
    pub body: Value,
}

/// How to start a model, where the defaults do not do.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Goes into the ids of messages: models that one client talks to one after the other must not repeat them.
    pub series: usize,
    /// A file to append requests to as they come, an object a line.
    pub requests_file: Option<PathBuf>,
}

#[derive(Debug)]
struct Stage {
    scenario: Scenario,
    series: usize,
    log: Mutex<Log>,
}

#[derive(Debug)]
struct Log {
    requests: Vec<ModelRequest>,
    file: Option<File>,
    cues: HashMap<Cue, usize>,
}

impl ScriptedModel {
    pub fn start(scenario: Scenario) -> Self {
        Self::start_with(scenario, Options::default())
    }

    pub fn start_with(scenario: Scenario, options: Options) -> Self {
        let file = options.requests_file.map(|path| File::options().create(true).append(true).open(path).unwrap());
        let log = Mutex::new(Log { requests: Vec::new(), file, cues: HashMap::new() });
        let stage = Arc::new(Stage { scenario, series: options.series, log });

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&stage));
        let thread = thread::spawn(move || serve(listener, router, stopped));
        Self { address, stage, server: Some((stop, thread)) }
    }

    /// Where it is, as clients want it: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far, in the order in which they came.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.stage.log.lock().unwrap().requests.clone()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.server.take() {
            drop(stop);
            // A server that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl ModelRequest {
    /// Reads a file of requests; one that was never made holds none.
    pub fn read_all(file: &Path) -> Vec<Self> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The text of the first thing that the user said.
    fn first_words(&self) -> String {
        match self.messages().iter().find(|message| message["role"] == "user").map(|message| &message["content"]) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(blocks)) => {
                blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join(" ")
            }
            _ => String::new(),
        }
    }

    /// The end-of-run prompt of a runner, where the request ends with it.
    pub fn closing_prompt(&self) -> Option<String> {
        let last = self.messages().last().filter(|message| message["role"] == "user")?;
        let text = match &last["content"] {
            Value::String(text) => text.clone(),
            content => content.as_array()?.last()?["text"].as_str()?.to_owned(),
        };
        (text.starts_with(CLOSES) && text.contains("## Task Complete")).then_some(text)
    }

    fn replies_so_far(&self) -> usize {
        self.messages().iter().filter(|message| message["role"] == "assistant").count()
    }

    fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// Serves until told to stop, or until whoever could tell is gone.
fn serve(listener: TcpListener, router: Router, stopped: oneshot::Receiver<()>) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let server = axum::serve(listener, router).into_future();
        future::select(Box::pin(server), stopped).await;
    });
}

async fn answer(State(stage): State<Arc<Stage>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let request = ModelRequest {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: texts(&parts.headers),
        body: match &*body {
            [] => Value::Null,
            bytes => serde_json::from_slice(bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(bytes))),
        },
    };
    stage.write_down(&request);

    match (request.method.as_str(), parts.uri.path()) {
        ("POST", path) if path.ends_with("/messages") => stage.reply(&Messages, &request).await,
        ("POST", path) if path.ends_with("/messages/count_tokens") => plain(200, &json!({ "input_tokens": 100 })),
        ("POST", path) if path.ends_with("/chat/completions") => {
            stage.reply(&ChatCompletions::asked_by(&request.body), &request).await
        }
        _ => plain(200, &json!({})),
    }
}

impl Stage {
    fn write_down(&self, request: &ModelRequest) {
        let mut log = self.log.lock().unwrap();
        if let Some(file) = &mut log.file {
            let mut line = serde_json::to_vec(request).unwrap();
            line.push(b'\n');
            file.write_all(&line).unwrap();
        }
        log.requests.push(request.clone());
    }

    async fn reply(&self, shape: &(dyn Shape + Sync), request: &ModelRequest) -> Response {
        if !request.body.is_object() {
            return plain(400, &shape.error(400));
        }
        let closing = request.closing_prompt();
        let cue = self.scenario.cue(&request.first_words(), closing.as_deref(), request.replies_so_far());
        let earlier = self.earlier(cue);
        let blocks = self.scenario.blocks(cue, earlier);
        let id = format!("s{}_a{}_t{}_n{earlier}", self.series, cue.actor, cue.turn);
        let streamed = request.body["stream"] == json!(true);

        let mut response = Response::builder().header("request-id", format!("req_{id}"));
        let reply = Reply::new(id, &request.body, &blocks);
        let (status, whole) = match instead(shape, &blocks) {
            Some((status, body)) => (status, Some(body)),
            None if streamed => (200, None),
            None => (200, Some(shape.whole(&reply).to_string())),
        };
        let delivery = match whole {
            Some(body) => {
                response = response.header(header::CONTENT_LENGTH, body.len());
                Delivery::whole(body, &blocks)
            }
            None => Delivery::stream(shape, &reply, &blocks),
        };
        if let Some(seconds) = retry_after_s(&blocks) {
            response = response.header(header::RETRY_AFTER, seconds);
        }
        let content_type = if streamed && status == 200 { "text/event-stream" } else { "application/json" };
        response = response.status(status).header(header::CONTENT_TYPE, content_type);
        response.body(delivery.begin().await).unwrap()
    }

    /// How often this cue came before.
    fn earlier(&self, cue: Cue) -> usize {
        let mut log = self.log.lock().unwrap();
        let count = log.cues.entry(cue).or_default();
        *count += 1;
        *count - 1
    }
}

/// What is answered in place of a reply.
fn instead(shape: &dyn Shape, blocks: &[Block]) -> Option<(u16, String)> {
    blocks.iter().find_map(|block| match block {
        Block::Error { error, .. } => Some((*error, shape.error(*error).to_string())),
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

fn plain(status: u16, body: &Value) -> Response {
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    response.body(Body::from(body.to_string())).unwrap()
}

fn texts(headers: &HeaderMap) -> BTreeMap<String, String> {
    headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect()
}
