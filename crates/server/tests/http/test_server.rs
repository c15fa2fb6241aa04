//! Runs a server on the database of a test.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::watch;
use trackway_actions::Core;
use trackway_server::{Settings, Site, serve};
use trackway_store::Store;
use trackway_testkit::TestEnv;

pub fn site(env: &TestEnv) -> Site {
    Site::new(Arc::new(Core::new(Store::open(env.database.url()).unwrap())))
}

/// A server on a free port.
pub struct TestServer {
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    // Keeps the site alive, because PostgreSQL connections must not be closed inside the server's runtime.
    _site: Site,
}

impl TestServer {
    pub fn with(env: &TestEnv, settings: Settings) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let site = site(env);
        let site_to_keep = site.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .max_blocking_threads(64)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                serve(listener, site, settings, stopped).await.unwrap();
            });
        });
        Self { address, stop, thread: Some(thread), _site: site_to_keep }
    }

    pub fn open(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    pub fn request(&self, request: &str) -> String {
        let mut answer = String::new();
        let _ = self.open(request).read_to_string(&mut answer);
        answer
    }

    pub fn stop(&mut self) {
        self.stop.send(true).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}
