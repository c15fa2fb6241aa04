//! The model that agents think with: from the environment, else from `config.toml`.

use std::{collections::BTreeMap, env, path::Path, sync::Arc, time::Duration};

use trackway_actions::{Core, context::Secret};
use trackway_runner::{
    agent::Means,
    model::{ModelSettings, Price, Provider},
};
use trackway_server::Site;
use trackway_store::{Store, Url};

use crate::{config::ModelConfig, environment};

/// What agents work with, or why there is nothing. The pages are asked for only when there is a model to read them.
pub fn means(config: &ModelConfig, site: impl FnOnce() -> Result<Site, String>) -> Result<Means, String> {
    of(settings(config, |name| env::var(name).ok().filter(|value| !value.is_empty()))?, site()?)
}

/// The pages of a database.
pub fn site(url: &Url) -> Result<Site, String> {
    let store = Store::open(url.clone()).map_err(|error| error.to_string())?;
    Ok(Site::new(Arc::new(Core::new(store))))
}

/// A model that keeps to a file, whatever the environment says.
pub fn scripted(file: &Path, prices: BTreeMap<String, Price>, url: &Url) -> Result<Means, String> {
    let script = Some(file.to_path_buf());
    of(ModelSettings { provider: Provider::Scripted, script, prices, ..ModelSettings::default() }, site(url)?)
}

fn of(settings: ModelSettings, site: Site) -> Result<Means, String> {
    Ok(Means { model: settings.build()?, settings, pages: Arc::new(site) })
}

/// What is said about the model, the environment first.
fn settings(config: &ModelConfig, said: impl Fn(&str) -> Option<String>) -> Result<ModelSettings, String> {
    let script = said(environment::MODEL_SCRIPT).map(Into::into).or_else(|| config.script.clone());
    let provider = match said(environment::MODEL_PROVIDER).as_deref() {
        Some("anthropic") => Some(Provider::Anthropic),
        Some("openai") => Some(Provider::Openai),
        Some("scripted") => Some(Provider::Scripted),
        Some(other) => {
            return Err(format!("{} is {other:?}, not anthropic, openai or scripted", environment::MODEL_PROVIDER));
        }
        None if said(environment::MODEL_SCRIPT).is_some() => Some(Provider::Scripted),
        None => config.provider,
    };
    let provider = provider
        .or_else(|| script.is_some().then_some(Provider::Scripted))
        .or_else(|| said(environment::ANTHROPIC.1).map(|_| Provider::Anthropic))
        .or_else(|| said(environment::OPENAI.1).map(|_| Provider::Openai))
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
    let usual = ModelSettings::default();
    let context = said(environment::MODEL_CONTEXT).map(|tokens| {
        tokens
            .trim()
            .parse()
            .map_err(|_| format!("{} is {tokens:?}, not a number of tokens", environment::MODEL_CONTEXT))
    });
    let context = context.transpose()?;
    let stream = said(environment::MODEL_STREAM).map(|stream| stream != "off");
    let settings = ModelSettings {
        provider,
        url: said(environment::MODEL_URL).or_else(|| config.url.clone()).or_else(|| said(url)),
        key: Secret(
            said(environment::MODEL_KEY).or_else(|| config.key.clone()).or_else(|| said(key)).unwrap_or_default(),
        ),
        model: said(environment::MODEL).or_else(|| config.name.clone()),
        stream: stream.or(config.stream).unwrap_or(usual.stream),
        timeout: config.timeout_seconds.map_or(usual.timeout, Duration::from_secs),
        script,
        native_tools: config.native_tools.unwrap_or(usual.native_tools),
        context_tokens: context.or(config.context_tokens).unwrap_or(usual.context_tokens),
        prices: config.prices.clone(),
        back_off: usual.back_off,
    };
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_wins_over_the_configuration() {
        let config: ModelConfig = toml::from_str(
            "provider = \"openai\"\nurl = \"http://a\"\nkey = \"k1\"\nname = \"m1\"\nstream = false\n[prices.\"m1\"]\ninput = 1\noutput = 2",
        )
        .unwrap();
        let said = |name: &str| (name == environment::MODEL).then(|| "m2".to_owned());
        let settings = settings(&config, said).unwrap();
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
    fn whichever_has_a_key_answers() {
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
    fn a_cloned_project_does_not_say_where_a_key_is_sent() {
        let project: ModelConfig = toml::from_str("url = \"http://evil\"\nkey = \"x\"\nname = \"m\"").unwrap();
        let user: ModelConfig = toml::from_str("provider = \"anthropic\"\nkey = \"mine\"").unwrap();
        let both = project.untrusted().or(user);
        assert_eq!((both.url, both.key.as_deref(), both.name.as_deref()), (None, Some("mine"), Some("m")));
    }
}
