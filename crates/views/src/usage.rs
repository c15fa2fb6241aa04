//! Token usage and cost of model calls, summed by day, task, agent or model.

use serde::Deserialize;
use trackway_domain::{Time, cost};
use trackway_store::{Reader, Result, params, row};

use crate::view::View;

/// The dimension that usage is grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, schemars::JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum UsageGrouping {
    Day,
    Task,
    Agent,
    Model,
}

/// Sum tokens and cost of model calls by day, task, agent or model
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct SumUsage {
    /// Group by
    #[arg(long, default_value = "day")]
    pub by: UsageGrouping,
    /// Only calls at or after this day or time, such as 2026-02-27
    #[arg(long, value_name = "TIME")]
    pub since: Option<Time>,
}

row! {
    /// The sums of one group. A sum is null, not 0, if no call of the group reported the figure.
    pub struct UsageSum {
        key: Option<String>,
        calls: i64,
        input_tokens: Option<i64>,
        output_tokens: Option<i64>,
        cache_creation_tokens: Option<i64>,
        cache_read_tokens: Option<i64>,
        cost: Option<f64>,
    }
}

impl View for SumUsage {
    const COMMAND: (&'static str, &'static str) = ("", "usage");
    const COLUMNS: &'static [&'static str] =
        &["key", "calls", "input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens", "cost"];
    type Output = Vec<UsageSum>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let day = read.engine().day_of("x.created_at");
        let (key, joins) = match self.by {
            UsageGrouping::Day => (day.as_str(), ""),
            UsageGrouping::Model => ("x.model", ""),
            UsageGrouping::Agent => ("a.handle", "join runs u on u.id = x.run_id join agents a on a.id = u.agent_id"),
            UsageGrouping::Task => {
                ("t.variant", "join runs u on u.id = x.run_id left join tasks t on t.id = u.task_id")
            }
        };
        let mut sums: Vec<UsageSum> = read.query(
            &format!(
                "select {key}, count(*), cast(sum(x.input_tokens) as bigint), cast(sum(x.output_tokens) as bigint),
                 cast(sum(x.cache_creation_tokens) as bigint), cast(sum(x.cache_read_tokens) as bigint), sum(x.cost)
                 from run_usage x {joins} where x.tenant_id = ?1 and x.created_at >= ?2 group by 1 order by 1 nulls last"
            ),
            params![self.since.unwrap_or(Time::from_micros(0))],
        )?;
        for sum in &mut sums {
            sum.cost = sum.cost.map(cost::round_cost);
        }
        Ok(sums)
    }
}
