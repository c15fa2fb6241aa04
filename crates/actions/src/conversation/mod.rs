//! What people and agents say to each other, the tries they make, and what becomes work.

mod cleanup;
pub(crate) mod content;
mod experiment;
mod known;
mod message;
mod route;
mod set;
mod testcase;

pub use cleanup::CleanupContents;
pub use experiment::{EndExperiment, SetExperiment};
pub use message::{SendMessage, Sent};
pub use route::SetRoute;
pub use set::SetConversation;
pub use testcase::{ImportTestcases, SetTestcase};

use trackway_domain::{Id, kind};
use trackway_store::{Writer, params};

use crate::{context::Context, error::Result};

/// What a run lends to what is said in it.
#[derive(Debug, Clone, Copy, Default)]
struct OfRun {
    role: Option<Id<kind::Role>>,
    task: Option<Id<kind::Task>>,
}

impl OfRun {
    fn of(context: &Context, write: &mut Writer<'_>) -> Result<Self> {
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
