//! The selection of the transcripts to read: those that the user selected and that changed since they were last read.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use trackway_actions::{Context, Core};
use trackway_domain::Time;
use trackway_views::transcript;

use crate::{
    client::Client,
    discovery,
    error::Result,
    paths::{is_below, modified_at},
    transcript::{ReadCursor, Transcript, has_news, is_abandoned},
};

/// A folder or a file with transcripts of a client.
#[derive(Debug, Clone)]
pub struct Source {
    pub client: &'static dyn Client,
    pub path: PathBuf,
}

/// A transcript and the client that wrote it.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub client: &'static dyn Client,
    pub transcript: Transcript,
}

/// A transcript with new content.
#[derive(Debug)]
pub struct Job {
    pub client: &'static dyn Client,
    pub transcript: Transcript,
    /// The position where the last read stopped.
    pub cursor: Option<ReadCursor>,
}

/// The user's selection, and the state of the files after they were read.
#[derive(Debug, Default)]
pub struct Selection {
    pub sources: Vec<Source>,
    pub since: Option<Time>,
    /// Selects only sessions in or below this directory.
    pub project: Option<PathBuf>,
    pub exclude: Vec<PathBuf>,
    /// Whether the first pass reads every file from its start.
    pub full: bool,
    /// The stamps of files that were recorded completely. A file with the same stamp need not be opened again.
    pub(super) recorded: HashMap<PathBuf, FileStamp>,
}

/// The state of a file, without its content.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    length: u64,
    modified: Option<SystemTime>,
    /// Whether the session counts as abandoned, because nothing wrote the file for long.
    is_abandoned: bool,
}

/// The selected transcripts.
#[derive(Debug, Default)]
pub struct SelectedTranscripts {
    pub transcripts: Vec<Candidate>,
    pub problems: Vec<String>,
    /// Files and folders that a client could not read. `problems` has an entry for each.
    unreadable: HashSet<PathBuf>,
    stamps: HashMap<PathBuf, FileStamp>,
}

impl Selection {
    pub fn new(sources: Vec<Source>) -> Self {
        Self { sources, ..Self::default() }
    }

    pub fn find(&self) -> SelectedTranscripts {
        let mut found = SelectedTranscripts::default();
        let roots: Vec<Source> = self
            .sources
            .iter()
            .map(|Source { client, path }| Source { client: *client, path: discovery::canonical_path(path) })
            .collect();
        for root @ Source { client, path } in &roots {
            // Skip folders that cannot belong to the project, by the prefix of their names.
            let prefix = self.project.as_deref().and_then(|project| client.project_prefix(project));
            let stamps = &mut found.stamps;
            let mut is_wanted = |candidate: &Path| {
                if is_below(candidate, &self.exclude) {
                    return false;
                }
                let folder = candidate.strip_prefix(path).ok().and_then(|below| below.components().next());
                if let (Some(prefix), Some(folder)) = (&prefix, folder)
                    && !folder.as_os_str().to_string_lossy().starts_with(prefix)
                {
                    return false;
                }
                self.is_changed(candidate, stamps) && is_read_by(root, candidate, &roots)
            };
            let below = client.find_transcripts(path, &mut is_wanted);
            found.problems.extend(below.unreadable.iter().map(|(path, why)| format!("{}: {why}", path.display())));
            let candidate = |transcript| Candidate { client: *client, transcript };
            found.transcripts.extend(below.transcripts.into_iter().map(candidate));
            found.unreadable.extend(below.unreadable.into_iter().map(|(path, _)| path));
        }
        self.report_unknown_files(&roots, &mut found);
        let mut once = HashSet::new();
        found
            .transcripts
            .retain(|candidate| once.insert(candidate.transcript.path.clone()) && self.is_selected(candidate));
        found
    }

    /// Reports files that the user named, and that no client can have written.
    fn report_unknown_files(&self, roots: &[Source], found: &mut SelectedTranscripts) {
        let mut unknown: Vec<(&Path, Vec<&str>)> = Vec::new();
        for Source { client, path } in roots {
            let is_new = found.stamps.get(path).is_some_and(|stamp| self.recorded.get(path) != Some(stamp));
            let is_known = found.unreadable.contains(path)
                || found.transcripts.iter().any(|candidate| candidate.transcript.path == *path);
            if !is_new || is_known {
                continue;
            }
            match unknown.iter_mut().find(|(other, _)| other == path) {
                // A file can be named twice.
                Some((_, names)) if names.contains(&client.display_name()) => {}
                Some((_, names)) => names.push(client.display_name()),
                None => unknown.push((path, vec![client.display_name()])),
            }
        }
        for (path, names) in unknown {
            found.problems.push(format!("{}: not a transcript of {}", path.display(), names.join(", ")));
        }
    }

    /// Whether a file changed since it was recorded completely.
    fn is_changed(&self, candidate: &Path, stamps: &mut HashMap<PathBuf, FileStamp>) -> bool {
        let Ok(file) = fs::metadata(candidate) else { return true };
        if !file.is_file() {
            return true;
        }
        let stamp = FileStamp { length: file.len(), modified: file.modified().ok(), is_abandoned: is_abandoned(&file) };
        let is_changed = self.recorded.get(candidate) != Some(&stamp);
        // Several clients may search the same folder. Keep the oldest stamp, so that the next pass reads what was
        // written after it.
        stamps.entry(candidate.to_path_buf()).or_insert(stamp);
        is_changed
    }

    fn is_selected(&self, Candidate { client, transcript }: &Candidate) -> bool {
        if self.since.is_some_and(|since| modified_at(&transcript.path).is_some_and(|at| at < since)) {
            return false;
        }
        if self.project.is_none() && self.exclude.is_empty() {
            return true;
        }
        let cwd = client.transcript_cwd(&transcript.path);
        let is_in = |project: &PathBuf| cwd.as_deref().is_none_or(|cwd| cwd.starts_with(project));
        self.project.as_ref().is_none_or(is_in) && !cwd.as_deref().is_some_and(|cwd| is_below(cwd, &self.exclude))
    }

    /// Marks these transcripts as recorded completely.
    pub fn mark_recorded(&mut self, found: SelectedTranscripts) {
        self.full = false;
        self.recorded.extend(found.stamps);
    }
}

/// Whether the client of a root reads a file or folder. If roots of several clients contain a file, the first client
/// that recognises the file reads it. If no client recognises the file, the first client tries to read it and reports
/// the problem.
fn is_read_by(root: &Source, candidate: &Path, roots: &[Source]) -> bool {
    let mut clients: Vec<&'static dyn Client> = Vec::new();
    for other in roots.iter().filter(|other| candidate.starts_with(&other.path)) {
        if clients.iter().all(|client| client.name() != other.client.name()) {
            clients.push(other.client);
        }
    }
    if clients.len() < 2 || candidate.is_dir() {
        return true;
    }
    let owner = clients.iter().find(|client| client.is_transcript(candidate)).or(clients.first());
    owner.is_none_or(|owner| owner.name() == root.client.name())
}

/// The transcripts with new content, each with its cursor: those with new lines, and those whose session is now
/// abandoned. `full` selects all transcripts, and reads them from the start.
pub fn find_jobs(core: &Core, context: &Context, candidates: &[Candidate], full: bool) -> Result<Vec<Job>> {
    let mut read = core.store().read(context.tenant)?;
    let all = transcript::known_transcripts(&mut read)?;
    let mut known: HashMap<String, transcript::KnownTranscript> =
        all.into_iter().map(|known| (known.path.clone(), known)).collect();
    let mut jobs = Vec::new();
    for Candidate { client, transcript } in candidates {
        let path = transcript.path.to_string_lossy();
        let known = known.remove(&*path);
        let is_open = known.as_ref().is_some_and(|known| known.is_open);
        let cursor = known.map(ReadCursor::from);
        let is_newly_abandoned = || is_open && transcript.path.metadata().is_ok_and(|file| is_abandoned(&file));
        let cursor = match cursor {
            // The default cursor matches no file, so the reader starts from the beginning.
            Some(_) if full => Some(ReadCursor::default()),
            None if full => None,
            cursor if !has_news(&transcript.path, cursor.as_ref()) && !is_newly_abandoned() => continue,
            Some(_) => transcript::cursor(&mut read, &path)?.map(ReadCursor::from),
            None => None,
        };
        jobs.push(Job { client: *client, transcript: transcript.clone(), cursor });
    }
    Ok(jobs)
}
