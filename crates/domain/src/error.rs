//! Errors of domain rules, and the table that maps each kind of failure to its exit code, HTTP status and JSON code.

use crate::Sentence;

/// The kind of a failure. It decides the exit code, the HTTP status and the JSON code.
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

/// A violated rule: a message that names the problem, and a hint how to fix it.
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

    /// Sets the hint, which tells the user how to fix the problem.
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
    fn table_rows_follow_the_order_of_kinds_and_exit_codes() {
        for (index, row) in ErrorKind::TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, index);
            assert_eq!(usize::from(row.1), index + 1);
        }
    }
}
