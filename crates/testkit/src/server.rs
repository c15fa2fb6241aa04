//! A PostgreSQL server of a test's own, to be crashed under whoever uses it.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;
use trackway_store::connection::Connection;

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

fn control(verb: &str, folder: &Path) -> String {
    let output = Command::new(script()).arg(verb).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Drop for CrashingServer {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("stop").arg(self.folder.path()).status();
    }
}
