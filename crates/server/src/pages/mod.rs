//! Builds the pages: each page queries views and lays out their answers as blocks.

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

pub use whoami::{Interface, page as whoami_page};

use serde::Serialize;
use serde_json::{Map, Value, json};
use trackway_actions::context::Context;
use trackway_domain::{Error as Rule, Time};
use trackway_store::Reader;
use trackway_views::registry::{self, ViewEntry, ViewOutput};

use crate::{
    address::{PageRef, encode},
    blocks,
    format::Format,
    html,
    input::{self, EmptyText},
    nouns::{self, Noun},
    offers::{self, Caller},
    page::{Block, Cell, Page, TextKind},
    problem::Problem,
    schemas,
    site::Site,
};

/// Default number of rows of a list.
const ROWS_DEFAULT: i64 = 50;
/// Maximum number of rows of a list in HTML and Markdown. The next page continues the list.
const ROWS_MAX: i64 = 100;
/// Minimum number of rows of a list, even if the rows are long.
const ROWS_MIN: usize = 10;
/// Maximum size of the HTML table of a list, in bytes.
const LIST_BYTES_MAX: usize = 70_000;
/// Maximum number of rows of a nested list on the page of a thing.
const NESTED_ROWS_MAX: i64 = 20;

/// Builds a page.
pub fn page(site: &Site, context: &Context, page_ref: &PageRef, query: &str, format: Format) -> Result<Page, Problem> {
    // The registry rejects NUL characters, too, but some pages query views directly.
    if query.contains("%00") {
        return Err(Rule::usage("the query contains a NUL character").into());
    }
    let mut read = site.core.reader(context)?;
    Caller::prefetch(&mut read, context)?;
    let now = read.now();
    match page_ref {
        PageRef::Overview | PageRef::Whoami | PageRef::Api => input::reject_unknown(query, &[])?,
        PageRef::Detail(noun, _) if !matches!(noun.noun, "agent" | "board" | "run") => {
            input::reject_unknown(query, &[])?;
        }
        _ => {}
    }
    let max_rows = (format != Format::Json).then_some(ROWS_MAX);
    let mut page = match page_ref {
        PageRef::Overview => overview::page(&mut read, now)?,
        PageRef::Whoami => whoami::page(&mut read, context, Interface::Http, now)?,
        PageRef::Why => why::page(&mut read, query, now)?,
        PageRef::Search => search::page(&mut read, query, now, max_rows)?,
        PageRef::Usage => usage::page(&mut read, query, now)?,
        PageRef::Wake => wake_page(&mut read, query, now)?,
        PageRef::Ready => ready::page(&mut read, query, now, max_rows)?,
        PageRef::Made => made::page(&mut read, query, now, max_rows)?,
        PageRef::Latest => version::latest(&mut read, query, now)?,
        PageRef::Next => version::next(&mut read, query, now)?,
        PageRef::Api => api::page(&Caller::load(&mut read, context)?),
        PageRef::List(noun) => list_page(&mut read, noun, query, now, max_rows)?,
        PageRef::Detail(noun, reference) => {
            detail_page(&mut read, noun, reference, query, format).map_err(|problem| problem.suggest_list(noun))?
        }
    };
    page.actions = offers::for_caller(page_ref, &page.data, &Caller::load(&mut read, context)?);
    if let PageRef::Detail(..) = page_ref {
        page.subject_id = page.data["id"].as_str().map(ToOwned::to_owned);
    }
    if *page_ref == PageRef::Whoami {
        // Agents read this page at every wake, so it stays short. /whoami/actions lists all actions.
        page.actions.retain(|offer| matches!(offer.action.name, "update_scratchpad" | "update_report"));
    }
    Ok(page)
}

/// Builds the page of one thing.
fn detail_page(
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
        _ => generic_page(read, noun, reference),
    }
}

/// Queries a view by its command.
pub fn query_view(read: &mut Reader<'_>, command: (&str, &str), input: Value) -> Result<ViewOutput, Problem> {
    let now = read.now();
    Ok((view_entry(command)?.with_json)(read, input, now)?)
}

/// A query whose answer a page lays out.
type ViewQuery<'a> = Box<dyn Fn(&mut Reader<'_>) -> trackway_store::Result<Value> + 'a>;

/// Prepares the query of a view, to be executed together with others.
fn prepare_view<'a>(command: (&str, &str), input: Value, now: Time) -> Result<ViewQuery<'a>, Problem> {
    let entry = view_entry(command)?;
    Ok(Box::new(move |read| Ok((entry.with_json)(read, input.clone(), now)?.data)))
}

/// Executes several independent queries concurrently.
fn query_all<const N: usize>(read: &mut Reader<'_>, queries: [ViewQuery<'_>; N]) -> Result<[Value; N], Problem> {
    let mut answers = read.run_batched(&queries)?.into_iter();
    Ok(std::array::from_fn(|_| answers.next().unwrap_or_default()))
}

/// Serialises display rows.
fn to_value(rows: impl Serialize) -> trackway_store::Result<Value> {
    Ok(serde_json::to_value(rows).map_err(|error| Rule::usage(error.to_string()))?)
}

fn view_entry(command: (&str, &str)) -> Result<&'static ViewEntry, Problem> {
    registry::find_view(command)
        .ok_or_else(|| Rule::not_found(format!("unknown view {} {}", command.0, command.1)).into())
}

/// Loads a thing by its name or id.
pub fn load_thing(read: &mut Reader<'_>, noun: &Noun, reference: &str) -> Result<Value, Problem> {
    if noun.noun == "report" {
        return report::load_report(read, reference);
    }
    let verb = noun.show_verb.ok_or_else(|| Rule::not_found(format!("{} have no pages of their own", noun.title)))?;
    let entry = view_entry((noun.noun, verb))?;
    let schema = schemas::of_view(entry);
    let field = input::required(schema).first().copied().unwrap_or("id").to_owned();
    let input = Map::from_iter([(field, Value::String(reference.to_owned()))]);
    let now = read.now();
    Ok((entry.with_json)(read, Value::Object(input), now)?.data)
}

/// The page of a thing whose kind has no layout of its own.
fn generic_page(read: &mut Reader<'_>, noun: &'static Noun, reference: &str) -> Result<Page, Problem> {
    let data = load_thing(read, noun, reference)?;
    let mut page = Page::new(path(noun, &data, reference), title(noun, &data, reference), data);
    page.blocks = blocks_of(&page.data, Some(noun), &["title", "question"]);
    let id = page.data["id"].as_str().unwrap_or(reference).to_owned();
    for (nested, parameter) in
        noun.nested_lists.iter().filter_map(|(nested, parameter)| Some((nouns::by_name(nested)?, *parameter)))
    {
        let entry = view_entry((nested.noun, nested.list_verb.unwrap_or("list")))?;
        let answer = query_view(read, entry.command, json!({ parameter: id, "limit": NESTED_ROWS_MAX }))?;
        let columns: Vec<&str> = entry.columns.iter().copied().filter(|column| *column != parameter).collect();
        page.blocks.push(Block::Heading(nested.title.to_owned()));
        page.blocks.push(blocks::table(&rows(&answer.data), &columns, Some(nested), "None yet."));
        if answer.next_page.is_some() {
            let all = Cell::link(format!("/{}?{parameter}={}", nested.path, encode(&id)), "all of them");
            page.blocks.push(Block::Facts(vec![("more".to_owned(), all)]));
        }
        page.data[nested.path] = answer.data;
    }
    Ok(page)
}

/// The path of a thing's page, with its name or its full id.
fn path(noun: &Noun, data: &Value, reference: &str) -> String {
    // The fields must identify the thing itself. A queue item has the variant of its task and a label has a name, but
    // neither identifies it.
    let field = noun.name_field.unwrap_or(match noun.noun {
        "task" => "variant",
        "session" => "session_id",
        "spawn" => "tool_use_id",
        _ => "id",
    });
    let reference = [field, "id"].iter().find_map(|field| data.get(field).and_then(Value::as_str)).unwrap_or(reference);
    blocks::page_path(noun.noun, reference).unwrap_or_default()
}

/// The title of a thing's page.
fn title(noun: &Noun, data: &Value, reference: &str) -> String {
    let title_fields = ["title", "question", "variant", "handle", "name", "key"];
    let own =
        title_fields.iter().find_map(|field| data.get(field).and_then(Value::as_str)).filter(|own| !own.is_empty());
    // The title also contains the name by which the thing is addressed.
    let name =
        noun.name_field.and_then(|field| data.get(field)).and_then(Value::as_str).filter(|name| Some(*name) != own);
    match (own, name) {
        (Some(own), Some(name)) => format!("{own} ({name})"),
        (Some(own), None) => own.to_owned(),
        (None, _) => format!(
            "{} {}",
            blocks::label(noun.noun),
            blocks::short_id(data.get("id").and_then(Value::as_str).unwrap_or(reference))
        ),
    }
}

/// The rows of a JSON list, or none if the value is not a list.
fn rows(list: &Value) -> Vec<Value> {
    list.as_array().cloned().unwrap_or_default()
}

/// Lays out an answer in the default way.
pub fn blocks_of(data: &Value, noun: Option<&Noun>, excluded: &[&str]) -> Vec<Block> {
    match data {
        Value::Object(fields) => blocks::object_blocks(fields, noun, excluded),
        Value::Array(rows) => vec![blocks::table(rows, &[], noun, "")],
        Value::Null => Vec::new(),
        other => vec![Block::Text { label: None, text: other.to_string(), kind: TextKind::Json }],
    }
}

/// The page that lists the things of a kind.
fn list_page(
    read: &mut Reader<'_>,
    noun: &'static Noun,
    query: &str,
    now: Time,
    max_rows: Option<i64>,
) -> Result<Page, Problem> {
    let Some(verb) = noun.list_verb else {
        if !noun.empty_text.is_empty() {
            input::reject_unknown(query, &[])?;
            let mut page = Page::new(format!("/{}", noun.path), noun.title, Value::Null);
            page.blocks.push(Block::Paragraph(noun.empty_text.to_owned()));
            return Ok(page);
        }
        return Err(Rule::not_found(format!("there is no list of {}", noun.path)).into());
    };
    let entry = view_entry((noun.noun, verb))?;
    let fitted = query_fitting_list(read, entry, query, now, max_rows, &|rows| {
        blocks::table(rows, entry.columns, Some(noun), noun.empty_text)
    })?;
    let FittedList { answer, table, max_rows } = fitted;
    let mut page = Page::new(format!("/{}", noun.path), noun.title, answer.data);
    let rows = rows(&page.data);
    if noun.noun == "task" {
        page.blocks.push(ready::tabs(false));
    }
    if noun.noun == "queue" {
        page.blocks.push(queue::figures(read, now)?);
    }
    page.blocks.extend(filter::list_filter(entry, &page.path, query));
    page.blocks.push(table);
    page.next = next(&page.path, query, answer.next_page.as_deref());
    if noun.noun == "event" && rows.len() >= row_limit(query, max_rows) {
        let last = rows.last().map(|event| event["position"].to_string());
        page.next = continue_from(&page.path, query, "before", last.as_deref());
    }
    page.live = match noun.noun {
        "run" | "message" => vec![noun.noun.to_owned()],
        // The end of a run also finishes its queue item.
        "queue" => vec!["queue_item".to_owned(), "run".to_owned()],
        _ => Vec::new(),
    };
    Ok(page)
}

/// A list whose table fits on a page, with the row limit that was needed.
struct FittedList {
    answer: ViewOutput,
    table: Block,
    max_rows: Option<i64>,
}

/// Queries as many rows of a list as fit on a page. The next page starts after the last shown row.
fn query_fitting_list(
    read: &mut Reader<'_>,
    entry: &ViewEntry,
    query: &str,
    now: Time,
    mut max_rows: Option<i64>,
    table_of: &dyn Fn(&[Value]) -> Block,
) -> Result<FittedList, Problem> {
    loop {
        let answer = query_view_from_url(read, entry, query, now, max_rows)?;
        let rows = rows(&answer.data);
        let table = table_of(&rows);
        if max_rows.is_none() || rows.len() <= ROWS_MIN || html::block(&table).len() <= LIST_BYTES_MAX {
            return Ok(FittedList { answer, table, max_rows });
        }
        max_rows = i64::try_from(rows.len() / 2).ok();
    }
}

/// Queries a view with the parameters of a URL query, for at most `max_rows` rows.
fn query_view_from_url(
    read: &mut Reader<'_>,
    entry: &ViewEntry,
    query: &str,
    now: Time,
    max_rows: Option<i64>,
) -> Result<ViewOutput, Problem> {
    let schema = schemas::of_view(entry);
    let mut input = input::parse_pairs(schema, input::pairs(query), EmptyText::Omitted)?;
    if input::fields(schema).is_some_and(|fields| fields.contains_key("limit")) {
        let limit = input.entry("limit").or_insert_with(|| json!(ROWS_DEFAULT));
        if let (Some(wanted), Some(max_rows)) = (limit.as_i64(), max_rows) {
            *limit = json!(wanted.min(max_rows));
        }
    }
    Ok((entry.with_json)(read, Value::Object(input), now)?)
}

/// The effective row limit of a list.
fn row_limit(query: &str, max_rows: Option<i64>) -> usize {
    let wanted = input::pairs(query).find(|(name, _)| name == "limit").and_then(|(_, value)| value.parse().ok());
    let limit = wanted.unwrap_or(ROWS_DEFAULT).min(max_rows.unwrap_or(i64::MAX));
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// The path of the next page, from the flag that the command line would use: `--after 1a2b3c4d`, `--before TIME`.
pub fn next(path: &str, query: &str, more: Option<&str>) -> Option<String> {
    let (flag, cursor) = more?.strip_prefix("--")?.split_once(' ')?;
    continue_from(path, query, flag, Some(cursor))
}

/// The path of the same list, starting at a cursor.
fn continue_from(path: &str, query: &str, parameter: &str, cursor: Option<&str>) -> Option<String> {
    let mut serializer = form_urlencoded::Serializer::new(String::new());
    serializer.extend_pairs(input::pairs(query).filter(|(name, _)| name != parameter));
    serializer.append_pair(parameter, cursor?);
    Some(format!("{path}?{}", serializer.finish()))
}

/// The wake prompt that an agent would receive for a task. Without a task, it is a form that asks for one.
fn wake_page(read: &mut Reader<'_>, query: &str, now: Time) -> Result<Page, Problem> {
    let entry = view_entry(("", "wake"))?;
    let input = input::parse_pairs(schemas::of_view(entry), input::pairs(query), EmptyText::Omitted)?;
    let task = input.get("task").and_then(Value::as_str).unwrap_or_default().to_owned();
    let form = Block::SearchForm {
        path: "/wake",
        field: "task",
        label: "The task on which an agent wakes",
        value: task,
        scope: None,
    };
    if input.get("task").is_none_or(|task| task == "") {
        let mut page = Page::new("/wake", "Wake prompt", Value::Null);
        page.blocks.push(form);
        return Ok(page);
    }
    let answer = query_view_from_url(read, entry, query, now, None).map_err(|problem| problem.with_form(form))?;
    if let Some(document) = answer.document {
        let mut page = Page::new("/wake", "Linked tasks", serde_json::from_str(&document).unwrap_or(Value::Null));
        page.blocks.push(Block::Text { label: None, text: document, kind: TextKind::Json });
        page.blocks.extend(answer.remarks.into_iter().map(Block::Paragraph));
        return Ok(page);
    }
    let mut page = Page::new("/wake", "Wake prompt", answer.data);
    let text = page.data.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
    page.blocks.push(Block::Text { label: None, text, kind: TextKind::Markdown });
    Ok(page)
}
