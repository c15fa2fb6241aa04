//! Paths as the file system knows them.

use std::{
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use trackway_domain::Time;

/// When a file was last written to.
pub fn modified(path: &Path) -> Option<Time> {
    let age = path.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(age.as_micros()).ok().map(Time::from_micros)
}

/// Whether a path is in one of some directories, by its name or by where its links lead.
pub fn is_below(path: &Path, directories: &[PathBuf]) -> bool {
    if directories.is_empty() {
        return false;
    }
    let resolved = resolved(path);
    directories.iter().any(|directory| {
        path.starts_with(directory)
            || resolved.starts_with(directory)
            || resolved.starts_with(self::resolved(directory))
    })
}

/// Where a path leads, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    match existing {
        Some((ancestor, real)) => path.strip_prefix(ancestor).map_or(real.clone(), |rest| real.join(rest)),
        None => path.to_path_buf(),
    }
}
