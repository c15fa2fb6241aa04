//! Events that could not be applied at once: files that the next call applies in order.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use trackway_domain::{Time, words::Memory};

/// An event that waits.
#[derive(Debug, Serialize, Deserialize)]
pub struct Spooled {
    pub at: Time,
    pub memory: Memory,
    /// Whose event it is. Versions that knew one client only wrote none.
    #[serde(default)]
    pub client: Option<String>,
    pub event: String,
}

/// Leaves an event for the next call.
pub fn spool(folder: &Path, spooled: &Spooled) -> std::io::Result<()> {
    let spool = folder.join("spool");
    make_private(&spool)?;
    // In the order in which they came, also where the clock was set back between them.
    let place = waiting_in(&spool).last().and_then(|last| place_of(last)).map_or(0, |last| last + 1);
    let name = format!("{:020}-{}", place.max(spooled.at.micros()), uuid::Uuid::new_v4().simple());
    let half = spool.join(format!("{name}.half"));
    let written = fs::write(&half, serde_json::to_vec(spooled)?)
        .and_then(|()| fs::rename(&half, spool.join(format!("{name}.json"))));
    if written.is_err() {
        let _ = fs::remove_file(half);
    }
    written
}

/// The events that wait in a folder, in order.
pub fn waiting_in(spool: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(spool).into_iter().flatten().flatten();
    let mut waiting: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    waiting.sort();
    waiting
}

/// The number that a waiting event has in the order.
fn place_of(waiting: &Path) -> Option<i64> {
    waiting.file_stem()?.to_str()?.split('-').next()?.parse().ok()
}

/// Events hold what people and agents said: they wait where only their owner looks.
#[cfg(unix)]
pub fn make_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
pub fn make_private(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)
}
