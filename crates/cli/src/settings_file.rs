//! A settings file of someone else's program: read whole, changed in one step, backed up before.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, ErrorKind as Io, Write},
    path::{Path, PathBuf},
};

use trackway_client_claude::settings::Refused;
use trackway_domain::{Error as Rule, ErrorKind};
use uuid::Uuid;

use crate::failure::Failure;

/// What is added to a file's name for its backup.
const BACKUP: &str = ".trackway-backup";
/// How often a change is tried when someone else writes the file meanwhile.
const TRIES: usize = 5;
/// Links that lead to links.
const LINKS_MAX: usize = 32;

/// A file as it was read.
#[derive(Debug)]
pub struct SettingsFile {
    /// As it is named.
    pub path: PathBuf,
    /// Where its links lead.
    target: PathBuf,
    /// None when there is no file.
    pub text: Option<String>,
    metadata: Option<Metadata>,
}

/// A change: the text before, the text after, and the backup that is there now.
#[derive(Debug)]
pub struct Change {
    pub before: Option<String>,
    /// None when there is no file now.
    pub after: Option<String>,
    pub backup: Option<PathBuf>,
    /// What was done to the backup.
    pub backed_up: Backup,
    /// Whether the file's directory was made for it.
    pub made_directory: bool,
}

impl Change {
    pub fn is_none(&self) -> bool {
        self.before == self.after
    }
}

/// What a change makes of a file: the text to be, and of the backup.
#[derive(Debug)]
pub struct Planned {
    /// None to have no file.
    pub text: Option<String>,
    pub backup: Backup,
}

/// What a change does to the backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backup {
    /// Writes the text before.
    Write,
    Keep,
    /// Removes it: the file is what it was.
    Remove,
}

impl SettingsFile {
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let target = followed(path).map_err(|error| cannot(path, "read", &error))?;
        let metadata = match fs::metadata(&target) {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => return Err(failed(path, "is not a file")),
            Err(error) if error.kind() == Io::NotFound => {
                return Ok(Self { path: path.to_owned(), target, text: None, metadata: None });
            }
            Err(error) => return Err(cannot(path, "read", &error)),
        };
        let bytes = fs::read(&target).map_err(|error| cannot(path, "read", &error))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            failed(path, &format!("is not UTF-8 from byte {} on", error.utf8_error().valid_up_to() + 1))
        })?;
        Ok(Self { path: path.to_owned(), target, text: Some(text), metadata: Some(metadata) })
    }

    /// The text, empty where there is no file.
    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    pub fn backup_path(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(BACKUP);
        name.into()
    }

    /// The backup, when there is one that can be read.
    pub fn backup(&self) -> Option<String> {
        fs::read_to_string(self.backup_path()).ok()
    }

    /// A refusal of the text, with the file's name.
    pub fn refused(&self, why: &Refused) -> Failure {
        let hint = "the file was left as it is; correct it and try again".to_owned();
        Failure::new(ErrorKind::Failed, format!("{}, {why}", self.path.display()), Some(hint))
    }

    /// Makes the change, unless the file is no longer what was read.
    fn write(&self, planned: &Planned) -> Result<Written, Failure> {
        let failed_with = |error: io::Error| cannot(&self.path, "written", &error);
        if self.metadata.as_ref().is_some_and(|metadata| metadata.permissions().readonly()) {
            let mut failure = failed(&self.path, "is read-only");
            failure.hint = Some("nothing was changed; make it writable first".to_owned());
            return Err(failure);
        }
        let new = match &planned.text {
            Some(text) => Some(Temporary::beside(&self.target, text, self.metadata.as_ref()).map_err(failed_with)?),
            None => None,
        };
        let backup = self.backup_path();
        let backed_up = match (planned.backup, &self.text) {
            (Backup::Write, Some(text)) => {
                let copy = Temporary::beside(&backup, text, self.metadata.as_ref());
                Some(copy.map_err(|error| cannot(&backup, "written", &error))?)
            }
            _ => None,
        };
        if Self::read(&self.path)?.text != self.text {
            return Ok(Written::TooLate);
        }
        if let Some(copy) = backed_up {
            copy.becomes(&backup).map_err(|error| cannot(&backup, "written", &error))?;
        }
        match new {
            Some(new) => new.becomes(&self.target).map_err(failed_with)?,
            None => fs::remove_file(&self.target).map_err(failed_with)?,
        }
        if planned.backup == Backup::Remove {
            // It says the same as the file, so nothing is lost where it stays.
            let _ = fs::remove_file(&backup);
        }
        Ok(Written::Done)
    }
}

enum Written {
    Done,
    /// Someone else wrote the file.
    TooLate,
}

/// Changes a file, one of us at a time, as often as needed when others write it, too.
pub fn change(path: &Path, plan: impl Fn(&SettingsFile) -> Result<Planned, Failure>) -> Result<Change, Failure> {
    let directory = followed(path).map_err(|error| cannot(path, "read", &error))?;
    let directory = directory.parent().unwrap_or(Path::new(""));
    let mut lock = locked(directory);
    let mut made_directory = false;
    for _ in 0..TRIES {
        let file = SettingsFile::read(path)?;
        let planned = plan(&file)?;
        if planned.text != file.text {
            if lock.is_none() && !directory.exists() {
                fs::create_dir_all(directory).map_err(|error| cannot(path, "written", &error))?;
                made_directory = true;
                lock = locked(directory);
                continue;
            }
            if let Written::TooLate = file.write(&planned)? {
                continue;
            }
        }
        let is_of_now = planned.backup != Backup::Write || file.text.is_some();
        let backup = Some(file.backup_path()).filter(|backup| is_of_now && backup.exists());
        let backed_up = if planned.text == file.text { Backup::Keep } else { planned.backup };
        return Ok(Change { before: file.text, after: planned.text, backup, backed_up, made_directory });
    }
    Err(Rule::conflict(format!("{} is being written by others", path.display())).hint("try again").into())
}

/// Takes a change back, so that everything is as it was. What someone has written since stays.
pub fn undo(path: &Path, change: &Change) -> Result<(), Failure> {
    let backup = match change.backed_up {
        Backup::Write => Backup::Remove,
        Backup::Remove => Backup::Write,
        Backup::Keep => Backup::Keep,
    };
    self::change(path, |file| {
        let is_ours = file.text == change.after;
        let text = if is_ours { change.before.clone() } else { file.text.clone() };
        Ok(Planned { text, backup: if is_ours { backup } else { Backup::Keep } })
    })?;
    if change.made_directory {
        // Unless someone has put something there.
        let _ = path.parent().map(fs::remove_dir);
    }
    Ok(())
}

/// Holds a directory. Where that cannot be done, the last look before writing has to do.
fn locked(directory: &Path) -> Option<File> {
    File::open(directory).ok().filter(|directory| directory.lock().is_ok())
}

/// A file that is written beside another, and takes its place in one step or goes.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    /// With the owner and the permissions of a file that is there.
    fn beside(target: &Path, text: &str, like: Option<&Metadata>) -> io::Result<Self> {
        let path = target.with_file_name(format!(".trackway-{}", Uuid::new_v4().simple()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        if like.is_some() {
            // Settings may hold secrets: nobody reads along before the permissions are set.
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        }
        let mut file = options.open(&path)?;
        let temporary = Self { path };
        file.write_all(text.as_bytes())?;
        if let Some(like) = like {
            #[cfg(unix)]
            {
                use std::os::unix::fs::{MetadataExt, fchown};
                // For the superuser, who changes the file of someone else.
                let _ = fchown(&file, Some(like.uid()), Some(like.gid()));
            }
            file.set_permissions(like.permissions())?;
        }
        file.sync_all()?;
        Ok(temporary)
    }

    fn becomes(self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It is not there any more when it has taken the other's place.
        let _ = fs::remove_file(&self.path);
    }
}

/// Where links lead, whether or not there is anything.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&at) {
            Ok(target) => at = at.parent().unwrap_or(Path::new("")).join(target),
            Err(error) if matches!(error.kind(), Io::InvalidInput | Io::NotFound) => return Ok(at),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("its links lead in a circle"))
}

fn failed(path: &Path, what: &str) -> Failure {
    Failure::new(ErrorKind::Failed, format!("{} {what}", path.display()), None)
}

/// A failure of the operating system, with the file it was about.
fn cannot(path: &Path, what: &str, error: &io::Error) -> Failure {
    let why = error.to_string();
    let why = why.split(" (os error").next().unwrap_or_default().to_lowercase();
    let mut failure = failed(path, &format!("cannot be {what}: {why}"));
    failure.hint = Some("nothing was changed".to_owned());
    failure
}
