//! Other queue libraries. Each is driven by a separate program that prints its rate.

use std::{path::PathBuf, process::Command};

use clap::Args;
use trackway_store::{Engine, Url};

use super::QueueWorkload;
use crate::{
    BenchResult,
    databases::{Database, Databases},
};

#[derive(Debug, Args)]
pub struct QueuePeers {
    /// `node_modules` with graphile-worker and pg-boss [default: not measured]
    #[arg(long, value_name = "DIR")]
    node_modules: Option<PathBuf>,
    /// Python interpreter with procrastinate [default: not measured]
    #[arg(long, value_name = "FILE")]
    procrastinate: Option<PathBuf>,
    /// Program built from bench/others/apalis [default: not measured]
    #[arg(long, value_name = "FILE")]
    apalis: Option<PathBuf>,
}

#[derive(Debug)]
pub enum Peer {
    Node { modules: PathBuf, name: &'static str },
    Procrastinate { python: PathBuf },
    Apalis { program: PathBuf },
}

impl QueuePeers {
    pub fn peers(&self) -> Vec<Peer> {
        let node = self.node_modules.iter().flat_map(|modules| {
            ["graphile-worker", "pg-boss"].map(|name| Peer::Node { modules: modules.clone(), name })
        });
        let procrastinate = self.procrastinate.iter().map(|python| Peer::Procrastinate { python: python.clone() });
        let apalis = self.apalis.iter().map(|program| Peer::Apalis { program: program.clone() });
        node.chain(procrastinate).chain(apalis).collect()
    }
}

impl Peer {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Node { name, .. } => name,
            Self::Procrastinate { .. } => "procrastinate",
            Self::Apalis { .. } => "apalis-sqlite",
        }
    }

    pub fn engine(&self) -> Engine {
        match self {
            Self::Apalis { .. } => Engine::Sqlite,
            _ => Engine::Postgres,
        }
    }

    /// Number of items of a round: enough for a second or so.
    fn items(&self, workload: QueueWorkload) -> usize {
        match (self, workload.batch) {
            (Self::Procrastinate { .. }, _) => 400,
            (Self::Node { name: "pg-boss", .. }, 1) | (Self::Apalis { .. }, _) => 1_000,
            _ => workload.items,
        }
    }

    pub fn rate(&self, databases: &Databases, workload: QueueWorkload) -> BenchResult<f64> {
        let database = databases.create(self.engine(), "peer")?;
        let scripts = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("others");
        let mut command = match self {
            Self::Node { modules, name } => {
                let mut command = Command::new("node");
                command.env("NODE_PATH", modules).arg(scripts.join("queue-node.cjs")).arg(name);
                command
            }
            Self::Procrastinate { python } => {
                let mut command = Command::new(python);
                command.arg(scripts.join("queue_procrastinate.py"));
                command
            }
            Self::Apalis { program } => Command::new(program),
        };
        command.arg(match (&database, database.url()) {
            (Database::Server { url, .. }, _) => url.clone(),
            (_, Url::Sqlite(file)) => file.display().to_string(),
            (_, url) => url.to_string(),
        });
        let output = command
            .args([workload.workers, workload.batch, self.items(workload)].map(|number| number.to_string()))
            .output()?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        match stdout.trim().parse().ok().filter(|_| output.status.success()) {
            Some(rate) => Ok(rate),
            None => Err(format!("{} failed: {}", self.name(), String::from_utf8_lossy(&output.stderr)).into()),
        }
    }
}
