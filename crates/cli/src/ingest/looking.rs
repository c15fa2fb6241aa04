//! Which transcripts there are to read: those that are wanted, and changed since the last look.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde_json::Value;
use trackway_actions::{Context, Core};
use trackway_claude::{
    discover,
    transcript::{self, Mark, Transcript},
};
use trackway_domain::Time;
use trackway_store::params;

use super::modified;
use crate::{failure::Failure, location::is_below};

/// What is wanted, and how the files were that were read.
#[derive(Debug, Default)]
pub struct Looking {
    pub paths: Vec<PathBuf>,
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
    pub transcripts: Vec<Transcript>,
    pub problems: Vec<String>,
    sights: HashMap<PathBuf, Sight>,
}

impl Looking {
    pub fn find(&self) -> Found {
        let mut found = Found::default();
        // A project's sessions are in folders that begin with its name.
        let prefix = self.project.as_deref().map(|project| discover::folder_name(&project.to_string_lossy()));
        for path in self.paths.iter().map(|path| discover::real(path)) {
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
            let below = discover::find(&path, &mut is_wanted);
            found.problems.extend(below.unreadable.iter().map(|(path, why)| format!("{}: {why}", path.display())));
            found.transcripts.extend(below.transcripts);
        }
        let mut once = HashSet::new();
        found.transcripts.retain(|transcript| once.insert(transcript.path.clone()) && self.is_meant(transcript));
        found
    }

    /// Whether a file is not as it was when all of it was written down.
    fn is_news(&self, candidate: &Path, sights: &mut HashMap<PathBuf, Sight>) -> bool {
        let Ok(file) = fs::metadata(candidate) else { return true };
        if !file.is_file() {
            return true;
        }
        let sight =
            Sight { length: file.len(), modified: file.modified().ok(), is_given_up: transcript::is_given_up(&file) };
        let is_news = self.seen.get(candidate) != Some(&sight);
        sights.insert(candidate.to_path_buf(), sight);
        is_news
    }

    fn is_meant(&self, transcript: &Transcript) -> bool {
        if self.since.is_some_and(|since| modified(&transcript.path).is_some_and(|at| at < since)) {
            return false;
        }
        if self.project.is_none() && self.exclude.is_empty() {
            return true;
        }
        let happened = discover::cwd(&transcript.path);
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
pub fn with_news(
    core: &Core,
    context: &Context,
    transcripts: &[Transcript],
    full: bool,
) -> Result<Vec<(Transcript, Option<Mark>)>, Failure> {
    let mut marks: HashMap<String, (Mark, bool)> = HashMap::new();
    let mut read = core.store().read(context.tenant)?;
    for (path, identity, read_to, changed, is_open) in read.query::<(String, String, i64, Option<String>, bool)>(
        "select path, identity, read_to, state ->> 'changed',
         exists (select 1 from runs r where r.tenant_id = ?1 and r.session_id = t.session_id and r.status = 'running')
         from transcripts t where tenant_id = ?1",
        &[],
    )? {
        let offset = u64::try_from(read_to).unwrap_or_default();
        marks.insert(path, (Mark { identity, offset, changed, state: Value::Null }, is_open));
    }
    let mut jobs = Vec::new();
    for transcript in transcripts {
        let path = transcript.path.to_string_lossy().into_owned();
        let (mut mark, is_open) = marks.remove(&path).map_or((None, false), |(mark, is_open)| (Some(mark), is_open));
        let is_over = || is_open && transcript.path.metadata().is_ok_and(|file| transcript::is_given_up(&file));
        if full {
            // A mark of another file: reading begins anew.
            jobs.push((transcript.clone(), mark.map(|_| Mark::default())));
            continue;
        }
        if !transcript::has_news(&transcript.path, mark.as_ref()) && !is_over() {
            continue;
        }
        if let Some(mark) = &mut mark {
            let state = read
                .one::<(Value,)>("select state from transcripts where tenant_id = ?1 and path = ?2", params![path])?;
            mark.state = state.map(|(state,)| state).unwrap_or_default();
        }
        jobs.push((transcript.clone(), mark));
    }
    Ok(jobs)
}
