//! Finds transcripts below a folder. The client's adapter says whose transcript a file is.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::transcript::Transcript;

/// Folders below each other.
const DEPTH_MAX: usize = 12;

/// Transcripts below a path, and what could not be looked at.
#[derive(Debug, Default)]
pub struct Found {
    /// A session's own file before the files of its subagents, older sessions first.
    pub transcripts: Vec<Transcript>,
    pub unreadable: Vec<(PathBuf, String)>,
}

/// Whose transcript a file is and the first time in it; none for a file that names no session.
pub type Identified = io::Result<Option<(Transcript, String)>>;

/// Finds the files of a kind below a path, or takes the one it is. `wanted` is asked about each file and folder first.
pub fn find(
    path: &Path,
    extension: &str,
    wanted: &mut dyn FnMut(&Path) -> bool,
    identify: fn(&Path) -> Identified,
) -> Found {
    let mut search = Search { extension, wanted, identify, found: Found::default(), dated: Vec::new() };
    // A transcript has one name, whichever way led to it: what was read of it is found by that.
    search.look(&real(path), 0);
    let Search { mut found, mut dated, .. } = search;
    // A session that repeats another's lines is younger than it, and so is one that takes away what another's agent wrote.
    dated.sort_by(|(age, _), (other_age, _)| age.cmp(other_age));
    let own = dated.iter().rev().filter(|(_, transcript)| transcript.agent.is_none());
    let began: HashMap<_, _> = own.map(|(age, transcript)| (transcript.session.clone(), age.clone())).collect();
    dated.sort_by_cached_key(|(age, Transcript { path, session, agent })| {
        let began = began.get(session).unwrap_or(age);
        (began.clone(), session.clone(), agent.is_some(), age.clone(), path.clone())
    });
    found.transcripts = dated.into_iter().map(|(_, transcript)| transcript).collect();
    found
}

/// A path without links in it.
pub fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

struct Search<'a> {
    extension: &'a str,
    wanted: &'a mut dyn FnMut(&Path) -> bool,
    identify: fn(&Path) -> Identified,
    found: Found,
    /// Transcripts with the first time in them and the time they were last written to.
    dated: Vec<((String, SystemTime), Transcript)>,
}

impl Search<'_> {
    fn look(&mut self, path: &Path, depth: usize) {
        if !(self.wanted)(path) || depth > DEPTH_MAX {
            return;
        }
        let about = match fs::metadata(path) {
            Ok(about) => about,
            Err(error) => return self.unreadable(path, error.to_string()),
        };
        if about.is_dir() {
            let entries = match fs::read_dir(path) {
                Ok(entries) => entries,
                Err(error) => return self.unreadable(path, error.to_string()),
            };
            for entry in entries.flatten() {
                // A link may lead in circles; no client makes one.
                if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                    self.look(&entry.path(), depth + 1);
                }
            }
            return;
        }
        if !about.is_file() || path.extension().is_none_or(|extension| extension != self.extension) {
            return;
        }
        match (self.identify)(path) {
            Ok(Some((transcript, first))) => {
                self.dated.push(((first, about.modified().unwrap_or(SystemTime::UNIX_EPOCH)), transcript));
            }
            Ok(None) => self.unreadable(path, "no line names a session".to_owned()),
            Err(error) => self.unreadable(path, error.to_string()),
        }
    }

    fn unreadable(&mut self, path: &Path, why: String) {
        self.found.unreadable.push((path.to_path_buf(), why));
    }
}
