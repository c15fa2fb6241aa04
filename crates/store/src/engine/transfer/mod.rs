//! Backup, restore, export and move: copies all rows of a database to a file or to another database.
//!
//! These copies are not a second write path. They contain rows that the write path created, go into a database that
//! nobody else can open before it is complete (see `staging`), and record no events, because the content does not
//! change.

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

/// A copied table with the number and the digest of its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedTable {
    pub name: String,
    pub rows: i64,
    pub digest: String,
}

/// Receives progress: the name of the current table, and the number of rows copied so far.
pub type Progress<'a> = &'a mut dyn FnMut(&str, i64);

/// Writes a backup of one snapshot, with a checksum at the end.
pub fn export(store: &Store, out: &mut impl Write, progress: Progress<'_>) -> Result<Vec<CopiedTable>> {
    write_dump(&mut store.read(Uuid::nil().into())?, out, progress)
}

/// Writes a backup to a file. The file appears only when the backup is complete.
pub fn backup(store: &Store, path: &Path, progress: Progress<'_>) -> Result<Vec<CopiedTable>> {
    dump::to_file(path, |file| export(store, file, progress))
}

/// Creates a database from a backup. Rejects a damaged backup before changing anything.
pub fn restore(url: &Url, from: &mut (impl Read + Seek), progress: Progress<'_>) -> Result<Vec<CopiedTable>> {
    let mut dump = Dump::verify(from)?;
    let mut staging = Staging::open(url, dump.schema)?;
    let declared = dump.tables.clone();
    let tables = layout::tables(dump.schema);
    let (mut copied, mut read) = (Vec::new(), Vec::new());
    for table in &tables {
        let mut digest = TableDigest::default();
        let rows = dump.rows_of(table).inspect(|row| {
            if let Ok(row) = row {
                digest.add(row.with_nul.as_deref().unwrap_or(&row.canonical));
            }
        });
        match staging.copy_table(table, rows, progress) {
            Ok(table) => copied.push(table),
            Err(error) => return Err(staging.abort(error)),
        }
        read.push(CopiedTable { name: table.name.clone(), rows: digest.rows, digest: digest.finish() });
    }
    if read != declared {
        return Err(Error::Damaged("the rows do not match the footer".into()));
    }
    // Publishing migrates an older backup to the newest schema.
    staging.publish(&tables, &copied)
}

/// Copies all rows to another database and verifies the copy. Resumes an interrupted move.
pub fn move_to(store: &Store, url: &Url, progress: Progress<'_>) -> Result<Vec<CopiedTable>> {
    let version = migrate::known_version();
    let mut staging = Staging::open(url, version)?;
    let tables: Vec<TableLayout> = layout::tables(version);
    let mut read = store.read(Uuid::nil().into())?;
    let mut copied = Vec::new();
    for table in &tables {
        let rows = Rows::new(table, |sql, params| read.query_unscoped(sql, params));
        match staging.copy_table(table, rows, progress) {
            Ok(table) => copied.push(table),
            Err(error) => return Err(staging.abort(error)),
        }
    }
    drop(read);
    staging.publish(&tables, &copied)
}

/// Removes the leftovers of an interrupted restore or move. Does nothing while one is running.
pub fn remove_abandoned_staging(url: &Url) -> Result<()> {
    staging::remove_abandoned_staging(url)
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

    /// Creates a database with a tenant and a person.
    #[expect(clippy::disallowed_methods, reason = "inserts rows without an action")]
    fn new_store(path: &Path) -> Store {
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

    fn export_bytes(store: &Store) -> Vec<u8> {
        let mut out = Vec::new();
        export(store, &mut out, &mut |_, _| {}).unwrap();
        out
    }

    #[test]
    fn restore_migrates_backup_of_older_schema() {
        let folder = tempfile::tempdir().unwrap();
        let text = String::from_utf8(export_bytes(&new_store(&folder.path().join("a.db")))).unwrap();
        // Simulate a backup of schema 5, which had no boards.
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
    fn restore_rejects_target_into_which_rows_were_inserted_meanwhile() {
        // Before the restore, the target does not exist, is an empty file, or is a database without rows.
        for before in ["", "file", "tables"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("b.db");
            let url = Url::sqlite(&path);
            match before {
                "file" => drop(std::fs::File::create(&path).unwrap()),
                "tables" => drop(Store::create(url.clone()).unwrap()),
                _ => {}
            }
            let backup = export_bytes(&new_store(&folder.path().join("a.db")));
            let mut meanwhile = Some(|| drop(new_store(&path)));
            let result = restore(&url, &mut Cursor::new(&backup), &mut |_, _| {
                meanwhile.take().into_iter().for_each(|make| make());
            });
            let Err(Error::Rule(rule)) = result else { panic!("{before}: {result:?}") };
            assert_eq!(rule.kind, trackway_domain::ErrorKind::Conflict, "{before}");
            assert_eq!(people(&url), [("ada".to_owned(),)], "{before}");
            assert_eq!(Store::open(url).unwrap().health().unwrap().leftover_staging, None, "{before}");
        }
    }

    #[test]
    fn move_fills_existing_empty_database() {
        let folder = tempfile::tempdir().unwrap();
        let store = new_store(&folder.path().join("a.db"));
        let url = Url::sqlite(folder.path().join("b.db"));
        let copied = {
            // A process that was killed after creating the database leaves it like this.
            drop(Store::create(url.clone()).unwrap());
            move_to(&store, &url, &mut |_, _| {}).unwrap()
        };
        assert_eq!(copied, export(&Store::open(url.clone()).unwrap(), &mut Vec::new(), &mut |_, _| {}).unwrap());
        assert_eq!(people(&url), [("ada".to_owned(),)]);
        // SQLite would apply a leftover log to the new file.
        let other = folder.path().join("c.db");
        std::fs::write(folder.path().join("c.db-wal"), "left").unwrap();
        move_to(&store, &Url::sqlite(&other), &mut |_, _| {}).unwrap();
        assert_eq!(people(&Url::sqlite(other)), [("ada".to_owned(),)]);
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_str().unwrap().contains("incoming")), "{left:?}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn second_staging_does_not_touch_published_database() {
        let folder = tempfile::tempdir().unwrap();
        let store = new_store(&folder.path().join("a.db"));
        let url = Url::sqlite(folder.path().join("b.db"));
        let version = migrate::known_version();
        let tables = layout::tables(version);
        let mut first = Staging::open(&url, version).unwrap();
        let mut read = store.read(Uuid::nil().into()).unwrap();
        let mut take = |table: &TableLayout| {
            let rows = Rows::new(table, |sql, params| read.query_unscoped(sql, params));
            first.copy_table(table, rows, &mut |_, _| {}).unwrap()
        };
        let copied: Vec<CopiedTable> = tables.iter().map(&mut take).collect();
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
        let result = second.join().unwrap();
        assert!(matches!(result, Err(Error::Busy(_))), "{result:?}");
        assert_eq!(people(&url), [("ada".to_owned(),)]);
    }

    #[test]
    fn interrupted_move_resumes_and_rewrites_changed_rows() {
        let folder = tempfile::tempdir().unwrap();
        let store = new_store(&folder.path().join("a.db"));
        let url = Url::sqlite(folder.path().join("b.db"));
        let tables = layout::tables(migrate::known_version());
        {
            // Simulate an interrupted move: two tables are copied, and one of them contains a row that differs from the
            // source.
            let mut staging = Staging::open(&url, migrate::known_version()).unwrap();
            let mut read = store.read(Uuid::nil().into()).unwrap();
            for table in tables.iter().filter(|table| ["tenants", "people"].contains(&table.name.as_str())) {
                let rows = Rows::new(table, |sql, params| read.query_unscoped(sql, params));
                staging.copy_table(table, rows, &mut |_, _| {}).unwrap();
            }
            let busy = Staging::open(&url, migrate::known_version());
            assert!(matches!(busy.map(drop), Err(Error::Busy(_))), "one at a time");
        }
        crate::connection::Connection::sqlite(&folder.path().join("b.db.incoming"), false)
            .unwrap()
            .batch("update people set handle = 'bob'")
            .unwrap();
        let copied = move_to(&store, &url, &mut |_, _| {}).unwrap();
        let moved = Store::open(url).unwrap();
        assert_eq!(export_bytes(&moved).len(), export_bytes(&store).len());
        assert_eq!(copied, export(&moved, &mut Vec::new(), &mut |_, _| {}).unwrap());
    }
}
