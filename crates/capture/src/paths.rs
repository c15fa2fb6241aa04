//! Queries about paths in the file system.

use std::{
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use trackway_domain::Time;

/// The time at which a file was last written.
pub fn modified_at(path: &Path) -> Option<Time> {
    let age = path.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(age.as_micros()).ok().map(Time::from_micros)
}

/// Whether a path is below one of these directories. Checks the path as written and with its links resolved.
pub fn is_below(path: &Path, directories: &[PathBuf]) -> bool {
    if directories.is_empty() {
        return false;
    }
    let resolved = resolve_links(path);
    directories.iter().any(|directory| {
        path.starts_with(directory) || resolved.starts_with(directory) || resolved.starts_with(resolve_links(directory))
    })
}

/// Resolves the links in the part of a path that exists.
fn resolve_links(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    match existing {
        Some((ancestor, real)) => path.strip_prefix(ancestor).map_or(real.clone(), |rest| real.join(rest)),
        None => path.to_path_buf(),
    }
}
