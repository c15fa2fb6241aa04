//! Many clients at once and slow clients: the server stays responsive and its memory does not grow.
//!
//! These tests measure their own process, so they have a binary to themselves.

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

use crate::served::Served;

#[path = "../http/served.rs"]
mod served;

const STREAMS: u32 = 1_000;

/// Held by the tests that open and count sockets: memory and file descriptors belong to the whole process.
static MEASURED: Mutex<()> = Mutex::new(());

/// As `trackway up` does it; the clients are in this process, too.
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

/// The next that a stream tells.
async fn told(lines: &mut Lines<BufReader<tokio::net::TcpStream>>) -> String {
    loop {
        match lines.next_line().await.unwrap() {
            Some(line) if line.starts_with("data: ") => return line,
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    }
}

/// Until something holds: another thread brings it about.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    wait_until(what, Duration::from_secs(30), || holds().then_some(()));
}

fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut rest = Vec::new();
    // It may be reset instead, when there was more to read.
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

fn person_token(env: &TestEnv) -> String {
    env.act("create_token", json!({ "name": "test" })).unwrap()["token"].as_str().unwrap().to_owned()
}

const PATIENCE: Duration = Duration::from_millis(400);

fn impatient(connections: usize) -> Settings {
    Settings { patience: PATIENCE, connections, ..Settings::default() }
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

engines! {
    fn a_thousand_who_watch_all_hear_of_it(env: TestEnv) {
        let _alone = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        if !allow_many_files() {
            return; // The system does not let this process have as many.
        }
        // What was before does not count as news.
        env.act("create_note", json!({ "studio": "main", "title": "long before" })).unwrap();
        let mut served = Served::with(&env, Settings { connections: 1_010, ..Settings::default() });
        let token = person_token(&env);
        let (memory, sockets) = (resident_kilobytes(), open_sockets());
        let request = format!("GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut watching = runtime.block_on(async {
            let mut opening = JoinSet::new();
            for _ in 0..STREAMS {
                let (address, request) = (served.address, request.clone());
                opening.spawn(async move {
                    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                    stream.write_all(request.as_bytes()).await.unwrap();
                    let mut lines = BufReader::with_capacity(1_024, stream).lines();
                    let told = told(&mut lines).await;
                    assert!(told.contains("\"events\":[]"), "{told}");
                    lines
                });
            }
            opening.join_all().await
        });
        let begun = Instant::now();
        env.act("create_note", json!({ "studio": "main", "title": "seen" })).unwrap();
        runtime.block_on(async {
            for lines in &mut watching {
                let told = told(lines).await;
                assert_eq!(told.matches("\"action\"").count(), 1, "{told}");
                assert!(told.contains("create_note"), "{told}");
            }
        });
        // Half a second is the time between two looks; the rest is room for a busy machine.
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        let grown = resident_kilobytes().saturating_sub(memory);
        assert!(grown < 100_000, "{grown} kB for {STREAMS} streams");
        drop(watching);
        drop(runtime);
        assert!(served.ask(HEALTH).starts_with("HTTP/1.1 200 "));
        // Those to PostgreSQL stay, at most one for each thread that may wait.
        eventually("connections that were closed are let go", || open_sockets() < sockets + 500);
        served.ends();
    }

    fn a_connection_too_many_is_told_so(env: TestEnv) {
        let _alone = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        let served = Served::with(&env, impatient(3));
        let token = person_token(&env);
        let watching = format!("GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
        let mut open: Vec<_> = (0..3).map(|_| served.send(&watching)).collect();
        for stream in &mut open {
            stream.read_exact(&mut [0; 15]).unwrap();
        }
        let refused = served.ask("");
        assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("\r\nRetry-After: 1\r\n"), "{refused}");
        let (head, body) = refused.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{refused}");
        drop(open.pop());
        eventually("a place is free again", || served.ask(HEALTH).starts_with("HTTP/1.1 200 "));
    }

    fn who_is_slow_to_ask_holds_nobody_up_and_is_let_go(env: TestEnv) {
        let _alone = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        let served = Served::with(&env, impatient(100));
        let mut slow: Vec<_> = (0..50).map(|_| served.send("GET /whoami HTTP/1.1\r\nHost: local")).collect();
        let silent = served.send("");
        assert!(served.ask(HEALTH).starts_with("HTTP/1.1 200 "));
        // A letter now and then does not make it last.
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            std::thread::sleep(PATIENCE / 4);
            let _ = slow[0].write_all(b"x");
        }
        for stream in slow.iter_mut().chain([&mut { silent }]) {
            assert!(is_closed(stream));
        }
    }

    fn a_body_that_trickles_is_not_waited_for(env: TestEnv) {
        let _alone = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        let served = Served::with(&env, impatient(100));
        let token = person_token(&env);
        let head = |length: &str, token: &str| {
            format!("POST /notes/actions/create_note HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: application/json\r\n{length}\r\n\r\n")
        };
        let mut slow: Vec<_> =
            (0..30).map(|_| served.send(&(head("Content-Length: 5000000", &token) + "{\"title\": "))).collect();
        let small = json!({ "studio": "main", "title": "in time" }).to_string();
        let whole = head(&format!("Content-Length: {}\r\nConnection: close", small.len()), &token) + &small;
        assert!(served.ask(&whole).starts_with("HTTP/1.1 200 "));
        for stream in &mut slow {
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            let status = String::from_utf8_lossy(&answer);
            // Those that were read waited for the rest, the others for their turn.
            assert!(["HTTP/1.1 408", "HTTP/1.1 503"].contains(&&*status), "{status}");
        }
        // A stranger's is not even read.
        let refused = served.ask(&(head("Transfer-Encoding: chunked\r\nConnection: close", "no") + "5\r\n{\"tit\r\n"));
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
        let cut = format!("{}\r\n{{", head("Transfer-Encoding: chunked\r\nConnection: close", &token) + "zz");
        assert!(served.ask(&cut).starts_with("HTTP/1.1 400 "));
    }

    fn who_does_not_read_what_it_was_sent_is_let_go(env: TestEnv) {
        let _alone = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        let served = Served::with(&env, impatient(1));
        let mut deaf = TcpStream::connect(served.address).unwrap();
        deaf.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        // More is asked for than the system keeps for a reader.
        for _ in 0..200 {
            if deaf.write_all(b"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n").is_err() {
                break;
            }
        }
        eventually("its place is free again", || served.ask(HEALTH).starts_with("HTTP/1.1 200 "));
    }
}
