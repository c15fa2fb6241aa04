//! Where things stand.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{Time, words::RunStatus};
use trackway_store::{Reader, Result, display::RunShown, params};

use crate::{
    assignment::{self, LeftAlone},
    queue,
    ready::Ready,
    view::View,
};

/// Runs shown of each sort.
const SHOWN: i64 = 5;
/// Sessions that are asked when a hook spoke of them.
const SESSIONS: i64 = 50;
/// How far back failures are shown.
const RECENT_SECONDS: i64 = 86_400;

/// Show where things stand
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Status {}

/// Where things stand.
#[derive(Debug, PartialEq, Serialize)]
pub struct Standing {
    /// How many run; the newest of them are shown.
    pub running_total: i64,
    pub running: Vec<RunShown>,
    pub failed_today: Vec<RunShown>,
    pub ready: Vec<String>,
    /// The first of them that has a script.
    pub ready_to_run: Option<String>,
    /// The run that began last.
    pub last_run: Option<RunShown>,
    /// When a hook last told of one of the newest sessions.
    pub hooked_at: Option<Time>,
    /// Queue items that are not finished, and those that failed for good, by status.
    pub queue: BTreeMap<String, i64>,
    /// What is ready there and not for the worker.
    pub left_alone: Vec<LeftAlone>,
}

impl View for Status {
    const COMMAND: (&'static str, &'static str) = ("", "status");
    type Output = Standing;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Standing> {
        let mut runs = |status: RunStatus, since: Time| {
            read.shown::<RunShown>(
                "where u.tenant_id = ?1 and u.status = ?2 and coalesce(u.ended_at, u.started_at) >= ?3 order by u.id desc limit ?4",
                params![status, since, SHOWN],
            )
        };
        let running = runs(RunStatus::Running, Time::from_micros(0))?;
        let failed_today = runs(RunStatus::Failed, now.plus_seconds(-RECENT_SECONDS))?;
        let running_total = read.one::<(i64,)>(
            "select count(*) from runs where tenant_id = ?1 and status = ?2",
            params![RunStatus::Running],
        )?;
        let ready = Ready { limit: Some(SHOWN), after: None }.answer(read, now)?.rows;
        let last_run = read.shown::<RunShown>("where u.tenant_id = ?1 order by u.id desc limit 1", &[])?.pop();
        let hooked_at = read.one::<(Option<Time>,)>(
            "select max(hooked_at) from (select hooked_at from sessions where tenant_id = ?1 order by started_at desc limit ?2) s",
            params![SESSIONS],
        )?;
        Ok(Standing {
            queue: queue::unsettled(read, now)?
                .into_iter()
                .map(|(status, count)| (status.to_string(), count))
                .collect(),
            left_alone: assignment::left_alone(read)?,
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
