//! Full-text search of messages.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Time, ids, kind, kind::Kind, search_query::SearchQuery, snippet::snippet};
use trackway_store::{
    Reader, Result,
    display::MessageRow,
    params,
    search::BodyMatch,
    sql::{Param, ToParam},
};
use uuid::Uuid;

use crate::{
    message::{MessageFilter, ResolvedMessageFilter},
    page::Page,
    view::View,
};

const DEFAULT_LIMIT: i64 = 20;
/// Maximum number of message bodies that are ranked. If more match, only the newest are ranked.
pub const RANKED_MAX: i64 = 10_000;

/// Search messages for words and phrases
///
/// A message must contain all words. Case and accents are ignored. "Quoted phrases" keep their order (in a shell, put
/// them in single quotes), and word* finds words with this beginning.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Search {
    /// Words, "phrases" and prefixes*
    #[arg(required = true, value_name = "WORDS")]
    pub words: Vec<String>,
    #[command(flatten)]
    #[serde(flatten)]
    pub which: MessageFilter,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

/// A message that matches the query.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hit {
    pub message_id: Id<kind::Message>,
    /// An excerpt of the body in one line, with the matches between « and ».
    pub snippet: String,
    /// The rank: higher is better. Scores of different searches are not comparable.
    pub score: f64,
    pub from: Option<String>,
    pub role: Option<String>,
    pub run_id: Option<Id<kind::Run>>,
    pub session_id: Option<String>,
    pub created_at: Time,
}

/// A page of hits, best first. Its JSON form is the array of hits.
#[derive(Debug, Clone, PartialEq)]
pub struct HitPage {
    pub hits: Vec<Hit>,
    pub next_page: Option<String>,
    /// Whether older matching bodies exist that were not ranked.
    pub newest_only: bool,
}

impl Serialize for HitPage {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.hits.serialize(serializer)
    }
}

impl View for Search {
    const COMMAND: (&'static str, &'static str) = ("", "search");
    const COLUMNS: &'static [&'static str] = &["message_id", "score", "created_at", "from", "run_id", "snippet"];
    type Output = HitPage;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<HitPage> {
        self.rank_newest(read, RANKED_MAX)
    }

    fn next_page(output: &HitPage) -> Option<String> {
        output.next_page.clone()
    }

    fn remarks(output: &HitPage) -> Vec<String> {
        let remark = "too many matches: only the newest 10,000 different texts were ranked; add a word or a filter to find older ones";
        output.newest_only.then(|| remark.to_owned()).into_iter().collect()
    }
}

impl Search {
    /// Searches, and ranks at most `ranked_max` bodies.
    pub fn rank_newest(&self, read: &mut Reader<'_>, ranked_max: i64) -> Result<HitPage> {
        let query = SearchQuery::parse(&self.words.join(" "))?;
        let limit = self.page.limit_or(DEFAULT_LIMIT)?;
        let filter = self.which.resolve(read)?;
        let after = self.page.after.as_deref().map(|after| position_of(read, &query, after)).transpose()?;
        let mut bodies = matching_bodies(read, &query, &filter, ranked_max + 1)?;
        let newest_only = bodies.len() > to_usize(ranked_max);
        bodies.truncate(to_usize(ranked_max));
        bodies.retain(|found| found.certain);
        bodies.sort_by(|one, other| other.score.total_cmp(&one.score).then(other.number.cmp(&one.number)));

        let mut positions = matching_messages(read, &filter, &bodies, after, to_usize(limit) + 1)?;
        let has_more = positions.len() > to_usize(limit);
        positions.truncate(to_usize(limit));
        let last = positions.last().map(|hit| format!("--after {}", ids::suffix(hit.message.uuid(), 12)));
        Ok(HitPage { hits: hits(read, &query, &positions)?, next_page: last.filter(|_| has_more), newest_only })
    }
}

fn to_usize(number: i64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

/// The position of a message in the order of hits: by score, then newest body first, then newest message first.
/// No two messages have the same position, so a page can start after any of them without reading the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq)]
struct HitPosition {
    score: f64,
    body: i64,
    message: Id<kind::Message>,
}

impl HitPosition {
    /// Whether this position comes after all messages with the given body.
    fn comes_after(&self, found: &BodyMatch) -> bool {
        (found.score, found.number) > (self.score, self.body)
    }
}

const BODIES_PER_QUERY: usize = 50;

/// The position of the last message of the previous page. Messages that arrived since do not change it.
fn position_of(read: &mut Reader<'_>, query: &SearchQuery, after: &str) -> Result<HitPosition> {
    let Some(entry) = read.entry_by_id_suffix(after, Some(Kind::Message))? else {
        return Err(Rule::not_found(format!("cannot start after {after:?}: no such message")).into());
    };
    let content = read
        .one::<(Uuid,)>("select content_id from messages where tenant_id = ?1 and id = ?2", params![entry.id])?
        .map_or_else(Uuid::nil, |(content,)| content);
    let found = read.search_bodies(query, "c.content_id = ?5", params![content], 1)?;
    let Some(found) = found.first() else {
        return Err(Rule::usage(format!("cannot start after message {after:?}: this search does not find it")).into());
    };
    Ok(HitPosition { score: found.score, body: found.number, message: entry.id.into() })
}

/// The newest bodies that match the query and belong to at least one message of the filter. If the index is uncertain
/// about a body, the full text is checked. A body whose full text does not match is returned with `certain` unset.
fn matching_bodies(
    read: &mut Reader<'_>,
    query: &SearchQuery,
    filter: &ResolvedMessageFilter,
    limit: i64,
) -> Result<Vec<BodyMatch>> {
    let conditions = filter.conditions();
    let (conditions, values) = conditions.to_sql(5);
    let which = if conditions.is_empty() {
        "true".to_owned()
    } else {
        format!(
            "exists (select 1 from messages m left join runs u on u.id = m.from_run_id where m.tenant_id = ?1 and m.content_id = c.content_id and {conditions})"
        )
    };
    let mut found = read.search_bodies(query, &which, &values, limit)?;
    for uncertain in found.iter_mut().filter(|found| !found.certain) {
        let body = read.one::<(String,)>(
            "select body from contents where tenant_id = ?1 and id = ?2",
            params![uncertain.content_id],
        )?;
        uncertain.certain = body.is_some_and(|(body,)| query.matches_body(&body));
    }
    Ok(found)
}

/// At most `needed` messages of the filter with these bodies, starting after a position. `bodies` is sorted best first.
fn matching_messages(
    read: &mut Reader<'_>,
    filter: &ResolvedMessageFilter,
    bodies: &[BodyMatch],
    after: Option<HitPosition>,
    needed: usize,
) -> Result<Vec<HitPosition>> {
    let mut positions = Vec::new();
    let mut rest = bodies;
    if let Some(after) = after {
        rest = &rest[rest.partition_point(|found| after.comes_after(found))..];
        // The previous page may have ended between two messages with the same body.
        if let [current, others @ ..] = rest
            && current.number == after.body
        {
            positions = messages_with_bodies(read, filter, std::slice::from_ref(current), Some(after.message), needed)?;
            rest = others;
        }
    }
    // Each body has at least one message, so as many bodies as there are missing messages are enough.
    while positions.len() < needed && !rest.is_empty() {
        let chunk;
        (chunk, rest) = rest.split_at((needed - positions.len()).min(rest.len()).min(BODIES_PER_QUERY));
        positions.extend(messages_with_bodies(read, filter, chunk, None, needed - positions.len())?);
    }
    positions.truncate(needed);
    Ok(positions)
}

/// The messages of the filter with these bodies in the order of hits, at most `needed` for each body.
fn messages_with_bodies(
    read: &mut Reader<'_>,
    filter: &ResolvedMessageFilter,
    bodies: &[BodyMatch],
    before: Option<Id<kind::Message>>,
    needed: usize,
) -> Result<Vec<HitPosition>> {
    if bodies.is_empty() {
        return Ok(Vec::new());
    }
    let conditions = filter.conditions().require_if_some("m.id < ?", before.as_ref());
    let (conditions, values) = conditions.to_sql(3);
    let and = if conditions.is_empty() { "" } else { " and " };
    let mut params = vec![Param::Int(i64::try_from(needed).unwrap_or(i64::MAX))];
    params.extend(values);
    let first = params.len() + 2;
    params.extend(bodies.iter().map(|found| found.content_id.to_param()));
    // One select for each body, so that the query reads only the newest messages even if a million messages share a
    // body.
    let newest = |number: usize| {
        format!(
            "select * from (select m.id, m.content_id from messages m left join runs u on u.id = m.from_run_id
             where m.tenant_id = ?1{and}{conditions} and m.content_id = ?{number} order by m.id desc limit ?2) x"
        )
    };
    let sql = (first..first + bodies.len()).map(newest).collect::<Vec<_>>().join(" union all ");
    let found = read.query::<(Id<kind::Message>, Uuid)>(&sql, &params)?;
    let matches: HashMap<Uuid, &BodyMatch> = bodies.iter().map(|found| (found.content_id, found)).collect();
    let mut positions: Vec<HitPosition> = found
        .into_iter()
        .filter_map(|(message, content)| {
            let found = matches.get(&content)?;
            Some(HitPosition { score: found.score, body: found.number, message })
        })
        .collect();
    positions.sort_by(|one, other| {
        other.score.total_cmp(&one.score).then(other.body.cmp(&one.body)).then(other.message.cmp(&one.message))
    });
    Ok(positions)
}

/// Reads the messages at these positions, and cuts their snippets.
fn hits(read: &mut Reader<'_>, query: &SearchQuery, positions: &[HitPosition]) -> Result<Vec<Hit>> {
    let mut hits = Vec::with_capacity(positions.len());
    // Bodies can be long, so they are not loaded all at once.
    for chunk in positions.chunks(100) {
        let params: Vec<_> = chunk.iter().map(|hit| hit.message.to_param()).collect();
        let rest = format!("where m.tenant_id = ?1 and m.id in ({})", placeholders(2, chunk.len()));
        let shown: HashMap<_, _> = read
            .display_rows::<MessageRow>(&rest, &params)?
            .into_iter()
            .map(|shown| (shown.message.id, shown))
            .collect();
        for hit in chunk {
            let Some(shown) = shown.get(&hit.message) else { continue };
            hits.push(Hit {
                message_id: hit.message,
                snippet: snippet(query, &shown.body),
                score: hit.score,
                from: shown.from.clone(),
                role: shown.role.clone(),
                run_id: shown.message.from_run_id,
                session_id: shown.session_id.clone(),
                created_at: shown.message.created_at,
            });
        }
    }
    Ok(hits)
}

/// `?3, ?4, ?5`
fn placeholders(first: usize, count: usize) -> String {
    (first..first + count).map(|number| format!("?{number}")).collect::<Vec<_>>().join(", ")
}
