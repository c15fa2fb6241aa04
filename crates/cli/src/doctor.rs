//! `trackway doctor`: finds problems with the database and the hooks, and fixes some of them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Serialize;
use serde_json::json;
use trackway_actions::cleanup::CleanupLeases;
use trackway_capture::{
    client::Client,
    hook::{self, HookLog},
    paths::{is_below, modified_at},
    transcript::Transcript,
};
use trackway_clients::CLIENTS;
use trackway_domain::{Error as Rule, Time};
use trackway_store::{Engine, Reader, health::Health, schema_check::MissingPart, transfer};
use trackway_views::doctor::{self as questions, SessionHookStatus};

use crate::{
    connect,
    dispatch::{App, CommandOutcome},
    environment,
    failure::Failure,
    location::{self, Location, user_folder},
    render::Layout,
};

/// The number of newest sessions to check.
const SESSIONS_MAX: i64 = 50;
/// A transcript may be newer than the last hook event by this number of seconds.
const HOOK_DELAY_MAX_S: i64 = 60;
/// Maximum age of a spooled event or an expired lease, in seconds.
const EVENT_AGE_MAX_S: i64 = 60;
/// Free disk space that is required: enough for the writes of a busy day and a backup.
const FREE_BYTES_MIN: u64 = 200 << 20;
const DAY_S: i64 = 86_400;

pub fn command() -> Command {
    Command::new("doctor").about("Find problems with the database and the hooks, and how to fix them").arg(
        Arg::new("fix")
            .long("fix")
            .action(ArgAction::SetTrue)
            .help("Apply the safe fixes: apply spooled events, requeue items with an expired lease, recreate missing indexes, remove the remains of an interrupted restore or move"),
    )
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    problem: String,
    fix: String,
}

pub fn doctor(app: &App, location: &Location, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let now = app.core.now();
    let user_folder = user_folder();
    let folder = hook::spool_and_log_folder(location, &user_folder);
    if matches.get_flag("fix") {
        let context = app.context()?;
        let log = HookLog { folder: folder.clone(), user_folder: user_folder.clone() };
        hook::apply_spooled(&app.core, &context, &log, CLIENTS)?;
        app.core.execute(&context, &CleanupLeases {})?;
        transfer::remove_abandoned_staging(&location.url)?;
    }
    let store = app.core.store();
    let health = store.health()?;
    let mut missing = store.missing_schema_parts()?;
    let mut failed = Vec::new();
    if matches.get_flag("fix") && !missing.is_empty() {
        failed = store.recreate_missing_parts(&missing)?;
        missing = store.missing_schema_parts()?;
    }
    let mut read = app.reader()?;
    let connected = connected_since();
    let mut findings = Vec::new();
    findings.extend(database_findings(&health, store.engine()));
    let can_query = missing.iter().all(|missing| missing.create_statement.is_some());
    findings.extend(missing.into_iter().map(schema_finding));
    findings.extend(failed.into_iter().map(recreate_failure));
    findings.extend(unreadable_settings());
    // If a table is missing, queries would fail. The finding about the missing table is then enough.
    if can_query {
        if health.corruption.is_none() {
            findings.extend(store.integrity_findings()?.into_iter().map(integrity_finding));
        }
        findings.extend(stuck_leases(&mut read, now)?);
        findings.extend(unmatched_spawns_finding(&mut read, now)?);
        if let Some(since) = connected {
            findings.extend(silent_sessions(&mut read, since)?);
        }
    }
    findings.extend(silent_unknown_sessions(&mut read, location)?);
    findings.extend(spooled_events(&folder, now));
    findings.extend(hook_failures(&folder, now));
    // Failures that could not be logged next to the database are in the user's log.
    findings.extend(Some(user_folder).filter(|user| *user != folder).and_then(|user| hook_failures(&user, now)));
    let data = json!({
        "database": location.url.to_string(),
        "engine": format!("{} {}", store.engine().name(), health.version),
        "bytes": health.bytes,
        "schema": store.schema_version()?,
        "hooks": connected.is_some(),
        "findings": serde_json::to_value(&findings).map_err(|error| Rule::usage(error.to_string()))?,
    });
    let mut outcome = CommandOutcome::new(data, Layout::Doctor);
    outcome.has_failed = !findings.is_empty();
    Ok(outcome)
}

fn database_findings(health: &Health, engine: Engine) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(broken) = &health.corruption {
        findings.push(Finding {
            check: "integrity",
            problem: format!("the database file is damaged: {broken}"),
            fix: "keep a copy of the file, and restore the last backup elsewhere: trackway restore FILE --db URL"
                .to_owned(),
        });
    }
    if health.has_unsupported_version(engine) {
        findings.push(Finding {
            check: "engine",
            problem: format!("PostgreSQL {} is older than 14", health.version),
            fix: "move the database to a newer server: trackway move --to URL".to_owned(),
        });
    }
    let needed = u64::try_from(health.bytes).unwrap_or_default().max(FREE_BYTES_MIN);
    if let Some(free) = health.free_bytes.filter(|free| *free < needed) {
        findings.push(Finding {
            check: "disk",
            problem: format!(
                "only {} MB of disk space are free; the database has {} MB",
                free >> 20,
                health.bytes >> 20
            ),
            fix: "free some space, or move the database: trackway move --to URL".to_owned(),
        });
    }
    if let Some(left) = &health.leftover_staging {
        findings.push(Finding {
            check: "incoming",
            problem: format!("a restore or move to this database was interrupted and left {left}"),
            fix: "run the restore or move again to continue it, or remove its remains: trackway doctor --fix"
                .to_owned(),
        });
    }
    findings
}

/// A part of the schema that a migration created and somebody removed.
fn schema_finding(missing: MissingPart) -> Finding {
    Finding {
        check: "schema",
        problem: format!("{} is missing", missing.description),
        fix: match missing.create_statement {
            Some(_) => "to recreate it: trackway doctor --fix".to_owned(),
            None => "restore the last backup elsewhere: trackway restore FILE --db URL".to_owned(),
        },
    }
}

/// The finding for an index that cannot be recreated: duplicates were written while the unique index was missing, or
/// the database role lacks the permission.
fn recreate_failure(why: String) -> Finding {
    Finding {
        check: "schema",
        problem: why,
        fix: "remove the duplicate rows, or restore the last backup elsewhere: trackway restore FILE --db URL"
            .to_owned(),
    }
}

/// A violated invariant. No action of Trackway should violate one, so the finding asks for a bug report.
fn integrity_finding(violation: String) -> Finding {
    Finding {
        check: "record",
        problem: format!("the record is inconsistent: {violation}"),
        fix: "keep a copy of the database, and restore the last backup elsewhere: trackway restore FILE --db URL; please report this as a bug"
            .to_owned(),
    }
}

/// Taken items with an expired lease, which no worker has returned to the queue.
fn stuck_leases(read: &mut Reader<'_>, now: Time) -> Result<Option<Finding>, Failure> {
    let until = now.plus_seconds(-EVENT_AGE_MAX_S);
    let count = questions::count_expired_leases(read, until)?;
    Ok((count > 0).then(|| Finding {
        check: "leases",
        problem: format!("{count} queue items have an expired lease: their workers have stopped"),
        fix: "return them to the queue: trackway doctor --fix (the next worker does the same)".to_owned(),
    }))
}

/// The time at which hooks were added to the settings: the oldest modification time of a settings file with our hooks.
pub fn connected_since() -> Option<Time> {
    connected_settings().filter_map(|(_, path)| modified_at(&path)).min()
}

fn connected_settings() -> impl Iterator<Item = (&'static dyn Client, PathBuf)> {
    let is_connected = |(client, path): &(&'static dyn Client, PathBuf)| {
        fs::read_to_string(path).is_ok_and(|text| matches!(client.connection().memory(&text), Ok(Some(_))))
    };
    connect::settings_files().into_iter().filter(is_connected)
}

fn unreadable_settings() -> Vec<Finding> {
    let unreadable = |(client, path): &(&'static dyn Client, PathBuf)| {
        let why = client.connection().memory(&fs::read_to_string(path).ok()?).err()?;
        Some(Finding {
            check: "settings",
            problem: format!("{} is invalid, and {} ignores it: {why}", path.display(), client.display_name()),
            fix: "correct the file".to_owned(),
        })
    };
    connect::settings_files().iter().filter_map(unreadable).collect()
}

/// Recorded sessions whose transcripts grew without hook events.
fn silent_sessions(read: &mut Reader<'_>, connected: Time) -> Result<Vec<Finding>, Failure> {
    let sessions = questions::newest_sessions(read, SESSIONS_MAX)?;
    let silent = |(session, path, hooked): SessionHookStatus| {
        let grew = modified_at(Path::new(&path?))?;
        let last_event = hooked.unwrap_or(connected);
        let is_silent = grew > connected && grew.seconds_since(last_event) > HOOK_DELAY_MAX_S;
        let last = hooked.map_or_else(|| "there was none".to_owned(), |hooked| format!("the last was at {hooked}"));
        is_silent.then(|| Finding {
            check: "hooks",
            problem: format!("the transcript of session {session} grew until {grew} without hook events: {last}"),
            fix: "restart the client, which reads its hooks when it starts; import what was missed: trackway ingest"
                .to_owned(),
        })
    };
    Ok(sessions.into_iter().filter_map(silent).collect())
}

/// Transcripts of unrecorded sessions that grew after the last hook event of any session.
fn silent_unknown_sessions(read: &mut Reader<'_>, location: &Location) -> Result<Option<Finding>, Failure> {
    let (db, tenant) = (std::env::var(environment::DATABASE).ok(), std::env::var(environment::TENANT).ok());
    let last_event = questions::last_hook_event(read)?;
    for (client, settings) in connected_settings() {
        let Some(folder) = client.transcripts_folder().filter(|folder| folder.exists()) else { continue };
        let Some(connected) = modified_at(&settings) else { continue };
        let since = last_event.map_or(connected, |last_event| last_event.max(connected));
        // Project settings apply only to sessions that start in the project; user settings apply to all sessions.
        let project_top = settings
            .parent()
            .and_then(Path::parent)
            .filter(|project_top| location::project_top().as_deref() == Some(project_top));
        let is_recorded_here = |cwd: &Path| {
            let found = Location::find_from(Some(cwd), db.clone(), tenant.clone());
            project_top.is_none_or(|project_top| cwd.starts_with(project_top))
                && !is_below(cwd, &location.exclude)
                && found.is_ok_and(|found| found.url.with_password() == location.url.with_password())
        };
        let has_grown = |path: &Path| {
            path.is_dir() || modified_at(path).is_some_and(|grew| grew.seconds_since(since) > HOOK_DELAY_MAX_S)
        };
        let grew = client.find_transcripts(&folder, &mut |path| has_grown(path)).transcripts;
        let own = grew.into_iter().filter(|transcript| transcript.agent.is_none());
        let mut silent: Vec<Transcript> = Vec::new();
        for transcript in
            own.filter(|transcript| client.transcript_cwd(&transcript.path).is_some_and(|cwd| is_recorded_here(&cwd)))
        {
            if !questions::is_session_recorded(read, client.name(), &transcript.session)? {
                silent.push(transcript);
            }
        }
        if let Some(last) = silent.last() {
            let check = client.connection().hooks_command().map_or_else(String::new, |command| {
                format!(", and check with its {command} command that they are enabled")
            });
            return Ok(Some(Finding {
                check: "hooks",
                problem: format!(
                    "{} sessions without hook events since hooks were added to {}, for example {}",
                    silent.len(),
                    settings.display(),
                    last.session
                ),
                fix: format!(
                    "restart the client, which reads its hooks when it starts{check}; import what was missed: trackway ingest"
                ),
            }));
        }
    }
    Ok(None)
}

/// Spooled events that no later hook call has applied.
fn spooled_events(folder: &Path, now: Time) -> Option<Finding> {
    let entries = fs::read_dir(folder.join("spool")).ok()?;
    let ages: Vec<i64> = entries
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "json"))
        .filter_map(|entry| modified_at(&entry.path()).map(|at| now.seconds_since(at)))
        .collect();
    let oldest = ages.iter().max().filter(|age| **age > EVENT_AGE_MAX_S)?;
    Some(Finding {
        check: "spool",
        problem: format!("{} hook events are not applied yet, the oldest for {oldest} s", ages.len()),
        fix: "apply them: trackway doctor --fix (the next hook event does the same)".to_owned(),
    })
}

fn hook_failures(folder: &Path, now: Time) -> Option<Finding> {
    let log = fs::read_to_string(folder.join("hook.log")).ok()?;
    let is_recent = |line: &&str| {
        let at = line.split(' ').next().and_then(|time| time.parse::<Time>().ok());
        at.is_some_and(|at| now.seconds_since(at) < DAY_S)
    };
    let recent: Vec<&str> = log.lines().filter(is_recent).collect();
    let last = recent.last()?;
    Some(Finding {
        check: "hook.log",
        problem: format!("{} hook events failed in the last day; the last one: {last}", recent.len()),
        fix: format!("see {}; you may delete the file afterwards", folder.join("hook.log").display()),
    })
}

/// Spawns without a matched agent that are between an hour and a week old.
fn unmatched_spawns_finding(read: &mut Reader<'_>, now: Time) -> Result<Option<Finding>, Failure> {
    let (from, until) = (now.plus_seconds(-7 * DAY_S), now.plus_seconds(-3_600));
    let count = questions::count_unmatched_spawns(read, from, until)?;
    Ok((count > 0).then(|| Finding {
        check: "spawns",
        problem: format!("{count} spawns of the last week have no matched subagent"),
        fix: "import the transcripts: trackway ingest; to list the spawns: trackway spawn list --unmatched".to_owned(),
    }))
}
