//! Determines which run acts in a session.

use trackway_domain::{Id, enums::RunStatus, kind};
use trackway_store::params;
use uuid::Uuid;

use crate::{
    context::{Actor, Context},
    core::Core,
    error::Result,
};

/// Maximum number of open runs to count. Two are already ambiguous; the number only appears in a message.
const COUNTED_RUNS_MAX: i64 = 100;

/// The run that acts in a session, if exactly one run is open.
#[derive(Debug)]
pub enum ActingRun {
    /// The context of the only open run.
    One(Box<Context>),
    /// No session with this id is recorded.
    UnknownSession,
    NoneOpen,
    /// The number of open runs. For example, the main agent and a subagent run at the same time, and a process of the
    /// session may belong to either.
    Several(usize),
}

impl Core {
    /// Creates the context of the only open run of a session. This needs no run token, because the person could do
    /// everything that the run may do. Every write checks again that the run is open.
    pub fn find_acting_run(&self, person: &Context, client: &str, session: &str) -> Result<ActingRun> {
        let found = self.store().read(person.tenant)?.query::<(Option<Id<kind::Run>>, Option<Id<kind::Agent>>)>(
            "select r.id, r.agent_id from sessions s
             left join runs r on r.tenant_id = s.tenant_id and r.session_id = s.id and r.status = ?3
             where s.tenant_id = ?1 and s.session_id = ?2 and s.client = ?5 order by r.id limit ?4",
            params![session, RunStatus::Running, COUNTED_RUNS_MAX, client],
        )?;
        Ok(match found.as_slice() {
            [] => ActingRun::UnknownSession,
            [(Some(run), Some(agent))] => ActingRun::One(Box::new(Context {
                tenant: person.tenant,
                actor: Actor::Agent(*agent),
                run: Some(*run),
                token: None,
                unregistered_handle: None,
                request: Uuid::now_v7(),
            })),
            [_] => ActingRun::NoneOpen,
            several => ActingRun::Several(several.len()),
        })
    }
}
