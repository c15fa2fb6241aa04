//! Pages per second, compared with a bare handler that returns the same bytes; and the time of pages in a large
//! database.

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
    BenchResult,
    bench_env::{AGENT, BenchEnv, BulkInsert},
    bulk_ids::{IdKind, bulk_id, created_micros},
    databases::Databases,
    measure::{Repetitions, Samples, format_count, format_duration, time_calls_alternately},
    table::{Table, verdict},
};

pub const HEADING: &str = "## pages: over HTTP";
const CONNECTIONS: usize = 64;
const ROUND: Duration = Duration::from_secs(4);
const ROUNDS: usize = 3;
const REPETITIONS: Repetitions = Repetitions { warm_up: 5, count: 100 };
/// Targets: share of the bare handler's request rate, and 99th percentile.
const SHARE_MIN: f64 = 0.3;
const P99_MAX: Duration = Duration::from_millis(10);

#[derive(Debug, Args)]
pub struct PagesOptions {
    /// Runs in the large database
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    runs: usize,
}

/// A server in this process. Dropping it stops it.
struct RunningServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn measure(databases: &Databases, options: &PagesOptions) -> BenchResult<()> {
    println!(
        "\n`GET /whoami` in Markdown by an agent in a run. {CONNECTIONS} connections each send the next request as \
         soon as they have the response. {ROUNDS} rounds of {} s, alternating with a bare axum handler that returns \
         the same bytes; servers and clients share this machine. \"cached\": every request has the same URL and \
         nothing is written, so that the page cache answers. \"uncached\": each request has a URL that is not in the \
         page cache. The share is the median of the rounds; the other figures are those of the last round. Targets: at \
         least 0.3 of the bare handler's requests, p99 less than 10 ms.\n",
        ROUND.as_secs()
    );
    let mut table = Table::new(["engine", "page", "requests/s", "bare", "share", "met", "median", "p99", "met"]);
    for engine in databases.engines() {
        let env = BenchEnv::create(databases.create(engine, "pages")?)?;
        env.execute_json("set_task", json!({ "workflow": "unit", "variant": "page", "title": "Look at a page" }))?;
        let run = env.execute_json("start_run", json!({ "agent": AGENT, "task": "page" }))?;
        let token = run["token"].as_str().unwrap_or_default().to_owned();
        let site = Site::new(Arc::new(Core::new(Store::open(env.database.url())?)));
        let body = site.get(&token, "/whoami").body;
        let (bare, trackway) = (serve_bare(body)?, serve(&site)?);
        for (page, is_uncached) in [("cached", false), ("uncached", true)] {
            let mut shares = Vec::new();
            let (mut last_rates, mut last_samples) = ((0.0, 0.0), None);
            for _ in 0..ROUNDS {
                let (bare_rate, _) = measure_rate(bare.address, "", is_uncached)?;
                let (trackway_rate, samples) = measure_rate(trackway.address, &token, is_uncached)?;
                shares.push(trackway_rate / bare_rate);
                last_rates = (trackway_rate, bare_rate);
                last_samples = Some(samples);
            }
            shares.sort_by(f64::total_cmp);
            let (share, samples) = (shares[ROUNDS / 2], last_samples.ok_or("nothing was measured")?);
            table.row([
                engine.name().to_owned(),
                page.to_owned(),
                format!("{:.0}", last_rates.0),
                format!("{:.0}", last_rates.1),
                format!("{share:.2}"),
                verdict(share >= SHARE_MIN),
                format_duration(samples.median()),
                format_duration(samples.p99()),
                verdict(samples.p99() < P99_MAX),
            ]);
        }
    }
    table.print();
    measure_large_database(databases, options)
}

/// Times single requests in a database with many runs.
fn measure_large_database(databases: &Databases, options: &PagesOptions) -> BenchResult<()> {
    println!(
        "\nPages that a person reads in a database with {} runs, {} requests each, on one connection. Targets: median \
         less than 10 ms for a run and less than 50 ms for the other pages, less than 100 kB.\n",
        format_count(options.runs),
        REPETITIONS.count
    );
    let mut table = Table::new(["engine", "page", "median", "p99", "bytes", "met"]);
    for engine in databases.engines() {
        let env = BenchEnv::create(databases.create(engine, "large")?)?;
        fill(&env, options.runs)?;
        let token = env.execute_json("create_token", json!({}))?["token"].as_str().unwrap_or_default().to_owned();
        let site = Site::new(Arc::new(Core::new(Store::open(env.database.url())?)));
        let server = serve(&site)?;
        for (path, max) in [("/", 50), ("/runs", 50), ("/runs/last", 10), ("/queue", 50), ("/usage", 50)] {
            let mut connection = ClientConnection::to(server.address, path, "text/html", &token)?;
            let mut bytes = 0;
            let ask = |_| {
                bytes = connection.request()?;
                Ok(())
            };
            // A write before each request makes every cached page stale.
            let write = |number| {
                let title = format!("{path} {number}");
                env.execute_json("create_note", json!({ "studio": "main", "title": title })).map(drop)
            };
            let (samples, _) = time_calls_alternately(REPETITIONS, ask, write)?;
            let met = samples.median() < Duration::from_millis(max) && bytes < 100_000;
            table.row([
                engine.name().to_owned(),
                format!("`{path}`"),
                format_duration(samples.median()),
                format_duration(samples.p99()),
                format_count(bytes),
                verdict(met),
            ]);
        }
    }
    table.print();
    Ok(())
}

/// Inserts many copies of one ended run.
fn fill(env: &BenchEnv, runs: usize) -> BenchResult<()> {
    let started = env.execute_json("start_run", json!({ "agent": AGENT }))?;
    env.execute_json("end_run", json!({ "run": started["run_id"], "status": "completed" }))?;
    let one = env.core.store().read(env.tenant())?.row::<Run>("where tenant_id = ?1", &[])?.ok_or("there is no run")?;
    let mut bulk = BulkInsert::begin(&env.database)?;
    for number in 0..u64::try_from(runs)? {
        let at = Time::from_micros(created_micros(number));
        let run = Run {
            id: bulk_id(IdKind::Run, number).into(),
            started_at: at,
            ended_at: Some(at),
            token_hash: None,
            ..one.clone()
        };
        bulk.insert(Run::insert_sql(), &run.params())?;
    }
    bulk.end()
}

fn serve(site: &Site) -> BenchResult<RunningServer> {
    let site = site.clone();
    start_server(move |listener, stop| async move {
        let _ = trackway_server::serve(listener, site, trackway_server::Settings::default(), stop).await;
    })
}

fn serve_bare(body: String) -> BenchResult<RunningServer> {
    let router = Router::new().route(
        "/whoami",
        get(move || {
            let body = body.clone();
            async move { ([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], body) }
        }),
    );
    start_server(move |listener, mut stop| async move {
        let stopped = async move {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        let _ = axum::serve(listener, router).with_graceful_shutdown(stopped).await;
    })
}

fn start_server<F: Future<Output = ()>>(
    serve: impl FnOnce(tokio::net::TcpListener, watch::Receiver<bool>) -> F + Send + 'static,
) -> BenchResult<RunningServer> {
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
    Ok(RunningServer { address, stop, thread: Some(thread) })
}

/// Sends requests on many connections for one round. Returns the requests per second and the duration of each request.
fn measure_rate(address: SocketAddr, token: &str, is_uncached: bool) -> BenchResult<(f64, Samples)> {
    let (barrier, is_over) = (Barrier::new(CONNECTIONS), AtomicBool::new(false));
    let begun = Instant::now();
    let all = thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                scope.spawn(|| -> BenchResult<Vec<Duration>> {
                    let mut connection = ClientConnection::to(address, "/whoami", "text/markdown", token)?;
                    connection.is_uncached = is_uncached;
                    let mut elapsed = Vec::new();
                    barrier.wait();
                    while !is_over.load(Ordering::Relaxed) {
                        let begun = Instant::now();
                        connection.request()?;
                        elapsed.push(begun.elapsed());
                    }
                    Ok(elapsed)
                })
            })
            .collect();
        thread::sleep(ROUND);
        is_over.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a client panicked")?)
            .collect::<BenchResult<Vec<_>>>()
    })?;
    let elapsed: Vec<Duration> = all.into_iter().flatten().collect();
    Ok((elapsed.len() as f64 / begun.elapsed().as_secs_f64(), Samples::new(elapsed)))
}

/// A client connection that requests one page repeatedly.
struct ClientConnection {
    reader: BufReader<TcpStream>,
    path: String,
    headers: String,
    /// Whether each request uses a URL that is not in the page cache.
    is_uncached: bool,
}

/// Number of distinct URLs of the uncached page. The server caches a page for one second, and answers fewer requests in
/// that time.
const URL_VARIANTS: usize = 16 << 10;

/// Requests for uncached pages so far, over all connections.
static UNCACHED_REQUESTS: AtomicUsize = AtomicUsize::new(0);

impl ClientConnection {
    fn to(address: SocketAddr, path: &str, accept: &str, token: &str) -> BenchResult<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let headers =
            format!("HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nAuthorization: Bearer {token}\r\n\r\n");
        Ok(Self { reader: BufReader::new(stream), path: path.to_owned(), headers, is_uncached: false })
    }

    /// Sends one request and returns the length of the response body.
    fn request(&mut self) -> BenchResult<usize> {
        let (path, headers) = (&self.path, &self.headers);
        let request = if self.is_uncached {
            // Extra `&` separators make a different URL for the same page.
            let separators = "&".repeat(UNCACHED_REQUESTS.fetch_add(1, Ordering::Relaxed) % URL_VARIANTS);
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
