//! The log of hooks: one line for each failure, in a file beside the database.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use trackway_domain::text;
use trackway_store::Clock;

use crate::redact::redacted;

/// Bytes in the log before it starts anew.
const LOG_MAX: u64 = 1 << 20;

/// Where failures are logged.
#[derive(Debug, Clone)]
pub struct HookLog {
    /// The folder beside the database, once that is known.
    pub folder: PathBuf,
    /// The user's folder, for what cannot be written there.
    pub user_folder: PathBuf,
}

impl HookLog {
    /// A log in the user's folder, before the database is known.
    pub fn of_user(user_folder: PathBuf) -> Self {
        Self { folder: user_folder.clone(), user_folder }
    }

    pub fn write(&self, event: &str, why: &str) {
        let line = format!(
            "{} {} {}\n",
            Clock::system().now(),
            text::cut(&text::clean_line(event), 40),
            text::cut(&text::clean_line(&redacted(why)), 500)
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
