//! Rows in and out. One SQL text for both engines, dispatched in `connection`; types crossed in `sql`.

pub mod bell;
pub mod boards;
pub mod completeness;
pub mod connection;
pub mod current_reports;
pub mod error;
pub mod foreign;
pub mod health;
pub mod linked_tasks;
pub mod migrate;
pub mod moment;
pub mod queue;
mod reach;
pub mod registry;
pub mod replacements;
pub mod results;
pub mod schema;
pub mod search;
mod shared_commit;
pub mod shown;
pub mod soundness;
pub mod sql;
pub mod store;
pub mod table;
pub mod tables;
mod tls;
mod touches;
pub mod transfer;
pub mod url;
pub mod wake;

pub use connection::Engine;
pub use error::{Error, Result};
pub use moment::Moment;
pub use store::{Reader, Store, TenantId, Writer};
pub use table::Table;
pub use url::Url;
