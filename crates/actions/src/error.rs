//! The error type of actions. Its `ErrorKind` determines the exit code and the HTTP status.

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

    /// True if waiting may resolve the error: the database is busy, unreachable, full or read-only, or the connection
    /// dropped during a commit. In the last case the change may have been made, so retry only actions that are safe
    /// to repeat.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Rule(rule) => rule.kind == ErrorKind::Busy,
            Self::Store(store) => store.is_transient(),
        }
    }

    /// True if PostgreSQL rejected our login.
    pub fn is_login_rejected(&self) -> bool {
        matches!(self, Self::Store(trackway_store::Error::ConnectionRejected(_)))
    }

    /// True if the disk is full or the database is read-only.
    pub fn is_full_or_read_only(&self) -> bool {
        matches!(self, Self::Store(store) if store.is_full_or_read_only())
    }

    /// True if a precondition of an optimistic transaction did not hold.
    pub(crate) fn is_precondition_failed(&self) -> bool {
        matches!(self, Self::Store(trackway_store::Error::PreconditionFailed(_)))
    }

    /// True if another writer committed a conflicting change first. A retry of the whole transaction may succeed.
    pub(crate) fn is_write_conflict(&self) -> bool {
        use trackway_store::Error as Store;
        matches!(self, Self::Store(Store::WriteConflict(_) | Store::Duplicate(_)))
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
