//! Which transcripts to read: those that are wanted, and changed since they were last read.

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
    paths::{is_below, modified},
    transcript::{Mark, Transcript, has_news, is_given_up},
};

/// A folder or file with transcripts of a client.
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

/// A transcript that holds something new.
#[derive(Debug)]
pub struct Job {
    pub client: &'static dyn Client,
    pub transcript: Transcript,
    /// Where reading stopped.
    pub mark: Option<Mark>,
}

/// What is wanted, and how the files were that were read.
#[derive(Debug, Default)]
pub struct Selection {
    pub sources: Vec<Source>,
    pub since: Option<Time>,
    /// Only sessions that happened below this directory.
    pub project: Option<PathBuf>,
    pub exclude: Vec<PathBuf>,
    /// Whether the first pass reads every file from its start.
    pub full: bool,
    /// Files of which all is written down, as they were then: nobody opens them again.
    pub(super) seen: HashMap<PathBuf, Sight>,
}

/// A look at a file, not into it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sight {
    length: u64,
    modified: Option<SystemTime>,
    /// What it left open is over when it has been left alone.
    is_given_up: bool,
}

/// What there is to read.
#[derive(Debug, Default)]
pub struct Found {
    pub transcripts: Vec<Candidate>,
    pub problems: Vec<String>,
    sights: HashMap<PathBuf, Sight>,
}

impl Selection {
    pub fn new(sources: Vec<Source>) -> Self {
        Self { sources, ..Self::default() }
    }

    pub fn find(&self) -> Found {
        let mut found = Found::default();
        for Source { client, path } in &self.sources {
            // A project's sessions are in folders that begin with its name.
            let prefix = self.project.as_deref().and_then(|project| client.project_prefix(project));
            let path = discovery::real(path);
            let sights = &mut found.sights;
            let mut is_wanted = |candidate: &Path| {
                if is_below(candidate, &self.exclude) {
                    return false;
                }
                let folder = candidate.strip_prefix(&path).ok().and_then(|below| below.components().next());
                if let (Some(prefix), Some(folder)) = (&prefix, folder)
                    && !folder.as_os_str().to_string_lossy().starts_with(prefix)
                {
                    return false;
                }
                self.is_news(candidate, sights)
            };
            let below = client.find_transcripts(&path, &mut is_wanted);
            found.problems.extend(below.unreadable.iter().map(|(path, why)| format!("{}: {why}", path.display())));
            let candidate = |transcript| Candidate { client: *client, transcript };
            found.transcripts.extend(below.transcripts.into_iter().map(candidate));
        }
        let mut once = HashSet::new();
        found
            .transcripts
            .retain(|candidate| once.insert(candidate.transcript.path.clone()) && self.is_meant(candidate));
        found
    }

    /// Whether a file is not as it was when all of it was written down.
    fn is_news(&self, candidate: &Path, sights: &mut HashMap<PathBuf, Sight>) -> bool {
        let Ok(file) = fs::metadata(candidate) else { return true };
        if !file.is_file() {
            return true;
        }
        let sight = Sight { length: file.len(), modified: file.modified().ok(), is_given_up: is_given_up(&file) };
        let is_news = self.seen.get(candidate) != Some(&sight);
        sights.insert(candidate.to_path_buf(), sight);
        is_news
    }

    fn is_meant(&self, Candidate { client, transcript }: &Candidate) -> bool {
        if self.since.is_some_and(|since| modified(&transcript.path).is_some_and(|at| at < since)) {
            return false;
        }
        if self.project.is_none() && self.exclude.is_empty() {
            return true;
        }
        let happened = client.transcript_cwd(&transcript.path);
        let is_here = |project: &PathBuf| happened.as_deref().is_none_or(|cwd| cwd.starts_with(project));
        self.project.as_ref().is_none_or(is_here) && !happened.is_some_and(|cwd| is_below(&cwd, &self.exclude))
    }

    /// All that was found is written down.
    pub fn remember(&mut self, found: Found) {
        self.full = false;
        self.seen.extend(found.sights);
    }
}

/// The transcripts that hold something new, with where reading stopped: more lines, or the end of what was given up. `full`
/// is for all of them, from the start.
pub fn with_news(core: &Core, context: &Context, candidates: &[Candidate], full: bool) -> Result<Vec<Job>> {
    let mut read = core.store().read(context.tenant)?;
    let all = transcript::all_known(&mut read)?;
    let mut known: HashMap<String, transcript::Known> =
        all.into_iter().map(|known| (known.path.clone(), known)).collect();
    let mut jobs = Vec::new();
    for Candidate { client, transcript } in candidates {
        let path = transcript.path.to_string_lossy();
        let known = known.remove(&*path);
        let is_open = known.as_ref().is_some_and(|known| known.is_open);
        let mark = known.map(Mark::from);
        let is_over = || is_open && transcript.path.metadata().is_ok_and(|file| is_given_up(&file));
        let mark = match mark {
            // A mark of another file: reading begins anew.
            Some(_) if full => Some(Mark::default()),
            None if full => None,
            mark if !has_news(&transcript.path, mark.as_ref()) && !is_over() => continue,
            Some(_) => transcript::read_to(&mut read, &path)?.map(Mark::from),
            None => None,
        };
        jobs.push(Job { client: *client, transcript: transcript.clone(), mark });
    }
    Ok(jobs)
}
