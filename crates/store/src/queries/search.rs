//! Full-text search of message bodies. Both engines index the same words (`search_words`); their queries differ.

use std::{collections::HashMap, ops::ControlFlow};

use trackway_domain::{
    search_query::{SearchQuery, Term},
    search_words::each_indexed_word,
};
use uuid::Uuid;

use crate::{
    connection::{Connection, Engine},
    error::Result,
    params, row,
    sql::Param,
    store::{Reader, Writer},
    tables::Content,
};

/// PostgreSQL stores no word positions beyond this one.
const POSITION_MAX: u32 = 16_382;
/// PostgreSQL stores at most this many positions of one word.
const POSITIONS_MAX: usize = 255;

row! {
    /// A message body that matches a search.
    pub struct BodyMatch {
        content_id: Uuid,
        /// Increases with every new body.
        number: i64,
        /// Relevance; higher is better. Scores of different searches are not comparable.
        score: f64,
        /// Whether the phrases of the search were verified. PostgreSQL cannot verify them in a long body, because it
        /// does not store all word positions.
        certain: bool,
    }
}

impl Writer<'_> {
    /// Makes a new body searchable.
    pub fn index_content(&mut self, content: &Content) -> Result<()> {
        match self.engine() {
            Engine::Sqlite => {
                let number = self.insert_returning_rowid(
                    "insert into content_words (tenant_id, content_id) values (?1, ?2)",
                    params![content.id],
                )?;
                self.unindexed.push((number, indexed_words(&content.body)));
                Ok(())
            }
            Engine::Postgres => {
                let vector = WordVector::of(&content.body);
                self.post(
                    "insert into content_words (tenant_id, content_id, words, whole) values (?1, ?2, cast(cast(?3 as text) as tsvector), ?4)",
                    params![content.id, vector.text, vector.is_complete],
                )
            }
        }
    }
}

impl Writer<'_> {
    /// Adds the new bodies to SQLite's full-text index right before the commit. If other statements came between the
    /// inserts, the index would write a separate segment for each body.
    pub(crate) fn flush_search_index(&mut self) -> Result<()> {
        for (number, words) in std::mem::take(&mut self.unindexed) {
            self.post_row("insert into content_index (rowid, words) values (?1, ?2)", params![number, words])?;
        }
        Ok(())
    }
}

/// Makes a body searchable on a connection outside of the write path, for restores and moves.
pub(crate) fn index_content_with(connection: &mut Connection, tenant: Uuid, content: Uuid, body: &str) -> Result<()> {
    match connection.engine() {
        Engine::Sqlite => {
            connection.execute(
                "insert into content_words (tenant_id, content_id) values (?1, ?2)",
                params![tenant, content],
            )?;
            let number = connection.last_rowid();
            connection.execute(
                "insert into content_index (rowid, words) values (?1, ?2)",
                params![number, indexed_words(body)],
            )?;
            Ok(())
        }
        Engine::Postgres => {
            let vector = WordVector::of(body);
            connection.post(
                "insert into content_words (tenant_id, content_id, words, whole) values (?1, ?2, cast(cast(?3 as text) as tsvector), ?4)",
                params![tenant, content, vector.text, vector.is_complete],
            )
        }
    }
}

impl Reader<'_> {
    /// Returns the newest bodies that contain all terms, with their scores, at most `limit`. `condition` restricts
    /// `c.content_id`; its parameters begin at `?5`.
    pub fn search_bodies(
        &mut self,
        query: &SearchQuery,
        condition: &str,
        values: &[Param<'_>],
        limit: i64,
    ) -> Result<Vec<BodyMatch>> {
        let sql = match self.engine() {
            // Newer bodies have higher row numbers, and the index returns them in this order without sorting.
            Engine::Sqlite => format!(
                "select c.content_id, c.number, -bm25(content_index), true from content_index cross join content_words c on c.number = content_index.rowid
                 where content_index.words match ?2 and c.tenant_id = ?1 and {condition} order by content_index.rowid desc limit ?4"
            ),
            Engine::Postgres => {
                let strict = "c.words @@ cast(cast(?2 as text) as tsquery)";
                let loose = "c.words @@ cast(cast(?3 as text) as tsquery)";
                let found = if query.has_phrases() {
                    format!("({strict} or (not c.whole and {loose}))")
                } else {
                    // Both conditions are equivalent here. The SQL contains both so that it always uses the same
                    // parameters.
                    format!("{strict} and {loose}")
                };
                format!(
                    "select c.content_id, c.number, cast(ts_rank_cd(c.words, cast(cast(?3 as text) as tsquery), 1) as double precision), {strict}
                     from (select c.content_id, c.number, c.words from content_words c where c.tenant_id = ?1 and {found} and {condition} order by c.number desc limit ?4) c"
                )
            }
        };
        let (strict, loose) = match self.engine() {
            Engine::Sqlite => (to_sqlite_query(query), String::new()),
            Engine::Postgres => (to_postgres_query(query, " <-> "), to_postgres_query(query, " & ")),
        };
        let own: &[Param<'_>] = params![strict, loose, limit];
        self.query(&sql, &own.iter().chain(values).cloned().collect::<Vec<_>>())
    }
}

/// The indexed words of a body, separated by spaces.
fn indexed_words(body: &str) -> String {
    let mut words = String::with_capacity(body.len());
    each_indexed_word(body, |word| {
        words.push_str(word.folded);
        words.push(' ');
        ControlFlow::Continue(())
    });
    words
}

/// The text of a PostgreSQL `tsvector`: each word once, with its positions.
#[derive(Debug, PartialEq)]
struct WordVector {
    text: String,
    /// Whether the vector contains all positions.
    is_complete: bool,
}

impl WordVector {
    fn of(body: &str) -> Self {
        let mut positions: HashMap<Box<str>, Vec<u32>> = HashMap::new();
        let mut position: u32 = 0;
        let mut is_complete = true;
        each_indexed_word(body, |word| {
            position += 1;
            if !positions.contains_key(word.folded) {
                positions.insert(word.folded.into(), Vec::new());
            }
            match positions.get_mut(word.folded) {
                Some(positions) if position <= POSITION_MAX && positions.len() < POSITIONS_MAX => {
                    positions.push(position);
                }
                _ => is_complete = false,
            }
            ControlFlow::Continue(())
        });
        let mut text = String::with_capacity(body.len() * 2);
        for (word, positions) in &positions {
            // Words consist of letters, digits and marks, so nothing needs escaping.
            text.push('\'');
            text.push_str(word);
            text.push('\'');
            for (index, position) in positions.iter().enumerate() {
                text.push(if index == 0 { ':' } else { ',' });
                text.push_str(&position.to_string());
            }
            text.push(' ');
        }
        Self { text, is_complete }
    }
}

fn to_sqlite_query(query: &SearchQuery) -> String {
    let term = |term: &Term| format!("\"{}\"{}", term.words.join(" "), if term.is_prefix { " *" } else { "" });
    query.terms().iter().map(term).collect::<Vec<_>>().join(" AND ")
}

fn to_postgres_query(query: &SearchQuery, operator: &str) -> String {
    let term = |term: &Term| {
        let words: Vec<_> = term.words.iter().map(|word| format!("'{word}'")).collect();
        format!("({}{})", words.join(operator), if term.is_prefix { ":*" } else { "" })
    };
    query.terms().iter().map(term).collect::<Vec<_>>().join(" & ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_translated_for_each_engine() {
        let query = SearchQuery::parse("\"Tea Timer\" kit* 東京都").unwrap();
        assert_eq!(to_sqlite_query(&query), "\"tea timer\" AND \"kit\" * AND \"東京 京都\"");
        assert_eq!(to_postgres_query(&query, " <-> "), "('tea' <-> 'timer') & ('kit':*) & ('東京' <-> '京都')");
        assert_eq!(to_postgres_query(&query, " & "), "('tea' & 'timer') & ('kit':*) & ('東京' & '京都')");
    }

    #[test]
    fn vector_reports_missing_positions() {
        assert_eq!(WordVector::of("Tea, tea"), WordVector { text: "'tea':1,2 ".into(), is_complete: true });
        assert!(!WordVector::of(&"tea ".repeat(256)).is_complete);
        let numbers = (0..16_383).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        let vector = WordVector::of(&numbers);
        assert!(!vector.is_complete && vector.text.contains("'16382' ") && vector.text.contains("'16381':16382 "));
    }
}
