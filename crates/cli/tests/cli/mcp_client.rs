//! A client of the SDK, at `trackway mcp` or at the server of `trackway up`.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, ChildStdout, Stdio},
};

use rmcp::{
    ClientLifecycleMode, ClientServiceExt, RoleClient,
    model::{CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, ProtocolVersion},
    service::RunningService,
    transport::{
        StreamableHttpClientTransport, UnixSocketHttpClient,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::UnixListener;

use crate::terminal::Terminal;

/// A client that is connected.
pub struct Client {
    pub service: RunningService<RoleClient, ClientConfig>,
    /// Kept as long as the client.
    _process: Option<tokio::process::Child>,
    _folder: Option<TempDir>,
}

/// The version before the present one had a handshake, the present one has none.
fn lifecycle(version: &ProtocolVersion) -> (ClientConfig, ClientLifecycleMode) {
    let config = ClientConfig::new(ClientCapabilities::default(), Implementation::new("test", "1"));
    if version.has_initialize() {
        (config.with_protocol_version(version.clone()), ClientLifecycleMode::Initialize)
    } else {
        (config, ClientLifecycleMode::Discover { preferred_versions: vec![version.clone()] })
    }
}

impl Client {
    /// At a process of its own.
    pub async fn over_stdio(terminal: &Terminal, token: Option<&str>, version: &ProtocolVersion) -> Self {
        let mut command = terminal.command(&["mcp"]);
        command.envs(token.map(|token| ("TRACKWAY_TOKEN", token)));
        Self::at(command, version).await
    }

    /// At what a command starts.
    pub async fn at(mut command: std::process::Command, version: &ProtocolVersion) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap();
        let (config, mode) = lifecycle(version);
        let pipes = (process.stdout.take().unwrap(), process.stdin.take().unwrap());
        let service = config.serve_with_lifecycle(pipes, mode).await.unwrap();
        Self { service, _process: Some(process), _folder: None }
    }

    /// At a server. The SDK's smallest HTTP client speaks to a socket of this machine, which is led to the server.
    pub async fn over_http(server: SocketAddr, token: &str, version: &ProtocolVersion) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mcp");
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut far = tokio::net::TcpStream::connect(server).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        let uri = format!("http://{server}/mcp");
        let http = UnixSocketHttpClient::new(socket.to_str().unwrap(), &uri);
        let transport = StreamableHttpClientTransport::with_client(
            http,
            StreamableHttpClientTransportConfig::with_uri(uri).auth_header(token),
        );
        let (config, mode) = lifecycle(version);
        let service = config.serve_with_lifecycle(transport, mode).await.unwrap();
        Self { service, _process: None, _folder: Some(folder) }
    }

    /// Calls a tool: whether it failed, and what it said.
    pub async fn call(&self, tool: &'static str, arguments: Value) -> (bool, String) {
        let mut request = CallToolRequestParams::new(tool);
        request.arguments = Some(arguments.as_object().unwrap().clone());
        let result = self.service.call_tool(request).await.unwrap();
        let said = result.content[0].as_text().unwrap().text.clone();
        (result.is_error == Some(true), said)
    }

    /// Calls a tool that answers.
    #[track_caller]
    pub fn call_ok(&self, tool: &'static str, arguments: Value) -> impl Future<Output = String> {
        let caller = std::panic::Location::caller();
        async move {
            let (failed, said) = self.call(tool, arguments).await;
            assert!(!failed, "{caller}: {said}");
            said
        }
    }
}

/// `trackway up`, until dropped.
pub struct Server {
    process: Child,
    /// It would end if nobody listened to what it says.
    _said: BufReader<ChildStdout>,
    pub address: SocketAddr,
}

impl Server {
    /// What it writes on standard error, in the home of whoever started it.
    pub const LOG: &'static str = "up.log";

    pub fn start(terminal: &Terminal) -> Self {
        let mut command = terminal.command(&["up", "--listen", "127.0.0.1:0", "--no-work"]);
        let log = File::create(terminal.home.path().join(Self::LOG)).unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("Trackway is up at http://").unwrap().trim_end_matches('/');
        Self { address: address.parse().unwrap(), process, _said: said }
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Sends a request as it is written: the status, and all that came back.
    pub fn send(&self, head: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        write!(stream, "{head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
