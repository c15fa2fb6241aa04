//! What a run's model calls used.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Id, Ref, kind, text};
use trackway_store::{Writer, params, tables::Usage};

use super::{resource, told_about};
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    touched::Nothing,
};

/// Tokens in one call: far above any, and small enough to sum.
const TOKENS_MAX: i64 = 1_000_000_000_000;
/// The cost of one call.
const COST_MAX: f64 = 1e9;

/// Write down what a model call used; what is not known is left out, not 0
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct RecordUsage {
    /// The run
    pub run: Ref<kind::Run>,
    /// The model
    #[arg(long)]
    pub model: Option<String>,
    /// The provider's id of the message; the same one is counted once
    #[arg(long)]
    pub message_id: Option<String>,
    /// Tokens read
    #[arg(long, value_name = "NUMBER")]
    pub input_tokens: Option<i64>,
    /// Tokens written
    #[arg(long, value_name = "NUMBER")]
    pub output_tokens: Option<i64>,
    /// Tokens written to the cache
    #[arg(long, value_name = "NUMBER")]
    pub cache_creation_tokens: Option<i64>,
    /// Tokens read from the cache
    #[arg(long, value_name = "NUMBER")]
    pub cache_read_tokens: Option<i64>,
    /// What it cost
    #[arg(long, value_name = "AMOUNT")]
    pub cost: Option<f64>,
}

impl Action for RecordUsage {
    const NAME: &'static str = "record_usage";
    const COMMAND: (&'static str, &'static str) = ("run", "usage");
    const ONLY_TELLS: bool = true;
    type Touched = Nothing;
    type Output = Usage;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let run = told_about(context, write, &self.run)?;
        let (usage, is_news) = self.write(write, run)?;
        Ok(if is_news { Done::changed(usage, &resource(run), Nothing) } else { Done::unchanged(usage) })
    }
}

impl RecordUsage {
    /// Counts a call, once. Says whether that is news.
    pub(crate) fn write(&self, write: &mut Writer<'_>, run: Id<kind::Run>) -> Result<(Usage, bool)> {
        let counts = [self.input_tokens, self.output_tokens, self.cache_creation_tokens, self.cache_read_tokens];
        if counts.iter().flatten().any(|count| !(0..=TOKENS_MAX).contains(count)) {
            return Err(Rule::usage(format!("a number of tokens is from 0 to {TOKENS_MAX}")).into());
        }
        if self.cost.is_some_and(|cost| !(0.0..=COST_MAX).contains(&cost)) {
            return Err(Rule::usage(format!("a cost is from 0 to {COST_MAX}")).into());
        }
        let line = |field, given: &Option<String>| {
            given.as_deref().map(|given| text::line(field, given, text::LINE_MAX)).transpose()
        };
        let message_id = line("message id", &self.message_id)?.filter(|id| !id.is_empty());
        let present = write.duplicate_of::<Usage>("where tenant_id = ?1 and once_key = ?2", params![message_id])?;
        // A message that is told again counts once, with the most it was seen to write.
        if let Some(present) = present.clone()
            && present.output_tokens >= self.output_tokens
        {
            return Ok((present, false));
        }
        let usage = Usage {
            id: present.as_ref().map_or_else(|| write.new_id::<kind::Run>().uuid(), |present| present.id),
            tenant_id: write.tenant,
            run_id: present.as_ref().map_or(run, |present| present.run_id),
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
        match present {
            None => write.insert_or_fail(&usage)?,
            Some(_) => write.update(&usage)?,
        }
        Ok((usage, true))
    }
}
