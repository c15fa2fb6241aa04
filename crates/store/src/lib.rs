//! The database of both engines. `engine` connects, migrates, copies and runs a query, and alone knows which engine
//! answers; `queries` holds the tables and the statements that several actions or views share.

pub mod engine;
pub mod queries;

pub use engine::{
    Clock, Engine, Error, Moment, Reader, Result, Store, Table, TenantId, Url, WriteMode, Writer, connection, error, foreign,
    health, migrate, queue_notify, schema, schema_check, sql, store, table, transfer, url,
};
pub use queries::{
    boards, current_reports, display, integrity, linked_tasks, newest_of_each, queue, registry, replacements, search,
    tables, wake,
};
