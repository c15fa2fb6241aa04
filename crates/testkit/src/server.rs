//! Separate PostgreSQL servers for tests that crash, replace or reconfigure them.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;
use trackway_store::connection::Connection;

use crate::network::Network;

/// A server whose acknowledged transactions survive crashes.
#[derive(Debug)]
pub struct CrashingServer {
    pub url: String,
    folder: TempDir,
    /// A program, such as `nsenter`, and its arguments. It starts the programs of the server.
    wrapper: Vec<String>,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/postgres-cluster")
}

impl CrashingServer {
    pub fn start() -> Self {
        Self::start_with_wrapper(&[])
    }

    /// Starts the server through another program, such as `nsenter` with its arguments.
    pub fn start_with_wrapper(wrapper: &[&str]) -> Self {
        // The path of a Unix socket must be short.
        let folder = tempfile::Builder::new().prefix("trackway-crash.").tempdir_in("/tmp").unwrap();
        let wrapper = wrapper.iter().map(ToString::to_string).collect();
        let mut server = Self { url: String::new(), folder, wrapper };
        server.url = server.control("start");
        // The test cluster trades durability for speed, but this server must be durable.
        let durable = "alter database postgres set synchronous_commit = on";
        Connection::postgres(&server.url).unwrap().batch(durable).unwrap();
        server
    }

    /// Kills the server and starts it again.
    pub fn crash(&self) {
        self.control("crash");
    }

    /// Crashes and restarts the server, so that it also listens at 127.0.0.1. Returns the URL for this address.
    pub fn listen(&self) -> String {
        let mut settings =
            OpenOptions::new().append(true).open(self.folder.path().join("data/postgresql.conf")).unwrap();
        writeln!(settings, "listen_addresses = '127.0.0.1'").unwrap();
        self.crash();
        "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable".to_owned()
    }

    fn command(&self, verb: &str) -> Command {
        let mut words = self.wrapper.iter().map(OsString::from).chain([script().into()]);
        let mut command = Command::new(words.next().expect("the list ends with the script"));
        command.args(words).arg(verb).arg(self.folder.path());
        command
    }

    fn control(&self, verb: &str) -> String {
        let output = self.command(verb).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// A primary server and a synchronous standby, which has all acknowledged transactions.
#[derive(Debug)]
pub struct ServerPair {
    /// A URL with both servers.
    pub url: String,
    folder: TempDir,
}

impl ServerPair {
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("trackway-pair.").tempdir_in("/tmp").unwrap();
        Self { url: control("pair", folder.path()), folder }
    }

    /// The URL of the standby.
    pub fn standby_url(&self) -> String {
        socket_url(&self.folder.path().join("second"))
    }

    /// Kills the primary, which stays down.
    pub fn kill_primary(&self) {
        control("kill", self.folder.path());
    }

    /// Promotes the standby, so that it accepts writes.
    pub fn promote_standby(&self) {
        control("promote", self.folder.path());
    }
}

impl Drop for ServerPair {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("stop").arg(self.folder.path()).status();
    }
}

/// A server on a separate machine of a [`Network`].
#[derive(Debug)]
pub struct RemoteServer {
    pub url: String,
    folder: TempDir,
}

impl RemoteServer {
    pub fn start(network: &Network, machine: u8) -> Self {
        let folder = tempfile::Builder::new().prefix("trackway-remote.").tempdir_in("/tmp").unwrap();
        let mut command = Command::new(script());
        command.arg("open").arg(folder.path()).arg(Network::address(machine));
        Self { url: output_of(&mut network.command_on(machine, &command)), folder }
    }

    /// The data folder of the server, with `pg_hba.conf` and certificates.
    pub fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The URL of the server's Unix socket, which works without the network.
    pub fn socket_url(&self) -> String {
        socket_url(self.folder.path())
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("stop").arg(self.folder.path()).status();
    }
}

/// The URL of the Unix socket in a folder.
fn socket_url(folder: &Path) -> String {
    format!("postgres://postgres@{}/postgres", folder.display().to_string().replace('/', "%2F"))
}

fn control(verb: &str, folder: &Path) -> String {
    output_of(Command::new(script()).arg(verb).arg(folder))
}

fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Drop for CrashingServer {
    fn drop(&mut self) {
        let _ = self.command("stop").status();
    }
}
