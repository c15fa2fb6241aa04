//! Values that both engines share: a [`Param`] is bound to a statement, and a [`Column`] is read from a row.
//!
//! Each engine stores its native types: uuid, timestamptz, jsonb and boolean in PostgreSQL; blob, integer microseconds,
//! text and 0/1 in SQLite.

use std::borrow::Cow;

use postgres_types::{FromSql, IsNull, ToSql, Type, private::BytesMut};
use rusqlite::types::{ToSqlOutput, ValueRef};
use trackway_domain::{Duration, Id, Time, Variant, enums, kind};
use uuid::Uuid;

use crate::error::{Error, Result};

/// A value that is bound to a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Param<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    Uuid(Uuid),
    Time(Time),
    Json(String),
    /// An array of values of one type; only on PostgreSQL.
    List(Vec<Self>),
}

impl Param<'_> {
    pub fn into_owned(self) -> Param<'static> {
        match self {
            Param::Null => Param::Null,
            Param::Bool(value) => Param::Bool(value),
            Param::Int(value) => Param::Int(value),
            Param::Real(value) => Param::Real(value),
            Param::Text(value) => Param::Text(Cow::Owned(value.into_owned())),
            Param::Bytes(value) => Param::Bytes(Cow::Owned(value.into_owned())),
            Param::Uuid(value) => Param::Uuid(value),
            Param::Time(value) => Param::Time(value),
            Param::Json(value) => Param::Json(value),
            Param::List(values) => Param::List(values.into_iter().map(Param::into_owned).collect()),
        }
    }

    /// The PostgreSQL type of this value. A null takes the type that the statement needs.
    pub(crate) fn postgres_type(&self) -> Type {
        match self {
            Param::Null => Type::UNKNOWN,
            Param::Bool(_) => Type::BOOL,
            Param::Int(_) => Type::INT8,
            Param::Real(_) => Type::FLOAT8,
            Param::Text(_) => Type::TEXT,
            Param::Bytes(_) => Type::BYTEA,
            Param::Uuid(_) => Type::UUID,
            Param::Time(_) => Type::TIMESTAMPTZ,
            Param::Json(_) => Type::JSONB,
            Param::List(values) => {
                match values.iter().find(|value| **value != Param::Null).map_or(Type::TEXT, Param::postgres_type) {
                    Type::BOOL => Type::BOOL_ARRAY,
                    Type::INT8 => Type::INT8_ARRAY,
                    Type::FLOAT8 => Type::FLOAT8_ARRAY,
                    Type::BYTEA => Type::BYTEA_ARRAY,
                    Type::UUID => Type::UUID_ARRAY,
                    Type::TIMESTAMPTZ => Type::TIMESTAMPTZ_ARRAY,
                    Type::JSONB => Type::JSONB_ARRAY,
                    _ => Type::TEXT_ARRAY,
                }
            }
        }
    }
}

pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}

/// Microseconds from 1970, the epoch of [`Time`], to 2000, the epoch of PostgreSQL.
const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;

impl ToSql for Param<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Param::Null => return Ok(IsNull::Yes),
            Param::Bool(value) => return value.to_sql(ty, out),
            Param::Int(value) if *ty == Type::INT4 => {
                return i32::try_from(*value)?.to_sql(ty, out);
            }
            Param::Int(value) => return value.to_sql(ty, out),
            Param::Real(value) => return value.to_sql(ty, out),
            Param::Text(value) => out.extend_from_slice(value.as_bytes()),
            Param::Bytes(value) => out.extend_from_slice(value),
            Param::Uuid(value) => out.extend_from_slice(value.as_bytes()),
            Param::Time(value) => {
                out.extend_from_slice(&(value.micros() - POSTGRES_EPOCH_MICROS).to_be_bytes());
            }
            Param::Json(value) => {
                out.extend_from_slice(&[1]);
                out.extend_from_slice(value.as_bytes());
            }
            Param::List(values) => return values.to_sql(ty, out),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    postgres_types::to_sql_checked!();
}

impl rusqlite::ToSql for Param<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Param::Null => ValueRef::Null,
            Param::Bool(value) => ValueRef::Integer(i64::from(*value)),
            Param::Int(value) => ValueRef::Integer(*value),
            Param::Real(value) => ValueRef::Real(*value),
            Param::Text(value) => ValueRef::Text(value.as_bytes()),
            Param::Bytes(value) => ValueRef::Blob(value),
            Param::Uuid(value) => ValueRef::Blob(value.as_bytes()),
            Param::Time(value) => ValueRef::Integer(value.micros()),
            Param::Json(value) => ValueRef::Text(value.as_bytes()),
            Param::List(_) => return Err(rusqlite::Error::ToSqlConversionFailure("SQLite has no arrays".into())),
        }))
    }
}

/// A type that can be bound to a statement.
pub trait ToParam {
    fn to_param(&self) -> Param<'_>;
}

/// Binds values of one type as an array; only on PostgreSQL.
pub fn list<'a, T: ToParam + 'a>(values: impl IntoIterator<Item = &'a T>) -> Param<'a> {
    Param::List(values.into_iter().map(ToParam::to_param).collect())
}

/// Builds a parameter list: `params![context.tenant, id, name]`.
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$($crate::sql::ToParam::to_param(&$value)),*]
    };
}

/// Consecutive placeholders from number `from` on: `?2, ?3, ?4`.
pub fn placeholders(from: usize, count: usize) -> String {
    (from..from + count).map(|number| format!("?{number}")).collect::<Vec<_>>().join(", ")
}

/// A value as the engine returns it, before it is converted to a Rust type.
#[derive(Debug, Clone, Copy)]
pub enum Column<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
    Uuid(Uuid),
    Time(Time),
}

/// A row of either engine.
#[derive(Debug)]
pub enum Row<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    Postgres(&'a tokio_postgres::Row),
}

impl Row<'_> {
    pub fn column_count(&self) -> usize {
        match self {
            Row::Sqlite(row) => row.as_ref().column_count(),
            Row::Postgres(row) => row.len(),
        }
    }

    pub fn get<T: FromColumn>(&self, index: usize) -> Result<T> {
        T::from_column(self.column(index)?)
    }

    /// Reads a column. This code is not in `get`, because the compiler instantiates `get` for every field type.
    fn column(&self, index: usize) -> Result<Column<'_>> {
        Ok(match self {
            Row::Sqlite(row) => match row.get_ref(index)? {
                ValueRef::Null => Column::Null,
                ValueRef::Integer(value) => Column::Int(value),
                ValueRef::Real(value) => Column::Real(value),
                ValueRef::Text(value) => {
                    Column::Text(std::str::from_utf8(value).map_err(|error| Error::Value(error.to_string()))?)
                }
                ValueRef::Blob(value) => Column::Bytes(value),
            },
            Row::Postgres(row) => {
                row.try_get::<_, Column<'_>>(index).map_err(|error| Error::Value(error_cause(&error)))?
            }
        })
    }
}

/// The cause of a conversion error, without the driver's prefix.
fn error_cause(error: &tokio_postgres::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl<'a> FromSql<'a> for Column<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> std::result::Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(match *ty {
            Type::BOOL => Self::Bool(bool::from_sql(ty, raw)?),
            Type::INT8 => Self::Int(i64::from_sql(ty, raw)?),
            Type::INT4 => Self::Int(i32::from_sql(ty, raw)?.into()),
            Type::FLOAT8 => Self::Real(f64::from_sql(ty, raw)?),
            Type::UUID => Self::Uuid(Uuid::from_slice(raw)?),
            Type::TIMESTAMPTZ => {
                let micros = i64::from_be_bytes(raw.try_into()?);
                // PostgreSQL's "infinity" and "-infinity" have no equivalent.
                let since_1970 = micros.checked_add(POSTGRES_EPOCH_MICROS).filter(|_| micros != i64::MIN);
                Self::Time(Time::from_micros(since_1970.ok_or("the time is out of range")?))
            }
            Type::BYTEA => Self::Bytes(raw),
            // The binary format of jsonb is a version byte followed by text.
            Type::JSONB => Self::Text(std::str::from_utf8(raw.get(1..).unwrap_or_default())?),
            _ => Self::Text(std::str::from_utf8(raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> std::result::Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A type that can be read from a column.
pub trait FromColumn: Sized {
    fn from_column(column: Column<'_>) -> Result<Self>;
}

fn unexpected_type<T>(column: Column<'_>) -> Result<T> {
    Err(Error::Value(format!("expected {}, found {column:?}", std::any::type_name::<T>())))
}

impl<T: FromColumn> FromColumn for Option<T> {
    fn from_column(column: Column<'_>) -> Result<Self> {
        match column {
            Column::Null => Ok(None),
            column => T::from_column(column).map(Some),
        }
    }
}

impl<T: ToParam> ToParam for Option<T> {
    fn to_param(&self) -> Param<'_> {
        self.as_ref().map_or(Param::Null, ToParam::to_param)
    }
}

impl<T: ToParam + ?Sized> ToParam for &T {
    fn to_param(&self) -> Param<'_> {
        (**self).to_param()
    }
}

macro_rules! columns {
    ($($type:ty: $value:ident => $param:expr, $($pattern:pat => $read:expr),+;)*) => {
        $(
            impl ToParam for $type {
                fn to_param(&self) -> Param<'_> {
                    let $value = self;
                    $param
                }
            }

            impl FromColumn for $type {
                fn from_column(column: Column<'_>) -> Result<Self> {
                    match column {
                        $($pattern => Ok($read),)+
                        column => unexpected_type(column),
                    }
                }
            }
        )*
    };
}

columns! {
    bool: value => Param::Bool(*value), Column::Bool(read) => read, Column::Int(read) => read != 0;
    i64: value => Param::Int(*value), Column::Int(read) => read;
    f64: value => Param::Real(*value), Column::Real(read) => read, Column::Int(read) => read as f64;
    String: value => Param::Text(Cow::Borrowed(value)), Column::Text(read) => read.to_owned();
    Vec<u8>: value => Param::Bytes(Cow::Borrowed(value)), Column::Bytes(read) => read.to_vec();
    Uuid: value => Param::Uuid(*value), Column::Uuid(read) => read, Column::Bytes(read) => uuid_from(read)?;
    Time: value => Param::Time(*value), Column::Time(read) => read, Column::Int(read) => Self::from_micros(read);
    Duration: value => Param::Int(value.seconds()), Column::Int(read) => Self::from_seconds(read);
    Variant: value => Param::Text(Cow::Borrowed(value.as_str())), Column::Text(read) => read.parse()?;
    serde_json::Value: value => Param::Json(value.to_string()), Column::Text(read) => json_from(read)?;
    Vec<String>: value => Param::Json(serde_json::json!(value).to_string()), Column::Text(read) => json_from(read)?;
}

impl ToParam for str {
    fn to_param(&self) -> Param<'_> {
        Param::Text(Cow::Borrowed(self))
    }
}

impl<K> ToParam for Id<K> {
    fn to_param(&self) -> Param<'_> {
        Param::Uuid(self.uuid())
    }
}

impl<K> FromColumn for Id<K> {
    fn from_column(column: Column<'_>) -> Result<Self> {
        Uuid::from_column(column).map(Self::from)
    }
}

fn uuid_from(bytes: &[u8]) -> Result<Uuid> {
    Uuid::from_slice(bytes).map_err(|error| Error::Value(error.to_string()))
}

fn json_from<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Error::Value(error.to_string()))
}

macro_rules! enum_columns {
    ($($type:ty),* $(,)?) => {
        $(
            impl ToParam for $type {
                fn to_param(&self) -> Param<'_> {
                    Param::Text(Cow::Borrowed(self.as_str()))
                }
            }

            impl FromColumn for $type {
                fn from_column(column: Column<'_>) -> Result<Self> {
                    match column {
                        Column::Text(word) => Ok(word.parse()?),
                        column => unexpected_type(column),
                    }
                }
            }
        )*
    };
}

enum_columns!(
    kind::ActionType,
    kind::Kind,
    kind::ResourceType,
    enums::ActorKind,
    enums::AgentLinkType,
    enums::ChangeEvidence,
    enums::CommitEvidence,
    enums::CommitmentStatus,
    enums::DecisionStatus,
    enums::Evidence,
    enums::ExperimentStatus,
    enums::FileChange,
    enums::Heading,
    enums::ItemStatus,
    enums::Level,
    enums::Lifecycle,
    enums::LinkType,
    enums::MessageStatus,
    enums::Priority,
    enums::RelationType,
    enums::RoleOrigin,
    enums::RoleSource,
    enums::RunMode,
    enums::RunStatus,
    enums::Runner,
    enums::SpawnRoleSource,
    enums::StepType,
    enums::StickiePriority,
    enums::TaskStatus,
    enums::TestcaseStatus,
    enums::TokenScope,
);

/// A type that can be read from a row.
pub trait FromRow: Sized {
    fn from_row(row: &Row<'_>) -> Result<Self>;
}

macro_rules! tuple_rows {
    ($(($($name:ident $index:tt),+);)*) => {
        $(impl<$($name: FromColumn),+> FromRow for ($($name,)+) {
            fn from_row(row: &Row<'_>) -> Result<Self> {
                Ok(($(row.get::<$name>($index)?,)+))
            }
        })*
    };
}

tuple_rows! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
}
