//! Reading transcripts into the record.

mod selection;

use std::{
    collections::{BTreeSet, HashSet},
    path::PathBuf,
    sync::mpsc::{SyncSender, sync_channel},
    thread,
};

use serde::Serialize;
use trackway_actions::{Context, Core};
use trackway_domain::observed::Observation;
use trackway_views::session::counts;

use self::selection::Job;
pub use self::selection::{Selection, Source};
use crate::{
    error::{Error, Result},
    transcript::{Flow, Mark, Tally, Transcript},
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

/// A part that was read, or the end of a file.
enum Part {
    Read(Observation),
    End(std::io::Result<Tally>),
}

/// Who is shown how far reading is.
pub trait Progress {
    /// Reading begins, of this many bytes.
    fn begin(&mut self, total: u64);

    fn add(&mut self, bytes: u64);

    fn finish(&mut self);
}

/// Reading, once or again and again.
#[derive(Debug)]
pub struct Ingest<'a> {
    core: &'a Core,
    context: &'a Context,
    selection: Selection,
    files: HashSet<PathBuf>,
    sessions: BTreeSet<String>,
    problems: HashSet<String>,
    total: Ingested,
}

impl<'a> Ingest<'a> {
    pub fn new(core: &'a Core, context: &'a Context, selection: Selection) -> Self {
        let (files, sessions, problems) = (HashSet::new(), BTreeSet::new(), HashSet::new());
        Self { core, context, selection, files, sessions, problems, total: Ingested::default() }
    }

    /// Reads what is new, and returns what that was. A problem is returned once.
    pub fn pass(&mut self, progress: &mut dyn Progress) -> Result<Ingested> {
        let mut read = Ingested::default();
        let outcome = self.read_new(&mut read, progress);
        self.total.bytes += read.bytes;
        self.total.lines += read.lines;
        self.total.bad_lines += read.bad_lines;
        read.problems.retain(|problem| self.problems.insert(problem.clone()));
        for problem in &read.problems {
            note(&mut self.total, problem.clone());
        }
        outcome.map(|()| read)
    }

    fn read_new(&mut self, read: &mut Ingested, progress: &mut dyn Progress) -> Result<()> {
        let mut found = self.selection.find();
        for problem in std::mem::take(&mut found.problems) {
            note(read, problem);
        }
        for candidate in &found.transcripts {
            let transcript = &candidate.transcript;
            self.files.insert(transcript.path.clone());
            self.sessions.insert(transcript.session.clone());
        }
        if !found.transcripts.is_empty() {
            let jobs = selection::with_news(self.core, self.context, &found.transcripts, self.selection.full)?;
            read.files = i64::try_from(jobs.len()).unwrap_or(i64::MAX);
            if !jobs.is_empty() {
                self.take_in(&jobs, read, progress)?;
            }
        }
        self.selection.remember(found);
        Ok(())
    }

    fn take_in(&self, jobs: &[Job], read: &mut Ingested, progress: &mut dyn Progress) -> Result<()> {
        progress.begin(jobs.iter().map(|job| unread(&job.transcript, job.mark.as_ref())).sum());
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
                write_all(self.core, self.context, jobs, readers, read, progress)
            })
        })??;
        progress.finish();
        Ok(())
    }

    /// All that was read, and what the record now holds of the sessions that were looked at.
    pub fn summary(mut self) -> Result<Ingested> {
        self.total.files = i64::try_from(self.files.len()).unwrap_or(i64::MAX);
        count(self.core, self.context, &self.sessions, &mut self.total)?;
        Ok(self.total)
    }
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
fn read_some(jobs: &[Job], first: usize, parts: &SyncSender<Vec<Part>>) {
    // There is one who writes, and it takes longest: where processors are few, readers do not keep it from its work.
    // Elsewhere than on Linux this would be said of the whole process.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(READERS_BEHIND);
    let (mut read, mut bytes, mut flow) = (Vec::new(), 0, Flow::Continue);
    for Job { client, transcript, mark } in jobs.iter().skip(first).step_by(READERS) {
        let tally = client.read_transcript(transcript, mark.as_ref(), &mut |observation| {
            bytes += length(&observation);
            read.push(Part::Read(observation));
            if bytes >= HANDED_ON {
                bytes = 0;
                flow = parts.send(std::mem::take(&mut read)).map_or(Flow::Stop, |()| Flow::Continue);
            }
            flow
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
    jobs: &[Job],
    mut readers: Vec<impl Iterator<Item = Part>>,
    ingested: &mut Ingested,
    progress: &mut dyn Progress,
) -> Result<()> {
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    for (Job { transcript, .. }, number) in jobs.iter().zip((0..READERS).cycle()) {
        let path = transcript.path.display();
        for part in readers[number].by_ref() {
            match part {
                Part::Read(observation) => {
                    bytes += length(&observation);
                    waiting.push(observation);
                    if bytes >= TOGETHER {
                        write_together(core, context, &waiting, ingested)?;
                        progress.add(u64::try_from(bytes).unwrap_or_default());
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
fn write_together(core: &Core, context: &Context, parts: &[Observation], ingested: &mut Ingested) -> Result<()> {
    match core.observe_all(context, parts).map_err(Error::from) {
        Err(failure) if !failure.is_passing() => {}
        outcome => return outcome,
    }
    for part in parts {
        match core.observe(context, part).map_err(Error::from) {
            Err(failure) if failure.is_passing() => return Err(failure),
            Err(failure) => {
                let path = part.progress.as_ref().map_or("", |progress| progress.path.as_str());
                note(ingested, format!("{path}: {failure}"));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// What the record holds of these sessions.
fn count(core: &Core, context: &Context, sessions: &BTreeSet<String>, ingested: &mut Ingested) -> Result<()> {
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
