//! The files of a board's folder: read whole, written one by one, each in one step.

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

use crate::{failure::Failure, long_text::text};

/// Bytes of a file: as many as a stickie can say, with room for how YAML writes it.
const BYTES_MAX: u64 = 4 << 20;
/// Files that are read.
const FILES_MAX: usize = 10_000;
/// What a file ends with while it is written.
const BESIDE_SUFFIX: &str = ".tmp";

/// A folder as it was read.
#[derive(Debug)]
pub struct Files {
    pub directory: PathBuf,
    pub folder: Folder,
    texts: HashMap<String, String>,
    leftovers: Vec<PathBuf>,
}

/// Whether what `relations.yaml` says matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relations {
    AreRead,
    AreWrittenAnew,
}

impl Files {
    /// Nothing there yet.
    pub fn none(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            folder: Folder::default(),
            texts: HashMap::new(),
            leftovers: Vec::new(),
        }
    }

    pub fn read(directory: &Path, relations: Relations) -> Result<Self, Failure> {
        let mut files = Self::none(directory);
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
            if name.strip_prefix('.').and_then(|name| name.strip_suffix(BESIDE_SUFFIX)).is_some_and(is_ours) {
                files.leftovers.push(entry.path());
            }
            // Editors leave copies behind that begin so.
            if !is_ours(name) || name.starts_with('.') {
                continue;
            }
            let text = text(name, opened(name, &entry.path())?, BYTES_MAX)?;
            files.texts.insert(name.to_owned(), text);
            if files.texts.len() > FILES_MAX {
                return Err(Rule::usage(format!("the folder has more than {FILES_MAX} files, the limit")).into());
            }
        }
        let mut names: Vec<&String> = files.texts.keys().collect();
        names.sort();
        for name in names {
            let yaml = &files.texts[name];
            match name.as_str() {
                BOARD_FILE => files.folder.board = Some(parse::<BoardFile>(name, yaml)?),
                RELATIONS_FILE => match parse::<Option<Vec<RelationFile>>>(name, yaml) {
                    Err(_) if relations == Relations::AreWrittenAnew => {}
                    lines => files.folder.relations = Some(lines?.unwrap_or_default()),
                },
                _ => files.folder.stickies.push(StickieFile { file: name.clone(), ..parse(name, yaml)? }),
            }
        }
        Ok(files)
    }

    /// Calls a file something else, and says whether it did: not when someone edited it meanwhile, or made one of that name.
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

    /// Removes what was left behind by someone who was killed while writing here.
    pub fn remove_leftovers(&self) -> Result<(), Failure> {
        for path in &self.leftovers {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a file, unless it says so already, or someone edited it meanwhile.
    pub fn replace(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.directory.join(name);
        let present = fs::read_to_string(&path).ok();
        if present.as_deref() == Some(text) || present.as_ref() != self.texts.get(name) {
            return Ok(());
        }
        write_atomically(&path, text)
    }

    /// Removes a file, unless someone edited it meanwhile.
    pub fn remove(&self, name: &str) -> Result<(), Failure> {
        let path = self.directory.join(name);
        if fs::read_to_string(&path).ok().as_ref() == self.texts.get(name) && self.texts.contains_key(name) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// Whether a file is one of a board.
fn is_ours(name: &str) -> bool {
    name == BOARD_FILE || name == RELATIONS_FILE || name.ends_with(STICKIE_SUFFIX)
}

/// Opens a file that has an end: a pipe would be waited for.
fn opened(name: &str, path: &Path) -> Result<File, Failure> {
    let unreadable = |error: io::Error| Failure::from(Rule::usage(format!("{name} cannot be read: {error}")));
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Rule::usage(format!("{name} is not a file")).hint("take it out of the folder").into());
    }
    File::open(path).map_err(unreadable)
}

/// Writes a file beside and puts it in place: nobody sees half of it, whenever this ends.
fn write_atomically(path: &Path, text: &str) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = path.with_file_name(format!(".{name}{BESIDE_SUFFIX}"));
    let write = || -> io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&beside);
        Failure::from(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    })
}
