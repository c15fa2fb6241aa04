//! PostgreSQL servers of a test's own, to be crashed under whoever uses them.

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

/// A server that keeps what it acknowledged, through crashes.
#[derive(Debug)]
pub struct CrashingServer {
    pub url: String,
    folder: TempDir,
    /// What its programs are started with.
    within: Vec<String>,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/postgres-cluster")
}

impl CrashingServer {
    pub fn start() -> Self {
        Self::start_within(&[])
    }

    /// The same by a program that runs others, such as `nsenter` with what it needs.
    pub fn start_within(within: &[&str]) -> Self {
        // Sockets have short paths.
        let folder = tempfile::Builder::new().prefix("trackway-crash.").tempdir_in("/tmp").unwrap();
        let within = within.iter().map(ToString::to_string).collect();
        let mut server = Self { url: String::new(), folder, within };
        server.url = server.control("start");
        // The cluster of tests gives up durability for speed; here it is what is tested.
        let durable = "alter database postgres set synchronous_commit = on";
        Connection::postgres(&server.url).unwrap().batch(durable).unwrap();
        server
    }

    /// Kills it in the middle of what it does, and starts it again.
    pub fn crash(&self) {
        self.control("crash");
    }

    /// Lets it listen at 127.0.0.1 too, and says where. It is crashed for that.
    pub fn listen(&self) -> String {
        let mut settings =
            OpenOptions::new().append(true).open(self.folder.path().join("data/postgresql.conf")).unwrap();
        writeln!(settings, "listen_addresses = '127.0.0.1'").unwrap();
        self.crash();
        "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable".to_owned()
    }

    fn command(&self, verb: &str) -> Command {
        let mut words = self.within.iter().map(OsString::from).chain([script().into()]);
        let mut command = Command::new(words.next().expect("there is a program"));
        command.args(words).arg(verb).arg(self.folder.path());
        command
    }

    fn control(&self, verb: &str) -> String {
        let output = self.command(verb).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// A server, and another that follows it and has all that was acknowledged.
#[derive(Debug)]
pub struct ServerPair {
    /// Names both.
    pub url: String,
    folder: TempDir,
}

impl ServerPair {
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("trackway-pair.").tempdir_in("/tmp").unwrap();
        Self { url: control("pair", folder.path()), folder }
    }

    /// Names the second only.
    pub fn second(&self) -> String {
        side_door(&self.folder.path().join("second"))
    }

    /// Kills the first, for good.
    pub fn kill_first(&self) {
        control("kill", self.folder.path());
    }

    /// Lets the second take writes.
    pub fn promote_second(&self) {
        control("promote", self.folder.path());
    }
}

impl Drop for ServerPair {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("stop").arg(self.folder.path()).status();
    }
}

/// A server on a machine of its own, reached over the network.
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
        Self { url: said(&mut network.on(machine, &command)), folder }
    }

    /// Where its files are: `pg_hba.conf`, certificates.
    pub fn files(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Its own door on its machine, which no network is needed for.
    pub fn side_door(&self) -> String {
        side_door(self.folder.path())
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("stop").arg(self.folder.path()).status();
    }
}

/// The URL of the socket in a folder.
fn side_door(folder: &Path) -> String {
    format!("postgres://postgres@{}/postgres", folder.display().to_string().replace('/', "%2F"))
}

fn control(verb: &str, folder: &Path) -> String {
    said(Command::new(script()).arg(verb).arg(folder))
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Drop for CrashingServer {
    fn drop(&mut self) {
        let _ = self.command("stop").status();
    }
}
