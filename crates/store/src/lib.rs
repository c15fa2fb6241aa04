//! Access to SQLite and PostgreSQL. `engine` connects, migrates, copies and runs SQL, and hides the differences between
//! the engines. `queries` contains the tables and the queries that several actions or views share.

pub mod engine;
pub mod queries;

pub use engine::{
    Clock, DataVersion, Engine, Error, Reader, Result, Store, Table, TenantId, Url, WriteMode, Writer, connection,
    error, foreign, health, migrate, queue_notify, schema, schema_check, sql, store, table, transfer, url,
};
pub use queries::{
    boards, current_reports, display, integrity, linked_tasks, newest_per_row, queue, registry, replacements, search,
    tables, wake,
};
