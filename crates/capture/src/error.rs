//! What capture can fail with.

/// A failure of writing what was observed, or of reading it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Action(#[from] trackway_actions::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Another process applies the spooled events: a later event has to wait behind them.
    #[error("events are being applied")]
    Applying,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the same may succeed later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Action(error) => error.is_passing(),
            Self::Io(_) => false,
            Self::Applying => true,
        }
    }
}

impl From<trackway_store::Error> for Error {
    fn from(error: trackway_store::Error) -> Self {
        Self::Action(error.into())
    }
}
