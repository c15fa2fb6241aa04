//! `trackway ingest`: the record of Claude Code sessions, made from the transcripts they left.

mod bar;
mod looking;
mod watch;

use std::{
    collections::{BTreeSet, HashSet},
    path::{Path, PathBuf},
    sync::mpsc::{SyncSender, sync_channel},
    thread,
    time::UNIX_EPOCH,
};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Serialize;
use trackway_actions::{Context, Core};
use trackway_claude::{
    discover,
    transcript::{self, Flow, Mark, Tally, Transcript},
};
use trackway_domain::{Error as Rule, Time, observed::Observation};
use trackway_views::session::counts;

use self::{bar::Bar, looking::Looking};
use crate::{
    door::{House, Outcome},
    failure::Failure,
    location::Location,
    render::Shape,
};

/// Transcripts read at once.
const READERS: usize = 2;
/// How far readers stand behind who writes.
#[cfg(target_os = "linux")]
const READERS_BEHIND: i32 = 10;
/// Bytes of transcripts that a reader hands on together: most transcripts are short.
const HANDED_ON: i64 = 2 << 20;
/// How often each reader has handed something on that is not written yet.
const AHEAD: usize = 8;
/// Bytes of transcripts that are written down together: few enough for others to write meanwhile, as many as fit into the
/// time a hook waits.
const TOGETHER: i64 = 16 << 20;
/// Bad lines and files that are named.
const NAMED_MAX: usize = 10;

pub fn command() -> Command {
    Command::new("ingest")
        .about("Read Claude Code's transcripts into the record: sessions, subagents, runs, files, usage")
        .long_about(
            "Read Claude Code's transcripts into the record: sessions, subagents, runs, files, usage\n\n\
             Without paths: all of them, or in a project's database the project's own. A second run reads only new lines; \
             --full reads them from the start, and restores what a clean-up removed.",
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
                .help("Only transcripts written to since then: a day, or a time"),
        )
        .arg(
            Arg::new("full")
                .long("full")
                .action(ArgAction::SetTrue)
                .help("Read transcripts from the start, those that were read before too"),
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

pub fn ingest(house: &House, location: &Location, matches: &ArgMatches) -> Result<Outcome, Failure> {
    let given: Vec<PathBuf> = matches.get_many::<PathBuf>("paths").into_iter().flatten().cloned().collect();
    if let Some(path) = given.iter().find(|path| !path.exists()) {
        return Err(Rule::not_found(format!("there is nothing at {}", path.display())).into());
    }
    let looking = Looking {
        since: matches.get_one::<Time>("since").copied(),
        project: location.project.clone().filter(|_| given.is_empty()),
        exclude: location.exclude.clone(),
        full: matches.get_flag("full"),
        paths: if given.is_empty() {
            let folder = discover::default_folder().unwrap_or_default();
            if !folder.exists() {
                let none = format!("Claude Code has left no transcripts in {}", folder.display());
                return Err(Rule::not_found(none).hint("give a PATH").into());
            }
            vec![folder]
        } else {
            given
        },
        ..Looking::default()
    };
    let context = house.context()?;
    let mut ingesting = Ingesting::new(&house.core, &context, looking);
    let mut remarks = Vec::new();
    if matches.get_flag("watch") {
        watch::until_stopped(&mut ingesting)?;
    } else {
        remarks = ingesting.pass()?.problems.iter().map(|problem| format!("warning: {problem}")).collect();
    }
    let ingested = ingesting.summary()?;
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

/// Reading, once or again and again.
struct Ingesting<'a> {
    core: &'a Core,
    context: &'a Context,
    looking: Looking,
    files: HashSet<PathBuf>,
    sessions: BTreeSet<String>,
    problems: HashSet<String>,
    total: Ingested,
}

impl<'a> Ingesting<'a> {
    fn new(core: &'a Core, context: &'a Context, looking: Looking) -> Self {
        let (files, sessions, problems) = (HashSet::new(), BTreeSet::new(), HashSet::new());
        Self { core, context, looking, files, sessions, problems, total: Ingested::default() }
    }

    /// Reads what is new, and says what that was. A problem is told once.
    fn pass(&mut self) -> Result<Ingested, Failure> {
        let mut read = Ingested::default();
        let outcome = self.read_new(&mut read);
        self.total.bytes += read.bytes;
        self.total.lines += read.lines;
        self.total.bad_lines += read.bad_lines;
        read.problems.retain(|problem| self.problems.insert(problem.clone()));
        for problem in &read.problems {
            note(&mut self.total, problem.clone());
        }
        outcome.map(|()| read)
    }

    fn read_new(&mut self, read: &mut Ingested) -> Result<(), Failure> {
        let mut found = self.looking.find();
        for problem in std::mem::take(&mut found.problems) {
            note(read, problem);
        }
        for transcript in &found.transcripts {
            self.files.insert(transcript.path.clone());
            self.sessions.insert(transcript.session.clone());
        }
        if !found.transcripts.is_empty() {
            let jobs = looking::with_news(self.core, self.context, &found.transcripts, self.looking.full)?;
            read.files = i64::try_from(jobs.len()).unwrap_or(i64::MAX);
            if !jobs.is_empty() {
                self.take_in(&jobs, read)?;
            }
        }
        self.looking.remember(found);
        Ok(())
    }

    fn take_in(&self, jobs: &[(Transcript, Option<Mark>)], read: &mut Ingested) -> Result<(), Failure> {
        let total: u64 = jobs.iter().map(|(transcript, mark)| unread(transcript, mark.as_ref())).sum();
        let mut bar = Bar::new(total);
        self.core.store().while_much_is_written(|| {
            thread::scope(|scope| {
                // Reading and writing at once: some understand lines while one keeps rows.
                let readers = (0..READERS)
                    .map(|first| {
                        let (sender, parts) = sync_channel(AHEAD);
                        scope.spawn(move || read_some(jobs, first, &sender));
                        parts.into_iter().flatten()
                    })
                    .collect();
                write_all(self.core, self.context, jobs, readers, read, &mut bar)
            })
        })??;
        bar.finish();
        Ok(())
    }

    /// All that was read, and what the record now holds of the sessions that were looked at.
    fn summary(mut self) -> Result<Ingested, Failure> {
        self.total.files = i64::try_from(self.files.len()).unwrap_or(i64::MAX);
        count(self.core, self.context, &self.sessions, &mut self.total)?;
        Ok(self.total)
    }
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

fn unread(transcript: &Transcript, mark: Option<&Mark>) -> u64 {
    let length = transcript.path.metadata().map_or(0, |file| file.len());
    length.saturating_sub(mark.map_or(0, |mark| mark.offset))
}

/// Reads every so many files.
fn read_some(jobs: &[(Transcript, Option<Mark>)], first: usize, parts: &SyncSender<Vec<Part>>) {
    // There is one who writes, and it takes longest: where processors are few, readers do not keep it from its work.
    // Elsewhere than on Linux this would be said of the whole process.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(READERS_BEHIND);
    let (mut read, mut bytes, mut flow) = (Vec::new(), 0, Flow::Continue);
    for (transcript, mark) in jobs.iter().skip(first).step_by(READERS) {
        let tally = transcript::read(transcript, mark.as_ref(), |observation| {
            bytes += length(&observation);
            read.push(Part::Read(observation));
            if bytes >= HANDED_ON {
                bytes = 0;
                flow = parts.send(std::mem::take(&mut read)).map_or(Flow::Stop, |()| Flow::Continue);
            }
            Ok::<_, std::io::Error>(flow)
        });
        if flow == Flow::Stop {
            return;
        }
        read.push(Part::End(tally));
    }
    let _ = parts.send(read);
}

/// Bytes that a part was read from.
fn length(observation: &Observation) -> i64 {
    observation.progress.as_ref().map_or(0, |progress| progress.to - progress.from)
}

/// Writes down what was read, in the order of the files. A hook may have read it meanwhile: then it is in the record
/// already.
fn write_all(
    core: &Core,
    context: &Context,
    jobs: &[(Transcript, Option<Mark>)],
    mut readers: Vec<impl Iterator<Item = Part>>,
    ingested: &mut Ingested,
    bar: &mut Bar,
) -> Result<(), Failure> {
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    for ((transcript, _), number) in jobs.iter().zip((0..READERS).cycle()) {
        let path = transcript.path.display();
        for part in readers[number].by_ref() {
            match part {
                Part::Read(observation) => {
                    bytes += length(&observation);
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

/// Reads the transcripts below a folder.
pub fn ingest_folder(core: &Core, context: &Context, folder: &Path) -> Result<Ingested, Failure> {
    let looking = Looking { paths: vec![folder.to_path_buf()], ..Looking::default() };
    let mut ingesting = Ingesting::new(core, context, looking);
    ingesting.pass()?;
    ingesting.summary()
}
