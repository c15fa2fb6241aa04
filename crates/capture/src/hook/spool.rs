//! The spool: files with events that could not be written to the database. The next hook applies them in order.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use trackway_domain::{Time, enums::Memory};

/// A spooled event.
#[derive(Debug, Serialize, Deserialize)]
pub struct Spooled {
    pub at: Time,
    pub memory: Memory,
    /// The name of the client. Versions of Trackway that supported only one client wrote none.
    #[serde(default)]
    pub client: Option<String>,
    pub event: String,
}

/// Writes an event to the spool.
pub fn spool(folder: &Path, spooled: &Spooled) -> std::io::Result<()> {
    let spool = folder.join("spool");
    create_private_folder(&spool)?;
    // The number keeps the order of arrival, even if the clock was set back in between.
    let next = spooled_files(&spool).last().and_then(|last| sequence_number(last)).map_or(0, |last| last + 1);
    let name = format!("{:020}-{}", next.max(spooled.at.micros()), uuid::Uuid::new_v4().simple());
    let temporary = spool.join(format!("{name}.half"));
    let outcome = fs::write(&temporary, serde_json::to_vec(spooled)?)
        .and_then(|()| fs::rename(&temporary, spool.join(format!("{name}.json"))));
    if outcome.is_err() {
        let _ = fs::remove_file(temporary);
    }
    outcome
}

/// The files of the spooled events in a folder, in order.
pub fn spooled_files(spool: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(spool).into_iter().flatten().flatten();
    let mut waiting: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    waiting.sort();
    waiting
}

/// The number of a spooled event, by which events are ordered.
fn sequence_number(waiting: &Path) -> Option<i64> {
    waiting.file_stem()?.to_str()?.split('-').next()?.parse().ok()
}

/// Creates a folder that only its owner can read, because events contain private texts.
#[cfg(unix)]
pub fn create_private_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
pub fn create_private_folder(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)
}

#[cfg(test)]
mod tests {
    use super::Spooled;

    #[test]
    fn spooled_event_of_an_old_version_has_no_client() {
        let spooled = r#"{"at":"2026-02-27T09:30:00.000Z","memory":"subagents","event":"{}"}"#;
        let spooled: Spooled = serde_json::from_str(spooled).unwrap();
        assert_eq!((spooled.client, spooled.event.as_str()), (None, "{}"));
    }
}
