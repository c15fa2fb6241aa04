//! Which bodies have the words of a search. The words are ours on both engines (`search_words`); what each engine does
//! with them stands side by side here.

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

/// Positions after this one are not kept by PostgreSQL.
const POSITION_MAX: u32 = 16_382;
/// Positions of one word that PostgreSQL keeps.
const POSITIONS_MAX: usize = 255;

row! {
    /// A body with the words of a search.
    pub struct Found {
        content_id: Uuid,
        /// Later bodies have higher numbers.
        number: i64,
        /// Higher is better; comparable within one search only.
        score: f64,
        /// Whether its phrases were looked at: PostgreSQL does not know the order of all words of a long body.
        certain: bool,
    }
}

impl Writer<'_> {
    /// Makes a new body searchable.
    pub fn index_content(&mut self, content: &Content) -> Result<()> {
        match self.engine() {
            Engine::Sqlite => {
                let number = self.insert_numbered(
                    "insert into content_words (tenant_id, content_id) values (?1, ?2)",
                    params![content.id],
                )?;
                self.unindexed.push((number, joined(&content.body)));
                Ok(())
            }
            Engine::Postgres => {
                let vector = Vector::of(&content.body);
                self.post(
                    "insert into content_words (tenant_id, content_id, words, whole) values (?1, ?2, cast(cast(?3 as text) as tsvector), ?4)",
                    params![content.id, vector.text, vector.whole],
                )
            }
        }
    }
}

impl Writer<'_> {
    /// Brings into SQLite's index what was kept back, right before the commit: between other statements the index would
    /// write itself out each time, a segment for each body.
    pub(crate) fn index_the_rest(&mut self) -> Result<()> {
        for (number, words) in std::mem::take(&mut self.unindexed) {
            self.post_row("insert into content_index (rowid, words) values (?1, ?2)", params![number, words])?;
        }
        Ok(())
    }
}

/// Makes a body searchable in a database that is being filled.
pub(crate) fn index_again(connection: &mut Connection, tenant: Uuid, content: Uuid, body: &str) -> Result<()> {
    match connection.engine() {
        Engine::Sqlite => {
            connection.execute(
                "insert into content_words (tenant_id, content_id) values (?1, ?2)",
                params![tenant, content],
            )?;
            let number = connection.last_number();
            connection
                .execute("insert into content_index (rowid, words) values (?1, ?2)", params![number, joined(body)])?;
            Ok(())
        }
        Engine::Postgres => {
            let vector = Vector::of(body);
            connection.post(
                "insert into content_words (tenant_id, content_id, words, whole) values (?1, ?2, cast(cast(?3 as text) as tsvector), ?4)",
                params![tenant, content, vector.text, vector.whole],
            )
        }
    }
}

impl Reader<'_> {
    /// The newest bodies that have all terms, with their scores, at most `limit`. `which` is a condition on
    /// `c.content_id` whose own values begin at `?5`.
    pub fn bodies_with(
        &mut self,
        query: &SearchQuery,
        which: &str,
        values: &[Param<'_>],
        limit: i64,
    ) -> Result<Vec<Found>> {
        let sql = match self.engine() {
            // The newest have the highest numbers, and the index gives them in this order without sorting.
            Engine::Sqlite => format!(
                "select c.content_id, c.number, -bm25(content_index), true from content_index cross join content_words c on c.number = content_index.rowid
                 where content_index.words match ?2 and c.tenant_id = ?1 and {which} order by content_index.rowid desc limit ?4"
            ),
            Engine::Postgres => {
                let strict = "c.words @@ cast(cast(?2 as text) as tsquery)";
                let loose = "c.words @@ cast(cast(?3 as text) as tsquery)";
                let found = if query.has_phrases() {
                    format!("({strict} or (not c.whole and {loose}))")
                } else {
                    // One of the two would do; both texts use both values.
                    format!("{strict} and {loose}")
                };
                format!(
                    "select c.content_id, c.number, cast(ts_rank_cd(c.words, cast(cast(?3 as text) as tsquery), 1) as double precision), {strict}
                     from (select c.content_id, c.number, c.words from content_words c where c.tenant_id = ?1 and {found} and {which} order by c.number desc limit ?4) c"
                )
            }
        };
        let (strict, loose) = match self.engine() {
            Engine::Sqlite => (for_sqlite(query), String::new()),
            Engine::Postgres => (for_postgres(query, " <-> "), for_postgres(query, " & ")),
        };
        let own: &[Param<'_>] = params![strict, loose, limit];
        self.query(&sql, &own.iter().chain(values).cloned().collect::<Vec<_>>())
    }
}

/// The words of a body, apart.
fn joined(body: &str) -> String {
    let mut words = String::with_capacity(body.len());
    each_indexed_word(body, |word| {
        words.push_str(word.folded);
        words.push(' ');
        ControlFlow::Continue(())
    });
    words
}

/// A body as PostgreSQL wants it: each word once, with its positions.
#[derive(Debug, PartialEq)]
struct Vector {
    text: String,
    /// Whether no position was left out.
    whole: bool,
}

impl Vector {
    fn of(body: &str) -> Self {
        let mut places: HashMap<Box<str>, Vec<u32>> = HashMap::new();
        let mut order: u32 = 0;
        let mut whole = true;
        each_indexed_word(body, |word| {
            order += 1;
            if !places.contains_key(word.folded) {
                places.insert(word.folded.into(), Vec::new());
            }
            match places.get_mut(word.folded) {
                Some(places) if order <= POSITION_MAX && places.len() < POSITIONS_MAX => places.push(order),
                _ => whole = false,
            }
            ControlFlow::Continue(())
        });
        let mut text = String::with_capacity(body.len() * 2);
        for (word, places) in &places {
            // A word holds letters, digits and marks: nothing in it has to be escaped.
            text.push('\'');
            text.push_str(word);
            text.push('\'');
            for (index, place) in places.iter().enumerate() {
                text.push(if index == 0 { ':' } else { ',' });
                text.push_str(&place.to_string());
            }
            text.push(' ');
        }
        Self { text, whole }
    }
}

fn for_sqlite(query: &SearchQuery) -> String {
    let term = |term: &Term| format!("\"{}\"{}", term.words.join(" "), if term.prefix { " *" } else { "" });
    query.terms().iter().map(term).collect::<Vec<_>>().join(" AND ")
}

fn for_postgres(query: &SearchQuery, between: &str) -> String {
    let term = |term: &Term| {
        let words: Vec<_> = term.words.iter().map(|word| format!("'{word}'")).collect();
        format!("({}{})", words.join(between), if term.prefix { ":*" } else { "" })
    };
    query.terms().iter().map(term).collect::<Vec<_>>().join(" & ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_is_asked_in_its_own_words() {
        let query = SearchQuery::parse("\"Tea Timer\" kit* 東京都").unwrap();
        assert_eq!(for_sqlite(&query), "\"tea timer\" AND \"kit\" * AND \"東京 京都\"");
        assert_eq!(for_postgres(&query, " <-> "), "('tea' <-> 'timer') & ('kit':*) & ('東京' <-> '京都')");
        assert_eq!(for_postgres(&query, " & "), "('tea' & 'timer') & ('kit':*) & ('東京' & '京都')");
    }

    #[test]
    fn a_vector_says_whether_it_is_whole() {
        assert_eq!(Vector::of("Tea, tea"), Vector { text: "'tea':1,2 ".into(), whole: true });
        assert!(!Vector::of(&"tea ".repeat(256)).whole);
        let numbers = (0..16_383).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        let vector = Vector::of(&numbers);
        assert!(!vector.whole && vector.text.contains("'16382' ") && vector.text.contains("'16381':16382 "));
    }
}
