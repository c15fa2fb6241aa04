//! Which model is asked, where, and what it costs.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use serde::Deserialize;
use trackway_actions::context::Secret;

use super::{
    Model, Scripted, Used,
    anthropic::Messages,
    http::{Remote, caller},
    openai::ChatCompletions,
};

/// The context of a model whose settings do not name one. Most hosted models take at least this much.
const CONTEXT_TOKENS: usize = 128_000;

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// Anthropic's Messages.
    Anthropic,
    /// `OpenAI`'s chat completions, as many serve them.
    Openai,
    /// A file of replies.
    Scripted,
}

/// What a million tokens cost.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Read.
    pub input: f64,
    /// Written.
    pub output: f64,
    /// Written to the cache (as input, when it is not said).
    pub cache_write: Option<f64>,
    /// Read from the cache (as input, when it is not said).
    pub cache_read: Option<f64>,
}

impl Price {
    /// What a call cost. One whose tokens nobody counted cost nobody knows what.
    pub fn of(&self, used: &Used) -> Option<f64> {
        let part = |tokens: Option<i64>, price: f64| tokens.unwrap_or_default() as f64 * price;
        let (input, output) = (used.input_tokens?, used.output_tokens?);
        let millions = part(Some(input), self.input)
            + part(Some(output), self.output)
            + part(used.cache_creation_tokens, self.cache_write.unwrap_or(self.input))
            + part(used.cache_read_tokens, self.cache_read.unwrap_or(self.input));
        Some(millions / 1e6)
    }
}

/// How to reach a model.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    pub provider: Provider,
    pub url: Option<String>,
    pub key: Secret,
    /// The model that is asked when an agent names none.
    pub model: Option<String>,
    pub stream: bool,
    /// How long one call may take.
    pub timeout: Duration,
    /// The first wait before another try.
    pub back_off: Duration,
    /// The file of a scripted model.
    pub script: Option<PathBuf>,
    /// Whether tools are called the provider's way, or by JSON in the text.
    pub native_tools: bool,
    /// Tokens that a conversation and its reply may have together.
    pub context_tokens: usize,
    pub prices: BTreeMap<String, Price>,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            provider: Provider::Anthropic,
            url: None,
            key: Secret(String::new()),
            model: None,
            stream: true,
            timeout: Duration::from_mins(5),
            back_off: Duration::from_secs(1),
            script: None,
            native_tools: true,
            context_tokens: CONTEXT_TOKENS,
            prices: BTreeMap::new(),
        }
    }
}

impl ModelSettings {
    /// The model, ready to be asked.
    pub fn build(&self) -> Result<Arc<dyn Model>, String> {
        let (shape, url): (Box<dyn super::http::Shape>, _) = match self.provider {
            Provider::Scripted => {
                let file = self.script.as_deref().ok_or("a scripted model needs its file of replies")?;
                return Ok(Arc::new(Scripted::read(file)?));
            }
            Provider::Anthropic => (Box::new(Messages), "https://api.anthropic.com"),
            Provider::Openai => (Box::new(ChatCompletions), "https://api.openai.com/v1"),
        };
        Ok(Arc::new(Remote {
            shape,
            agent: caller(),
            url: self.url.clone().unwrap_or_else(|| url.to_owned()),
            key: self.key.clone(),
            model: self.model.clone().unwrap_or_default(),
            stream: self.stream,
            timeout: self.timeout,
            back_off: self.back_off,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_costs_what_its_tokens_cost() {
        let price = Price { input: 3.0, output: 15.0, cache_write: Some(3.75), cache_read: None };
        let used = Used {
            input_tokens: Some(1_000_000),
            output_tokens: Some(100_000),
            cache_creation_tokens: Some(400_000),
            cache_read_tokens: Some(1_000_000),
            ..Used::default()
        };
        assert_eq!(price.of(&used), Some(3.0 + 1.5 + 1.5 + 3.0));
        assert_eq!(price.of(&Used { output_tokens: None, ..used }), None);
    }
}
