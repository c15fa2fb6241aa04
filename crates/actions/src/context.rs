//! Who is acting, in which run. Explicit, and made from a credential: never a thread-local, never a global.

use trackway_domain::{Error as Rule, Id, kind, words::ActorKind};
use trackway_store::TenantId;
use uuid::Uuid;

use crate::error::Result;

/// The two kinds of actor.
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

/// How a caller shows who it is.
#[derive(Debug, Clone)]
pub enum Credential {
    /// The operating system's user, who can open the database anyway.
    User { tenant: String, handle: String },
    /// A token, of a run or of a person.
    Token(Secret),
    /// The token of a login link.
    Login(Secret),
}

/// A text that is never printed.
#[derive(Clone)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("***")
    }
}

/// What every action is executed in. Made by [`crate::Core::enter`] and nowhere outside this crate.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Context {
    pub tenant: TenantId,
    pub actor: Actor,
    pub run: Option<Id<kind::Run>>,
    /// The token that vouched for this context; checked again inside every write.
    pub token: Option<Id<kind::Token>>,
    /// The handle of someone who was never here: they are entered with their first write.
    pub newcomer: Option<String>,
    /// Ties the events of one call together.
    pub request: Uuid,
}

impl Context {
    /// Refuses an agent that speaks about a run other than its own. People may speak about any.
    pub(crate) fn require_own_run(&self, run: Id<kind::Run>) -> Result<()> {
        match self.actor {
            Actor::Agent(_) if self.run != Some(run) => {
                Err(Rule::denied("a run's token is good for that run only").into())
            }
            _ => Ok(()),
        }
    }
}
