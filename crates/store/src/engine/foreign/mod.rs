//! Databases of other tools: SQLite files that are read and left as they are.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rusqlite::{ErrorCode, OpenFlags, types::ValueRef};
use trackway_domain::{Error as Rule, Time};

use crate::error::{Error, Result};

pub mod nagger;

/// How long to wait for the tool itself, should it be writing. Ours waits meanwhile.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// What every SQLite file begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Where the header says how changes are written, and the word for: to a log beside the file.
const WRITE_VERSION: usize = 18;
const WAL: u8 = 2;

/// A foreign database at one moment.
struct Foreign {
    path: PathBuf,
    connection: rusqlite::Connection,
    /// What the file looked like when it is read without locks.
    unlocked: Option<Looks>,
}

/// What tells that a file was written to.
#[derive(Debug, PartialEq, Eq)]
struct Looks {
    length: u64,
    modified: Option<SystemTime>,
    has_log: bool,
}

impl Foreign {
    fn open(path: &Path) -> Result<Self> {
        let header = header(path)?;
        // Who reads a file with a log leaves a log behind, even an empty one. A file whose log was brought in and
        // removed needs none: it is read as if nobody could write to it, and looked at again afterwards.
        let unlocked = (header[WRITE_VERSION] == WAL && !log_of(path).exists()).then(|| looks(path)).transpose()?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = match unlocked {
            Some(_) => {
                let uri = format!("file:{}?immutable=1", in_uri(path));
                rusqlite::Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
            }
            None => rusqlite::Connection::open_with_flags(path, flags),
        };
        let begin = |connection: &rusqlite::Connection| {
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.execute_batch("pragma trusted_schema = off; begin")
        };
        let connection = opened.and_then(|connection| begin(&connection).map(|()| connection));
        Ok(Self { path: path.to_owned(), connection: connection.map_err(|error| failed(path, &error))?, unlocked })
    }

    /// Its tables with their columns.
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

    /// These columns of a table, null where this version has no such column.
    fn select(&self, tables: &BTreeMap<String, Vec<String>>, table: &str, columns: &[&str]) -> Result<Vec<Record>> {
        let Some(there) = tables.get(table) else {
            return Ok(Vec::new());
        };
        let or_null = |column| if there.iter().any(|name| name == column) { column } else { "null" };
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
        read().map_err(|error| failed(&self.path, &error))
    }

    /// Ends the reading: what was read is of one moment.
    fn close(self) -> Result<()> {
        match &self.unlocked {
            Some(before) if *before != looks(&self.path)? => Err(in_use(&self.path)),
            _ => Ok(()),
        }
    }
}

/// A row, whatever is in it: SQLite keeps any type in any column.
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

/// The beginning of a file that claims to be a database.
fn header(path: &Path) -> Result<[u8; 100]> {
    let shown = path.display();
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Rule::not_found(format!("there is no file {shown}")),
        _ => Rule::usage(format!("{shown} cannot be read: {error}")),
    };
    let about = fs::metadata(path).map_err(unreadable)?;
    if about.is_dir() {
        return Err(Rule::usage(format!("{shown} is a directory")).hint("give the database file in it").into());
    }
    let mut header = [0; 100];
    let mut start = Vec::new();
    if about.is_file() {
        File::open(path).and_then(|file| file.take(100).read_to_end(&mut start)).map_err(unreadable)?;
    }
    header[..start.len()].copy_from_slice(&start);
    if !header.starts_with(MAGIC) {
        return Err(not_sqlite(path));
    }
    if about.len() < length(&header) {
        return Err(damaged(path, "it is shorter than it says"));
    }
    Ok(header)
}

/// The bytes that a header says there are. SQLite itself does not miss the end of the last page.
fn length(header: &[u8; 100]) -> u64 {
    let number =
        |at: usize| u64::from(u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]));
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    // Old versions of SQLite leave the number of pages as it was; then these two differ.
    let pages = if number(24) == number(92) { number(28) } else { 1 };
    (page * pages).max(header.len() as u64)
}

fn log_of(path: &Path) -> PathBuf {
    let mut log = OsString::from(path);
    log.push("-wal");
    log.into()
}

fn looks(path: &Path) -> Result<Looks> {
    let about = fs::metadata(path).map_err(|_| in_use(path))?;
    Ok(Looks { length: about.len(), modified: about.modified().ok(), has_log: log_of(path).exists() })
}

/// A path as SQLite reads it in a URI.
fn in_uri(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    let encoded = |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    path.as_os_str().as_encoded_bytes().iter().map(encoded).collect()
}

fn failed(path: &Path, error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => in_use(path),
        Some(ErrorCode::NotADatabase) => not_sqlite(path),
        Some(ErrorCode::DatabaseCorrupt) => damaged(path, &error.to_string()),
        _ => Rule::usage(format!("{} cannot be read: {error}", path.display())).into(),
    }
}

fn damaged(path: &Path, how: &str) -> Error {
    Rule::usage(format!("{} is damaged: {how}", path.display()))
        .hint("is it a whole copy? Nothing was taken from it")
        .into()
}

fn in_use(path: &Path) -> Error {
    Error::Busy(format!("{} is in use by another program", path.display()))
}

fn not_sqlite(path: &Path) -> Error {
    Rule::usage(format!("{} is not an SQLite database", path.display())).into()
}
