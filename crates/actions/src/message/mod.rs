//! Messages, and the bodies that they share.

pub(crate) mod content;
mod lookup;
mod send;

pub use send::{SendMessage, Sent};

use trackway_domain::{Id, kind};
use trackway_store::{Writer, params};

use crate::{context::Context, error::Result};

/// What a run lends to what is said in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OfRun {
    pub role: Option<Id<kind::Role>>,
    pub task: Option<Id<kind::Task>>,
}

impl OfRun {
    pub fn of(context: &Context, write: &mut Writer<'_>) -> Result<Self> {
        let Some(run) = context.run else {
            return Ok(Self::default());
        };
        let found = write.one::<(Option<Id<kind::Role>>, Option<Id<kind::Task>>)>(
            "select role_id, task_id from runs where tenant_id = ?1 and id = ?2",
            params![run],
        )?;
        Ok(found.map_or_else(Self::default, |(role, task)| Self { role, task }))
    }
}
