//! Everything a database holds, on its way to a file or to another database, and back.
//!
//! This is no second way to write: what is written here are rows that the write path made, into a database that nobody
//! can open until it is whole (`staging`). No event tells of it, since nothing in the record changed.

mod dump;
pub mod layout;
mod row_text;
mod rows;
pub(crate) mod staging;

use std::{
    io::{Read, Seek, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use self::{
    dump::{Dump, write_dump},
    layout::TableLayout,
    row_text::TableDigest,
    rows::Rows,
    staging::Staging,
};
use crate::{
    error::{Error, Result},
    migrate,
    store::Store,
    url::Url,
};

/// A table that was copied: how many rows, and the digest of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableCopied {
    pub name: String,
    pub rows: i64,
    pub digest: String,
}

/// Hears how far it is: a table, and how many of its rows are done.
pub type Progress<'a> = &'a mut dyn FnMut(&str, i64);

/// Writes everything as one moment has it, with a checksum at the end.
pub fn export(store: &Store, out: &mut impl Write, progress: Progress<'_>) -> Result<Vec<TableCopied>> {
    write_dump(&mut store.read(Uuid::nil().into())?, out, progress)
}

/// The same to a file, which is there whole or not at all.
pub fn backup(store: &Store, path: &Path, progress: Progress<'_>) -> Result<Vec<TableCopied>> {
    dump::to_file(path, |file| export(store, file, progress))
}

/// Makes the database at a URL from what `export` wrote. What is damaged is refused before anything is changed.
pub fn restore(url: &Url, from: &mut (impl Read + Seek), progress: Progress<'_>) -> Result<Vec<TableCopied>> {
    let mut dump = Dump::checked(from)?;
    let mut staging = Staging::open(url, dump.schema)?;
    let said = dump.tables.clone();
    let tables = layout::tables(dump.schema);
    let (mut copied, mut read) = (Vec::new(), Vec::new());
    for table in &tables {
        let mut digest = TableDigest::default();
        let rows = dump.rows_of(table).inspect(|row| {
            if let Ok(row) = row {
                digest.add(row.said.as_deref().unwrap_or(&row.canonical));
            }
        });
        match staging.take(table, rows, progress) {
            Ok(table) => copied.push(table),
            Err(error) => return Err(staging.given_up(error)),
        }
        read.push(TableCopied { name: table.name.clone(), rows: digest.rows, digest: digest.finish() });
    }
    if read != said {
        return Err(Error::Damaged("it does not hold what it says".into()));
    }
    // Of the newest schema, as an older backup becomes it.
    staging.publish(&tables, &copied)
}

/// Copies everything to the database at a URL, and checks that it came there. One that was cut off is gone on with.
pub fn move_to(store: &Store, url: &Url, progress: Progress<'_>) -> Result<Vec<TableCopied>> {
    let version = migrate::known_version();
    let mut staging = Staging::open(url, version)?;
    let tables: Vec<TableLayout> = layout::tables(version);
    let mut read = store.read(Uuid::nil().into())?;
    let mut copied = Vec::new();
    for table in &tables {
        let rows = Rows::new(table, |sql, params| read.query_unscoped(sql, params));
        match staging.take(table, rows, progress) {
            Ok(table) => copied.push(table),
            Err(error) => return Err(staging.given_up(error)),
        }
    }
    drop(read);
    staging.publish(&tables, &copied)
}

/// Removes what a restore or a move that was cut off left behind, unless one is under way.
pub fn remove_left_behind(url: &Url) -> Result<()> {
    staging::remove_left_behind(url)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use serde_json::{Value, json};
    use sha2::{Digest, Sha256};
    use trackway_domain::{Id, Time};

    use super::*;
    use crate::{
        sql::hex,
        tables::{Person, Tenant},
    };

    /// A database with a tenant and somebody in it.
    #[expect(clippy::disallowed_methods, reason = "rows are needed, and no action")]
    fn house(path: &Path) -> Store {
        let store = Store::create(Url::sqlite(path)).unwrap();
        let at = Time::from_micros(1_767_225_600_000_001);
        let tenant = Tenant { id: Id::new(at), name: "local".to_owned(), created_at: at };
        let ada = Person {
            id: Id::new(at),
            tenant_id: tenant.id,
            handle: "ada".to_owned(),
            name: None,
            created_at: at,
            updated_at: at,
            deleted_at: None,
        };
        let mut write = store.write(tenant.id).unwrap();
        write.insert(&tenant).unwrap();
        write.insert(&ada).unwrap();
        write.commit().unwrap();
        store
    }

    fn exported(store: &Store) -> Vec<u8> {
        let mut out = Vec::new();
        export(store, &mut out, &mut |_, _| {}).unwrap();
        out
    }

    #[test]
    fn a_backup_of_an_older_program_is_brought_up_to_date() {
        let folder = tempfile::tempdir().unwrap();
        let text = String::from_utf8(exported(&house(&folder.path().join("a.db")))).unwrap();
        // As schema 5 wrote it, which had no boards.
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut first: Value = serde_json::from_str(&lines[0]).unwrap();
        first["schema"] = json!(5);
        lines[0] = first.to_string();
        let mut last: Value = serde_json::from_str(&lines.pop().unwrap()).unwrap();
        let old: Vec<String> = layout::tables(5).into_iter().map(|table| table.name).collect();
        last["tables"]
            .as_array_mut()
            .unwrap()
            .retain(|table| old.contains(&table["name"].as_str().unwrap().to_owned()));
        let body = format!("{}\n", lines.join("\n"));
        last["sha256"] = json!(hex(&Sha256::digest(body.as_bytes())));
        let url = Url::sqlite(folder.path().join("b.db"));
        let copied = restore(&url, &mut Cursor::new(format!("{body}{last}\n")), &mut |_, _| {}).unwrap();
        assert_eq!(copied.len(), old.len());
        let store = Store::open(url).unwrap();
        let mut read = store.read(Uuid::nil().into()).unwrap();
        assert_eq!(read.query_unscoped::<(String,)>("select handle from people", &[]).unwrap(), [("ada".to_owned(),)]);
        assert_eq!(read.query_unscoped::<(i64,)>("select count(*) from boards", &[]).unwrap(), [(0,)]);
    }

    fn people(url: &Url) -> Vec<(String,)> {
        let store = Store::open(url.clone()).unwrap();
        let mut read = store.read(Uuid::nil().into()).unwrap();
        read.query_unscoped("select handle from people order by handle", &[]).unwrap()
    }

    #[test]
    fn a_target_that_got_data_meanwhile_keeps_it() {
        // Not there at first, there without tables, there without rows.
        for before in ["", "file", "tables"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("b.db");
            let url = Url::sqlite(&path);
            match before {
                "file" => drop(std::fs::File::create(&path).unwrap()),
                "tables" => drop(Store::create(url.clone()).unwrap()),
                _ => {}
            }
            let exported = exported(&house(&folder.path().join("a.db")));
            let mut meanwhile = Some(|| drop(house(&path)));
            let refused = restore(&url, &mut Cursor::new(&exported), &mut |_, _| {
                meanwhile.take().into_iter().for_each(|make| make());
            });
            let Err(Error::Rule(rule)) = refused else { panic!("{before}: {refused:?}") };
            assert_eq!(rule.kind, trackway_domain::ErrorKind::Conflict, "{before}");
            assert_eq!(people(&url), [("ada".to_owned(),)], "{before}");
            assert_eq!(Store::open(url).unwrap().health().unwrap().incoming, None, "{before}");
        }
    }

    #[test]
    fn an_empty_target_is_filled_under_those_who_have_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let store = house(&folder.path().join("a.db"));
        let url = Url::sqlite(folder.path().join("b.db"));
        let copied = {
            // As somebody leaves it who is killed while making it.
            drop(Store::create(url.clone()).unwrap());
            move_to(&store, &url, &mut |_, _| {}).unwrap()
        };
        assert_eq!(copied, export(&Store::open(url.clone()).unwrap(), &mut Vec::new(), &mut |_, _| {}).unwrap());
        assert_eq!(people(&url), [("ada".to_owned(),)]);
        // A log without its file would be taken for the new one's.
        let other = folder.path().join("c.db");
        std::fs::write(folder.path().join("c.db-wal"), "left").unwrap();
        move_to(&store, &Url::sqlite(&other), &mut |_, _| {}).unwrap();
        assert_eq!(people(&Url::sqlite(other)), [("ada".to_owned(),)]);
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_str().unwrap().contains("incoming")), "{left:?}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn who_waited_for_a_staging_that_took_its_place_leaves_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = house(&folder.path().join("a.db"));
        let url = Url::sqlite(folder.path().join("b.db"));
        let version = migrate::known_version();
        let tables = layout::tables(version);
        let mut first = Staging::open(&url, version).unwrap();
        let mut read = store.read(Uuid::nil().into()).unwrap();
        let mut take = |table: &TableLayout| {
            let rows = Rows::new(table, |sql, params| read.query_unscoped(sql, params));
            first.take(table, rows, &mut |_, _| {}).unwrap()
        };
        let copied: Vec<TableCopied> = tables.iter().map(&mut take).collect();
        let second = std::thread::spawn({
            let url = url.clone();
            move || Staging::open(&url, version).map(drop)
        });
        let is_staging = |link: std::io::Result<std::path::PathBuf>| link.is_ok_and(|to| to.ends_with("b.db.incoming"));
        let open = || {
            let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            all.filter(|entry| is_staging(std::fs::read_link(entry.path()))).count()
        };
        while open() < 2 {
            std::thread::yield_now();
        }
        first.publish(&tables, &copied).unwrap();
        let waited = second.join().unwrap();
        assert!(matches!(waited, Err(Error::Busy(_))), "{waited:?}");
        assert_eq!(people(&url), [("ada".to_owned(),)]);
    }

    #[test]
    fn what_was_left_half_done_is_gone_on_with_or_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let store = house(&folder.path().join("a.db"));
        let url = Url::sqlite(folder.path().join("b.db"));
        let tables = layout::tables(migrate::known_version());
        {
            // Cut off after two tables, one of which has a row that is not there any more.
            let mut staging = Staging::open(&url, migrate::known_version()).unwrap();
            let mut read = store.read(Uuid::nil().into()).unwrap();
            for table in tables.iter().filter(|table| ["tenants", "people"].contains(&table.name.as_str())) {
                let rows = Rows::new(table, |sql, params| read.query_unscoped(sql, params));
                staging.take(table, rows, &mut |_, _| {}).unwrap();
            }
            let busy = Staging::open(&url, migrate::known_version());
            assert!(matches!(busy.map(drop), Err(Error::Busy(_))), "one at a time");
        }
        crate::connection::Connection::sqlite(&folder.path().join("b.db.incoming"), false)
            .unwrap()
            .batch("update people set handle = 'bob'")
            .unwrap();
        let copied = move_to(&store, &url, &mut |_, _| {}).unwrap();
        let again = Store::open(url).unwrap();
        assert_eq!(exported(&again).len(), exported(&store).len());
        assert_eq!(copied, export(&again, &mut Vec::new(), &mut |_, _| {}).unwrap());
    }
}
