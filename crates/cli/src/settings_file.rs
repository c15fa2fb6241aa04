//! Changes a settings file of another program atomically, with a backup.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, ErrorKind as Io, Write},
    path::{Path, PathBuf},
};

use trackway_capture::connection::SettingsError;
use trackway_domain::{Error as Rule, ErrorKind};
use uuid::Uuid;

use crate::failure::Failure;

/// The suffix of a file's backup.
const BACKUP_SUFFIX: &str = ".trackway-backup";
/// Maximum number of attempts when another program writes the file at the same time.
const WRITE_ATTEMPTS_MAX: usize = 5;
/// Maximum length of a chain of symbolic links.
const LINKS_MAX: usize = 32;

/// The content of a settings file when it was read.
#[derive(Debug)]
pub struct SettingsFile {
    pub path: PathBuf,
    /// The path with symbolic links resolved.
    target: PathBuf,
    /// None when there is no file.
    pub text: Option<String>,
    metadata: Option<Metadata>,
}

/// A completed change.
#[derive(Debug)]
pub struct Change {
    pub before: Option<String>,
    /// None if the file no longer exists.
    pub after: Option<String>,
    pub backup: Option<PathBuf>,
    pub backup_action: BackupAction,
    /// Whether the change created the directory of the file.
    pub created_directory: bool,
}

impl Change {
    pub fn is_empty(&self) -> bool {
        self.before == self.after
    }
}

/// A planned change.
#[derive(Debug)]
pub struct PlannedFile {
    /// The new text; none to remove the file.
    pub text: Option<String>,
    pub backup: BackupAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupAction {
    /// Write the text before the change.
    Write,
    Keep,
    /// Remove the backup, because the new text of the file equals it.
    Remove,
}

impl SettingsFile {
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let target = resolve_links(path).map_err(|error| io_failure(path, "read", &error))?;
        let metadata = match fs::metadata(&target) {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => return Err(failed(path, "is not a file")),
            Err(error) if error.kind() == Io::NotFound => {
                return Ok(Self { path: path.to_owned(), target, text: None, metadata: None });
            }
            Err(error) => return Err(io_failure(path, "read", &error)),
        };
        let bytes = fs::read(&target).map_err(|error| io_failure(path, "read", &error))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            failed(path, &format!("is not UTF-8 from byte {} on", error.utf8_error().valid_up_to() + 1))
        })?;
        Ok(Self { path: path.to_owned(), target, text: Some(text), metadata: Some(metadata) })
    }

    /// The text, or an empty string if there is no file.
    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    pub fn backup_path(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(BACKUP_SUFFIX);
        name.into()
    }

    /// The text of the backup, if there is a readable one.
    pub fn backup(&self) -> Option<String> {
        fs::read_to_string(self.backup_path()).ok()
    }

    /// The error for settings that the client's adapter cannot change.
    pub fn invalid(&self, why: &SettingsError) -> Failure {
        let hint = "the file was left as it is; correct it and try again".into();
        Failure::new(ErrorKind::Failed, format!("{}, {why}", self.path.display()), Some(hint))
    }

    /// Writes the change, unless the file has changed since it was read.
    fn write(&self, planned: &PlannedFile) -> Result<WriteResult, Failure> {
        let failed_with = |error: io::Error| io_failure(&self.path, "written", &error);
        if self.metadata.as_ref().is_some_and(|metadata| metadata.permissions().readonly()) {
            let mut failure = failed(&self.path, "is read-only");
            failure.hint = Some("nothing was changed; make it writable first".into());
            return Err(failure);
        }
        let new = match &planned.text {
            Some(text) => {
                Some(TemporaryFile::create_beside(&self.target, text, self.metadata.as_ref()).map_err(failed_with)?)
            }
            None => None,
        };
        let backup = self.backup_path();
        let backup_copy = match (planned.backup, &self.text) {
            (BackupAction::Write, Some(text)) => {
                let copy = TemporaryFile::create_beside(&backup, text, self.metadata.as_ref());
                Some(copy.map_err(|error| io_failure(&backup, "written", &error))?)
            }
            _ => None,
        };
        if Self::read(&self.path)?.text != self.text {
            return Ok(WriteResult::FileChanged);
        }
        if let Some(copy) = backup_copy {
            copy.move_to(&backup).map_err(|error| io_failure(&backup, "written", &error))?;
        }
        match new {
            Some(new) => new.move_to(&self.target).map_err(failed_with)?,
            None => fs::remove_file(&self.target).map_err(failed_with)?,
        }
        if planned.backup == BackupAction::Remove {
            // The backup equals the file, so it does no damage if it stays.
            let _ = fs::remove_file(&backup);
        }
        Ok(WriteResult::Written)
    }
}

enum WriteResult {
    Written,
    /// Another program changed the file.
    FileChanged,
}

/// Changes a file. A lock excludes other `trackway` processes; a write by another program causes a retry.
pub fn change(path: &Path, plan: impl Fn(&SettingsFile) -> Result<PlannedFile, Failure>) -> Result<Change, Failure> {
    let directory = resolve_links(path).map_err(|error| io_failure(path, "read", &error))?;
    let directory = directory.parent().unwrap_or(Path::new(""));
    let mut lock = lock_directory(directory);
    let mut created_directory = false;
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let file = SettingsFile::read(path)?;
        let planned = plan(&file)?;
        if planned.text != file.text {
            if lock.is_none() && !directory.exists() {
                fs::create_dir_all(directory).map_err(|error| io_failure(path, "written", &error))?;
                created_directory = true;
                lock = lock_directory(directory);
                continue;
            }
            if let WriteResult::FileChanged = file.write(&planned)? {
                continue;
            }
        }
        let has_current_backup = planned.backup != BackupAction::Write || file.text.is_some();
        let backup = Some(file.backup_path()).filter(|backup| has_current_backup && backup.exists());
        let backup_action = if planned.text == file.text { BackupAction::Keep } else { planned.backup };
        return Ok(Change { before: file.text, after: planned.text, backup, backup_action, created_directory });
    }
    Err(Rule::conflict(format!("other programs keep writing {}", path.display())).hint("try again").into())
}

/// Undoes a change, unless another program has changed the file since.
pub fn undo(path: &Path, change: &Change) -> Result<(), Failure> {
    let backup = match change.backup_action {
        BackupAction::Write => BackupAction::Remove,
        BackupAction::Remove => BackupAction::Write,
        BackupAction::Keep => BackupAction::Keep,
    };
    self::change(path, |file| {
        let is_ours = file.text == change.after;
        let text = if is_ours { change.before.clone() } else { file.text.clone() };
        Ok(PlannedFile { text, backup: if is_ours { backup } else { BackupAction::Keep } })
    })?;
    if change.created_directory {
        // Fails if the directory is not empty.
        let _ = path.parent().map(fs::remove_dir);
    }
    Ok(())
}

/// Locks a directory. If this fails, the comparison of the text before the write still detects other writers.
fn lock_directory(directory: &Path) -> Option<File> {
    File::open(directory).ok().filter(|directory| directory.lock().is_ok())
}

/// A temporary file that replaces another file atomically. Dropping the handle removes the temporary file.
struct TemporaryFile {
    path: PathBuf,
}

impl TemporaryFile {
    /// Creates a file in the directory of `target`, with the owner and permissions of `like`.
    fn create_beside(target: &Path, text: &str, like: Option<&Metadata>) -> io::Result<Self> {
        let path = target.with_file_name(format!(".trackway-{}", Uuid::new_v4().simple()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        if like.is_some() {
            // Settings may contain secrets: no other user may read the file before its permissions are set.
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        }
        let mut file = options.open(&path)?;
        let temporary = Self { path };
        file.write_all(text.as_bytes())?;
        if let Some(like) = like {
            #[cfg(unix)]
            {
                use std::os::unix::fs::{MetadataExt, fchown};
                // Succeeds only for the superuser, who may change files of other users.
                let _ = fchown(&file, Some(like.uid()), Some(like.gid()));
            }
            file.set_permissions(like.permissions())?;
        }
        file.sync_all()?;
        Ok(temporary)
    }

    fn move_to(self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // Fails after `move_to`, because `move_to` has renamed the file.
        let _ = fs::remove_file(&self.path);
    }
}

/// Resolves symbolic links, even if their target does not exist.
fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&at) {
            Ok(target) => at = at.parent().unwrap_or(Path::new("")).join(target),
            Err(error) if matches!(error.kind(), Io::InvalidInput | Io::NotFound) => return Ok(at),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("its symbolic links form a cycle"))
}

fn failed(path: &Path, what: &str) -> Failure {
    Failure::new(ErrorKind::Failed, format!("{} {what}", path.display()), None)
}

/// The error of a failed file operation.
fn io_failure(path: &Path, what: &str, error: &io::Error) -> Failure {
    let why = error.to_string();
    let why = why.split(" (os error").next().unwrap_or_default().to_lowercase();
    let mut failure = failed(path, &format!("cannot be {what}: {why}"));
    failure.hint = Some("nothing was changed".into());
    failure
}
