//! Messages, and the content rows that they share.

pub(crate) mod content;
mod lookup;
mod send;

pub use send::{SendMessage, SentMessage};

use trackway_domain::{Id, kind};
use trackway_store::{Writer, params};

use crate::{context::Context, error::Result};

/// The role and task of the acting run. Messages sent in the run get them by default.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunDefaults {
    pub role: Option<Id<kind::Role>>,
    pub task: Option<Id<kind::Task>>,
}

impl RunDefaults {
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
