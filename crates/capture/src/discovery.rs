//! Finds transcripts below a folder. The client's adapter identifies the session of each file.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::transcript::Transcript;

/// Maximum number of levels of nested folders.
const DEPTH_MAX: usize = 12;

/// The transcripts below a path, and the files and folders that could not be read.
#[derive(Debug, Default)]
pub struct FoundTranscripts {
    /// Older sessions come first, and the file of a session comes before the files of its subagents.
    pub transcripts: Vec<Transcript>,
    pub unreadable: Vec<(PathBuf, String)>,
}

/// The transcript in a file, and the first time in it. None for a file that names no session.
pub type IdentifyResult = io::Result<Option<(Transcript, String)>>;

/// Finds the transcripts below a path, or the transcript at the path. Skips files and folders for which `is_wanted` is
/// false.
pub fn find_transcripts(
    path: &Path,
    extension: &str,
    is_wanted: &mut dyn FnMut(&Path) -> bool,
    identify: fn(&Path) -> IdentifyResult,
) -> FoundTranscripts {
    let mut search = Search { extension, is_wanted, identify, found: FoundTranscripts::default(), dated: Vec::new() };
    // The store looks up the cursor of a transcript by its path, so the path must be the same for every link to the
    // file.
    search.visit(&canonical_path(path), 0);
    let Search { mut found, mut dated, .. } = search;
    // Read older sessions first, because a session may repeat lines of an older session or delete its files.
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

/// Resolves the links in a path.
pub fn canonical_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

struct Search<'a> {
    extension: &'a str,
    is_wanted: &'a mut dyn FnMut(&Path) -> bool,
    identify: fn(&Path) -> IdentifyResult,
    found: FoundTranscripts,
    /// Transcripts, each with the first time in it and the time at which it was last written.
    dated: Vec<((String, SystemTime), Transcript)>,
}

impl Search<'_> {
    fn visit(&mut self, path: &Path, depth: usize) {
        if !(self.is_wanted)(path) || depth > DEPTH_MAX {
            return;
        }
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) => return self.unreadable(path, error.to_string()),
        };
        if metadata.is_dir() {
            let entries = match fs::read_dir(path) {
                Ok(entries) => entries,
                Err(error) => return self.unreadable(path, error.to_string()),
            };
            for entry in entries.flatten() {
                // Skip links: they could form a cycle, and clients create no links.
                if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                    self.visit(&entry.path(), depth + 1);
                }
            }
            return;
        }
        if !metadata.is_file() || path.extension().is_none_or(|extension| extension != self.extension) {
            return;
        }
        match (self.identify)(path) {
            Ok(Some((transcript, first))) => {
                self.dated.push(((first, metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)), transcript));
            }
            Ok(None) => self.unreadable(path, "no line names a session".to_owned()),
            Err(error) => self.unreadable(path, error.to_string()),
        }
    }

    fn unreadable(&mut self, path: &Path, why: String) {
        self.found.unreadable.push((path.to_path_buf(), why));
    }
}
