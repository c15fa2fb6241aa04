//! Connections, transactions and schemas on SQLite and PostgreSQL.

pub(crate) mod clock;
pub mod connection;
pub mod data_version;
mod dialect;
pub mod error;
pub(crate) mod failover;
pub mod foreign;
pub mod health;
pub mod migrate;
pub mod queue_notify;
pub mod schema;
pub mod schema_check;
pub(crate) mod shared_commit;
pub mod sql;
pub mod store;
pub mod table;
mod tenant_guard;
pub(crate) mod tls;
pub mod transfer;
pub mod url;

pub use clock::Clock;
pub use connection::Engine;
pub use data_version::DataVersion;
pub use error::{Error, Result};
pub use store::{Reader, Store, TenantId, WriteMode, Writer};
pub use table::Table;
pub use url::Url;
