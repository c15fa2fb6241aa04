//! Searching what was said.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Time, ids, kind, kind::Kind, search_query::SearchQuery, snippet::snippet};
use trackway_store::{
    Reader, Result,
    display::MessageShown,
    params,
    search::Found,
    sql::{Param, ToParam},
};
use uuid::Uuid;

use crate::{
    message::{Wanted, Which},
    page::Page,
    view::View,
};

/// Hits shown when it is not said how many.
const LIMIT: i64 = 20;
/// Bodies that are ranked. Of a word that is in more of them, the newest.
pub const RANKED_MAX: i64 = 10_000;

/// Search messages
///
/// All words are wanted, in any case and with or without accents. "Words in quotation marks" are wanted in this order
/// (the shell needs quotation marks of its own around them), and word* also finds longer words.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Search {
    /// Words, "phrases" and prefixes*
    #[arg(required = true, value_name = "WORDS")]
    pub words: Vec<String>,
    #[command(flatten)]
    #[serde(flatten)]
    pub which: Which,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

/// A message that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hit {
    pub message_id: Id<kind::Message>,
    /// A part of the body on one line, what was found between « and ».
    pub snippet: String,
    /// Higher is better; comparable within one search only.
    pub score: f64,
    pub from: Option<String>,
    pub role: Option<String>,
    pub run_id: Option<Id<kind::Run>>,
    pub session_id: Option<String>,
    pub created_at: Time,
}

/// A page of hits, best first; in JSON, just the hits.
#[derive(Debug, Clone, PartialEq)]
pub struct Hits {
    pub hits: Vec<Hit>,
    pub more: Option<String>,
    /// Whether older bodies with the words were not looked at.
    pub newest_only: bool,
}

impl Serialize for Hits {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.hits.serialize(serializer)
    }
}

impl View for Search {
    const COMMAND: (&'static str, &'static str) = ("", "search");
    const COLUMNS: &'static [&'static str] = &["message_id", "score", "created_at", "from", "run_id", "snippet"];
    type Output = Hits;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Hits> {
        self.among_the_newest(read, RANKED_MAX)
    }

    fn more(output: &Hits) -> Option<String> {
        output.more.clone()
    }

    fn remarks(output: &Hits) -> Vec<String> {
        let remark = "many messages have these words: only the newest 10,000 different ones were ranked; one more word or a filter finds older ones";
        output.newest_only.then(|| remark.to_owned()).into_iter().collect()
    }
}

impl Search {
    /// Answers it by ranking at most so many bodies.
    pub fn among_the_newest(&self, read: &mut Reader<'_>, ranked_max: i64) -> Result<Hits> {
        let query = SearchQuery::parse(&self.words.join(" "))?;
        let limit = self.page.limit_or(LIMIT)?;
        let wanted = self.which.resolve(read)?;
        let after = self.page.after.as_deref().map(|after| place_of(read, &query, after)).transpose()?;
        let mut bodies = bodies(read, &query, &wanted, ranked_max + 1)?;
        let newest_only = bodies.len() > count(ranked_max);
        bodies.truncate(count(ranked_max));
        bodies.retain(|found| found.certain);
        bodies.sort_by(|one, other| other.score.total_cmp(&one.score).then(other.number.cmp(&one.number)));

        let mut places = messages(read, &wanted, &bodies, after, count(limit) + 1)?;
        let more = places.len() > count(limit);
        places.truncate(count(limit));
        let last = places.last().map(|place| format!("--after {}", ids::suffix(place.message.uuid(), 12)));
        Ok(Hits { hits: hits(read, &query, &places)?, more: last.filter(|_| more), newest_only })
    }
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

/// Where a message stands in the order of hits: by score, then by the newest body, then the newest first. A body is
/// decided on by itself: that many have the same score does not make a page dearer.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    score: f64,
    body: i64,
    message: Id<kind::Message>,
}

impl Place {
    /// Whether a body comes before the one of this message.
    fn is_after(&self, found: &Found) -> bool {
        (found.score, found.number) > (self.score, self.body)
    }
}

/// Bodies whose messages are asked for in one question.
const BODIES_AT_ONCE: usize = 50;

/// Where the message stands that a page goes on after. What came since does not move it.
fn place_of(read: &mut Reader<'_>, query: &SearchQuery, after: &str) -> Result<Place> {
    let Some(entry) = read.entry_ending(after, Some(Kind::Message))? else {
        return Err(Rule::not_found(format!("there is nothing to go on after: {after:?}")).into());
    };
    let content = read
        .one::<(Uuid,)>("select content_id from messages where tenant_id = ?1 and id = ?2", params![entry.id])?
        .map_or_else(Uuid::nil, |(content,)| content);
    let found = read.bodies_with(query, "c.content_id = ?5", params![content], 1)?;
    let Some(found) = found.first() else {
        return Err(Rule::usage(format!("this search does not find the message {after:?} to go on after")).into());
    };
    Ok(Place { score: found.score, body: found.number, message: entry.id.into() })
}

/// The newest bodies with the words that wanted messages have; those that look it and are not, as uncertain.
fn bodies(read: &mut Reader<'_>, query: &SearchQuery, wanted: &Wanted, limit: i64) -> Result<Vec<Found>> {
    let filter = wanted.filter();
    let (conditions, values) = filter.numbered(5);
    let which = if conditions.is_empty() {
        "true".to_owned()
    } else {
        format!(
            "exists (select 1 from messages m left join runs u on u.id = m.from_run_id where m.tenant_id = ?1 and m.content_id = c.content_id and {conditions})"
        )
    };
    let mut found = read.bodies_with(query, &which, &values, limit)?;
    for uncertain in found.iter_mut().filter(|found| !found.certain) {
        let body = read.one::<(String,)>(
            "select body from contents where tenant_id = ?1 and id = ?2",
            params![uncertain.content_id],
        )?;
        uncertain.certain = body.is_some_and(|(body,)| query.is_in(&body));
    }
    Ok(found)
}

/// The wanted messages with these bodies, which come best first: so many, after a place.
fn messages(
    read: &mut Reader<'_>,
    wanted: &Wanted,
    bodies: &[Found],
    after: Option<Place>,
    needed: usize,
) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    let mut rest = bodies;
    if let Some(after) = after {
        rest = &rest[rest.partition_point(|found| after.is_after(found))..];
        if let [begun, others @ ..] = rest
            && begun.number == after.body
        {
            places = messages_of(read, wanted, std::slice::from_ref(begun), Some(after.message), needed)?;
            rest = others;
        }
    }
    // Each body has a message at least.
    while places.len() < needed && !rest.is_empty() {
        let chunk;
        (chunk, rest) = rest.split_at((needed - places.len()).min(rest.len()).min(BODIES_AT_ONCE));
        places.extend(messages_of(read, wanted, chunk, None, needed - places.len())?);
    }
    places.truncate(needed);
    Ok(places)
}

/// The wanted messages with these bodies in the order of hits, at most so many for each.
fn messages_of(
    read: &mut Reader<'_>,
    wanted: &Wanted,
    bodies: &[Found],
    before: Option<Id<kind::Message>>,
    needed: usize,
) -> Result<Vec<Place>> {
    if bodies.is_empty() {
        return Ok(Vec::new());
    }
    let filter = wanted.filter().and("m.id < ?", before.as_ref());
    let (conditions, values) = filter.numbered(3);
    let and = if conditions.is_empty() { "" } else { " and " };
    let mut params = vec![Param::Int(i64::try_from(needed).unwrap_or(i64::MAX))];
    params.extend(values);
    let first = params.len() + 2;
    params.extend(bodies.iter().map(|found| found.content_id.to_param()));
    // One by one, so that of a body that was said a million times only the newest messages are read.
    let newest = |place: usize| {
        format!(
            "select * from (select m.id, m.content_id from messages m left join runs u on u.id = m.from_run_id
             where m.tenant_id = ?1{and}{conditions} and m.content_id = ?{place} order by m.id desc limit ?2) x"
        )
    };
    let sql = (first..first + bodies.len()).map(newest).collect::<Vec<_>>().join(" union all ");
    let found = read.query::<(Id<kind::Message>, Uuid)>(&sql, &params)?;
    let known: HashMap<Uuid, &Found> = bodies.iter().map(|found| (found.content_id, found)).collect();
    let mut places: Vec<Place> = found
        .into_iter()
        .filter_map(|(message, content)| {
            let found = known.get(&content)?;
            Some(Place { score: found.score, body: found.number, message })
        })
        .collect();
    places.sort_by(|one, other| {
        other.score.total_cmp(&one.score).then(other.body.cmp(&one.body)).then(other.message.cmp(&one.message))
    });
    Ok(places)
}

/// What is shown of the messages at these places.
fn hits(read: &mut Reader<'_>, query: &SearchQuery, places: &[Place]) -> Result<Vec<Hit>> {
    let mut hits = Vec::with_capacity(places.len());
    // Bodies may be long: not all of them at once.
    for chunk in places.chunks(100) {
        let params: Vec<_> = chunk.iter().map(|place| place.message.to_param()).collect();
        let rest = format!("where m.tenant_id = ?1 and m.id in ({})", numbered(2, chunk.len()));
        let shown: HashMap<_, _> =
            read.shown::<MessageShown>(&rest, &params)?.into_iter().map(|shown| (shown.message.id, shown)).collect();
        for place in chunk {
            let Some(shown) = shown.get(&place.message) else { continue };
            hits.push(Hit {
                message_id: place.message,
                snippet: snippet(query, &shown.body),
                score: place.score,
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
fn numbered(first: usize, count: usize) -> String {
    (first..first + count).map(|place| format!("?{place}")).collect::<Vec<_>>().join(", ")
}
