//! What one would use instead, each a program of its own that prints its rate.

use std::{path::PathBuf, process::Command};

use clap::Args;
use trackway_store::{Engine, Url};

use super::Load;
use crate::{
    Outcome,
    place::{Database, Places},
};

#[derive(Debug, Args)]
pub struct Others {
    /// The `node_modules` that holds graphile-worker and pg-boss; left out without it
    #[arg(long, value_name = "DIR")]
    node_modules: Option<PathBuf>,
    /// The `python` that has procrastinate; left out without it
    #[arg(long, value_name = "FILE")]
    procrastinate: Option<PathBuf>,
    /// The program of bench/others/apalis; left out without it
    #[arg(long, value_name = "FILE")]
    apalis: Option<PathBuf>,
}

#[derive(Debug)]
pub enum Peer {
    Node { modules: PathBuf, name: &'static str },
    Procrastinate { python: PathBuf },
    Apalis { program: PathBuf },
}

impl Others {
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

    /// Items it gets a round: enough for a second or so.
    fn items(&self, load: Load) -> usize {
        match (self, load.batch) {
            (Self::Procrastinate { .. }, _) => 400,
            (Self::Node { name: "pg-boss", .. }, 1) | (Self::Apalis { .. }, _) => 1_000,
            _ => load.items,
        }
    }

    pub fn rate(&self, places: &Places, load: Load) -> Outcome<f64> {
        let database = places.database(self.engine(), "peer")?;
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
        let done =
            command.args([load.workers, load.batch, self.items(load)].map(|number| number.to_string())).output()?;
        let said = String::from_utf8_lossy(&done.stdout);
        match said.trim().parse().ok().filter(|_| done.status.success()) {
            Some(rate) => Ok(rate),
            None => Err(format!("{} failed: {}", self.name(), String::from_utf8_lossy(&done.stderr)).into()),
        }
    }
}
