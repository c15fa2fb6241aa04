//! Reads a table in the order of its key, with one page in memory at a time.

use super::{
    layout::TableLayout,
    row_text::{RawRow, TextRow},
};
use crate::{error::Result, sql::Param};

/// Number of rows in a page. A single row may take megabytes.
const PAGE_SIZE: usize = 200;

/// Iterator over the rows of a table. `query` runs a query on the source database.
pub struct Rows<'a, Query> {
    table: &'a TableLayout,
    query: Query,
    page: std::vec::IntoIter<RawRow>,
    after: Option<Vec<Param<'static>>>,
    is_last: bool,
}

impl<'a, Query: FnMut(&str, &[Param<'_>]) -> Result<Vec<RawRow>>> Rows<'a, Query> {
    pub fn new(table: &'a TableLayout, query: Query) -> Self {
        Self { table, query, page: Vec::new().into_iter(), after: None, is_last: false }
    }

    fn next_page(&mut self) -> Result<()> {
        let key = self.table.key_names();
        let after = self.after.as_deref().unwrap_or_default();
        let placeholders: Vec<String> = (1..=after.len()).map(|number| format!("?{number}")).collect();
        let condition = if after.is_empty() {
            String::new()
        } else {
            format!(" where ({}) > ({})", key.join(", "), placeholders.join(", "))
        };
        let sql = format!(
            "select {} from {}{condition} order by {} limit {PAGE_SIZE}",
            self.table.column_list(),
            self.table.name,
            key.join(", ")
        );
        let rows = (self.query)(&sql, after)?;
        self.is_last = rows.len() < PAGE_SIZE;
        self.page = rows.into_iter();
        Ok(())
    }
}

impl<Query: FnMut(&str, &[Param<'_>]) -> Result<Vec<RawRow>>> Iterator for Rows<'_, Query> {
    type Item = Result<TextRow>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.len() == 0 {
            if self.is_last {
                return None;
            }
            if let Err(error) = self.next_page() {
                self.is_last = true;
                return Some(Err(error));
            }
        }
        let row = TextRow::read(self.table, self.page.next()?);
        if let Ok(row) = &row {
            self.after = Some(row.key(self.table));
        }
        Some(row)
    }
}
