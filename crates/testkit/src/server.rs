//! PostgreSQL servers of a test's own, to be crashed under whoever uses them.

use std::{
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
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/postgres-cluster")
}

impl CrashingServer {
    pub fn start() -> Self {
        // Sockets have short paths.
        let folder = tempfile::Builder::new().prefix("trackway-crash.").tempdir_in("/tmp").unwrap();
        let url = control("start", folder.path());
        // The cluster of tests gives up durability for speed; here it is what is tested.
        Connection::postgres(&url).unwrap().batch("alter database postgres set synchronous_commit = on").unwrap();
        Self { url, folder }
    }

    /// Kills it in the middle of what it does, and starts it again.
    pub fn crash(&self) {
        control("crash", self.folder.path());
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
        let _ = Command::new(script()).arg("stop").arg(self.folder.path()).status();
    }
}
