//! Errors of databases and of the actions and views that use them.

use trackway_domain::{ErrorKind, Sentence, command, sentence};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request violates a domain rule.
    #[error(transparent)]
    Rule(#[from] trackway_domain::Error),
    #[error("{0:?} is not a database URL")]
    Url(String),
    #[error("cannot use the database URL {url}: {why}")]
    UnusableUrl { url: String, why: String },
    #[error("there is no database at {0}")]
    Missing(String),
    #[error("{0} is not a Trackway database")]
    NotTrackway(String),
    #[error("the database at {at} is newer than this program (schema {found}, this program knows {known})")]
    SchemaTooNew { at: String, found: i64, known: i64 },
    #[error("the database is busy: {0}")]
    Busy(String),
    #[error("PostgreSQL cannot be reached: {0}")]
    Unreachable(String),
    /// The connection dropped after the commit was sent and before the server confirmed it.
    #[error("the connection was lost before PostgreSQL confirmed the change: {0}")]
    CommitUnknown(String),
    #[error("this PostgreSQL server accepts no writes: {0}")]
    Standby(String),
    /// A prepared statement is missing on the server connection. The cause is a connection pooler in transaction mode.
    #[error("PostgreSQL is behind a connection pooler in transaction mode: {0}")]
    TransactionPooler(String),
    #[error("PostgreSQL refused the connection: {0}")]
    ConnectionRejected(String),
    /// The role in the URL lacks a privilege.
    #[error("the PostgreSQL role lacks a privilege: {0}")]
    NotAllowed(String),
    #[error("the disk is full: {0}")]
    Full(String),
    #[error("the database cannot be written: {0}")]
    ReadOnly(String),
    /// A row violates a unique index. Actions that expect this error return an error of their own instead.
    #[error("already exists: {0}")]
    Duplicate(String),
    /// The transaction conflicts with another one. Repeating it may succeed.
    #[error("the change conflicts with another writer: {0}")]
    WriteConflict(String),
    /// The precondition of an optimistic write does not hold. Nothing was changed.
    #[error("a precondition failed: {0}")]
    PreconditionFailed(String),
    /// The query waits to be sent with others in one round trip. Never leaves this crate.
    #[error("the query is deferred")]
    Deferred,
    #[error("database error: {0}")]
    Database(String),
    #[error("a stored value cannot be read: {0}")]
    Value(String),
    /// The backup is incomplete, or its checksum is wrong.
    #[error("the backup is damaged: {0}")]
    Damaged(String),
    #[error("{0}")]
    File(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Rule(rule) => rule.kind,
            Self::Url(_) | Self::UnusableUrl { .. } => ErrorKind::Usage,
            Self::Missing(_) => ErrorKind::NotFound,
            Self::Busy(_) | Self::Unreachable(_) | Self::Standby(_) | Self::WriteConflict(_) => ErrorKind::Busy,
            Self::Duplicate(_) | Self::PreconditionFailed(_) => ErrorKind::Conflict,
            Self::NotAllowed(_) => ErrorKind::Denied,
            // Not `Busy`: busy promises that nothing was changed and that a retry is safe.
            Self::CommitUnknown(_)
            | Self::Deferred
            | Self::NotTrackway(_)
            | Self::TransactionPooler(_)
            | Self::ConnectionRejected(_)
            | Self::SchemaTooNew { .. }
            | Self::Full(_)
            | Self::ReadOnly(_)
            | Self::Database(_)
            | Self::Value(_)
            | Self::Damaged(_)
            | Self::File(_) => ErrorKind::Failed,
        }
    }

    /// Returns whether the error may go away by itself, or once the database is available again. Only idempotent
    /// requests may be retried, because [`Self::CommitUnknown`] is among these errors.
    pub fn is_transient(&self) -> bool {
        self.kind() == ErrorKind::Busy || matches!(self, Self::CommitUnknown(_)) || self.is_full_or_read_only()
    }

    /// Returns whether somebody has to free disk space or make the database writable before a retry can succeed.
    pub fn is_full_or_read_only(&self) -> bool {
        matches!(self, Self::Full(_) | Self::ReadOnly(_))
    }

    pub fn message(&self) -> Sentence {
        match self {
            Self::Rule(rule) => rule.message.clone(),
            _ => self.to_string().into(),
        }
    }

    pub fn hint(&self) -> Option<Sentence> {
        let hint = match self {
            Self::Rule(rule) => return rule.hint.clone(),
            Self::Missing(_) => {
                return Some(sentence!["create it with: ", command!("init"), " (with the same --db)"]);
            }
            Self::Url(given) if !given.contains("://") && given.contains(['/', '.']) => {
                return Some(format!("for a SQLite file: sqlite:{given}").into());
            }
            Self::Url(_) => "use sqlite:PATH or postgres://USER@HOST/DATABASE",
            Self::NotTrackway(_) => "choose another file with --db; nothing was changed",
            Self::SchemaTooNew { .. } => "install a newer version of Trackway; nothing was changed",
            Self::Busy(_) | Self::WriteConflict(_) => "try again in a moment",
            Self::CommitUnknown(_) => "the change may have been made; check before you try again",
            Self::Standby(_) => {
                "if it is a standby, list all servers in the URL; Trackway uses the one that accepts writes: postgres://USER@A,B/DATABASE"
            }
            Self::TransactionPooler(_) => "use session pooling: pool_mode = session",
            Self::Unreachable(_) => "is the server running, and is the URL right?",
            Self::ConnectionRejected(_) => "check the user, the password and the database in the URL",
            Self::NotAllowed(_) => "use the URL of the role that owns the tables; nothing was changed",
            Self::Full(_) => "free some space and try again; nothing was changed",
            Self::ReadOnly(_) => "check the permissions of the file and its directory; nothing was changed",
            Self::Damaged(_) => "use another copy of the backup; nothing was changed",
            Self::UnusableUrl { .. } => "see the PostgreSQL guide for the parameters of a URL",
            Self::Duplicate(_)
            | Self::PreconditionFailed(_)
            | Self::Deferred
            | Self::Database(_)
            | Self::Value(_)
            | Self::File(_) => return None,
        };
        Some(hint.into())
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        let text = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(text),
            Some(ErrorCode::DiskFull) => Self::Full(text),
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => Self::ReadOnly(text),
            Some(ErrorCode::NotADatabase) => Self::NotTrackway("this file".into()),
            Some(ErrorCode::ConstraintViolation) if text.contains("UNIQUE") => Self::Duplicate(text),
            _ => Self::Database(text),
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        use tokio_postgres::error::SqlState;
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let text = match (error.as_db_error(), cause) {
            (Some(database), _) => database.message().to_owned(),
            (None, Some(cause)) => format!("{error}: {cause}"),
            (None, None) => error.to_string(),
        };
        match error.code() {
            None => Self::Unreachable(text),
            Some(code) if *code == SqlState::UNIQUE_VIOLATION => Self::Duplicate(text),
            // A statement whose precondition fails either divides by zero, or inserts the null that its subquery
            // returned.
            Some(code) if [SqlState::DIVISION_BY_ZERO, SqlState::NOT_NULL_VIOLATION].contains(code) => {
                Self::PreconditionFailed(text)
            }
            Some(code) if *code == SqlState::DISK_FULL => Self::Full(text),
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => Self::NotAllowed(text),
            Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Self::Standby(text),
            Some(code) if [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code) => {
                Self::WriteConflict(text)
            }
            // The server accepts no connections at the moment.
            Some(code) if *code == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => Self::Unreachable(text),
            Some(code) if *code == SqlState::INVALID_CATALOG_NAME => Self::Missing(text),
            Some(code) if code.code().starts_with("28") => Self::ConnectionRejected(text),
            Some(code) if ["08", "57P", "53300"].iter().any(|class| code.code().starts_with(class)) => {
                Self::Unreachable(text)
            }
            Some(code) if [SqlState::DUPLICATE_PSTATEMENT, SqlState::INVALID_SQL_STATEMENT_NAME].contains(code) => {
                Self::TransactionPooler(text)
            }
            Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE => Self::Busy(text),
            Some(_) => Self::Database(text),
        }
    }
}
