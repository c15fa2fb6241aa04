//! `config.toml`, beside the project's database and in the user's configuration directory.

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use etcetera::BaseStrategy;
use serde::Deserialize;
use trackway_domain::{Error as Rule, plain_path::plain};
use trackway_runner::model::{Price, Provider};

use crate::failure::Failure;

/// What can be configured.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The database, as `--db` takes it.
    pub db: Option<String>,
    /// The tenant, as `--tenant` takes it.
    pub tenant: Option<String>,
    /// Directories whose sessions are not read: neither by `ingest` nor by hooks. Whole paths, or from `~/` on.
    #[serde(default)]
    pub exclude: Vec<PathBuf>,
    /// In the user's: projects whose own configuration may send what hooks record to a server.
    #[serde(default)]
    pub trust: Vec<PathBuf>,
    /// The model that agents think with.
    #[serde(default)]
    pub model: ModelConfig,
}

/// How to reach a model. What is not said here is said by the environment, or as usual.
#[derive(Debug, Default, Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Who answers: `anthropic`, `openai` (and what speaks like it), or `scripted`.
    pub provider: Option<Provider>,
    /// Where it is, when it is not where it usually is.
    pub url: Option<String>,
    /// The key. Better in the environment than in a file.
    pub key: Option<String>,
    /// The model that is asked when an agent names none.
    pub name: Option<String>,
    /// Whether answers are streamed.
    pub stream: Option<bool>,
    /// Whether tools are called the provider's way (else by JSON in the text).
    pub native_tools: Option<bool>,
    /// Tokens that the model takes, its reply included.
    pub context_tokens: Option<usize>,
    /// How long one call may take.
    pub timeout_seconds: Option<u64>,
    /// The file of a scripted model.
    pub script: Option<PathBuf>,
    /// What a million tokens of a model cost.
    #[serde(default)]
    pub prices: BTreeMap<String, Price>,
}

impl ModelConfig {
    /// What this one says, else what the other says.
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

    /// What a project may say that was only cloned: not where a key is sent, nor what speaks for a model.
    #[must_use]
    pub fn untrusted(self) -> Self {
        Self { provider: None, url: None, key: None, script: None, ..self }
    }
}

impl Config {
    /// Reads a file; one that is not there says nothing. One that may not be read may say anything: it is an error for who
    /// depends on it.
    pub fn read(path: &Path, is_needed: bool) -> Result<Self, Failure> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if !is_needed || matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Self::default());
            }
            Err(error) => {
                return Err(Rule::usage(format!("{} cannot be read: {error}", path.display()))
                    .hint("to do without it, say which database: --db or TRACKWAY_DB")
                    .into());
            }
        };
        let mut config: Self = toml::from_str(&text).map_err(|error| {
            let first = error.message().lines().next().unwrap_or_default().to_owned();
            Rule::usage(format!("{} cannot be read: {first}", path.display()))
                .hint("it may hold: db, tenant, exclude, trust, model")
        })?;
        for (name, directories) in [("exclude", &mut config.exclude), ("trust", &mut config.trust)] {
            for directory in directories {
                *directory = whole(directory).ok_or_else(|| {
                    Rule::usage(format!(
                        "{}: {name} holds {}, which is not a whole path",
                        path.display(),
                        directory.display()
                    ))
                    .hint("begin it with / or with ~/")
                })?;
            }
        }
        Ok(config)
    }
}

/// A directory from the root on, where it is one or is in the user's home.
fn whole(directory: &Path) -> Option<PathBuf> {
    let whole = match directory.strip_prefix("~") {
        Ok(below) => etcetera::choose_base_strategy().ok()?.home_dir().join(below),
        Err(_) => directory.to_path_buf(),
    };
    whole.is_absolute().then(|| plain(&whole))
}
