//! A summary of the workspace: running and failed runs, ready tasks and queue counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{Time, enums::RunStatus};
use trackway_store::{Reader, Result, display::RunRow, params};

use crate::{
    assignment::{self, SkippedItems},
    queue,
    ready::Ready,
    view::View,
};

/// Rows shown in each list.
const ROWS_MAX: i64 = 5;
/// Number of newest sessions that are searched for the last hook event.
const SESSIONS_MAX: i64 = 50;
/// Maximum age of the failed runs that are shown.
const RECENT_SECONDS: i64 = 86_400;

/// Show running and failed runs, ready tasks and queue counts
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Status {}

#[derive(Debug, PartialEq, Serialize)]
pub struct StatusSummary {
    /// The number of running runs. `running` holds the newest of them.
    pub running_total: i64,
    pub running: Vec<RunRow>,
    pub failed_today: Vec<RunRow>,
    pub ready: Vec<String>,
    /// The first ready task that has a script.
    pub ready_to_run: Option<String>,
    pub last_run: Option<RunRow>,
    /// The time of the last hook event of the newest sessions.
    pub hooked_at: Option<Time>,
    /// The number of unfinished and of failed queue items, by status.
    pub queue: BTreeMap<String, i64>,
    /// Ready queue items that the worker does not take by default.
    pub left_alone: Vec<SkippedItems>,
}

impl View for Status {
    const COMMAND: (&'static str, &'static str) = ("", "status");
    type Output = StatusSummary;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<StatusSummary> {
        let mut runs = |status: RunStatus, since: Time| {
            read.display_rows::<RunRow>(
                "where u.tenant_id = ?1 and u.status = ?2 and coalesce(u.ended_at, u.started_at) >= ?3 order by u.id desc limit ?4",
                params![status, since, ROWS_MAX],
            )
        };
        let running = runs(RunStatus::Running, Time::from_micros(0))?;
        let failed_today = runs(RunStatus::Failed, now.plus_seconds(-RECENT_SECONDS))?;
        let running_total = read.one::<(i64,)>(
            "select count(*) from runs where tenant_id = ?1 and status = ?2",
            params![RunStatus::Running],
        )?;
        let ready = Ready { limit: Some(ROWS_MAX), after: None }.answer(read, now)?.rows;
        let last_run = read.display_rows::<RunRow>("where u.tenant_id = ?1 order by u.id desc limit 1", &[])?.pop();
        let hooked_at = read.one::<(Option<Time>,)>(
            "select max(hooked_at) from (select hooked_at from sessions where tenant_id = ?1 order by started_at desc limit ?2) s",
            params![SESSIONS_MAX],
        )?;
        Ok(StatusSummary {
            queue: queue::count_unfinished_and_failed(read, now)?
                .into_iter()
                .map(|(status, count)| (status.to_string(), count))
                .collect(),
            left_alone: assignment::skipped_items(read)?,
            running_total: running_total.map_or(0, |(total,)| total),
            running,
            failed_today,
            ready_to_run: ready
                .iter()
                .find(|row| row.shown.task.has_script())
                .map(|row| row.shown.task.variant.to_string()),
            ready: ready.iter().map(|row| row.shown.task.variant.to_string()).collect(),
            last_run,
            hooked_at: hooked_at.and_then(|(at,)| at),
        })
    }
}
