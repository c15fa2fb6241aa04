//! The model for agents, configured by environment variables and `config.toml`.

use std::{collections::BTreeMap, env, path::Path, sync::Arc, time::Duration};

use trackway_actions::{Core, context::Secret};
use trackway_runner::{
    agent::AgentBackend,
    model::{ModelSettings, Price, Provider},
};
use trackway_server::Site;
use trackway_store::{Store, Url};

use crate::{config::ModelConfig, environment};

/// The model and pages for agents, or the reason why there is no model. `site` is called only if a model is configured.
pub fn backend(config: &ModelConfig, site: impl FnOnce() -> Result<Site, String>) -> Result<AgentBackend, String> {
    create_backend(settings(config, |name| env::var(name).ok().filter(|value| !value.is_empty()))?, site()?)
}

/// The pages of a database.
pub fn open_site(url: &Url) -> Result<Site, String> {
    let store = Store::open(url.clone()).map_err(|error| error.to_string())?;
    Ok(Site::new(Arc::new(Core::new(store))))
}

/// A scripted model, independent of the environment.
pub fn scripted(file: &Path, prices: BTreeMap<String, Price>, url: &Url) -> Result<AgentBackend, String> {
    let script = Some(file.to_path_buf());
    create_backend(
        ModelSettings { provider: Provider::Scripted, script, prices, ..ModelSettings::default() },
        open_site(url)?,
    )
}

fn create_backend(settings: ModelSettings, site: Site) -> Result<AgentBackend, String> {
    Ok(AgentBackend { model: settings.build()?, settings, pages: Arc::new(site) })
}

/// The settings of the model. The environment takes precedence.
fn settings(config: &ModelConfig, variable: impl Fn(&str) -> Option<String>) -> Result<ModelSettings, String> {
    let script = variable(environment::MODEL_SCRIPT).map(Into::into).or_else(|| config.script.clone());
    let provider = match variable(environment::MODEL_PROVIDER).as_deref() {
        Some("anthropic") => Some(Provider::Anthropic),
        Some("openai") => Some(Provider::Openai),
        Some("scripted") => Some(Provider::Scripted),
        Some(other) => {
            return Err(format!("{} is {other:?}, not anthropic, openai or scripted", environment::MODEL_PROVIDER));
        }
        None if variable(environment::MODEL_SCRIPT).is_some() => Some(Provider::Scripted),
        None => config.provider,
    };
    let provider = provider
        .or_else(|| script.is_some().then_some(Provider::Scripted))
        .or_else(|| variable(environment::ANTHROPIC.1).map(|_| Provider::Anthropic))
        .or_else(|| variable(environment::OPENAI.1).map(|_| Provider::Openai))
        .or_else(|| config.key.as_ref().map(|_| Provider::Anthropic))
        .ok_or_else(|| {
            format!(
                "no model is configured; set {} or {}, or [model] in config.toml",
                environment::ANTHROPIC.1,
                environment::OPENAI.1
            )
        })?;
    let (url, key) = match provider {
        Provider::Anthropic => environment::ANTHROPIC,
        Provider::Openai => environment::OPENAI,
        Provider::Scripted => (environment::MODEL_URL, environment::MODEL_KEY),
    };
    let defaults = ModelSettings::default();
    let context = variable(environment::MODEL_CONTEXT).map(|tokens| {
        tokens
            .trim()
            .parse()
            .map_err(|_| format!("{} is {tokens:?}, not a number of tokens", environment::MODEL_CONTEXT))
    });
    let context = context.transpose()?;
    let stream = variable(environment::MODEL_STREAM).map(|stream| stream != "off");
    let settings = ModelSettings {
        provider,
        url: variable(environment::MODEL_URL).or_else(|| config.url.clone()).or_else(|| variable(url)),
        key: Secret(
            variable(environment::MODEL_KEY)
                .or_else(|| config.key.clone())
                .or_else(|| variable(key))
                .unwrap_or_default(),
        ),
        model: variable(environment::MODEL).or_else(|| config.name.clone()),
        stream: stream.or(config.stream).unwrap_or(defaults.stream),
        timeout: config.timeout_seconds.map_or(defaults.timeout, Duration::from_secs),
        script,
        native_tools: config.native_tools.unwrap_or(defaults.native_tools),
        context_tokens: context.or(config.context_tokens).unwrap_or(defaults.context_tokens),
        prices: config.prices.clone(),
        back_off: defaults.back_off,
    };
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_takes_precedence_over_configuration() {
        let config: ModelConfig = toml::from_str(
            "provider = \"openai\"\nurl = \"http://a\"\nkey = \"k1\"\nname = \"m1\"\nstream = false\n[prices.\"m1\"]\ninput = 1\noutput = 2",
        )
        .unwrap();
        let variable = |name: &str| (name == environment::MODEL).then(|| "m2".to_owned());
        let settings = settings(&config, variable).unwrap();
        assert_eq!(
            (settings.provider, settings.model.as_deref(), settings.stream),
            (Provider::Openai, Some("m2"), false)
        );
        assert_eq!((settings.url.as_deref(), settings.key.0.as_str()), (Some("http://a"), "k1"));
        let price = Price { input: 1.0, output: 2.0, cache_write: None, cache_read: None };
        assert_eq!(settings.prices.get("m1"), Some(&price));
        assert_eq!(format!("{:?}", settings.key), "***");
    }

    #[test]
    fn provider_with_a_key_is_selected() {
        let none = ModelConfig::default();
        let with = |key: &'static str| move |name: &str| (name == key).then(|| "k".to_owned());
        assert_eq!(settings(&none, with("ANTHROPIC_API_KEY")).unwrap().provider, Provider::Anthropic);
        assert_eq!(settings(&none, with("OPENAI_API_KEY")).unwrap().provider, Provider::Openai);
        assert_eq!(settings(&none, with("TRACKWAY_MODEL_SCRIPT")).unwrap().provider, Provider::Scripted);
        let error = settings(&none, |_| None).unwrap_err();
        assert_eq!(error, "no model is configured; set ANTHROPIC_API_KEY or OPENAI_API_KEY, or [model] in config.toml");
        let error = settings(&none, with("TRACKWAY_MODEL_PROVIDER")).unwrap_err();
        assert_eq!(error, "TRACKWAY_MODEL_PROVIDER is \"k\", not anthropic, openai or scripted");
    }

    #[test]
    fn untrusted_project_cannot_redirect_the_key() {
        let project: ModelConfig = toml::from_str("url = \"http://evil\"\nkey = \"x\"\nname = \"m\"").unwrap();
        let user: ModelConfig = toml::from_str("provider = \"anthropic\"\nkey = \"mine\"").unwrap();
        let both = project.untrusted().or(user);
        assert_eq!((both.url, both.key.as_deref(), both.name.as_deref()), (None, Some("mine"), Some("m")));
    }
}
