//! Events that could not be applied at once: files that the next call applies in order.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};
use trackway_domain::{Time, words::Memory};

/// An event that waits.
#[derive(Debug, Serialize, Deserialize)]
pub struct Spooled {
    pub at: Time,
    pub memory: Memory,
    pub event: String,
}

pub fn spool(folder: &Path, spooled: &Spooled) -> std::io::Result<()> {
    let spool = folder.join("spool");
    make_private(&spool)?;
    let name = format!("{:020}-{}", spooled.at.micros(), std::process::id());
    let half = spool.join(format!("{name}.half"));
    fs::write(&half, serde_json::to_vec(spooled)?)?;
    fs::rename(half, spool.join(format!("{name}.json")))
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
