//! Pagination and filters, which all list views share.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, field, ids, queue::check_range};
use trackway_store::{
    Reader, Result,
    sql::{FromRow, Param, ToParam},
};
use uuid::Uuid;

const DEFAULT_LIMIT: i64 = 100;
/// The largest page size that a caller can request.
pub const LIMIT_MAX: i64 = 10_000;

/// The requested page of a list
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Page {
    /// Maximum number of rows
    #[arg(long, value_name = "NUMBER")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: Option<i64>,
    /// Start after the row with this id
    #[arg(long, value_name = "ID")]
    pub after: Option<String>,
}

/// A page of a list. Its JSON form is the array of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct ListPage<T> {
    pub rows: Vec<T>,
    /// The flag that requests the next page, such as `--after 1a2b3c4d`.
    pub next_page: Option<String>,
}

impl<T: Serialize> Serialize for ListPage<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.rows.serialize(serializer)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    OldestFirst,
    NewestFirst,
}

/// SQL conditions of a list query, joined with `and`, and their parameters.
#[derive(Debug, Default)]
pub struct Filter<'a> {
    conditions: Vec<(String, Option<Param<'a>>)>,
}

impl<'a> Filter<'a> {
    /// Adds a condition if there is a value. The value replaces every `?` in the condition.
    #[must_use]
    pub fn require_if_some<T: ToParam>(mut self, condition: &str, value: Option<&'a T>) -> Self {
        if let Some(value) = value {
            self.conditions.push((condition.to_owned(), Some(value.to_param())));
        }
        self
    }

    /// Adds a condition without a parameter.
    #[must_use]
    pub fn require(mut self, condition: &str) -> Self {
        self.conditions.push((condition.to_owned(), None));
        self
    }

    /// Joins the conditions and numbers their parameters from `first`.
    pub fn to_sql(&self, first: usize) -> (String, Vec<Param<'a>>) {
        let mut params = Vec::new();
        let mut conditions = Vec::new();
        for (condition, value) in &self.conditions {
            match value {
                Some(value) => {
                    // `?1` is the tenant in every query and keeps its number.
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

/// Characters of a long text that a list shows. Longer texts are cut.
const EXCERPT: usize = 200;

/// Makes a `select` return only the beginning of long text columns, so that a page of rows stays small.
pub fn shorten_columns(select: &str, columns: &[&str]) -> String {
    columns.iter().fold(select.to_owned(), |select, column| {
        let cut = format!(
            "case when length({column}) > {EXCERPT} then substr({column}, 1, {EXCERPT}) || '…' else {column} end"
        );
        select.replacen(column, &cut, 1)
    })
}

impl Page {
    /// The requested page size, or the default. Rejects sizes out of range.
    pub fn limit_or(&self, default: i64) -> Result<i64> {
        Ok(check_range(field!(limit), self.limit.unwrap_or(default), 1, LIMIT_MAX)?)
    }

    /// Reads one page. `alias` names the table in `select` with the columns `id` and `tenant_id`.
    pub fn read<T: FromRow>(
        &self,
        read: &mut Reader<'_>,
        select: &str,
        alias: &str,
        mut filter: Filter<'_>,
        order: Order,
        id: impl Fn(&T) -> Uuid,
    ) -> Result<ListPage<T>> {
        let limit = self.limit_or(DEFAULT_LIMIT)?;
        let (than, direction) = match order {
            Order::OldestFirst => (">", "asc"),
            Order::NewestFirst => ("<", "desc"),
        };
        if let Some(after) = &self.after {
            let Some(entry) = read.entry_by_id_suffix(after, None)? else {
                return Err(Rule::not_found(format!("cannot start after {after:?}: no such row")).into());
            };
            filter.conditions.push((format!("{alias}.id {than} ?"), Some(Param::Uuid(entry.id))));
        }
        filter.conditions.insert(0, (format!("{alias}.tenant_id = ?1"), None));
        let (conditions, mut params) = filter.to_sql(2);
        params.push(Param::Int(limit + 1));
        let sql = format!("{select} where {conditions} order by {alias}.id {direction} limit ?{}", params.len() + 1);
        let mut rows = read.query::<T>(&sql, &params)?;
        let page_size = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = rows.len() > page_size;
        rows.truncate(page_size);
        let last = rows.last().map(|row| format!("--after {}", ids::suffix(id(row), 12)));
        Ok(ListPage { rows, next_page: last.filter(|_| has_more) })
    }
}
