//! The configuration of a model: provider, URL, key and prices.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use serde::Deserialize;
use trackway_actions::context::Secret;

use super::{
    CallUsage, Model, Scripted,
    anthropic::Messages,
    http::{HttpModel, http_client},
    openai::ChatCompletions,
};

/// The default context size. Most hosted models accept at least this much.
const CONTEXT_TOKENS: usize = 128_000;

/// The API of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// Anthropic's Messages API.
    Anthropic,
    /// `OpenAI`'s Chat Completions API, which many servers implement.
    Openai,
    /// A file of replies, without a model.
    Scripted,
}

/// The price of a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Input tokens.
    pub input: f64,
    /// Output tokens.
    pub output: f64,
    /// Tokens written to the cache [default: the price of input].
    pub cache_write: Option<f64>,
    /// Tokens read from the cache [default: the price of input].
    pub cache_read: Option<f64>,
}

impl Price {
    /// The cost of a call; none if its tokens are unknown.
    pub fn cost_of(&self, call_usage: &CallUsage) -> Option<f64> {
        let part = |tokens: Option<i64>, price: f64| tokens.unwrap_or_default() as f64 * price;
        let (input, output) = (call_usage.input_tokens?, call_usage.output_tokens?);
        let millions = part(Some(input), self.input)
            + part(Some(output), self.output)
            + part(call_usage.cache_creation_tokens, self.cache_write.unwrap_or(self.input))
            + part(call_usage.cache_read_tokens, self.cache_read.unwrap_or(self.input));
        Some(millions / 1e6)
    }
}

#[derive(Debug, Clone)]
pub struct ModelSettings {
    pub provider: Provider,
    pub url: Option<String>,
    pub key: Secret,
    /// The model of agents without a model of their own.
    pub model: Option<String>,
    pub stream: bool,
    /// The timeout of one call.
    pub timeout: Duration,
    /// The delay before the first retry.
    pub back_off: Duration,
    /// The file of a scripted model.
    pub script: Option<PathBuf>,
    /// Whether to use the provider's tool calls, or else JSON in the text.
    pub native_tools: bool,
    /// Maximum tokens of a conversation and its reply together.
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
    /// Creates the model.
    pub fn build(&self) -> Result<Arc<dyn Model>, String> {
        let (format, url): (Box<dyn super::http::WireFormat>, _) = match self.provider {
            Provider::Scripted => {
                let file = self
                    .script
                    .as_deref()
                    .ok_or("a scripted model needs a file of replies: set TRACKWAY_MODEL_SCRIPT")?;
                return Ok(Arc::new(Scripted::read(file)?));
            }
            Provider::Anthropic => (Box::new(Messages), "https://api.anthropic.com"),
            Provider::Openai => (Box::new(ChatCompletions), "https://api.openai.com/v1"),
        };
        Ok(Arc::new(HttpModel {
            format,
            agent: http_client(),
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
    fn call_cost_is_sum_of_token_prices() {
        let price = Price { input: 3.0, output: 15.0, cache_write: Some(3.75), cache_read: None };
        let call_usage = CallUsage {
            input_tokens: Some(1_000_000),
            output_tokens: Some(100_000),
            cache_creation_tokens: Some(400_000),
            cache_read_tokens: Some(1_000_000),
            ..CallUsage::default()
        };
        assert_eq!(price.cost_of(&call_usage), Some(3.0 + 1.5 + 1.5 + 3.0));
        assert_eq!(price.cost_of(&CallUsage { output_tokens: None, ..call_usage }), None);
    }
}
