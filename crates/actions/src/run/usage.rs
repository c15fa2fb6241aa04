//! Records the token usage of a run's model calls.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Id, Ref, kind, text};
use trackway_store::{Writer, params, tables::Usage};

use super::{find_recordable_run, resource};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    touched::NoTouches,
};

/// Maximum tokens of one call. Far above any real call, and small enough for sums not to overflow.
const TOKENS_MAX: i64 = 1_000_000_000_000;
/// Maximum cost of one call.
const COST_MAX: f64 = 1e9;

/// Record the token usage of a model call; omit unknown values, do not pass 0
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct RecordUsage {
    /// Run that made the call
    pub run: Ref<kind::Run>,
    /// Name of the model
    #[arg(long)]
    pub model: Option<String>,
    /// Provider's id of the message. The same id counts once
    #[arg(long)]
    pub message_id: Option<String>,
    /// Number of input tokens
    #[arg(long, value_name = "NUMBER")]
    pub input_tokens: Option<i64>,
    /// Number of output tokens
    #[arg(long, value_name = "NUMBER")]
    pub output_tokens: Option<i64>,
    /// Number of tokens written to the cache
    #[arg(long, value_name = "NUMBER")]
    pub cache_creation_tokens: Option<i64>,
    /// Number of tokens read from the cache
    #[arg(long, value_name = "NUMBER")]
    pub cache_read_tokens: Option<i64>,
    /// Cost of the call
    #[arg(long, value_name = "AMOUNT")]
    pub cost: Option<f64>,
}

impl Action for RecordUsage {
    const NAME: &'static str = "record_usage";
    const COMMAND: (&'static str, &'static str) = ("run", "usage");
    const IS_RUN_TELEMETRY: bool = true;
    type Touched = NoTouches;
    type Output = Usage;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let run = find_recordable_run(context, write, &self.run)?;
        let (usage, is_new) = self.write(write, run)?;
        Ok(if is_new {
            ActionOutcome::changed(usage, &resource(run), NoTouches)
        } else {
            ActionOutcome::unchanged(usage)
        })
    }
}

impl RecordUsage {
    /// Stores the usage of a call. Returns true unless this usage was already stored.
    pub(crate) fn write(&self, write: &mut Writer<'_>, run: Id<kind::Run>) -> Result<(Usage, bool)> {
        let counts = [self.input_tokens, self.output_tokens, self.cache_creation_tokens, self.cache_read_tokens];
        if counts.iter().flatten().any(|count| !(0..=TOKENS_MAX).contains(count)) {
            return Err(Rule::usage(format!("invalid number of tokens: it must be from 0 to {TOKENS_MAX}")).into());
        }
        if self.cost.is_some_and(|cost| !(0.0..=COST_MAX).contains(&cost)) {
            return Err(Rule::usage(format!("invalid cost: it must be from 0 to {COST_MAX}")).into());
        }
        let line = |field, given: &Option<String>| {
            given.as_deref().map(|given| text::check_line(field, given, text::LINE_MAX)).transpose()
        };
        let message_id = line("message id", &self.message_id)?.filter(|id| !id.is_empty());
        let known = write.duplicate_of::<Usage>("where tenant_id = ?1 and once_key = ?2", params![message_id])?;
        // A message that is reported again counts once, with the highest number of output tokens.
        if let Some(known) = known.clone()
            && known.output_tokens >= self.output_tokens
        {
            return Ok((known, false));
        }
        let usage = Usage {
            id: known.as_ref().map_or_else(|| write.new_id::<kind::Run>().uuid(), |known| known.id),
            tenant_id: write.tenant,
            run_id: known.as_ref().map_or(run, |known| known.run_id),
            once_key: message_id.clone(),
            message_id,
            model: line("model", &self.model)?,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cache_creation_tokens: self.cache_creation_tokens,
            cache_read_tokens: self.cache_read_tokens,
            cost: self.cost,
            created_at: write.now,
        };
        match known {
            None => write.insert_or_fail(&usage)?,
            Some(_) => write.update(&usage)?,
        }
        Ok((usage, true))
    }
}
