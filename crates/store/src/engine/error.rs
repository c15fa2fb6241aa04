//! What can go wrong between us and a database.

use trackway_domain::{ErrorKind, Sentence, command, sentence};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A rule said no.
    #[error(transparent)]
    Rule(#[from] trackway_domain::Error),
    #[error("{0:?} is not a database URL")]
    Url(String),
    #[error("{url} cannot be used: {why}")]
    Address { url: String, why: String },
    #[error("there is no database at {0}")]
    Missing(String),
    #[error("{0} is not a Trackway database")]
    NotOurs(String),
    #[error("the database at {at} is newer than this program (schema {found}, this program knows {known})")]
    Newer { at: String, found: i64, known: i64 },
    #[error("the database is busy: {0}")]
    Busy(String),
    #[error("PostgreSQL cannot be reached: {0}")]
    Unreachable(String),
    /// The connection was lost between a commit and its answer.
    #[error("the connection was lost before PostgreSQL said whether the change was made: {0}")]
    Unsettled(String),
    #[error("this PostgreSQL takes no writes: {0}")]
    Standby(String),
    /// What one connection prepared was looked for on another.
    #[error("PostgreSQL is behind a pooler that gives a connection to each transaction: {0}")]
    Pooled(String),
    #[error("PostgreSQL refused the connection: {0}")]
    Refused(String),
    /// The role in the URL lacks a right.
    #[error("PostgreSQL does not let this role do that: {0}")]
    NotAllowed(String),
    #[error("the disk is full: {0}")]
    Full(String),
    #[error("the database cannot be written: {0}")]
    ReadOnly(String),
    /// A unique index said no. Actions that expect it turn it into a sentence.
    #[error("that exists already ({0})")]
    Taken(String),
    /// Another transaction was in the way; doing all of it again may succeed.
    #[error("another writer was in the way: {0}")]
    Again(String),
    /// A write found that its precondition does not hold; nothing was changed.
    #[error("a precondition failed: {0}")]
    PreconditionFailed(String),
    /// The query was queued, to be sent with others in one round trip.
    #[error("the query is deferred")]
    Deferred,
    #[error("the database failed: {0}")]
    Database(String),
    #[error("a stored value cannot be read: {0}")]
    Value(String),
    /// A backup that was cut or changed.
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
            Self::Url(_) | Self::Address { .. } => ErrorKind::Usage,
            Self::Missing(_) => ErrorKind::NotFound,
            Self::Busy(_) | Self::Unreachable(_) | Self::Standby(_) | Self::Again(_) => ErrorKind::Busy,
            Self::Taken(_) | Self::PreconditionFailed(_) => ErrorKind::Conflict,
            Self::NotAllowed(_) => ErrorKind::Denied,
            // Not busy, which means that nothing happened and that trying again is safe.
            Self::Unsettled(_)
            | Self::Deferred
            | Self::NotOurs(_)
            | Self::Pooled(_)
            | Self::Refused(_)
            | Self::Newer { .. }
            | Self::Full(_)
            | Self::ReadOnly(_)
            | Self::Database(_)
            | Self::Value(_)
            | Self::Damaged(_)
            | Self::File(_) => ErrorKind::Failed,
        }
    }

    /// Whether it passes by waiting, for those who may do a thing twice: nothing is wrong with it, but with where it goes.
    pub fn is_passing(&self) -> bool {
        self.kind() == ErrorKind::Busy || matches!(self, Self::Unsettled(_)) || self.is_for_want_of_room()
    }

    /// Whether it waits for somebody to make room, or to give leave to write.
    pub fn is_for_want_of_room(&self) -> bool {
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
                return Some(sentence!["make it with: ", command!("init"), " (with the same --db)"]);
            }
            Self::Url(given) if !given.contains("://") && given.contains(['/', '.']) => {
                return Some(format!("for a file: sqlite:{given}").into());
            }
            Self::Url(_) => "use sqlite:PATH or postgres://USER@HOST/DATABASE",
            Self::NotOurs(_) => "give another file with --db; this one was left as it is",
            Self::Newer { .. } => "install the newer Trackway; the database was left as it is",
            Self::Busy(_) | Self::Again(_) => "try again in a moment",
            Self::Unsettled(_) => "it may have been made: look before you do it again",
            Self::Standby(_) => {
                "is it a standby? name all servers, and the one that takes writes is found: postgres://USER@A,B/DATABASE"
            }
            Self::Pooled(_) => "let it pool sessions: pool_mode = session",
            Self::Unreachable(_) => "is the server running, and is the URL right?",
            Self::Refused(_) => "check the user, the password and the database in the URL",
            Self::NotAllowed(_) => {
                "a role that only reads cannot write: give the URL of the role that owns the tables; nothing was changed"
            }
            Self::Full(_) => "free some space and try again; nothing was changed",
            Self::ReadOnly(_) => "check the permissions of the file and its directory; nothing was changed",
            Self::Damaged(_) => "take another copy of it; nothing was changed",
            Self::Address { .. } => "see the guide to PostgreSQL for what a URL can say",
            Self::Taken(_)
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
            Some(ErrorCode::NotADatabase) => Self::NotOurs("this file".into()),
            Some(ErrorCode::ConstraintViolation) if text.contains("UNIQUE") => Self::Taken(text),
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
            Some(code) if *code == SqlState::UNIQUE_VIOLATION => Self::Taken(text),
            // A statement whose precondition fails divides by zero, or inserts the null that a lookup inside it returned.
            Some(code) if [SqlState::DIVISION_BY_ZERO, SqlState::NOT_NULL_VIOLATION].contains(code) => {
                Self::PreconditionFailed(text)
            }
            Some(code) if *code == SqlState::DISK_FULL => Self::Full(text),
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => Self::NotAllowed(text),
            Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Self::Standby(text),
            Some(code) if [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code) => {
                Self::Again(text)
            }
            // It takes no connections for now.
            Some(code) if *code == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => Self::Unreachable(text),
            Some(code) if *code == SqlState::INVALID_CATALOG_NAME => Self::Missing(text),
            Some(code) if code.code().starts_with("28") => Self::Refused(text),
            Some(code) if ["08", "57P", "53300"].iter().any(|class| code.code().starts_with(class)) => {
                Self::Unreachable(text)
            }
            Some(code) if [SqlState::DUPLICATE_PSTATEMENT, SqlState::INVALID_SQL_STATEMENT_NAME].contains(code) => {
                Self::Pooled(text)
            }
            Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE => Self::Busy(text),
            Some(_) => Self::Database(text),
        }
    }
}
