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

/// A folder as it was read.
#[derive(Debug)]
pub struct Files {
    pub directory: PathBuf,
    pub folder: Folder,
    texts: HashMap<String, String>,
}

impl Files {
    /// Nothing there yet.
    pub fn none(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), folder: Folder::default(), texts: HashMap::new() }
    }

    pub fn read(directory: &Path) -> Result<Self, Failure> {
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
            let is_ours = name == BOARD_FILE || name == RELATIONS_FILE || name.ends_with(STICKIE_SUFFIX);
            // Editors leave copies behind that begin so.
            if !is_ours || name.starts_with('.') {
                continue;
            }
            let text = text(name, File::open(entry.path())?, BYTES_MAX)?;
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
                RELATIONS_FILE => {
                    files.folder.relations = Some(parse::<Option<Vec<RelationFile>>>(name, yaml)?.unwrap_or_default());
                }
                _ => files.folder.stickies.push(StickieFile { file: name.clone(), ..parse(name, yaml)? }),
            }
        }
        Ok(files)
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

/// Writes a file beside and puts it in place: nobody sees half of it, whenever this ends.
fn write_atomically(path: &Path, text: &str) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = path.with_file_name(format!(".{name}.tmp"));
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
