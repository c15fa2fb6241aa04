//! Support for tests: databases on both engines, an env to tell stories in, and what they left behind; a model that
//! keeps to a script, and real clients to talk to it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "only tests use this, and a panic is how a test fails"
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

/// Makes two tests of each story, `name::sqlite` and `name::postgres`, each with a test environment of its own.
#[macro_export]
macro_rules! engines {
    ($($(#[$meta:meta])* fn $name:ident($env:ident: $type:ty) $story:block)*) => {
        $(
            #[cfg(test)]
            mod $name {
                use super::*;

                fn story($env: $type) $story

                $(#[$meta])*
                #[test]
                fn sqlite() {
                    story(<$type>::new($crate::Engine::Sqlite));
                }

                $(#[$meta])*
                #[test]
                fn postgres() {
                    story(<$type>::new($crate::Engine::Postgres));
                }
            }
        )*
    };
}
