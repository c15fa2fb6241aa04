//! Returning queue items whose leases expired.

use serde::{Deserialize, Serialize};
use trackway_store::Writer;

use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    queue::lease::{count_from_now, return_expired},
    touched::Nothing,
};

/// Return queue items whose holders were not heard of any more
///
/// Whoever takes next does the same first; this is for a queue that nobody takes from.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupLeases {}

/// How many were returned.
#[derive(Debug, Serialize)]
pub struct Returned {
    pub returned: usize,
}

impl Action for CleanupLeases {
    const NAME: &'static str = "cleanup_leases";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "leases");
    type Touched = Nothing;
    type Output = Returned;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        count_from_now(write)?;
        // Each is told of by an event of its own.
        Ok(Done::unchanged(Returned { returned: return_expired(context, write)? }))
    }
}
