//! Load tests: with many or slow clients, the server stays responsive and its memory does not grow.
//!
//! These tests measure their own process, so they have a binary of their own.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    task::JoinSet,
};
use trackway_server::Settings;
use trackway_testkit::{TestEnv, engines, wait_until};

use crate::test_server::TestServer;

#[path = "../http/test_server.rs"]
mod test_server;

const STREAMS: u32 = 1_000;

/// Serialises the tests that count sockets or measure memory, because both belong to the whole process.
static MEASURED: Mutex<()> = Mutex::new(());

/// Raises the limit of open files, as `trackway up` does. The clients are in the same process.
fn allow_many_files() -> bool {
    let wanted = u64::from(2 * STREAMS + 200);
    let files = getrlimit(Resource::Nofile);
    if files.current.is_none_or(|current| current >= wanted) {
        return true;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..files }).is_ok()
}

/// Memory of this process, clients included.
fn resident_kilobytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn open_sockets() -> usize {
    let files = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    files
        .filter_map(|file| fs::read_link(file.path()).ok())
        .filter(|to| to.to_string_lossy().starts_with("socket:"))
        .count()
}

/// The next update of a live stream.
async fn next_update(lines: &mut Lines<BufReader<tokio::net::TcpStream>>) -> String {
    loop {
        match lines.next_line().await.unwrap() {
            Some(line) if line.starts_with("data: ") => return line,
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    }
}

/// Waits until another thread has made the condition true.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    wait_until(what, Duration::from_secs(30), || holds().then_some(()));
}

fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut rest = Vec::new();
    // The client sees a reset if the server closes the connection before it has read everything.
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

fn person_token(env: &TestEnv) -> String {
    env.execute_json("create_token", json!({ "name": "test" })).unwrap()["token"].as_str().unwrap().to_owned()
}

const CLIENT_TIMEOUT: Duration = Duration::from_millis(400);

fn with_short_timeout(max_connections: usize) -> Settings {
    Settings { client_timeout: CLIENT_TIMEOUT, max_connections, ..Settings::default() }
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

engines! {
    fn a_thousand_live_streams_receive_an_event(env: TestEnv) {
        let _guard = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        if !allow_many_files() {
            return; // The system allows fewer open files.
        }
        // Events before the subscription are not sent.
        env.execute_json("create_note", json!({ "studio": "main", "title": "long before" })).unwrap();
        let mut server = TestServer::with(&env, Settings { max_connections: 1_010, ..Settings::default() });
        let token = person_token(&env);
        let (memory, sockets) = (resident_kilobytes(), open_sockets());
        let request = format!("GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut streams = runtime.block_on(async {
            let mut opening = JoinSet::new();
            for _ in 0..STREAMS {
                let (address, request) = (server.address, request.clone());
                opening.spawn(async move {
                    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                    stream.write_all(request.as_bytes()).await.unwrap();
                    let mut lines = BufReader::with_capacity(1_024, stream).lines();
                    let update = next_update(&mut lines).await;
                    assert!(update.contains("\"events\":[]"), "{update}");
                    lines
                });
            }
            opening.join_all().await
        });
        let start = Instant::now();
        env.execute_json("create_note", json!({ "studio": "main", "title": "seen" })).unwrap();
        runtime.block_on(async {
            for lines in &mut streams {
                let update = next_update(lines).await;
                assert_eq!(update.matches("\"action\"").count(), 1, "{update}");
                assert!(update.contains("create_note"), "{update}");
            }
        });
        // The server polls every half second; the remaining time allows for a busy machine.
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        let grown = resident_kilobytes().saturating_sub(memory);
        assert!(grown < 100_000, "{grown} kB for {STREAMS} streams");
        drop(streams);
        drop(runtime);
        assert!(server.request(HEALTH).starts_with("HTTP/1.1 200 "));
        // Connections to PostgreSQL stay open, at most one per blocking thread.
        eventually("the server closes its ends of closed connections", || open_sockets() < sockets + 500);
        server.stop();
    }

    fn rejects_connections_above_the_limit(env: TestEnv) {
        let _guard = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        let server = TestServer::with(&env, with_short_timeout(3));
        let token = person_token(&env);
        let request = format!("GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
        let mut open: Vec<_> = (0..3).map(|_| server.open(&request)).collect();
        for stream in &mut open {
            stream.read_exact(&mut [0; 15]).unwrap();
        }
        let refused = server.request("");
        assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("\r\nRetry-After: 1\r\n"), "{refused}");
        let (head, body) = refused.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{refused}");
        drop(open.pop());
        eventually("a connection is free again", || server.request(HEALTH).starts_with("HTTP/1.1 200 "));
    }

    fn disconnects_clients_that_send_the_head_slowly(env: TestEnv) {
        let _guard = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        let server = TestServer::with(&env, with_short_timeout(100));
        let mut slow: Vec<_> = (0..50).map(|_| server.open("GET /whoami HTTP/1.1\r\nHost: local")).collect();
        let silent = server.open("");
        assert!(server.request(HEALTH).starts_with("HTTP/1.1 200 "));
        // Sending a byte from time to time does not extend the timeout.
        let start = Instant::now();
        while start.elapsed() < CLIENT_TIMEOUT {
            std::thread::sleep(CLIENT_TIMEOUT / 4);
            let _ = slow[0].write_all(b"x");
        }
        for stream in slow.iter_mut().chain([&mut { silent }]) {
            assert!(is_closed(stream));
        }
    }

    fn times_out_slow_bodies(env: TestEnv) {
        let _guard = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        let server = TestServer::with(&env, with_short_timeout(100));
        let token = person_token(&env);
        let head = |length: &str, token: &str| {
            format!("POST /notes/actions/create_note HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: application/json\r\n{length}\r\n\r\n")
        };
        let mut slow: Vec<_> =
            (0..30).map(|_| server.open(&(head("Content-Length: 5000000", &token) + "{\"title\": "))).collect();
        let small = json!({ "studio": "main", "title": "in time" }).to_string();
        let whole = head(&format!("Content-Length: {}\r\nConnection: close", small.len()), &token) + &small;
        assert!(server.request(&whole).starts_with("HTTP/1.1 200 "));
        for stream in &mut slow {
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            let status = String::from_utf8_lossy(&answer);
            // Bodies that the server began to read time out; the others wait too long for a permit.
            assert!(["HTTP/1.1 408", "HTTP/1.1 503"].contains(&&*status), "{status}");
        }
        // The server does not read a large body without valid credentials.
        let refused = server.request(&(head("Transfer-Encoding: chunked\r\nConnection: close", "no") + "5\r\n{\"tit\r\n"));
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
        let cut = format!("{}\r\n{{", head("Transfer-Encoding: chunked\r\nConnection: close", &token) + "zz");
        assert!(server.request(&cut).starts_with("HTTP/1.1 400 "));
    }

    fn disconnects_clients_that_do_not_read_the_response(env: TestEnv) {
        let _guard = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        let server = TestServer::with(&env, with_short_timeout(1));
        let mut client = TcpStream::connect(server.address).unwrap();
        client.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        // Requests more data than the system's socket buffers hold.
        for _ in 0..200 {
            if client.write_all(b"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n").is_err() {
                break;
            }
        }
        eventually("the connection is free again", || server.request(HEALTH).starts_with("HTTP/1.1 200 "));
    }
}
