//! Backup files: a header line, one line per row, and a footer line with checksums.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use trackway_domain::{Error as DomainError, Time};

use super::{
    CopiedTable, Progress,
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

/// Version of the file format.
const FORMAT: i64 = 1;
/// The beginning of the header line.
const MAGIC: &str = r#"{"trackway":"backup""#;

#[derive(Serialize, Deserialize)]
struct Header {
    trackway: String,
    format: i64,
    schema: i64,
    created_at: Time,
}

#[derive(Deserialize)]
struct RowLine {
    table: String,
    row: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct Footer {
    tables: Vec<CopiedTable>,
    /// Checksum of all bytes before the footer.
    sha256: String,
}

/// Writes lines and computes the checksum of everything it wrote.
struct ChecksumWriter<'a, W> {
    out: &'a mut W,
    hash: Sha256,
}

impl<W: Write> ChecksumWriter<'_, W> {
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
) -> Result<Vec<CopiedTable>> {
    let schema = migrate::known_version();
    let mut out = ChecksumWriter { out: &mut BufWriter::new(out), hash: Sha256::new() };
    let header = Header { trackway: "backup".to_owned(), format: FORMAT, schema, created_at: read.now() };
    out.line(&to_json(&header)?)?;
    let mut tables = Vec::new();
    for table in layout::tables(schema) {
        let mut digest = TableDigest::default();
        for row in Rows::new(&table, |sql, params| read.query_unscoped(sql, params)) {
            let row = row?;
            digest.add(&row.canonical);
            out.line(&format!("{{\"table\":\"{}\",\"row\":{}}}", table.name, row.to_json(&table)?))?;
            progress(&table.name, digest.rows);
        }
        tables.push(CopiedTable { rows: digest.rows, digest: digest.finish(), name: table.name });
    }
    let sha256 = hex(&out.hash.clone().finalize());
    out.line(&to_json(&Footer { tables: tables.clone(), sha256 })?)?;
    out.out.flush().map_err(|error| file_error("the backup", &error))?;
    Ok(tables)
}

fn to_json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::Value(error.to_string()))
}

/// Writes to a partial file, and renames it to `path` when it is complete and on the disk.
pub(super) fn to_file<T>(path: &Path, write: impl FnOnce(&mut File) -> Result<T>) -> Result<T> {
    reject_other_file(path)?;
    let failed = |error: &io::Error| file_error(&path.display().to_string(), error);
    let partial = partial_file(path);
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // The backup contains the private data of the owner.
        options.mode(0o600);
    }
    let mut file = options.open(&partial).map_err(|error| failed(&error))?;
    if file.try_lock().is_err() {
        return Err(Error::Busy(format!("another process is writing a backup to {}", path.display())));
    }
    let result = file.set_len(0).map_err(|error| failed(&error)).and_then(|()| write(&mut file));
    let outcome = result.and_then(|value| {
        file.sync_all().and_then(|()| fs::rename(&partial, path)).map_err(|error| failed(&error))?;
        sync_parent_directory(path);
        Ok(value)
    });
    if outcome.is_err() {
        let _ = fs::remove_file(&partial);
    }
    outcome
}

/// The name of a backup that is being written.
fn partial_file(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Makes a rename durable by syncing the directory.
pub(super) fn sync_parent_directory(path: &Path) {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(directory).and_then(|directory| directory.sync_all());
}

/// Allows overwriting an earlier backup or an empty file. Any other file was probably named by mistake.
fn reject_other_file(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Err(DomainError::usage(format!("{} is a directory", path.display())).into());
    }
    let Ok(mut file) = File::open(path) else {
        return Ok(());
    };
    let mut start = vec![0; MAGIC.len()];
    let is_empty = file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0);
    if is_empty || (file.read_exact(&mut start).is_ok() && start == MAGIC.as_bytes()) {
        return Ok(());
    }
    Err(DomainError::conflict(format!("{} exists and is not a backup", path.display()))
        .hint("choose another file name")
        .into())
}

/// Converts an error of the operating system.
pub(super) fn file_error(subject: &str, error: &io::Error) -> Error {
    let text = format!("{subject}: {error}");
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Error::Full(text),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Error::ReadOnly(text),
        io::ErrorKind::NotFound => DomainError::not_found(text).into(),
        _ => Error::File(text),
    }
}

/// A backup file. A first pass verified its checksum, and a second pass reads its rows.
pub(super) struct Dump<'a, R> {
    lines: BufReader<&'a mut R>,
    pub schema: i64,
    pub tables: Vec<CopiedTable>,
    /// A line that was read, but belongs to a later table.
    pending: Option<RowLine>,
}

impl<'a, R: Read + Seek> Dump<'a, R> {
    /// Reads the whole file and rejects it if it is incomplete or changed.
    pub fn verify(from: &'a mut R) -> Result<Self> {
        let mut lines = BufReader::new(&mut *from);
        let (mut hash, mut line) = (Sha256::new(), Vec::new());
        let mut header: Option<Header> = None;
        let footer: Footer = loop {
            line.clear();
            let length = lines.read_until(b'\n', &mut line).map_err(|error| file_error("the backup", &error))?;
            if header.is_none() {
                header = Some(parse_header(&line)?);
            } else if line.starts_with(br#"{"tables":"#) && line.ends_with(b"\n") {
                break serde_json::from_slice(&line).map_err(|_| Error::Damaged("the footer is invalid".into()))?;
            } else if length == 0 || !line.ends_with(b"\n") {
                return Err(Error::Damaged("the footer is missing".into()));
            }
            hash.update(&line);
        };
        let mut rest = [0];
        if lines.read(&mut rest).map_err(|error| file_error("the backup", &error))? > 0 {
            return Err(Error::Damaged("there is data after the footer".into()));
        }
        if hex(&hash.finalize()) != footer.sha256 {
            return Err(Error::Damaged("the checksum does not match".into()));
        }
        drop(lines);
        from.seek(SeekFrom::Start(0)).map_err(|error| file_error("the backup", &error))?;
        let mut lines = BufReader::new(from);
        line.clear();
        lines.read_until(b'\n', &mut line).map_err(|error| file_error("the backup", &error))?;
        let schema = parse_header(&line)?.schema;
        Ok(Self { lines, schema, tables: footer.tables, pending: None })
    }

    /// The rows of `table`. Tables must be read in the order of the file.
    pub fn rows_of<'b>(&'b mut self, table: &'b TableLayout) -> impl Iterator<Item = Result<TextRow>> + use<'a, 'b, R> {
        std::iter::from_fn(move || {
            if self.pending.is_none() {
                self.pending = match self.next_line() {
                    Ok(line) => line,
                    Err(error) => return Some(Err(error)),
                };
            }
            let line = self.pending.take_if(|line| line.table == table.name)?;
            Some(TextRow::parse(table, &line.row))
        })
    }

    fn next_line(&mut self) -> Result<Option<RowLine>> {
        let mut line = Vec::new();
        self.lines.read_until(b'\n', &mut line).map_err(|error| file_error("the backup", &error))?;
        if line.is_empty() || line.starts_with(br#"{"tables":"#) {
            return Ok(None);
        }
        serde_json::from_slice(&line).map(Some).map_err(|error| Error::Damaged(format!("invalid row: {error}")))
    }
}

fn parse_header(line: &[u8]) -> Result<Header> {
    let header: Header =
        serde_json::from_slice(line).map_err(|_| Error::Damaged("the file is not a Trackway backup".into()))?;
    if header.trackway != "backup" || header.format != FORMAT || header.schema < 1 {
        return Err(Error::Damaged("unknown backup format".into()));
    }
    let known = migrate::known_version();
    if header.schema > known {
        return Err(Error::SchemaTooNew { at: "the backup".into(), found: header.schema, known });
    }
    Ok(header)
}
