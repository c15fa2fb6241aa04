//! The one table of failure kinds: what a user sees, as exit code and HTTP status.

use crate::Sentence;

/// What sort of failure this is. Decides the exit code, the HTTP status and the JSON code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    Failed,
    Usage,
    NotFound,
    Conflict,
    Busy,
    Denied,
}

impl ErrorKind {
    const TABLE: [(Self, u8, u16, &'static str); 6] = [
        (Self::Failed, 1, 500, "failed"),
        (Self::Usage, 2, 422, "usage"),
        (Self::NotFound, 3, 404, "not_found"),
        (Self::Conflict, 4, 409, "conflict"),
        (Self::Busy, 5, 503, "busy"),
        (Self::Denied, 6, 403, "denied"),
    ];

    fn row(self) -> (Self, u8, u16, &'static str) {
        Self::TABLE[self as usize]
    }

    pub fn exit_code(self) -> u8 {
        self.row().1
    }

    pub fn http_status(self) -> u16 {
        self.row().2
    }

    pub fn code(self) -> &'static str {
        self.row().3
    }
}

/// A rule that was not kept: what happened, to what, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub kind: ErrorKind,
    pub message: Sentence,
    pub hint: Option<Sentence>,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn new(kind: ErrorKind, message: impl Into<Sentence>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    pub fn usage(message: impl Into<Sentence>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    pub fn not_found(message: impl Into<Sentence>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    pub fn conflict(message: impl Into<Sentence>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    pub fn denied(message: impl Into<Sentence>) -> Self {
        Self::new(ErrorKind::Denied, message)
    }

    /// Adds the line that says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Sentence>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_stands_in_its_own_row() {
        for (index, row) in ErrorKind::TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, index);
            assert_eq!(usize::from(row.1), index + 1);
        }
    }
}
