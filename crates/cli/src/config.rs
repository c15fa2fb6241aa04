//! Reads `config.toml`: the project's, next to its database, and the user's.

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use etcetera::BaseStrategy;
use serde::Deserialize;
use trackway_domain::{Error as Rule, lexical_path::normalize};
use trackway_runner::model::{Price, Provider};

use crate::failure::Failure;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Database URL, as for `--db`.
    pub db: Option<String>,
    /// Name of the tenant, as for `--tenant`.
    pub tenant: Option<String>,
    /// Directories whose sessions neither `ingest` nor hooks record. Absolute paths, or paths that begin with `~/`.
    #[serde(default)]
    pub exclude: Vec<PathBuf>,
    /// Only in the user's configuration: projects whose own configuration may send recorded data to a server.
    #[serde(default)]
    pub trust: Vec<PathBuf>,
    /// The model for agents.
    #[serde(default)]
    pub model: ModelConfig,
}

/// The model for agents. Environment variables take precedence.
#[derive(Debug, Default, Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// API of the model: `anthropic`, `openai` (also for compatible servers), or `scripted`.
    pub provider: Option<Provider>,
    /// URL of the API [default: the provider's own].
    pub url: Option<String>,
    /// API key. An environment variable is safer than this file.
    pub key: Option<String>,
    /// Name of the model, for agents without a model of their own.
    pub name: Option<String>,
    /// Whether to stream answers [default: true].
    pub stream: Option<bool>,
    /// Whether to use the provider's tool calls instead of JSON in the text [default: true].
    pub native_tools: Option<bool>,
    /// Context size of the model in tokens, including its reply [default: 128000].
    pub context_tokens: Option<usize>,
    /// Timeout of one model call in seconds [default: 300].
    pub timeout_seconds: Option<u64>,
    /// File with the replies of a scripted model.
    pub script: Option<PathBuf>,
    /// Prices of a million tokens, by model.
    #[serde(default)]
    pub prices: BTreeMap<String, Price>,
}

impl ModelConfig {
    /// The settings of `self`, completed with those of `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let mut prices = other.prices;
        prices.extend(self.prices);
        Self {
            provider: self.provider.or(other.provider),
            url: self.url.or(other.url),
            key: self.key.or(other.key),
            name: self.name.or(other.name),
            stream: self.stream.or(other.stream),
            native_tools: self.native_tools.or(other.native_tools),
            context_tokens: self.context_tokens.or(other.context_tokens),
            timeout_seconds: self.timeout_seconds.or(other.timeout_seconds),
            script: self.script.or(other.script),
            prices,
        }
    }

    /// The settings that are safe to take from a cloned project. A project may name a model, but must not send the
    /// user's API key elsewhere, or replace the model by a script.
    #[must_use]
    pub fn untrusted(self) -> Self {
        Self { provider: None, url: None, key: None, script: None, ..self }
    }
}

impl Config {
    /// Reads a file. A missing file has no settings. An unreadable file is an error, unless `is_needed` is false.
    pub fn read(path: &Path, is_needed: bool) -> Result<Self, Failure> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if !is_needed || matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Self::default());
            }
            Err(error) => {
                return Err(Rule::usage(format!("{} cannot be read: {error}", path.display()))
                    .hint("to ignore this file, name the database with --db or TRACKWAY_DB")
                    .into());
            }
        };
        let mut config: Self = toml::from_str(&text).map_err(|error| {
            let first = error.message().lines().next().unwrap_or_default().to_owned();
            Rule::usage(format!("{} cannot be read: {first}", path.display()))
                .hint("valid keys: db, tenant, exclude, trust, model")
        })?;
        for (name, directories) in [("exclude", &mut config.exclude), ("trust", &mut config.trust)] {
            for directory in directories {
                *directory = absolute_path(directory).ok_or_else(|| {
                    Rule::usage(format!(
                        "{}: {name} contains {}, which is not an absolute path",
                        path.display(),
                        directory.display()
                    ))
                    .hint("begin the path with / or ~/")
                })?;
            }
        }
        Ok(config)
    }
}

/// Makes a path that begins with `~` absolute. None if the path is relative.
fn absolute_path(directory: &Path) -> Option<PathBuf> {
    let whole = match directory.strip_prefix("~") {
        Ok(below) => etcetera::choose_base_strategy().ok()?.home_dir().join(below),
        Err(_) => directory.to_path_buf(),
    };
    whole.is_absolute().then(|| normalize(&whole))
}
