//! Ingest: reads transcripts and records their facts in the database.

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
use trackway_views::session::session_counts;

use self::selection::Job;
pub use self::selection::{Selection, Source};
use crate::{
    error::{Error, Result},
    transcript::{Flow, ReadCursor, ReadStats, Transcript},
};

/// Threads that read transcripts.
const READERS: usize = 2;
/// The nice value of reader threads. They have a lower priority than the thread that writes.
#[cfg(target_os = "linux")]
const READER_NICENESS: i32 = 10;
/// Bytes of transcripts that a reader sends to the writer in one batch. Most transcripts are shorter.
const BATCH_BYTES: i64 = 2 << 20;
/// Maximum number of batches of a reader that wait for the writer.
const WAITING_BATCHES_MAX: usize = 8;
/// Bytes of transcripts that are written in one transaction. Larger transactions are more efficient, but a hook that
/// waits for one must not time out.
const TRANSACTION_BYTES: i64 = 16 << 20;
/// Maximum number of problems that a summary lists.
const PROBLEMS_MAX: usize = 10;

/// The amount of data that an ingest read, and the numbers of rows that the database now has for the sessions that were
/// read.
#[derive(Debug, Default, Serialize)]
pub struct IngestSummary {
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
    /// Files that could not be read, and the positions of bad lines.
    pub problems: Vec<String>,
}

/// A message from a reader to the writer: a part of a transcript, or the end of the file.
enum Part {
    Read(Box<Observation>),
    End(std::io::Result<ReadStats>),
}

/// Receives the progress of an ingest.
pub trait Progress {
    /// The ingest begins to read this many bytes.
    fn begin(&mut self, total: u64);

    fn add(&mut self, bytes: u64);

    fn finish(&mut self);
}

/// An ingest of selected transcripts, which can make several passes.
#[derive(Debug)]
pub struct Ingest<'a> {
    core: &'a Core,
    context: &'a Context,
    selection: Selection,
    files: HashSet<PathBuf>,
    /// The names of the clients, and the ids that they assigned to their sessions.
    sessions: BTreeSet<(String, String)>,
    problems: HashSet<String>,
    total: IngestSummary,
}

impl<'a> Ingest<'a> {
    pub fn new(core: &'a Core, context: &'a Context, selection: Selection) -> Self {
        let (files, sessions, problems) = (HashSet::new(), BTreeSet::new(), HashSet::new());
        Self { core, context, selection, files, sessions, problems, total: IngestSummary::default() }
    }

    /// Reads and records the new lines, and returns their counts. Reports each problem only in the first pass that
    /// finds it.
    pub fn pass(&mut self, progress: &mut dyn Progress) -> Result<IngestSummary> {
        let mut read = IngestSummary::default();
        let outcome = self.read_new(&mut read, progress);
        self.total.bytes += read.bytes;
        self.total.lines += read.lines;
        self.total.bad_lines += read.bad_lines;
        read.problems.retain(|problem| self.problems.insert(problem.clone()));
        for problem in &read.problems {
            note_problem(&mut self.total, problem.clone());
        }
        outcome.map(|()| read)
    }

    fn read_new(&mut self, read: &mut IngestSummary, progress: &mut dyn Progress) -> Result<()> {
        let mut found = self.selection.find();
        for problem in std::mem::take(&mut found.problems) {
            note_problem(read, problem);
        }
        for candidate in &found.transcripts {
            let transcript = &candidate.transcript;
            self.files.insert(transcript.path.clone());
            self.sessions.insert((candidate.client.name().to_owned(), transcript.session.clone()));
        }
        if !found.transcripts.is_empty() {
            let jobs = selection::find_jobs(self.core, self.context, &found.transcripts, self.selection.full)?;
            read.files = i64::try_from(jobs.len()).unwrap_or(i64::MAX);
            if !jobs.is_empty() {
                self.run_jobs(&jobs, read, progress)?;
            }
        }
        self.selection.mark_recorded(found);
        Ok(())
    }

    fn run_jobs(&self, jobs: &[Job], read: &mut IngestSummary, progress: &mut dyn Progress) -> Result<()> {
        progress.begin(jobs.iter().map(|job| unread_bytes(&job.transcript, job.cursor.as_ref())).sum());
        self.core.store().run_bulk_write(|| {
            thread::scope(|scope| {
                // Reader threads parse lines while this thread writes rows.
                let readers = (0..READERS)
                    .map(|first| {
                        let (sender, parts) = sync_channel(WAITING_BATCHES_MAX);
                        scope.spawn(move || read_share(jobs, first, &sender));
                        parts.into_iter().flatten()
                    })
                    .collect();
                write_all(self.core, self.context, jobs, readers, read, progress)
            })
        })??;
        progress.finish();
        Ok(())
    }

    /// The counts of all passes, with the counts of rows in the sessions that they read.
    pub fn summary(mut self) -> Result<IngestSummary> {
        self.total.files = i64::try_from(self.files.len()).unwrap_or(i64::MAX);
        add_session_counts(self.core, self.context, &self.sessions, &mut self.total)?;
        Ok(self.total)
    }
}

fn note_problem(summary: &mut IngestSummary, problem: String) {
    match summary.problems.len() {
        count if count < PROBLEMS_MAX => summary.problems.push(problem),
        PROBLEMS_MAX => summary.problems.push("and more".to_owned()),
        _ => {}
    }
}

fn unread_bytes(transcript: &Transcript, cursor: Option<&ReadCursor>) -> u64 {
    let length = transcript.path.metadata().map_or(0, |file| file.len());
    length.saturating_sub(cursor.map_or(0, |cursor| cursor.offset))
}

/// Reads the share of one reader: every [`READERS`]th file, starting with the file `first`.
fn read_share(jobs: &[Job], first: usize, parts: &SyncSender<Vec<Part>>) {
    // The single writer is the bottleneck, so on machines with few processors it should run first. Only Linux has a
    // nice value per thread; on other systems this would slow down the whole process.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(READER_NICENESS);
    let (mut read, mut bytes, mut flow) = (Vec::new(), 0, Flow::Continue);
    for Job { client, transcript, cursor } in jobs.iter().skip(first).step_by(READERS) {
        let stats = client.read_transcript(transcript, cursor.as_ref(), &mut |observation| {
            bytes += byte_count(&observation);
            read.push(Part::Read(Box::new(observation)));
            if bytes >= BATCH_BYTES {
                bytes = 0;
                flow = parts.send(std::mem::take(&mut read)).map_or(Flow::Stop, |()| Flow::Continue);
            }
            flow
        });
        if flow == Flow::Stop {
            return;
        }
        read.push(Part::End(stats));
    }
    let _ = parts.send(read);
}

/// The number of bytes that an observation was read from.
fn byte_count(observation: &Observation) -> i64 {
    observation.progress.as_ref().map_or(0, |progress| progress.to - progress.from)
}

/// Writes the observations of all readers, in the order of the files. If a hook has recorded a part in the meantime,
/// the database ignores that part.
fn write_all(
    core: &Core,
    context: &Context,
    jobs: &[Job],
    mut readers: Vec<impl Iterator<Item = Part>>,
    summary: &mut IngestSummary,
    progress: &mut dyn Progress,
) -> Result<()> {
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    for (Job { transcript, .. }, number) in jobs.iter().zip((0..READERS).cycle()) {
        let path = transcript.path.display();
        for part in readers[number].by_ref() {
            match part {
                Part::Read(observation) => {
                    bytes += byte_count(&observation);
                    waiting.push(*observation);
                    if bytes >= TRANSACTION_BYTES {
                        write_batch(core, context, &waiting, summary)?;
                        progress.add(u64::try_from(bytes).unwrap_or_default());
                        (waiting, bytes) = (Vec::new(), 0);
                    }
                    continue;
                }
                Part::End(Ok(stats)) => {
                    summary.bytes += stats.bytes;
                    summary.lines += stats.lines;
                    summary.bad_lines += stats.bad_lines;
                    for offset in stats.bad_at {
                        note_problem(summary, format!("{path}: a bad line at byte {offset}"));
                    }
                }
                Part::End(Err(error)) => note_problem(summary, format!("{path}: {error}")),
            }
            break;
        }
    }
    write_batch(core, context, &waiting, summary)
}

/// Writes several observations in one transaction. If that fails permanently, writes each in a transaction of its own,
/// so that a faulty one does not block the others.
fn write_batch(core: &Core, context: &Context, parts: &[Observation], summary: &mut IngestSummary) -> Result<()> {
    match core.observe_all(context, parts).map_err(Error::from) {
        Err(failure) if !failure.is_transient() => {}
        outcome => return outcome,
    }
    for part in parts {
        match core.observe(context, part).map_err(Error::from) {
            Err(failure) if failure.is_transient() => return Err(failure),
            Err(failure) => {
                let path = part.progress.as_ref().map_or("", |progress| progress.path.as_str());
                note_problem(summary, format!("{path}: {failure}"));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Adds the counts of the rows of these sessions.
fn add_session_counts(
    core: &Core,
    context: &Context,
    sessions: &BTreeSet<(String, String)>,
    summary: &mut IngestSummary,
) -> Result<()> {
    let all = session_counts(&mut core.store().read(context.tenant)?)?;
    for session in all {
        if !sessions.contains(&(session.client, session.session)) {
            continue;
        }
        summary.sessions += 1;
        summary.subagents += session.subagents;
        summary.spawns += session.spawns;
        summary.matched += session.matched - session.tentative;
        summary.tentative += session.tentative;
        summary.unmatched += session.spawns - session.matched;
        summary.touches += session.touches;
        summary.usage += session.usage;
    }
    Ok(())
}
