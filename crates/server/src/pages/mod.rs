//! Every page: the question it asks, and how its answer is laid out.

mod agent;
mod api;
mod board;
mod conversation;
mod decision;
mod filter;
mod made;
mod overview;
mod queue;
mod ready;
mod report;
mod run;
mod search;
mod session;
mod task;
mod usage;
mod version;
mod whoami;
mod why;

pub use whoami::{At, page as whoami_at};

use serde::Serialize;
use serde_json::{Map, Value, json};
use trackway_actions::context::Context;
use trackway_domain::{Error as Rule, Time};
use trackway_store::Reader;
use trackway_views::registry::{self, Answer, Entry};

use crate::{
    address::{Place, encoded},
    blocks,
    format::Format,
    html,
    input::{self, Empty},
    nouns::{self, Noun},
    offers::{self, Caller},
    page::{Block, Cell, Page, TextKind},
    problem::Problem,
    schemas,
    site::Site,
};

/// Rows of a list that is not told how many.
const ROWS: i64 = 50;
/// Rows of a list at most for readers: more are not read, and make a page heavy. The rest is on the next one.
const ROWS_READ: i64 = 100;
/// Rows of a list at least, however long they are.
const ROWS_LEAST: usize = 10;
/// Bytes of the table of a list.
const LIST_MAX: usize = 70_000;
/// Rows of what belongs to a thing, on its page.
const HELD: i64 = 20;

/// Makes the page of a place.
pub fn page(site: &Site, context: &Context, place: &Place, query: &str, format: Format) -> Result<Page, Problem> {
    // Not every page asks by way of the registry, which refuses it too.
    if query.contains("%00") {
        return Err(Rule::usage("a text cannot hold the character NUL").into());
    }
    let mut read = site.core.reader(context)?;
    Caller::expect(&mut read, context)?;
    let now = read.now();
    match place {
        Place::Overview | Place::Whoami | Place::Api => input::none_but(query, &[])?,
        Place::One(noun, _) if !matches!(noun.noun, "agent" | "board" | "run") => input::none_but(query, &[])?,
        _ => {}
    }
    let most = (format != Format::Json).then_some(ROWS_READ);
    let mut page = match place {
        Place::Overview => overview::page(&mut read, now)?,
        Place::Whoami => whoami::page(&mut read, context, At::Http, now)?,
        Place::Why => why::page(&mut read, query, now)?,
        Place::Search => search::page(&mut read, query, now, most)?,
        Place::Usage => usage::page(&mut read, query, now)?,
        Place::Wake => wake(&mut read, query, now)?,
        Place::Ready => ready::page(&mut read, query, now, most)?,
        Place::Made => made::page(&mut read, query, now, most)?,
        Place::Latest => version::latest(&mut read, query, now)?,
        Place::Next => version::next(&mut read, query, now)?,
        Place::Api => api::page(&Caller::of(&mut read, context)?),
        Place::List(noun) => list(&mut read, noun, query, now, most)?,
        Place::One(noun, reference) => {
            of_thing(&mut read, noun, reference, query, format).map_err(|problem| problem.leading_to(noun))?
        }
    };
    page.actions = offers::at(place, &page.data, &Caller::of(&mut read, context)?);
    if let Place::One(..) = place {
        page.about = page.data["id"].as_str().map(ToOwned::to_owned);
    }
    if *place == Place::Whoami {
        // The rest is at /whoami/actions: a page that is read at every wake stays short.
        page.actions.retain(|offer| matches!(offer.action.name, "update_scratchpad" | "update_report"));
    }
    Ok(page)
}

/// Makes the page of a thing.
fn of_thing(
    read: &mut Reader<'_>,
    noun: &'static Noun,
    reference: &str,
    query: &str,
    format: Format,
) -> Result<Page, Problem> {
    if reference.contains('\0') {
        return Err(Rule::not_found(format!("there is no {} {reference:?}", noun.noun)).into());
    }
    match noun.noun {
        "run" => run::page(read, reference, query),
        "task" => task::page(read, reference, format),
        "agent" => agent::page(read, reference, query),
        "session" => session::page(read, reference),
        "decision" => decision::page(read, reference),
        "report" => report::page(read, reference),
        "conversation" => conversation::page(read, reference),
        "board" => board::page(read, reference, query),
        _ => generic(read, noun, reference),
    }
}

/// Asks a question of the registry.
pub fn ask(read: &mut Reader<'_>, command: (&str, &str), input: Value) -> Result<Answer, Problem> {
    let now = read.now();
    Ok((question(command)?.with_json)(read, input, now)?)
}

/// A question whose answer is laid out.
type Asked<'a> = Box<dyn Fn(&mut Reader<'_>) -> trackway_store::Result<Value> + 'a>;

/// A question of the registry, to be asked with others.
fn asked_with<'a>(command: (&str, &str), input: Value, now: Time) -> Result<Asked<'a>, Problem> {
    let entry = question(command)?;
    Ok(Box::new(move |read| Ok((entry.with_json)(read, input.clone(), now)?.data)))
}

/// Asks several questions that do not wait for each other.
fn ask_all<const N: usize>(read: &mut Reader<'_>, questions: [Asked<'_>; N]) -> Result<[Value; N], Problem> {
    let mut answers = read.side_by_side(&questions)?.into_iter();
    Ok(std::array::from_fn(|_| answers.next().unwrap_or_default()))
}

/// What is shown, as data.
fn value(shown: impl Serialize) -> trackway_store::Result<Value> {
    Ok(serde_json::to_value(shown).map_err(|error| Rule::usage(error.to_string()))?)
}

fn question(command: (&str, &str)) -> Result<&'static Entry, Problem> {
    registry::of(command)
        .ok_or_else(|| Rule::not_found(format!("there is no page for {} {}", command.0, command.1)).into())
}

/// The thing of a noun that a reference names.
pub fn one(read: &mut Reader<'_>, noun: &Noun, reference: &str) -> Result<Value, Problem> {
    if noun.noun == "report" {
        return report::found(read, reference);
    }
    let verb = noun.one.ok_or_else(|| Rule::not_found(format!("{} have no pages of their own", noun.title)))?;
    let entry = question((noun.noun, verb))?;
    let schema = schemas::of_question(entry);
    let field = input::required(schema).first().copied().unwrap_or("id").to_owned();
    let input = Map::from_iter([(field, Value::String(reference.to_owned()))]);
    let now = read.now();
    Ok((entry.with_json)(read, Value::Object(input), now)?.data)
}

/// The page of a thing that has no layout of its own.
fn generic(read: &mut Reader<'_>, noun: &'static Noun, reference: &str) -> Result<Page, Problem> {
    let data = one(read, noun, reference)?;
    let mut page = Page::new(path(noun, &data, reference), title(noun, &data, reference), data);
    page.blocks = blocks_of(&page.data, Some(noun), &["title", "question"]);
    let id = page.data["id"].as_str().unwrap_or(reference).to_owned();
    for (held, by) in noun.holds.iter().filter_map(|(held, by)| Some((nouns::of(held)?, *by))) {
        let entry = question((held.noun, held.list.unwrap_or("list")))?;
        let answer = ask(read, entry.command, json!({ by: id, "limit": HELD }))?;
        let columns: Vec<&str> = entry.columns.iter().copied().filter(|column| *column != by).collect();
        page.blocks.push(Block::Heading(held.title.to_owned()));
        page.blocks.push(blocks::table(&rows(&answer.data), &columns, Some(held), "None yet."));
        if answer.more.is_some() {
            let all = Cell::link(format!("/{}?{by}={}", held.path, encoded(&id)), "all of them");
            page.blocks.push(Block::Facts(vec![("more".to_owned(), all)]));
        }
        page.data[held.path] = answer.data;
    }
    Ok(page)
}

/// Where a thing is, by its whole id where it has one.
fn path(noun: &Noun, data: &Value, reference: &str) -> String {
    // A queue item has the variant of its task, and a label a name, neither of which leads to it.
    let naming = noun.named_by.unwrap_or(match noun.noun {
        "task" => "variant",
        "session" => "session_id",
        "spawn" => "tool_use_id",
        _ => "id",
    });
    let own = [naming, "id"].iter().find_map(|field| data.get(field).and_then(Value::as_str)).unwrap_or(reference);
    blocks::path_of(noun.noun, own).unwrap_or_default()
}

/// What a thing is called.
fn title(noun: &Noun, data: &Value, reference: &str) -> String {
    let named = ["title", "question", "variant", "handle", "name", "key"];
    let own = named.iter().find_map(|field| data.get(field).and_then(Value::as_str)).filter(|own| !own.is_empty());
    // What is addressed by a name of its own says it, too.
    let name =
        noun.named_by.and_then(|field| data.get(field)).and_then(Value::as_str).filter(|name| Some(*name) != own);
    match (own, name) {
        (Some(own), Some(name)) => format!("{own} ({name})"),
        (Some(own), None) => own.to_owned(),
        (None, _) => format!(
            "{} {}",
            blocks::words(noun.noun),
            blocks::short(data.get("id").and_then(Value::as_str).unwrap_or(reference))
        ),
    }
}

/// The rows of a list in an answer; none where there is no list.
fn rows(list: &Value) -> Vec<Value> {
    list.as_array().cloned().unwrap_or_default()
}

/// An answer as blocks.
pub fn blocks_of(data: &Value, noun: Option<&Noun>, without: &[&str]) -> Vec<Block> {
    match data {
        Value::Object(fields) => blocks::fields(fields, noun, without),
        Value::Array(rows) => vec![blocks::table(rows, &[], noun, "")],
        Value::Null => Vec::new(),
        other => vec![Block::Text { label: None, text: other.to_string(), kind: TextKind::Json }],
    }
}

/// The list of a noun.
fn list(
    read: &mut Reader<'_>,
    noun: &'static Noun,
    query: &str,
    now: Time,
    most: Option<i64>,
) -> Result<Page, Problem> {
    let Some(verb) = noun.list else {
        if !noun.empty.is_empty() {
            input::none_but(query, &[])?;
            let mut page = Page::new(format!("/{}", noun.path), noun.title, Value::Null);
            page.blocks.push(Block::Say(noun.empty.to_owned()));
            return Ok(page);
        }
        return Err(Rule::not_found(format!("there is no list of {}", noun.path)).into());
    };
    let entry = question((noun.noun, verb))?;
    let fitting =
        fitting(read, entry, query, now, most, &|rows| blocks::table(rows, entry.columns, Some(noun), noun.empty))?;
    let Fitting { answer, table, most } = fitting;
    let mut page = Page::new(format!("/{}", noun.path), noun.title, answer.data);
    let rows = rows(&page.data);
    if noun.noun == "task" {
        page.blocks.push(ready::ways(false));
    }
    if noun.noun == "queue" {
        page.blocks.push(queue::figures(read, now)?);
    }
    page.blocks.extend(filter::of(entry, &page.path, query));
    page.blocks.push(table);
    page.next = next(&page.path, query, answer.more.as_deref());
    if noun.noun == "event" && rows.len() >= limit(query, most) {
        let last = rows.last().map(|event| event["position"].to_string());
        page.next = from_on(&page.path, query, "before", last.as_deref());
    }
    page.live = match noun.noun {
        "run" | "message" => vec![noun.noun.to_owned()],
        // The end of a run is the end of its item.
        "queue" => vec!["queue_item".to_owned(), "run".to_owned()],
        _ => Vec::new(),
    };
    Ok(page)
}

/// What a list answers, its table, and how many rows it was kept to.
struct Fitting {
    answer: Answer,
    table: Block,
    most: Option<i64>,
}

/// Asks for as many rows of a list as fit on a page, so that the next page goes on where this one ends.
fn fitting(
    read: &mut Reader<'_>,
    entry: &Entry,
    query: &str,
    now: Time,
    mut most: Option<i64>,
    table_of: &dyn Fn(&[Value]) -> Block,
) -> Result<Fitting, Problem> {
    loop {
        let answer = asked(read, entry, query, now, most)?;
        let rows = rows(&answer.data);
        let table = table_of(&rows);
        if most.is_none() || rows.len() <= ROWS_LEAST || html::block(&table).len() <= LIST_MAX {
            return Ok(Fitting { answer, table, most });
        }
        most = i64::try_from(rows.len() / 2).ok();
    }
}

/// Asks with the parameters of a query, for at most so many rows.
fn asked(read: &mut Reader<'_>, entry: &Entry, query: &str, now: Time, most: Option<i64>) -> Result<Answer, Problem> {
    let schema = schemas::of_question(entry);
    let mut input = input::from_pairs(schema, input::pairs(query), Empty::LeftOut)?;
    if input::fields(schema).is_some_and(|fields| fields.contains_key("limit")) {
        let limit = input.entry("limit").or_insert_with(|| json!(ROWS));
        if let (Some(wanted), Some(most)) = (limit.as_i64(), most) {
            *limit = json!(wanted.min(most));
        }
    }
    Ok((entry.with_json)(read, Value::Object(input), now)?)
}

/// How many rows a list was asked for.
fn limit(query: &str, most: Option<i64>) -> usize {
    let wanted = input::pairs(query).find(|(name, _)| name == "limit").and_then(|(_, value)| value.parse().ok());
    let limit = wanted.unwrap_or(ROWS).min(most.unwrap_or(i64::MAX));
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Where a list goes on, from the flag that the command line would take: `--after 1a2b3c4d`, `--before TIME`.
pub fn next(path: &str, query: &str, more: Option<&str>) -> Option<String> {
    let (flag, place) = more?.strip_prefix("--")?.split_once(' ')?;
    from_on(path, query, flag, Some(place))
}

/// The same question, from a place on.
fn from_on(path: &str, query: &str, from: &str, place: Option<&str>) -> Option<String> {
    let mut serializer = form_urlencoded::Serializer::new(String::new());
    serializer.extend_pairs(input::pairs(query).filter(|(name, _)| name != from));
    serializer.append_pair(from, place?);
    Some(format!("{path}?{}", serializer.finish()))
}
fn wake(read: &mut Reader<'_>, query: &str, now: Time) -> Result<Page, Problem> {
    let entry = question(("", "wake"))?;
    let given = input::from_pairs(schemas::of_question(entry), input::pairs(query), Empty::LeftOut)?;
    let said = given.get("task").and_then(Value::as_str).unwrap_or_default().to_owned();
    let ask = Block::Ask { to: "/wake", field: "task", label: "The task that an agent wakes on", said, within: None };
    if given.get("task").is_none_or(|task| task == "") {
        let mut page = Page::new("/wake", "What an agent would be told", Value::Null);
        page.blocks.push(ask);
        return Ok(page);
    }
    let answer = asked(read, entry, query, now, None).map_err(|problem| problem.asking(ask))?;
    if let Some(document) = answer.document {
        let mut page = Page::new("/wake", "Linked tasks", serde_json::from_str(&document).unwrap_or(Value::Null));
        page.blocks.push(Block::Text { label: None, text: document, kind: TextKind::Json });
        page.blocks.extend(answer.remarks.into_iter().map(Block::Say));
        return Ok(page);
    }
    let mut page = Page::new("/wake", "What an agent would be told", answer.data);
    let text = page.data.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
    page.blocks.push(Block::Text { label: None, text, kind: TextKind::Markdown });
    Ok(page)
}
