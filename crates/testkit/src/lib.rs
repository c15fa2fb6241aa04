//! Test support: databases on both engines, test environments, snapshots of a tenant's rows, a scripted model, and real
//! clients that talk to it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a panic in the test kit fails the test"
)]

pub mod claude_client;
mod command_line;
pub mod corpus;
mod database;
mod network;
mod program;
mod run;
pub mod scripted_model;
mod server;
mod snapshot;
mod test_env;
mod wait;

pub(crate) use claude_client::spawn_tool;
pub use command_line::{CommandLine, column, text};
pub use database::{TestDatabase, database, migrated_database};
pub use network::Network;
pub use program::{copy_program, write_program};
pub use run::TestRun;
pub use server::{CrashingServer, RemoteServer, ServerPair};
pub use snapshot::Snapshot;
pub use test_env::{TestAgent, TestEnv, id};
pub use trackway_store::Engine;
pub use wait::{poll, wait_until};

/// Defines two tests per function, `name::sqlite` and `name::postgres`. Each runs the body with a new test environment
/// on its engine.
#[macro_export]
macro_rules! engines {
    ($($(#[$meta:meta])* fn $name:ident($env:ident: $type:ty) $body:block)*) => {
        $(
            #[cfg(test)]
            mod $name {
                use super::*;

                fn run_test($env: $type) $body

                $(#[$meta])*
                #[test]
                fn sqlite() {
                    run_test(<$type>::new($crate::Engine::Sqlite));
                }

                $(#[$meta])*
                #[test]
                fn postgres() {
                    run_test(<$type>::new($crate::Engine::Postgres));
                }
            }
        )*
    };
}
