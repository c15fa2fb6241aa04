//! `trackway ingest`: the record of Claude Code sessions, made from the transcripts they left.

use std::{
    collections::{BTreeSet, HashMap},
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Serialize;
use serde_json::Value;
use trackway_actions::{Context, Core};
use trackway_claude::{
    discover,
    transcript::{self, Flow, Mark, Tally, Transcript},
};
use trackway_domain::{Error as Rule, Time, observed::Observation};
use trackway_store::params;
use trackway_views::session::counts;

use crate::{
    door::{House, Outcome},
    failure::Failure,
    location::Location,
    render::Shape,
};

/// Transcripts read at once.
const READERS: usize = 2;
/// Parts that each reader is ahead of what is written.
const AHEAD: usize = 4;
/// Bytes of transcripts that are written down together: few enough for others to write meanwhile, as many as fit into the
/// time a hook waits.
const TOGETHER: i64 = 16 << 20;
/// How often `--watch` looks.
const WATCH: Duration = Duration::from_secs(1);
/// Bad lines and files that are named.
const NAMED_MAX: usize = 10;

pub fn command() -> Command {
    Command::new("ingest")
        .about("Read Claude Code's transcripts into the record: sessions, subagents, runs, files, usage")
        .long_about(
            "Read Claude Code's transcripts into the record: sessions, subagents, runs, files, usage\n\n\
             Without paths: all of them, or in a project's database the project's own. Again reads only what is new.",
        )
        .arg(
            Arg::new("paths")
                .value_name("PATH")
                .num_args(0..)
                .value_parser(clap::value_parser!(PathBuf))
                .help("Transcripts, or folders that hold some"),
        )
        .arg(
            Arg::new("since")
                .long("since")
                .value_name("TIME")
                .value_parser(clap::value_parser!(Time))
                .help("Only transcripts written to since then"),
        )
        .arg(
            Arg::new("watch")
                .long("watch")
                .action(ArgAction::SetTrue)
                .help("Go on reading as transcripts grow, until interrupted"),
        )
}

/// What an ingest read, and what the record now holds of the sessions it looked at.
#[derive(Debug, Default, Serialize)]
pub struct Ingested {
    pub files: i64,
    pub bytes: u64,
    pub lines: i64,
    pub bad_lines: i64,
    pub sessions: i64,
    pub subagents: i64,
    pub spawns: i64,
    pub matched: i64,
    pub tentative: i64,
    pub unmatched: i64,
    pub touches: i64,
    pub usage: i64,
    /// What could not be read, and where bad lines are.
    pub problems: Vec<String>,
}

/// Which transcripts are wanted.
#[derive(Debug, Default)]
struct Wanted {
    paths: Vec<PathBuf>,
    since: Option<Time>,
    /// Only sessions that happened below this directory.
    project: Option<PathBuf>,
    exclude: Vec<PathBuf>,
}

pub fn ingest(house: &House, location: &Location, matches: &ArgMatches) -> Result<Outcome, Failure> {
    let given: Vec<PathBuf> = matches.get_many::<PathBuf>("paths").into_iter().flatten().cloned().collect();
    if let Some(path) = given.iter().find(|path| !path.exists()) {
        return Err(Rule::not_found(format!("there is nothing at {}", path.display())).into());
    }
    let wanted = Wanted {
        since: matches.get_one::<Time>("since").copied(),
        project: location.project.clone().filter(|_| given.is_empty()),
        exclude: location.exclude.clone(),
        paths: if given.is_empty() {
            let folder = discover::default_folder()
                .filter(|folder| folder.exists())
                .ok_or_else(|| Rule::not_found("Claude Code has left no transcripts here").hint("give a PATH"))?;
            vec![folder]
        } else {
            given
        },
    };
    let context = house.context()?;
    let mut ingested = read_new(&house.core, &context, &wanted)?;
    while matches.get_flag("watch") {
        thread::sleep(WATCH);
        let more = read_new(&house.core, &context, &wanted)?;
        if more.bytes > 0 {
            writeln!(std::io::stderr(), "read {} more in {} files", size(more.bytes), more.files)?;
        }
        ingested = more;
    }
    let remarks = ingested.problems.iter().map(|problem| format!("warning: {problem}")).collect();
    let mut data = serde_json::to_value(&ingested).map_err(|error| Rule::usage(error.to_string()))?;
    if ingested.problems.is_empty()
        && let Some(fields) = data.as_object_mut()
    {
        fields.remove("problems");
    }
    let mut outcome = Outcome::new(data, Shape::Fields);
    outcome.remarks = remarks;
    Ok(outcome)
}

/// A part that was read, or the end of a file.
enum Part {
    Read(Observation),
    End(Result<Tally, std::io::Error>),
}

fn read_new(core: &Core, context: &Context, wanted: &Wanted) -> Result<Ingested, Failure> {
    let mut ingested = Ingested::default();
    let transcripts = find(wanted, &mut ingested);
    ingested.files = i64::try_from(transcripts.len()).unwrap_or(i64::MAX);
    let sessions: BTreeSet<String> = transcripts.iter().map(|transcript| transcript.session.clone()).collect();
    let jobs = with_news(core, context, transcripts)?;
    let total: u64 = jobs.iter().map(|(transcript, mark)| unread(transcript, mark.as_ref())).sum();
    let mut bar = Bar::new(total);
    core.store().while_much_is_written(|| {
        thread::scope(|scope| {
            // Reading and writing at once: some understand lines while one keeps rows.
            let jobs = &jobs;
            let readers: Vec<Receiver<Part>> = (0..READERS)
                .map(|first| {
                    let (sender, parts) = sync_channel(AHEAD);
                    scope.spawn(move || read_some(jobs, first, &sender));
                    parts
                })
                .collect();
            write_all(core, context, jobs, &readers, &mut ingested, &mut bar)
        })
    })??;
    bar.finish();
    count(core, context, &sessions, &mut ingested)?;
    Ok(ingested)
}

fn find(wanted: &Wanted, ingested: &mut Ingested) -> Vec<Transcript> {
    let is_excluded = |path: &Path| wanted.exclude.iter().any(|excluded| path.starts_with(excluded));
    // A project's sessions are in folders that begin with its name.
    let prefix = wanted.project.as_deref().map(|project| discover::folder_name(&project.to_string_lossy()));
    let mut transcripts = Vec::new();
    for path in &wanted.paths {
        let mut is_wanted = |candidate: &Path| {
            if is_excluded(candidate) {
                return false;
            }
            let folder = candidate.strip_prefix(path).ok().and_then(|below| below.components().next());
            match (&prefix, folder) {
                (Some(prefix), Some(folder)) => folder.as_os_str().to_string_lossy().starts_with(prefix),
                _ => true,
            }
        };
        let found = discover::find(path, &mut is_wanted);
        for (path, why) in found.unreadable {
            note(ingested, format!("{}: {why}", path.display()));
        }
        transcripts.extend(found.transcripts);
    }
    transcripts.retain(|transcript| {
        if wanted.since.is_some_and(|since| modified(&transcript.path).is_some_and(|at| at < since)) {
            return false;
        }
        if wanted.project.is_none() && wanted.exclude.is_empty() {
            return true;
        }
        let happened = discover::cwd(&transcript.path);
        let is_here = |project: &PathBuf| happened.as_deref().is_none_or(|cwd| cwd.starts_with(project));
        wanted.project.as_ref().is_none_or(is_here) && !happened.as_deref().is_some_and(is_excluded)
    });
    transcripts
}

/// When a file was last written to.
pub fn modified(path: &Path) -> Option<Time> {
    let age = path.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(age.as_micros()).ok().map(Time::from_micros)
}

fn note(ingested: &mut Ingested, problem: String) {
    match ingested.problems.len() {
        count if count < NAMED_MAX => ingested.problems.push(problem),
        NAMED_MAX => ingested.problems.push("and more".to_owned()),
        _ => {}
    }
}

/// The transcripts that hold something new, with where reading stopped.
fn with_news(
    core: &Core,
    context: &Context,
    transcripts: Vec<Transcript>,
) -> Result<Vec<(Transcript, Option<Mark>)>, Failure> {
    let mut marks: HashMap<String, Mark> = HashMap::new();
    let mut read = core.store().read(context.tenant)?;
    for (path, identity, read_to) in read
        .query::<(String, String, i64)>("select path, identity, read_to from transcripts where tenant_id = ?1", &[])?
    {
        let offset = u64::try_from(read_to).unwrap_or_default();
        marks.insert(path, Mark { identity, offset, state: Value::Null });
    }
    let mut jobs = Vec::new();
    for transcript in transcripts {
        let path = transcript.path.to_string_lossy().into_owned();
        let mut mark = marks.remove(&path);
        if !transcript::has_news(&transcript.path, mark.as_ref()) {
            continue;
        }
        if let Some(mark) = &mut mark {
            let state = read
                .one::<(Value,)>("select state from transcripts where tenant_id = ?1 and path = ?2", params![path])?;
            mark.state = state.map(|(state,)| state).unwrap_or_default();
        }
        jobs.push((transcript, mark));
    }
    Ok(jobs)
}

fn unread(transcript: &Transcript, mark: Option<&Mark>) -> u64 {
    let length = transcript.path.metadata().map_or(0, |file| file.len());
    length.saturating_sub(mark.map_or(0, |mark| mark.offset))
}

/// Reads every so many files.
fn read_some(jobs: &[(Transcript, Option<Mark>)], first: usize, parts: &SyncSender<Part>) {
    for (transcript, mark) in jobs.iter().skip(first).step_by(READERS) {
        let tally = transcript::read(transcript, mark.as_ref(), |observation| {
            Ok::<_, std::io::Error>(match parts.send(Part::Read(observation)) {
                Ok(()) => Flow::Continue,
                Err(_) => Flow::Stop,
            })
        });
        if parts.send(Part::End(tally)).is_err() {
            return;
        }
    }
}

/// Writes down what was read, in the order of the files. A hook may have read it meanwhile: then it is in the record
/// already.
fn write_all(
    core: &Core,
    context: &Context,
    jobs: &[(Transcript, Option<Mark>)],
    readers: &[Receiver<Part>],
    ingested: &mut Ingested,
    bar: &mut Bar,
) -> Result<(), Failure> {
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    for ((transcript, _), parts) in jobs.iter().zip(readers.iter().cycle()) {
        let path = transcript.path.display();
        for part in parts {
            match part {
                Part::Read(observation) => {
                    bytes += observation.progress.as_ref().map_or(0, |progress| progress.to - progress.from);
                    waiting.push(observation);
                    if bytes >= TOGETHER {
                        write_together(core, context, &waiting, ingested)?;
                        bar.add(u64::try_from(bytes).unwrap_or_default());
                        (waiting, bytes) = (Vec::new(), 0);
                    }
                    continue;
                }
                Part::End(Ok(tally)) => {
                    ingested.bytes += tally.bytes;
                    ingested.lines += tally.lines;
                    ingested.bad_lines += tally.bad_lines;
                    for offset in tally.bad_at {
                        note(ingested, format!("{path}: a bad line at byte {offset}"));
                    }
                }
                Part::End(Err(error)) => note(ingested, format!("{path}: {error}")),
            }
            break;
        }
    }
    write_together(core, context, &waiting, ingested)
}

/// Writes several parts down; when one of them cannot be, each by itself, so that it keeps no other out.
fn write_together(
    core: &Core,
    context: &Context,
    parts: &[Observation],
    ingested: &mut Ingested,
) -> Result<(), Failure> {
    match core.observe_all(context, parts).map_err(Failure::from) {
        Err(failure) if !failure.is_passing => {}
        outcome => return outcome,
    }
    for part in parts {
        match core.observe(context, part).map_err(Failure::from) {
            Err(failure) if failure.is_passing => return Err(failure),
            Err(failure) => {
                let path = part.progress.as_ref().map_or("", |progress| progress.path.as_str());
                note(ingested, format!("{path}: {}", failure.message));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// What the record holds of these sessions.
fn count(core: &Core, context: &Context, sessions: &BTreeSet<String>, ingested: &mut Ingested) -> Result<(), Failure> {
    let all = counts(&mut core.store().read(context.tenant)?)?;
    for session in all.into_iter().filter(|session| sessions.contains(&session.session)) {
        ingested.sessions += 1;
        ingested.subagents += session.subagents;
        ingested.spawns += session.spawns;
        ingested.matched += session.matched - session.tentative;
        ingested.tentative += session.tentative;
        ingested.unmatched += session.spawns - session.matched;
        ingested.touches += session.touches;
        ingested.usage += session.usage;
    }
    Ok(())
}

/// How far it is, on a terminal.
struct Bar {
    total: u64,
    done: u64,
    started: Instant,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Bar {
    fn new(total: u64) -> Self {
        Self { total, done: 0, started: Instant::now(), shown: None, is_terminal: std::io::stderr().is_terminal() }
    }

    fn add(&mut self, bytes: u64) {
        self.done += bytes;
        let lately = self.shown.is_some_and(|shown| shown.elapsed() < Duration::from_millis(100));
        if !self.is_terminal || lately {
            return;
        }
        self.shown = Some(Instant::now());
        let total = self.total.max(self.done).max(1);
        let rate = u128::from(self.done) * 1_000 / self.started.elapsed().as_millis().max(1);
        let filled = "━".repeat(usize::try_from(self.done * 30 / total).unwrap_or_default());
        let _ = write!(
            std::io::stderr(),
            "\r\u{1b}[2K{filled:<30} {:>3} %  {} of {}  {}/s",
            self.done * 100 / total,
            size(self.done),
            size(total),
            size(u64::try_from(rate).unwrap_or_default())
        );
    }

    fn finish(&self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\u{1b}[2K");
        }
    }
}

/// Bytes as people read them.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// Reads the transcripts below a folder.
pub fn ingest_folder(core: &Core, context: &Context, folder: &Path) -> Result<Ingested, Failure> {
    let wanted = Wanted { paths: vec![folder.to_path_buf()], ..Wanted::default() };
    read_new(core, context, &wanted)
}
