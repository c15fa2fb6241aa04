//! Who acts from inside a session: its run, where there is no doubt which.

use trackway_domain::{Id, kind, words::RunStatus};
use trackway_store::params;
use uuid::Uuid;

use crate::{
    context::{Actor, Context},
    core::Core,
    error::Result,
};

/// Runs that are looked for: two are too many to choose from, and how many is only told.
const LOOKED_FOR: i64 = 100;

/// What a session's id says about who acts in it.
#[derive(Debug)]
pub enum InSession {
    /// One run is open: it acts.
    One(Box<Context>),
    /// The session was never seen.
    Unknown,
    NoneOpen,
    /// The main agent and its subagents, say. They share what they start.
    Several(usize),
}

impl Core {
    /// Makes the context of the one run that is open in a session. The person who could do all of it anyway vouches for
    /// that; whether the run is still open is looked at again inside every write.
    pub fn enter_session(&self, person: &Context, client: &str, session: &str) -> Result<InSession> {
        let found = self.store().read(person.tenant)?.query::<(Option<Id<kind::Run>>, Option<Id<kind::Agent>>)>(
            "select r.id, r.agent_id from sessions s
             left join runs r on r.tenant_id = s.tenant_id and r.session_id = s.id and r.status = ?3
             where s.tenant_id = ?1 and s.session_id = ?2 and s.client = ?5 order by r.id limit ?4",
            params![session, RunStatus::Running, LOOKED_FOR, client],
        )?;
        Ok(match found.as_slice() {
            [] => InSession::Unknown,
            [(Some(run), Some(agent))] => InSession::One(Box::new(Context {
                tenant: person.tenant,
                actor: Actor::Agent(*agent),
                run: Some(*run),
                token: None,
                newcomer: None,
                request: Uuid::now_v7(),
            })),
            [_] => InSession::NoneOpen,
            several => InSession::Several(several.len()),
        })
    }
}
