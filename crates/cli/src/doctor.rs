//! `trackway doctor`: what is wrong here, and what to do about it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Serialize;
use serde_json::json;
use trackway_actions::queue::CleanupLeases;
use trackway_capture::{
    hook::{self, HookLog},
    paths::{is_below, modified},
    transcript::Transcript,
};
use trackway_client_claude::settings::connected_memory;
use trackway_clients::CLIENTS;
use trackway_domain::{Error as Rule, Time};
use trackway_store::{Engine, Reader, health::Health, params, schema_check::Missing, transfer};

use crate::{
    connect,
    door::{House, Outcome},
    environment,
    failure::Failure,
    location::{self, Location, user_folder},
    render::Shape,
};

/// Sessions that are looked at.
const SESSIONS: i64 = 50;
/// How far a transcript may run ahead of its hooks, in seconds.
const SILENCE_S: i64 = 60;
/// How long an event may wait in the spool, in seconds.
const WAITING_S: i64 = 60;
/// Bytes that should be free: as much as a busy day writes, with room for a backup.
const ROOM_BYTES: u64 = 200 << 20;
/// How long a failure in the log is news, in seconds.
const NEWS_S: i64 = 86_400;

pub fn command() -> Command {
    Command::new("doctor").about("Look for what is wrong here, and say what to do about it").arg(
        Arg::new("fix")
            .long("fix")
            .action(ArgAction::SetTrue)
            .help("Do what is safe to do: apply events that wait, return items whose lease is over, make missing indexes, remove what a move left"),
    )
}

/// Something that is wrong.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    problem: String,
    fix: String,
}

pub fn doctor(house: &House, location: &Location, matches: &ArgMatches) -> Result<Outcome, Failure> {
    let now = house.core.now();
    let user_folder = user_folder();
    let folder = hook::folder_of(location, &user_folder);
    if matches.get_flag("fix") {
        let context = house.context()?;
        let log = HookLog { folder: folder.clone(), user_folder: user_folder.clone() };
        hook::apply_spooled(&house.core, &context, &log, CLIENTS)?;
        house.core.execute(&context, &CleanupLeases {})?;
        transfer::remove_left_behind(&location.url)?;
    }
    let store = house.core.store();
    let health = store.health()?;
    let mut missing = store.missing()?;
    let mut failed = Vec::new();
    if matches.get_flag("fix") && !missing.is_empty() {
        failed = store.make_again(&missing)?;
        missing = store.missing()?;
    }
    let mut read = house.reader()?;
    let connected = connected_since();
    let mut findings = Vec::new();
    findings.extend(of_the_database(&health, store.engine()));
    let is_whole = missing.iter().all(|missing| missing.made_by.is_some());
    findings.extend(missing.into_iter().map(of_the_schema));
    findings.extend(failed.into_iter().map(unmendable));
    findings.extend(unreadable_settings());
    // What asks for a table that is not there would say no more than that.
    if is_whole {
        if health.broken.is_none() {
            findings.extend(store.unsound()?.into_iter().map(of_the_record));
        }
        findings.extend(stuck_leases(&mut read, now)?);
        findings.extend(unmatched(&mut read, now)?);
        if let Some(since) = connected {
            findings.extend(silent_sessions(&mut read, since)?);
        }
    }
    findings.extend(silent_from_the_start(&mut read, location)?);
    findings.extend(waiting(&folder, now));
    findings.extend(failures(&folder, now));
    // What could not be written beside the database is told there.
    findings.extend(Some(user_folder).filter(|user| *user != folder).and_then(|user| failures(&user, now)));
    let data = json!({
        "database": location.url.to_string(),
        "engine": format!("{} {}", store.engine().name(), health.version),
        "bytes": health.bytes,
        "schema": store.schema_version()?,
        "hooks": connected.is_some(),
        "findings": serde_json::to_value(&findings).map_err(|error| Rule::usage(error.to_string()))?,
    });
    let mut outcome = Outcome::new(data, Shape::Doctor);
    outcome.failed = !findings.is_empty();
    Ok(outcome)
}

/// What is wrong with the database itself.
fn of_the_database(health: &Health, engine: Engine) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(broken) = &health.broken {
        findings.push(Finding {
            check: "integrity",
            problem: format!("the database file is damaged: {broken}"),
            fix: "keep a copy of it, and restore the last backup elsewhere: trackway restore FILE --db URL".to_owned(),
        });
    }
    if health.is_old(engine) {
        findings.push(Finding {
            check: "engine",
            problem: format!("PostgreSQL {} is older than 14", health.version),
            fix: "use a newer server: trackway move --to URL copies everything there".to_owned(),
        });
    }
    let needed = u64::try_from(health.bytes).unwrap_or_default().max(ROOM_BYTES);
    if let Some(free) = health.free_bytes.filter(|free| *free < needed) {
        findings.push(Finding {
            check: "disk",
            problem: format!("{} MB are free where the database is, which takes {} MB", free >> 20, health.bytes >> 20),
            fix: "free some space, or move the database: trackway move --to URL".to_owned(),
        });
    }
    if let Some(left) = &health.incoming {
        findings.push(Finding {
            check: "incoming",
            problem: format!("a restore or a move to here was cut off and left {left}"),
            fix: "it is not used by anything, and the same command goes on with it; trackway doctor --fix removes it"
                .to_owned(),
        });
    }
    findings
}

/// What the migrations made and somebody took away.
fn of_the_schema(missing: Missing) -> Finding {
    Finding {
        check: "schema",
        problem: format!("{} is missing", missing.what),
        fix: match missing.made_by {
            Some(_) => "trackway doctor --fix makes it again".to_owned(),
            None => "restore the last backup elsewhere: trackway restore FILE --db URL".to_owned(),
        },
    }
}

/// An index that cannot be made: it is unique, and what it keeps out came in without it; or the role may not.
fn unmendable(why: String) -> Finding {
    Finding {
        check: "schema",
        problem: why,
        fix: "remove what is there twice, or restore the last backup elsewhere: trackway restore FILE --db URL"
            .to_owned(),
    }
}

/// Something that no write of ours leaves behind.
fn of_the_record(unsound: String) -> Finding {
    Finding {
        check: "record",
        problem: format!("the record does not hold together: {unsound}"),
        fix:
            "keep a copy of it, and restore the last backup elsewhere: trackway restore FILE --db URL; tell us about it"
                .to_owned(),
    }
}

/// Items that somebody took and was not heard of any more, and that nobody returned.
fn stuck_leases(read: &mut Reader<'_>, now: Time) -> Result<Option<Finding>, Failure> {
    let until = now.plus_seconds(-WAITING_S);
    let count = read.count(
        "select count(*) from queue_items where tenant_id = ?1 and status = 'running' and lease_expires < ?2",
        params![until],
    )?;
    Ok((count > 0).then(|| Finding {
        check: "leases",
        problem: format!("{count} queue items are held by workers that were not heard of any more"),
        fix: "trackway doctor --fix returns them to the queue; so does the next worker".to_owned(),
    }))
}

/// When hooks were put into the settings that count here, as far as the files tell.
pub fn connected_since() -> Option<Time> {
    connected_settings().filter_map(|path| modified(&path)).min()
}

fn connected_settings() -> impl Iterator<Item = PathBuf> {
    let is_connected =
        |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| matches!(connected_memory(&text), Ok(Some(_))));
    connect::settings_files().into_iter().filter(is_connected)
}

fn unreadable_settings() -> Vec<Finding> {
    let refused = |path: &PathBuf| {
        let why = connected_memory(&fs::read_to_string(path).ok()?).err()?;
        Some(Finding {
            check: "settings",
            problem: format!("{} cannot be read, by Claude Code neither: {why}", path.display()),
            fix: "correct the file".to_owned(),
        })
    };
    connect::settings_files().iter().filter_map(refused).collect()
}

/// Sessions whose transcripts grew while no hook spoke.
fn silent_sessions(read: &mut Reader<'_>, connected: Time) -> Result<Vec<Finding>, Failure> {
    let sessions = read.query::<(String, Option<String>, Option<Time>)>(
        "select session_id, transcript_path, hooked_at from sessions where tenant_id = ?1 order by started_at desc limit ?2",
        params![SESSIONS],
    )?;
    let silent = |(session, path, hooked): (String, Option<String>, Option<Time>)| {
        let grew = modified(Path::new(&path?))?;
        let heard = hooked.unwrap_or(connected);
        let is_silent = grew > connected && grew.seconds_since(heard) > SILENCE_S;
        let last = hooked.map_or_else(|| "none came".to_owned(), |hooked| format!("the last came at {hooked}"));
        is_silent.then(|| Finding {
            check: "hooks",
            problem: format!("session {session} went on until {grew}, and no event told of it: {last}"),
            fix: "restart the client, which reads its hooks at the start; trackway ingest brings what was missed"
                .to_owned(),
        })
    };
    Ok(sessions.into_iter().filter_map(silent).collect())
}

/// Transcripts of sessions that no hook ever told of, and that went on after the last one told of any other.
fn silent_from_the_start(read: &mut Reader<'_>, location: &Location) -> Result<Option<Finding>, Failure> {
    let Some(client) = CLIENTS.named(None) else { return Ok(None) };
    let Some(folder) = client.transcripts_folder().filter(|folder| folder.exists()) else { return Ok(None) };
    let (db, tenant) = (std::env::var(environment::DATABASE).ok(), std::env::var(environment::TENANT).ok());
    let heard = read.one::<(Option<Time>,)>("select max(hooked_at) from sessions where tenant_id = ?1", &[])?;
    for settings in connected_settings() {
        let Some(connected) = modified(&settings) else { continue };
        let since = heard.and_then(|(heard,)| heard).map_or(connected, |heard| heard.max(connected));
        // Those of a project are read by clients that start there, the user's by all.
        let top =
            settings.parent().and_then(Path::parent).filter(|top| location::project_top().as_deref() == Some(top));
        let is_heard = |cwd: &Path| {
            let there = Location::find_from(Some(cwd), db.clone(), tenant.clone());
            top.is_none_or(|top| cwd.starts_with(top))
                && !is_below(cwd, &location.exclude)
                && there.is_ok_and(|there| there.url.whole() == location.url.whole())
        };
        let is_new =
            |path: &Path| path.is_dir() || modified(path).is_some_and(|grew| grew.seconds_since(since) > SILENCE_S);
        let grew = client.find_transcripts(&folder, &mut |path| is_new(path)).transcripts;
        let own = grew.into_iter().filter(|transcript| transcript.agent.is_none());
        let mut silent: Vec<Transcript> = Vec::new();
        for transcript in
            own.filter(|transcript| client.transcript_cwd(&transcript.path).is_some_and(|cwd| is_heard(&cwd)))
        {
            let sql = "select count(*) from sessions where tenant_id = ?1 and session_id = ?2";
            if read.count(sql, params![transcript.session])? == 0 {
                silent.push(transcript);
            }
        }
        if let Some(last) = silent.last() {
            return Ok(Some(Finding {
                check: "hooks",
                problem: format!(
                    "{} sessions went on after hooks were put into {}, and no event came; one is {}",
                    silent.len(),
                    settings.display(),
                    last.session
                ),
                fix: "restart the client, which reads its hooks at the start, and see whether it allows them: /hooks; trackway ingest brings what was missed".to_owned(),
            }));
        }
    }
    Ok(None)
}

/// Events that wait for a call that applies them.
fn waiting(folder: &Path, now: Time) -> Option<Finding> {
    let entries = fs::read_dir(folder.join("spool")).ok()?;
    let ages: Vec<i64> = entries
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "json"))
        .filter_map(|entry| modified(&entry.path()).map(|at| now.seconds_since(at)))
        .collect();
    let oldest = ages.iter().max().filter(|age| **age > WAITING_S)?;
    Some(Finding {
        check: "spool",
        problem: format!("{} events wait to be applied, the oldest for {oldest} s", ages.len()),
        fix: "trackway doctor --fix applies them; so does the next event".to_owned(),
    })
}

/// What hooks failed with lately.
fn failures(folder: &Path, now: Time) -> Option<Finding> {
    let log = fs::read_to_string(folder.join("hook.log")).ok()?;
    let is_news = |line: &&str| {
        let at = line.split(' ').next().and_then(|time| time.parse::<Time>().ok());
        at.is_some_and(|at| now.seconds_since(at) < NEWS_S)
    };
    let news: Vec<&str> = log.lines().filter(is_news).collect();
    let last = news.last()?;
    Some(Finding {
        check: "hook.log",
        problem: format!("{} events failed in the last day; the last: {last}", news.len()),
        fix: format!("see {}; it can be deleted", folder.join("hook.log").display()),
    })
}

/// Spawns that should have an agent by now.
fn unmatched(read: &mut Reader<'_>, now: Time) -> Result<Option<Finding>, Failure> {
    let (from, until) = (now.plus_seconds(-7 * NEWS_S), now.plus_seconds(-3_600));
    let count = read.count(
        "select count(*) from task_spawns where tenant_id = ?1 and matched_agent_id is null and error is null and status is not null and created_at between ?2 and ?3",
        params![from, until],
    )?;
    Ok((count > 0).then(|| Finding {
        check: "spawns",
        problem: format!("{count} spawns of the last week have no agent"),
        fix: "trackway ingest reads what the transcripts say; trackway spawn list --unmatched shows them".to_owned(),
    }))
}
