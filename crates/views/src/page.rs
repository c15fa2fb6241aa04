//! Lists come in pages.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, field, ids, queue::within};
use trackway_store::{
    Reader, Result,
    sql::{FromRow, Param, ToParam},
};
use uuid::Uuid;

/// Rows in a page when it is not said.
const LIMIT: i64 = 100;
/// Rows in the largest page.
pub const LIMIT_MAX: i64 = 10_000;

/// Which part of a list to show
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Page {
    /// How many to show
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: Option<i64>,
    /// Go on after this one
    #[arg(long, value_name = "ID")]
    pub after: Option<String>,
}

/// A page of a list; in JSON, just the rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed<T> {
    pub rows: Vec<T>,
    /// The flag that shows more.
    pub more: Option<String>,
}

impl<T: Serialize> Serialize for Listed<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.rows.serialize(serializer)
    }
}

/// Which way a list runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    OldestFirst,
    NewestFirst,
}

/// Conditions of a list, with their values.
#[derive(Debug, Default)]
pub struct Filter<'a> {
    conditions: Vec<(String, Option<Param<'a>>)>,
}

impl<'a> Filter<'a> {
    /// Adds a condition in which every `?` is this value, when there is one.
    #[must_use]
    pub fn and<T: ToParam>(mut self, condition: &str, value: Option<&'a T>) -> Self {
        if let Some(value) = value {
            self.conditions.push((condition.to_owned(), Some(value.to_param())));
        }
        self
    }

    /// Adds a condition without a value.
    #[must_use]
    pub fn always(mut self, condition: &str) -> Self {
        self.conditions.push((condition.to_owned(), None));
        self
    }

    /// The conditions as one, and their values, which are numbered from `first` on.
    pub fn numbered(&self, first: usize) -> (String, Vec<Param<'a>>) {
        let mut params = Vec::new();
        let mut conditions = Vec::new();
        for (condition, value) in &self.conditions {
            match value {
                Some(value) => {
                    // The tenant is `?1` everywhere, here too.
                    let number = format!("?{}", first + params.len());
                    conditions.push(condition.replace("?1", "\0").replace('?', &number).replace('\0', "?1"));
                    params.push(value.clone());
                }
                None => conditions.push(condition.clone()),
            }
        }
        (conditions.join(" and "), params)
    }
}

/// Characters of a long text that a list shows.
const EXCERPT: usize = 200;

/// The select of a list: of long texts only the beginning, so that a page of them stays small.
pub fn cut_texts(select: &str, columns: &[&str]) -> String {
    columns.iter().fold(select.to_owned(), |select, column| {
        let cut = format!(
            "case when length({column}) > {EXCERPT} then substr({column}, 1, {EXCERPT}) || '…' else {column} end"
        );
        select.replacen(column, &cut, 1)
    })
}

impl Page {
    /// How many rows are wanted.
    pub fn limit_or(&self, otherwise: i64) -> Result<i64> {
        Ok(within(field!(limit), self.limit.unwrap_or(otherwise), 1, LIMIT_MAX)?)
    }

    /// Reads one page of `select`, whose rows have `alias.id` and `alias.tenant_id`.
    pub fn read<T: FromRow>(
        &self,
        read: &mut Reader<'_>,
        select: &str,
        alias: &str,
        mut filter: Filter<'_>,
        order: Order,
        id: impl Fn(&T) -> Uuid,
    ) -> Result<Listed<T>> {
        let limit = self.limit_or(LIMIT)?;
        let (than, direction) = match order {
            Order::OldestFirst => (">", "asc"),
            Order::NewestFirst => ("<", "desc"),
        };
        if let Some(after) = &self.after {
            let Some(entry) = read.entry_ending(after, None)? else {
                return Err(Rule::not_found(format!("there is nothing to go on after: {after:?}")).into());
            };
            filter.conditions.push((format!("{alias}.id {than} ?"), Some(Param::Uuid(entry.id))));
        }
        filter.conditions.insert(0, (format!("{alias}.tenant_id = ?1"), None));
        // The tenant is ?1.
        let (conditions, mut params) = filter.numbered(2);
        params.push(Param::Int(limit + 1));
        let sql = format!("{select} where {conditions} order by {alias}.id {direction} limit ?{}", params.len() + 1);
        let mut rows = read.query::<T>(&sql, &params)?;
        let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = rows.len() > wanted;
        rows.truncate(wanted);
        let last = rows.last().map(|row| format!("--after {}", ids::suffix(id(row), 12)));
        Ok(Listed { rows, more: last.filter(|_| more) })
    }
}
