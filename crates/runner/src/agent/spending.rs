//! Usage and cost of model calls, and the daily spend limit.

use trackway_actions::{Context, Core, Result, run::RecordUsage};
use trackway_domain::{Id, Time, kind, text};
use trackway_views::assignment::{self, ActingAgent};

use super::{AgentBackend, AgentRun, model_name};
use crate::{executor::ExecutionEnd, model::CallUsage};

const DAY_SECONDS: i64 = 24 * 60 * 60;

fn midnight(now: Time) -> Time {
    let day = DAY_SECONDS * 1_000_000;
    Time::from_micros(now.micros().div_euclid(day) * day)
}

/// The end of the run, if the agent may make no further call today: its limit is reached, or the model has no price.
pub fn check_limit(job: &AgentRun<'_>) -> Result<Option<ExecutionEnd>> {
    let Some(limit) = job.acting.spend_limit else {
        return Ok(None);
    };
    let model = model_name(job.acting, job.backend);
    if !job.backend.settings.prices.contains_key(model) {
        let error = format!(
            "{} has a spend limit of {limit} per day, but {} has no price: add it to [model.prices] in config.toml",
            job.acting.handle, model
        );
        return Ok(Some(ExecutionEnd::Impossible { error }));
    }
    job.retry(|job| spend_limit_reached(job.core, job.context, job.acting))
}

/// The end of the run, if the agent has reached its spend limit today.
pub fn spend_limit_reached(core: &Core, context: &Context, acting: &ActingAgent) -> Result<Option<ExecutionEnd>> {
    let Some(limit) = acting.spend_limit else {
        return Ok(None);
    };
    let today = midnight(core.now());
    let spent = core.read(context, |reader| Ok(assignment::cost_since(reader, acting.agent_id, today)?))?;
    let spent = spent.unwrap_or_default();
    Ok((spent >= limit).then(|| ExecutionEnd::SpendLimit {
        error: format!("{} has spent {spent:.4} of its daily limit of {limit}", acting.handle),
        until: today.plus_seconds(DAY_SECONDS),
    }))
}

/// Records the usage of a call. Not every provider returns unique message ids, so the id includes the run and the
/// number of the call.
pub fn record_usage(
    run: Id<kind::Run>,
    model: &str,
    backend: &AgentBackend,
    call_usage: &CallUsage,
    number: i64,
) -> RecordUsage {
    let reported_model = call_usage.model.as_deref().filter(|model| !model.is_empty());
    // A provider may return a longer model name than the requested one.
    let price = backend.settings.prices.get(model).or_else(|| backend.settings.prices.get(reported_model?));
    let model = reported_model.unwrap_or(model);
    let sane = |tokens: Option<i64>| tokens.filter(|tokens| (0..=1_000_000_000_000).contains(tokens));
    RecordUsage {
        run: run.into(),
        model: Some(text::cut(&text::clean_line(model), text::LINE_MAX - 1)),
        message_id: Some(format!(
            "{} {}.{number}",
            text::cut(&text::clean_line(call_usage.message_id.as_deref().unwrap_or("call")), 100),
            run.uuid().simple()
        )),
        input_tokens: sane(call_usage.input_tokens),
        output_tokens: sane(call_usage.output_tokens),
        cache_creation_tokens: sane(call_usage.cache_creation_tokens),
        cache_read_tokens: sane(call_usage.cache_read_tokens),
        cost: price.and_then(|price| price.cost_of(call_usage)).filter(|cost| *cost >= 0.0),
    }
}
