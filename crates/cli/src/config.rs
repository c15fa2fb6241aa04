//! `config.toml`, beside the project's database and in the user's configuration directory.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use trackway_domain::Error as Rule;

use crate::failure::Failure;

/// What can be configured.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The database, as `--db` takes it.
    pub db: Option<String>,
    /// The tenant, as `--tenant` takes it.
    pub tenant: Option<String>,
    /// Directories whose sessions are not read: neither by `ingest` nor by hooks.
    #[serde(default)]
    pub exclude: Vec<PathBuf>,
    /// In the user's: projects whose own configuration may send what hooks record to a server.
    #[serde(default)]
    pub trust: Vec<PathBuf>,
}

impl Config {
    /// Reads a file; one that is not there says nothing.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let Ok(text) = std::fs::read_to_string(path) else {
            return Ok(Self::default());
        };
        toml::from_str(&text).map_err(|error| {
            let first = error.message().lines().next().unwrap_or_default().to_owned();
            Rule::usage(format!("{} cannot be read: {first}", path.display()))
                .hint("it may hold: db, tenant, exclude, trust")
                .into()
        })
    }
}
