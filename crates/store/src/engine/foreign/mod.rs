//! Reads SQLite databases of other tools without changing them.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rusqlite::{ErrorCode, OpenFlags, types::ValueRef};
use trackway_domain::{Error as DomainError, Time};

use crate::error::{Error, Result};

pub mod nagger;

/// Time to wait while the other tool writes. Trackway's own database is locked meanwhile.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// The first bytes of every SQLite file.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Offset of the header byte that names the journal mode, and its value for WAL mode.
const WRITE_VERSION: usize = 18;
const WAL: u8 = 2;

/// A read transaction on a foreign database.
struct ForeignDatabase {
    path: PathBuf,
    connection: rusqlite::Connection,
    /// The state of the file before it was read, if it is read without locks.
    unlocked: Option<FileState>,
}

/// Attributes that change when the file is written to.
#[derive(Debug, PartialEq, Eq)]
struct FileState {
    length: u64,
    modified: Option<SystemTime>,
    has_wal: bool,
}

impl ForeignDatabase {
    fn open(path: &Path) -> Result<Self> {
        let header = read_header(path)?;
        // Reading a file in WAL mode creates a log beside it. If there is no log, open the file as immutable instead,
        // which takes no locks, and check afterwards that it did not change.
        let unlocked =
            (header[WRITE_VERSION] == WAL && !wal_path(path).exists()).then(|| file_state(path)).transpose()?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = match unlocked {
            Some(_) => {
                let uri = format!("file:{}?immutable=1", encode_for_uri(path));
                rusqlite::Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
            }
            None => rusqlite::Connection::open_with_flags(path, flags),
        };
        let begin = |connection: &rusqlite::Connection| {
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.execute_batch("pragma trusted_schema = off; begin")
        };
        let connection = opened.and_then(|connection| begin(&connection).map(|()| connection));
        Ok(Self { path: path.to_owned(), connection: connection.map_err(|error| read_error(path, &error))?, unlocked })
    }

    /// All tables with the names of their columns.
    fn tables(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let columns = self.rows(
            "select t.name, c.name from sqlite_master t join pragma_table_info(t.name) c
             where t.type = 'table' and t.name not like 'sqlite\\_%' escape '\\' order by t.name, c.cid",
        )?;
        let mut tables = BTreeMap::<String, Vec<String>>::new();
        for column in columns {
            tables.entry(column.text(0).unwrap_or_default()).or_default().extend(column.text(1));
        }
        Ok(tables)
    }

    /// Selects columns of a table, with null for columns that this schema version does not have.
    fn select(&self, tables: &BTreeMap<String, Vec<String>>, table: &str, columns: &[&str]) -> Result<Vec<Record>> {
        let Some(existing) = tables.get(table) else {
            return Ok(Vec::new());
        };
        let or_null = |column| if existing.iter().any(|name| name == column) { column } else { "null" };
        let columns: Vec<&str> = columns.iter().copied().map(or_null).collect();
        self.rows(&format!("select {} from {table} order by rowid", columns.join(", ")))
    }

    fn count(&self, table: &str) -> Result<i64> {
        let rows = self.rows(&format!("select count(*) from \"{}\"", table.replace('"', "\"\"")))?;
        Ok(rows.first().and_then(|row| row.integer(0)).unwrap_or_default())
    }

    fn rows(&self, sql: &str) -> Result<Vec<Record>> {
        let read = || {
            let mut statement = self.connection.prepare(sql)?;
            let count = statement.column_count();
            let mut rows = statement.query([])?;
            let mut records = Vec::new();
            while let Some(row) = rows.next()? {
                let cells = (0..count).map(|index| row.get_ref(index).map(Cell::from));
                records.push(Record(cells.collect::<rusqlite::Result<_>>()?));
            }
            Ok(records)
        };
        read().map_err(|error| read_error(&self.path, &error))
    }

    /// Ends the transaction. Fails if a file that was read without locks has changed meanwhile.
    fn close(self) -> Result<()> {
        match &self.unlocked {
            Some(before) if *before != file_state(&self.path)? => Err(in_use(&self.path)),
            _ => Ok(()),
        }
    }
}

/// A row. SQLite accepts any type of value in any column.
#[derive(Debug)]
struct Record(Vec<Cell>);

#[derive(Debug)]
enum Cell {
    Text(String),
    Integer(i64),
    Other,
}

impl From<ValueRef<'_>> for Cell {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Text(text) => Self::Text(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Integer(integer) => Self::Integer(integer),
            ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => Self::Other,
        }
    }
}

impl Record {
    fn text(&self, index: usize) -> Option<String> {
        match self.0.get(index)? {
            Cell::Text(text) => Some(text.clone()),
            Cell::Integer(integer) => Some(integer.to_string()),
            Cell::Other => None,
        }
    }

    fn integer(&self, index: usize) -> Option<i64> {
        match self.0.get(index)? {
            Cell::Integer(integer) => Some(*integer),
            Cell::Text(text) => text.parse().ok(),
            Cell::Other => None,
        }
    }

    fn time(&self, index: usize) -> Option<Time> {
        self.text(index)?.parse().ok()
    }
}

/// Reads the header of a SQLite file. Fails if the file is not a complete SQLite database.
fn read_header(path: &Path) -> Result<[u8; 100]> {
    let name = path.display();
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => DomainError::not_found(format!("there is no file {name}")),
        _ => DomainError::usage(format!("{name} cannot be read: {error}")),
    };
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(DomainError::usage(format!("{name} is a directory"))
            .hint("choose the database file in that directory")
            .into());
    }
    let mut header = [0; 100];
    let mut start = Vec::new();
    if metadata.is_file() {
        File::open(path).and_then(|file| file.take(100).read_to_end(&mut start)).map_err(unreadable)?;
    }
    header[..start.len()].copy_from_slice(&start);
    if !header.starts_with(MAGIC) {
        return Err(not_sqlite(path));
    }
    if metadata.len() < expected_length(&header) {
        return Err(damaged(path, "the file is shorter than its header says"));
    }
    Ok(header)
}

/// The file size according to the header. SQLite itself does not notice if the last page is incomplete.
fn expected_length(header: &[u8; 100]) -> u64 {
    let number =
        |at: usize| u64::from(u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]));
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    // Old versions of SQLite do not update the number of pages. The page count is valid only if the two change counters
    // are equal.
    let pages = if number(24) == number(92) { number(28) } else { 1 };
    (page * pages).max(header.len() as u64)
}

fn wal_path(path: &Path) -> PathBuf {
    let mut log = OsString::from(path);
    log.push("-wal");
    log.into()
}

fn file_state(path: &Path) -> Result<FileState> {
    let metadata = fs::metadata(path).map_err(|_| in_use(path))?;
    Ok(FileState { length: metadata.len(), modified: metadata.modified().ok(), has_wal: wal_path(path).exists() })
}

/// Encodes a path for use in a `file:` URI.
fn encode_for_uri(path: &Path) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    let encoded = |byte: &u8| if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    path.as_os_str().as_encoded_bytes().iter().map(encoded).collect()
}

fn read_error(path: &Path, error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => in_use(path),
        Some(ErrorCode::NotADatabase) => not_sqlite(path),
        Some(ErrorCode::DatabaseCorrupt) => damaged(path, &error.to_string()),
        _ => DomainError::usage(format!("{} cannot be read: {error}", path.display())).into(),
    }
}

fn damaged(path: &Path, reason: &str) -> Error {
    DomainError::usage(format!("{} is damaged: {reason}", path.display()))
        .hint("use a complete copy of the file; nothing was imported")
        .into()
}

fn in_use(path: &Path) -> Error {
    Error::Busy(format!("{} is in use by another program", path.display()))
}

fn not_sqlite(path: &Path) -> Error {
    DomainError::usage(format!("{} is not an SQLite database", path.display())).into()
}
