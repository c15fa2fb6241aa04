//! Reads the files of a board's folder, and writes each of them atomically.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use trackway_domain::{
    Error as Rule,
    board_folder::{BOARD_FILE, BoardFile, Folder, RELATIONS_FILE, RelationFile, STICKIE_SUFFIX, StickieFile, parse},
};

use crate::{failure::Failure, long_text::read_bytes_limited};

/// Maximum bytes of a file: the longest stickie, with additional bytes for YAML syntax.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of files.
const FILES_MAX: usize = 10_000;
/// The suffix of a file while it is written.
const TEMPORARY_SUFFIX: &str = ".tmp";

/// The content of a folder when it was read.
#[derive(Debug)]
pub struct Files {
    pub directory: PathBuf,
    pub folder: Folder,
    texts: HashMap<String, String>,
    leftovers: Vec<PathBuf>,
}

/// How to read `relations.yaml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelationsMode {
    Read,
    /// Ignore errors in the file, because it will be overwritten.
    Overwrite,
}

impl Files {
    pub fn empty(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            folder: Folder::default(),
            texts: HashMap::new(),
            leftovers: Vec::new(),
        }
    }

    pub fn read(directory: &Path, mode: RelationsMode) -> Result<Self, Failure> {
        let mut files = Self::empty(directory);
        let entries = fs::read_dir(directory).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Failure::from(Rule::not_found(format!("there is no folder {}", directory.display())))
            }
            _ => Rule::usage(format!("{} cannot be read: {error}", directory.display())).into(),
        })?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                return Err(Rule::usage(format!("{} is not a name in UTF-8", name.display())).into());
            };
            if name.strip_prefix('.').and_then(|name| name.strip_suffix(TEMPORARY_SUFFIX)).is_some_and(is_board_file) {
                files.leftovers.push(entry.path());
            }
            // Skip hidden files, because editors create hidden backup copies.
            if !is_board_file(name) || name.starts_with('.') {
                continue;
            }
            let text = read_bytes_limited(name, open_file(name, &entry.path())?, FILE_BYTES_MAX)?;
            files.texts.insert(name.to_owned(), text);
            if files.texts.len() > FILES_MAX {
                return Err(Rule::usage(format!("the folder exceeds the limit of {FILES_MAX} files")).into());
            }
        }
        let mut names: Vec<&String> = files.texts.keys().collect();
        names.sort();
        for name in names {
            let yaml = &files.texts[name];
            match name.as_str() {
                BOARD_FILE => files.folder.board = Some(parse::<BoardFile>(name, yaml)?),
                RELATIONS_FILE => match parse::<Option<Vec<RelationFile>>>(name, yaml) {
                    Err(_) if mode == RelationsMode::Overwrite => {}
                    lines => files.folder.relations = Some(lines?.unwrap_or_default()),
                },
                _ => files.folder.stickies.push(StickieFile { file: name.clone(), ..parse(name, yaml)? }),
            }
        }
        Ok(files)
    }

    /// Renames a file. Returns false if the file was edited since it was read, or the new name exists.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<bool, Failure> {
        let (old, new) = (self.directory.join(from), self.directory.join(to));
        let Some(text) = fs::read_to_string(&old).ok().filter(|text| self.texts.get(from) == Some(text)) else {
            return Ok(false);
        };
        if new.exists() {
            return Ok(false);
        }
        fs::rename(old, new)?;
        self.texts.remove(from);
        self.texts.insert(to.to_owned(), text);
        Ok(true)
    }

    /// Removes temporary files of processes that were killed while writing.
    pub fn remove_leftovers(&self) -> Result<(), Failure> {
        for path in &self.leftovers {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a file, unless its text is the same, or it was edited since it was read.
    pub fn replace(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.directory.join(name);
        let present = fs::read_to_string(&path).ok();
        if present.as_deref() == Some(text) || present.as_ref() != self.texts.get(name) {
            return Ok(());
        }
        write_atomically(&path, text)
    }

    /// Removes a file, unless it was edited since it was read.
    pub fn remove(&self, name: &str) -> Result<(), Failure> {
        let path = self.directory.join(name);
        if fs::read_to_string(&path).ok().as_ref() == self.texts.get(name) && self.texts.contains_key(name) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

fn is_board_file(name: &str) -> bool {
    name == BOARD_FILE || name == RELATIONS_FILE || name.ends_with(STICKIE_SUFFIX)
}

/// Opens a regular file. Reading a named pipe would block.
fn open_file(name: &str, path: &Path) -> Result<File, Failure> {
    let unreadable = |error: io::Error| Failure::from(Rule::usage(format!("{name} cannot be read: {error}")));
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Rule::usage(format!("{name} is not a file")).hint("remove it from the folder").into());
    }
    File::open(path).map_err(unreadable)
}

/// Writes a temporary file and renames it, so that nobody sees a partly written file.
fn write_atomically(path: &Path, text: &str) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let temporary = path.with_file_name(format!(".{name}{TEMPORARY_SUFFIX}"));
    let write = || -> io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&temporary);
        Failure::from(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    })
}
