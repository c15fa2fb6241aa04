//! The MCP client of the SDK, connected to `trackway mcp` or to the server of `trackway up`.

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

pub struct Client {
    pub service: RunningService<RoleClient, ClientConfig>,
    /// Ends the process when the client is dropped.
    _process: Option<tokio::process::Child>,
    _folder: Option<TempDir>,
}

/// Older protocol versions begin with a handshake; the current version has none.
fn lifecycle(version: &ProtocolVersion) -> (ClientConfig, ClientLifecycleMode) {
    let config = ClientConfig::new(ClientCapabilities::default(), Implementation::new("test", "1"));
    if version.has_initialize() {
        (config.with_protocol_version(version.clone()), ClientLifecycleMode::Initialize)
    } else {
        (config, ClientLifecycleMode::Discover { preferred_versions: vec![version.clone()] })
    }
}

impl Client {
    /// Connects to a new `trackway mcp` process.
    pub async fn over_stdio(terminal: &Terminal, token: Option<&str>, version: &ProtocolVersion) -> Self {
        let mut command = terminal.command(&["mcp"]);
        command.envs(token.map(|token| ("TRACKWAY_TOKEN", token)));
        Self::over_stdio_of(command, version).await
    }

    /// Connects to the process that a command starts.
    pub async fn over_stdio_of(mut command: std::process::Command, version: &ProtocolVersion) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap();
        let (config, mode) = lifecycle(version);
        let pipes = (process.stdout.take().unwrap(), process.stdin.take().unwrap());
        let service = config.serve_with_lifecycle(pipes, mode).await.unwrap();
        Self { service, _process: Some(process), _folder: None }
    }

    /// Connects to a server. The SDK's smallest HTTP client requires a Unix socket, so a task forwards a Unix socket to
    /// the server.
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

    /// Calls a tool. Returns whether it failed, and its text.
    pub async fn call(&self, tool: &'static str, arguments: Value) -> (bool, String) {
        let mut request = CallToolRequestParams::new(tool);
        request.arguments = Some(arguments.as_object().unwrap().clone());
        let result = self.service.call_tool(request).await.unwrap();
        let reply = result.content[0].as_text().unwrap().text.clone();
        (result.is_error == Some(true), reply)
    }

    /// Calls a tool that must succeed, and returns its text.
    #[track_caller]
    pub fn call_ok(&self, tool: &'static str, arguments: Value) -> impl Future<Output = String> {
        let caller = std::panic::Location::caller();
        async move {
            let (failed, reply) = self.call(tool, arguments).await;
            assert!(!failed, "{caller}: {reply}");
            reply
        }
    }
}

/// A `trackway up` process, which is killed when dropped.
pub struct Server {
    process: Child,
    /// Keeps the pipe open: the process would fail to write to a closed standard output.
    _stdout: BufReader<ChildStdout>,
    pub address: SocketAddr,
}

impl Server {
    /// The file with the standard error of the server, in the terminal's home directory.
    pub const LOG: &'static str = "up.log";

    pub fn start(terminal: &Terminal) -> Self {
        let mut command = terminal.command(&["up", "--listen", "127.0.0.1:0", "--no-work"]);
        let log = File::create(terminal.home.path().join(Self::LOG)).unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("Trackway is up at http://").unwrap().trim_end_matches('/');
        Self { address: address.parse().unwrap(), process, _stdout: stdout }
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Sends a raw HTTP request. Returns the status and the whole response.
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
        // Killing fails only if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
