//! What an action can fail with. `ErrorKind` says what that means at a door.

use trackway_domain::{ErrorKind, Sentence};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Rule(#[from] trackway_domain::Error),
    #[error(transparent)]
    Store(trackway_store::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Rule(rule) => rule.kind,
            Self::Store(store) => store.kind(),
        }
    }

    pub fn message(&self) -> Sentence {
        match self {
            Self::Rule(rule) => rule.message.clone(),
            Self::Store(store) => store.message(),
        }
    }

    pub fn hint(&self) -> Option<Sentence> {
        match self {
            Self::Rule(rule) => rule.hint.clone(),
            Self::Store(store) => store.hint(),
        }
    }

    /// Whether it passes by waiting, for those who may do a thing twice: the database is away, or went away before it said
    /// what became of a change.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Rule(rule) => rule.kind == ErrorKind::Busy,
            Self::Store(store) => store.is_passing(),
        }
    }

    /// Whether the database does not let us in, by its own word.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Store(trackway_store::Error::Refused(_)))
    }

    /// Whether it waits for somebody to make room, or to give leave to write.
    pub fn is_for_want_of_room(&self) -> bool {
        matches!(self, Self::Store(store) if store.is_for_want_of_room())
    }

    /// Whether an optimistic transaction failed because a precondition did not hold.
    pub(crate) fn is_precondition_failed(&self) -> bool {
        matches!(self, Self::Store(trackway_store::Error::PreconditionFailed(_)))
    }

    /// Whether doing all of it again may succeed: another writer was first.
    pub(crate) fn is_worth_another_try(&self) -> bool {
        use trackway_store::Error as Store;
        matches!(self, Self::Store(Store::Again(_) | Store::Taken(_)))
    }
}

impl From<trackway_store::Error> for Error {
    fn from(error: trackway_store::Error) -> Self {
        match error {
            trackway_store::Error::Rule(rule) => Self::Rule(rule),
            other => Self::Store(other),
        }
    }
}
