//! The rows of a table in the order of its key, page by page: no more in memory than a page.

use super::{
    layout::TableLayout,
    row_text::{RawRow, TextRow},
};
use crate::{error::Result, sql::Param};

/// Rows asked for at once. A row may be megabytes.
const PAGE: usize = 200;

/// The rows of a table, by whoever can ask.
pub struct Rows<'a, Ask> {
    table: &'a TableLayout,
    ask: Ask,
    page: std::vec::IntoIter<RawRow>,
    after: Option<Vec<Param<'static>>>,
    is_last: bool,
}

impl<'a, Ask: FnMut(&str, &[Param<'_>]) -> Result<Vec<RawRow>>> Rows<'a, Ask> {
    pub fn new(table: &'a TableLayout, ask: Ask) -> Self {
        Self { table, ask, page: Vec::new().into_iter(), after: None, is_last: false }
    }

    fn next_page(&mut self) -> Result<()> {
        let key = self.table.key_names();
        let after = self.after.as_deref().unwrap_or_default();
        let places: Vec<String> = (1..=after.len()).map(|place| format!("?{place}")).collect();
        let beyond = if after.is_empty() {
            String::new()
        } else {
            format!(" where ({}) > ({})", key.join(", "), places.join(", "))
        };
        let sql = format!(
            "select {} from {}{beyond} order by {} limit {PAGE}",
            self.table.names(),
            self.table.name,
            key.join(", ")
        );
        let rows = (self.ask)(&sql, after)?;
        self.is_last = rows.len() < PAGE;
        self.page = rows.into_iter();
        Ok(())
    }
}

impl<Ask: FnMut(&str, &[Param<'_>]) -> Result<Vec<RawRow>>> Iterator for Rows<'_, Ask> {
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
