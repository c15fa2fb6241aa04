//! What model calls use and cost, and when that is enough for a day.

use trackway_actions::{Context, Core, Result, run::RecordUsage};
use trackway_domain::{Id, Time, kind, text};
use trackway_views::assignment::{self, Acting};

use super::{Job, Means, model_of};
use crate::{executor::Ended, model::Used};

const DAY_SECONDS: i64 = 24 * 60 * 60;

fn midnight(now: Time) -> Time {
    let day = DAY_SECONDS * 1_000_000;
    Time::from_micros(now.micros().div_euclid(day) * day)
}

/// Whether an agent may make no other call today: it has spent what it may, or nobody knows what a call costs.
pub fn is_over(job: &Job<'_>) -> Result<Option<Ended>> {
    let Some(limit) = job.acting.spend_limit else {
        return Ok(None);
    };
    let model = model_of(job.acting, job.means);
    if !job.means.settings.prices.contains_key(model) {
        let error = format!(
            "{} may spend {limit} in a day, and nobody said what {} costs: add it to [model.prices] in config.toml",
            job.acting.handle, model
        );
        return Ok(Some(Ended::Impossible { error }));
    }
    job.insist(|job| has_spent_enough(job.core, job.context, job.acting))
}

/// Whether what an agent spent today is as much as it may.
pub fn has_spent_enough(core: &Core, context: &Context, acting: &Acting) -> Result<Option<Ended>> {
    let Some(limit) = acting.spend_limit else {
        return Ok(None);
    };
    let today = midnight(core.now());
    let spent = core.read(context, |reader| Ok(assignment::spent_since(reader, acting.agent_id, today)?))?;
    let spent = spent.unwrap_or_default();
    Ok((spent >= limit).then(|| Ended::SpendLimit {
        error: format!("{} spent {spent:.4} today and may spend {limit}", acting.handle),
        until: today.plus_seconds(DAY_SECONDS),
    }))
}

/// What a call used, as it is recorded. Not every server gives its messages names of their own, so the run and the call's
/// number go with them.
pub fn usage(run: Id<kind::Run>, model: &str, means: &Means, used: &Used, number: i64) -> RecordUsage {
    let told = used.model.as_deref().filter(|model| !model.is_empty());
    // A provider may answer with a longer name than the one it was asked for.
    let price = means.settings.prices.get(model).or_else(|| means.settings.prices.get(told?));
    let model = told.unwrap_or(model);
    let sane = |tokens: Option<i64>| tokens.filter(|tokens| (0..=1_000_000_000_000).contains(tokens));
    RecordUsage {
        run: run.into(),
        model: Some(text::cut(&text::clean_line(model), text::LINE_MAX - 1)),
        message_id: Some(format!(
            "{} {}.{number}",
            text::cut(&text::clean_line(used.message_id.as_deref().unwrap_or("call")), 100),
            run.uuid().simple()
        )),
        input_tokens: sane(used.input_tokens),
        output_tokens: sane(used.output_tokens),
        cache_creation_tokens: sane(used.cache_creation_tokens),
        cache_read_tokens: sane(used.cache_read_tokens),
        cost: price.and_then(|price| price.of(used)).filter(|cost| *cost >= 0.0),
    }
}
