//! Pages per second, against a bare handler that returns the same bytes; and pages over a large database.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use axum::{Router, http::header, routing::get};
use clap::Args;
use serde_json::json;
use tokio::sync::watch;
use trackway_actions::Core;
use trackway_domain::Time;
use trackway_server::Site;
use trackway_store::{Store, Table as _, tables::Run};

use crate::{
    Outcome,
    bench_env::{AGENT, BenchEnv, Bulk},
    identity::{Numbered, id, micros},
    measure::{Often, Samples, calls_in_turn, grouped, shown},
    place::Places,
    table::{Table, verdict},
};

pub const HEADING: &str = "## pages: over HTTP";
const CONNECTIONS: usize = 64;
const ROUND: Duration = Duration::from_secs(4);
const ROUNDS: usize = 3;
const OFTEN: Often = Often { warm_up: 5, count: 100 };
/// What share of a bare handler's requests is wanted, and how long the slowest may take.
const SHARE_MIN: f64 = 0.3;
const P99_MAX: Duration = Duration::from_millis(10);

#[derive(Debug, Args)]
pub struct Size {
    /// Runs in the database of the overview
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    runs: usize,
}

/// A server in this process, and what ends it.
struct Served {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn measure(places: &Places, size: &Size) -> Outcome<()> {
    println!(
        "\n`GET /whoami` in Markdown by an agent in a run, {CONNECTIONS} connections that ask again at once, {ROUNDS} rounds of \
         {} s in turn with a bare axum handler that returns the same bytes; servers and clients share this machine. While nothing is written, a page \
         is shown again; then each request names another page, so that each is made. Target: at least 0.3 of the bare requests, p99 under 10 ms.\n",
        ROUND.as_secs()
    );
    let mut table = Table::new(["engine", "page", "requests/s", "bare", "share", "met", "median", "p99", "met"]);
    for engine in places.engines() {
        let env = BenchEnv::found(places.database(engine, "pages")?)?;
        env.act("set_task", json!({ "workflow": "unit", "variant": "page", "title": "Look at a page" }))?;
        let run = env.act("start_run", json!({ "agent": AGENT, "task": "page" }))?;
        let token = run["token"].as_str().unwrap_or_default().to_owned();
        let site = Site::new(Arc::new(Core::new(Store::open(env.database.url())?)));
        let body = site.get(&token, "/whoami").body;
        let (bare, ours) = (serve_bare(body)?, serve(&site)?);
        for (page, is_new) in [("shown again", false), ("made for each", true)] {
            let mut shares = Vec::new();
            let (mut best, mut last) = ((0.0, 0.0), None);
            for _ in 0..ROUNDS {
                let (bare_rate, _) = load(bare.address, "", is_new)?;
                let (our_rate, samples) = load(ours.address, &token, is_new)?;
                shares.push(our_rate / bare_rate);
                best = (our_rate, bare_rate);
                last = Some(samples);
            }
            shares.sort_by(f64::total_cmp);
            let (share, samples) = (shares[ROUNDS / 2], last.ok_or("nothing was measured")?);
            table.row([
                engine.name().to_owned(),
                page.to_owned(),
                format!("{:.0}", best.0),
                format!("{:.0}", best.1),
                format!("{share:.2}"),
                verdict(share >= SHARE_MIN),
                shown(samples.median()),
                shown(samples.p99()),
                verdict(samples.p99() < P99_MAX),
            ]);
        }
    }
    table.print();
    large(places, size)
}

/// Pages of a database with many runs.
fn large(places: &Places, size: &Size) -> Outcome<()> {
    println!(
        "\nPages of a person over {} runs, {} calls each, one connection. Targets: the overview under 50 ms, a run under 10 ms.\n",
        grouped(size.runs),
        OFTEN.count
    );
    let mut table = Table::new(["engine", "page", "median", "p99", "bytes", "met"]);
    for engine in places.engines() {
        let env = BenchEnv::found(places.database(engine, "large")?)?;
        fill(&env, size.runs)?;
        let token = env.act("create_token", json!({}))?["token"].as_str().unwrap_or_default().to_owned();
        let site = Site::new(Arc::new(Core::new(Store::open(env.database.url())?)));
        let served = serve(&site)?;
        for (path, max) in [("/", 50), ("/runs", 50), ("/runs/last", 10), ("/queue", 50), ("/usage", 50)] {
            let mut connection = Connection::to(served.address, path, "text/html", &token)?;
            let mut bytes = 0;
            let ask = |_| {
                bytes = connection.ask()?;
                Ok(())
            };
            // Something is written each time, so that no page is shown again.
            let write = |number| {
                let title = format!("{path} {number}");
                env.act("create_note", json!({ "studio": "main", "title": title })).map(drop)
            };
            let (samples, _) = calls_in_turn(OFTEN, ask, write)?;
            let met = samples.median() < Duration::from_millis(max) && bytes < 100_000;
            table.row([
                engine.name().to_owned(),
                format!("`{path}`"),
                shown(samples.median()),
                shown(samples.p99()),
                grouped(bytes),
                verdict(met),
            ]);
        }
    }
    table.print();
    Ok(())
}

/// Copies one ended run many times: what a page costs does not depend on how they came.
fn fill(env: &BenchEnv, runs: usize) -> Outcome<()> {
    let started = env.act("start_run", json!({ "agent": AGENT }))?;
    env.act("end_run", json!({ "run": started["run_id"], "status": "completed" }))?;
    let one = env.core.store().read(env.tenant())?.row::<Run>("where tenant_id = ?1", &[])?.ok_or("there is no run")?;
    let mut bulk = Bulk::begin(&env.database)?;
    for number in 0..u64::try_from(runs)? {
        let at = Time::from_micros(micros(number));
        let run = Run {
            id: id(Numbered::Run, number).into(),
            started_at: at,
            ended_at: Some(at),
            token_hash: None,
            ..one.clone()
        };
        bulk.insert(Run::insert_sql(), &run.params())?;
    }
    bulk.end()
}

fn serve(site: &Site) -> Outcome<Served> {
    let site = site.clone();
    listening(move |listener, stop| async move {
        let _ = trackway_server::serve(listener, site, trackway_server::Settings::default(), stop).await;
    })
}

fn serve_bare(body: String) -> Outcome<Served> {
    let router = Router::new().route(
        "/whoami",
        get(move || {
            let body = body.clone();
            async move { ([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], body) }
        }),
    );
    listening(move |listener, mut stop| async move {
        let stopped = async move {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        let _ = axum::serve(listener, router).with_graceful_shutdown(stopped).await;
    })
}

fn listening<F: Future<Output = ()>>(
    serve: impl FnOnce(tokio::net::TcpListener, watch::Receiver<bool>) -> F + Send + 'static,
) -> Outcome<Served> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    let thread = thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(64).enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                serve(listener, stopped).await;
            }
        });
    });
    Ok(Served { address, stop, thread: Some(thread) })
}

/// Asks from many connections for a while: requests a second, and how long each took.
fn load(address: SocketAddr, token: &str, is_new: bool) -> Outcome<(f64, Samples)> {
    let (barrier, over) = (Barrier::new(CONNECTIONS), AtomicBool::new(false));
    let begun = Instant::now();
    let all = thread::scope(|scope| {
        let asking: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                scope.spawn(|| -> Outcome<Vec<Duration>> {
                    let mut connection = Connection::to(address, "/whoami", "text/markdown", token)?;
                    connection.is_new = is_new;
                    let mut took = Vec::new();
                    barrier.wait();
                    while !over.load(Ordering::Relaxed) {
                        let begun = Instant::now();
                        connection.ask()?;
                        took.push(begun.elapsed());
                    }
                    Ok(took)
                })
            })
            .collect();
        thread::sleep(ROUND);
        over.store(true, Ordering::Relaxed);
        asking.into_iter().map(|thread| thread.join().map_err(|_| "a client failed")?).collect::<Outcome<Vec<_>>>()
    })?;
    let took: Vec<Duration> = all.into_iter().flatten().collect();
    Ok((took.len() as f64 / begun.elapsed().as_secs_f64(), Samples::new(took)))
}

/// A connection that asks for one page again and again.
struct Connection {
    reader: BufReader<TcpStream>,
    path: String,
    headers: String,
    /// Whether each request names a page that was not asked for before.
    is_new: bool,
}

/// Names that one page is asked for by: more than are asked for in the second that a page is kept.
const NAMES: usize = 16 << 10;

/// Requests for pages that were not asked for of late, whoever asked.
static ASKED: AtomicUsize = AtomicUsize::new(0);

impl Connection {
    fn to(address: SocketAddr, path: &str, accept: &str, token: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let headers =
            format!("HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nAuthorization: Bearer {token}\r\n\r\n");
        Ok(Self { reader: BufReader::new(stream), path: path.to_owned(), headers, is_new: false })
    }

    /// Asks, and says how many bytes came.
    fn ask(&mut self) -> Outcome<usize> {
        let (path, headers) = (&self.path, &self.headers);
        let request = if self.is_new {
            // Another name of the same page, which says nothing else.
            let separators = "&".repeat(ASKED.fetch_add(1, Ordering::Relaxed) % NAMES);
            format!("GET {path}?{separators} {headers}")
        } else {
            format!("GET {path} {headers}")
        };
        self.reader.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        if !line.starts_with("HTTP/1.1 200") {
            return Err(format!("the server answered {line}").into());
        }
        let mut length = 0;
        loop {
            line.clear();
            self.reader.read_line(&mut line)?;
            if line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        Ok(length)
    }
}
