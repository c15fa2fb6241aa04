//! The file: a line that says what it is, a line for each row, a line that says that it is all there.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use trackway_domain::{Error as Rule, Time};

use super::{
    Progress, TableCopied,
    layout::{self, TableLayout},
    row_text::{TableDigest, TextRow},
    rows::Rows,
};
use crate::{
    error::{Error, Result},
    migrate,
    sql::hex,
    store::Reader,
};

/// The form of the file.
const FORMAT: i64 = 1;
/// What the first line begins with.
const MAGIC: &str = r#"{"trackway":"backup""#;

#[derive(Serialize, Deserialize)]
struct First {
    trackway: String,
    format: i64,
    schema: i64,
    created_at: Time,
}

#[derive(Deserialize)]
struct Line {
    table: String,
    row: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct Last {
    tables: Vec<TableCopied>,
    /// Of every byte before this line.
    sha256: String,
}

/// Writes, and keeps the checksum of what was written.
struct Summed<'a, W> {
    out: &'a mut W,
    hash: Sha256,
}

impl<W: Write> Summed<'_, W> {
    fn line(&mut self, line: &str) -> Result<()> {
        for part in [line.as_bytes(), b"\n"] {
            self.hash.update(part);
            self.out.write_all(part).map_err(|error| file_error("the backup", &error))?;
        }
        Ok(())
    }
}

pub(super) fn write_dump(
    read: &mut Reader<'_>,
    out: &mut impl Write,
    progress: Progress<'_>,
) -> Result<Vec<TableCopied>> {
    let schema = migrate::known_version();
    let mut out = Summed { out: &mut BufWriter::new(out), hash: Sha256::new() };
    let first = First { trackway: "backup".to_owned(), format: FORMAT, schema, created_at: read.now() };
    out.line(&in_json(&first)?)?;
    let mut tables = Vec::new();
    for table in layout::tables(schema) {
        let mut digest = TableDigest::default();
        for row in Rows::new(&table, |sql, params| read.query_unscoped(sql, params)) {
            let row = row?;
            digest.add(&row.canonical);
            out.line(&format!("{{\"table\":\"{}\",\"row\":{}}}", table.name, row.written(&table)?))?;
            progress(&table.name, digest.rows);
        }
        tables.push(TableCopied { rows: digest.rows, digest: digest.finish(), name: table.name });
    }
    let sha256 = hex(&out.hash.clone().finalize());
    out.line(&in_json(&Last { tables: tables.clone(), sha256 })?)?;
    out.out.flush().map_err(|error| file_error("the backup", &error))?;
    Ok(tables)
}

fn in_json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::Value(error.to_string()))
}

/// Writes a file beside, and puts it in place when it is whole and on the disk.
pub(super) fn to_file<T>(path: &Path, write: impl FnOnce(&mut File) -> Result<T>) -> Result<T> {
    refuse_other_files(path)?;
    let at = |error: &io::Error| file_error(&path.display().to_string(), error);
    let beside = beside(path);
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // It holds what the database holds, which is its owner's.
        options.mode(0o600);
    }
    let mut file = options.open(&beside).map_err(|error| at(&error))?;
    if file.try_lock().is_err() {
        return Err(Error::Busy(format!("another backup is being written to {}", path.display())));
    }
    let written = file.set_len(0).map_err(|error| at(&error)).and_then(|()| write(&mut file));
    let outcome = written.and_then(|done| {
        file.sync_all().and_then(|()| fs::rename(&beside, path)).map_err(|error| at(&error))?;
        sync_folder_of(path);
        Ok(done)
    });
    if outcome.is_err() {
        let _ = fs::remove_file(&beside);
    }
    outcome
}

/// The name of a file that is not whole yet.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// A rename is on the disk when its folder is.
pub(super) fn sync_folder_of(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// An older backup is written over; anything else was named by mistake.
fn refuse_other_files(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Err(Rule::usage(format!("{} is a directory", path.display())).into());
    }
    let Ok(mut file) = File::open(path) else {
        return Ok(());
    };
    let mut begin = vec![0; MAGIC.len()];
    let is_empty = file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0);
    if is_empty || (file.read_exact(&mut begin).is_ok() && begin == MAGIC.as_bytes()) {
        return Ok(());
    }
    Err(Rule::conflict(format!("{} is there, and is no backup", path.display())).hint("give another name").into())
}

/// What the operating system said, as an error of ours.
pub(super) fn file_error(what: &str, error: &io::Error) -> Error {
    let text = format!("{what}: {error}");
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Error::Full(text),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Error::ReadOnly(text),
        io::ErrorKind::NotFound => Rule::not_found(text).into(),
        _ => Error::File(text),
    }
}

/// A file that was found whole, and is read for the second time.
pub(super) struct Dump<'a, R> {
    lines: BufReader<&'a mut R>,
    pub schema: i64,
    pub tables: Vec<TableCopied>,
    /// A line that was read and not yet asked for.
    ahead: Option<Line>,
}

impl<'a, R: Read + Seek> Dump<'a, R> {
    /// Reads all of it, and refuses what was cut or changed.
    pub fn checked(from: &'a mut R) -> Result<Self> {
        let mut lines = BufReader::new(&mut *from);
        let (mut hash, mut line) = (Sha256::new(), Vec::new());
        let mut first: Option<First> = None;
        let last: Last = loop {
            line.clear();
            let length = lines.read_until(b'\n', &mut line).map_err(|error| file_error("the backup", &error))?;
            if first.is_none() {
                first = Some(first_line(&line)?);
            } else if line.starts_with(br#"{"tables":"#) && line.ends_with(b"\n") {
                break serde_json::from_slice(&line).map_err(|_| Error::Damaged("its end cannot be read".into()))?;
            } else if length == 0 || !line.ends_with(b"\n") {
                return Err(Error::Damaged("its end is missing".into()));
            }
            hash.update(&line);
        };
        let mut rest = [0];
        if lines.read(&mut rest).map_err(|error| file_error("the backup", &error))? > 0 {
            return Err(Error::Damaged("something stands after its end".into()));
        }
        if hex(&hash.finalize()) != last.sha256 {
            return Err(Error::Damaged("its checksum is of something else".into()));
        }
        drop(lines);
        from.seek(SeekFrom::Start(0)).map_err(|error| file_error("the backup", &error))?;
        let mut lines = BufReader::new(from);
        line.clear();
        lines.read_until(b'\n', &mut line).map_err(|error| file_error("the backup", &error))?;
        let schema = first_line(&line)?.schema;
        Ok(Self { lines, schema, tables: last.tables, ahead: None })
    }

    /// The rows of the table that is next.
    pub fn rows_of<'b>(&'b mut self, table: &'b TableLayout) -> impl Iterator<Item = Result<TextRow>> + use<'a, 'b, R> {
        std::iter::from_fn(move || {
            if self.ahead.is_none() {
                self.ahead = match self.next_line() {
                    Ok(line) => line,
                    Err(error) => return Some(Err(error)),
                };
            }
            let line = self.ahead.take_if(|line| line.table == table.name)?;
            Some(TextRow::parse(table, &line.row))
        })
    }

    fn next_line(&mut self) -> Result<Option<Line>> {
        let mut line = Vec::new();
        self.lines.read_until(b'\n', &mut line).map_err(|error| file_error("the backup", &error))?;
        if line.is_empty() || line.starts_with(br#"{"tables":"#) {
            return Ok(None);
        }
        serde_json::from_slice(&line)
            .map(Some)
            .map_err(|error| Error::Damaged(format!("a row cannot be read: {error}")))
    }
}

fn first_line(line: &[u8]) -> Result<First> {
    let first: First = serde_json::from_slice(line).map_err(|_| Error::Damaged("this is no backup".into()))?;
    if first.trackway != "backup" || first.format != FORMAT || first.schema < 1 {
        return Err(Error::Damaged("it is of another form".into()));
    }
    let known = migrate::known_version();
    if first.schema > known {
        return Err(Error::Newer { at: "the backup".into(), found: first.schema, known });
    }
    Ok(first)
}
