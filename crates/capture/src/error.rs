//! The errors of capture.

/// A failure to read or to record observations.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Action(#[from] trackway_actions::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Another process is applying the spooled events. A later event must wait until they are applied.
    #[error("another process is applying the spooled events")]
    ApplyingSpool,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the operation may succeed if it is retried later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Action(error) => error.is_transient(),
            Self::Io(_) => false,
            Self::ApplyingSpool => true,
        }
    }
}

impl From<trackway_store::Error> for Error {
    fn from(error: trackway_store::Error) -> Self {
        Self::Action(error.into())
    }
}
