//! The hook log: one line for each failure, in a file next to the database.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use trackway_domain::text;
use trackway_store::Clock;

use crate::redact::redacted;

/// Maximum number of bytes of the log. A longer log becomes the old log, and a new one begins.
const LOG_MAX: u64 = 1 << 20;

/// The folders of the hook log.
#[derive(Debug, Clone)]
pub struct HookLog {
    /// The folder next to the database, or the user's folder while the database is unknown.
    pub folder: PathBuf,
    /// The user's folder, used if `folder` cannot be written.
    pub user_folder: PathBuf,
}

impl HookLog {
    /// A log in the user's folder, for use before the database is known.
    pub fn of_user(user_folder: PathBuf) -> Self {
        Self { folder: user_folder.clone(), user_folder }
    }

    pub fn write(&self, event: &str, reason: &str) {
        let line = format!(
            "{} {} {}\n",
            Clock::system().now(),
            text::cut(&text::clean_line(event), 40),
            text::cut(&text::clean_line(&redacted(reason)), 500)
        );
        if append(&self.folder, &line).is_err() {
            let _ = append(&self.user_folder, &line);
        }
    }
}

fn append(folder: &Path, line: &str) -> std::io::Result<()> {
    let path = folder.join("hook.log");
    fs::create_dir_all(folder)?;
    if path.metadata().is_ok_and(|log| log.len() > LOG_MAX) {
        let _ = fs::rename(&path, folder.join("hook.log.old"));
    }
    fs::OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
}
