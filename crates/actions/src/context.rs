//! The [`Context`] of an action: the actor and its run. It is made from a credential and passed as an argument. It is
//! never a global or a thread-local.

use trackway_domain::{Error as Rule, Id, enums::ActorKind, kind};
use trackway_store::TenantId;
use uuid::Uuid;

use crate::error::Result;

/// A person or an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    Person(Id<kind::Person>),
    Agent(Id<kind::Agent>),
}

impl Actor {
    pub fn kind(self) -> ActorKind {
        match self {
            Self::Person(_) => ActorKind::Person,
            Self::Agent(_) => ActorKind::Agent,
        }
    }

    pub fn id(self) -> Uuid {
        match self {
            Self::Person(id) => id.uuid(),
            Self::Agent(id) => id.uuid(),
        }
    }
}

/// The proof of a caller's identity.
#[derive(Debug, Clone)]
pub enum Credential {
    /// The user of the operating system. No secret is needed, because this user can open the database anyway.
    User { tenant: String, handle: String },
    /// The token of a run or of a person.
    Token(Secret),
    /// The token of a login link.
    Login(Secret),
}

/// A string that `Debug` does not print.
#[derive(Clone)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("***")
    }
}

/// The tenant, actor and run of an action. Only this crate creates contexts, mostly in [`crate::Core::authenticate`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Context {
    pub tenant: TenantId,
    pub actor: Actor,
    pub run: Option<Id<kind::Run>>,
    /// The token that authenticated the caller. Every write checks it again.
    pub token: Option<Id<kind::Token>>,
    /// The handle of a user who is not registered as a person yet. Their first write registers them.
    pub unregistered_handle: Option<String>,
    /// The id of this call; all its events carry it.
    pub request: Uuid,
}

impl Context {
    /// Denies an agent access to runs other than its own. People may access all runs.
    pub(crate) fn require_own_run(&self, run: Id<kind::Run>) -> Result<()> {
        match self.actor {
            Actor::Agent(_) if self.run != Some(run) => {
                Err(Rule::denied("the token of a run is valid for that run only").into())
            }
            _ => Ok(()),
        }
    }
}
