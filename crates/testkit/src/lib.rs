//! Support for tests: databases on both engines, a house to tell stories in, and what they left behind; a model that
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
mod house;
mod network;
mod program;
mod run;
pub mod scripted_model;
mod server;
mod snapshot;
mod wait;

pub use command_line::{CommandLine, column, text};
pub use database::{TestDatabase, database, migrated_database};
pub use house::{Hand, House, id};
pub use network::Network;
pub use program::{copy_program, write_program};
pub use run::RunHand;
pub use server::{CrashingServer, RemoteServer, ServerPair};
pub use snapshot::Snapshot;
pub use trackway_store::Engine;
pub use wait::{poll, wait_until};

/// Makes two tests of each story, `name::sqlite` and `name::postgres`, each with a house of its own.
#[macro_export]
macro_rules! engines {
    ($($(#[$meta:meta])* fn $name:ident($house:ident: $type:ty) $story:block)*) => {
        $(
            #[cfg(test)]
            mod $name {
                use super::*;

                fn story($house: $type) $story

                $(#[$meta])*
                #[test]
                fn sqlite() {
                    story(<$type>::on($crate::Engine::Sqlite));
                }

                $(#[$meta])*
                #[test]
                fn postgres() {
                    story(<$type>::on($crate::Engine::Postgres));
                }
            }
        )*
    };
}
