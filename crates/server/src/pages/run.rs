//! The page of a run: its request and final message, touches, child runs, steps, model usage and wake prompt.

use axum::http::StatusCode;
use serde_json::{Value, json};
use trackway_domain::{Error as Rule, Ref, kind, text};
use trackway_store::Reader;

use super::{query_view, rows};
use crate::{
    blocks::{self, cell, group_digits},
    input, nouns,
    page::{Block, Cell, Page, Table, TextKind, TimelineEntry, TreeNode},
    problem::Problem,
};

const FACT_FIELDS: &[&str] = &[
    "status",
    "outcome",
    "agent",
    "role",
    "task",
    "initiated_by",
    "cause_kind",
    "session_id",
    "workspace",
    "mode",
    "duration",
    "started_at",
    "ended_at",
    "parent_run_id",
    "queue_item_id",
];
/// Maximum number of steps on a page. The page shows the newest steps and links to earlier steps.
const STEPS_MAX: usize = 100;
/// Maximum number of touches on a page. It is lower than for steps, because the rows of touches are longer.
const TOUCHES_MAX: usize = 60;
/// Maximum total length of the texts of the steps on a page.
const STEP_TEXTS_MAX: usize = 10_000;
/// Maximum length of the text of one step.
const STEP_TEXT_MAX: usize = 4_000;
/// Maximum length of the text of one step once the total length is used up.
const SHORT_STEP_TEXT_MAX: usize = 120;

/// The query parameters of the page.
const PAGE_PARAMETERS: [&str; 2] = ["steps_before", "touches_before"];

/// Builds the page. `?steps_before=` and `?touches_before=` show earlier steps and touches.
pub fn page(read: &mut Reader<'_>, reference: &str, query: &str) -> Result<Page, Problem> {
    let mut query_run = |wake: bool| query_view(read, ("run", "show"), json!({ "run": reference, "wake": wake }));
    let data = match query_run(true) {
        // The wake prompt contains the scratchpad, which other agents may not read. They see the run without the
        // prompt.
        Err(problem) if problem.status == StatusCode::FORBIDDEN => query_run(false)?.data,
        answer => answer?.data,
    };
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let title = match data["task"].as_str() {
        Some(task) => format!("Run {}: {task}", blocks::short_id(&id)),
        None => format!("Run {}", blocks::short_id(&id)),
    };
    let path = format!("/runs/{id}");
    let [steps_before, touches_before] = page_parameters(query)?;
    let mut page = Page::new(path.clone(), title, data);
    if steps_before.is_some() || touches_before.is_some() {
        if touches_before.is_some() {
            page.blocks.extend(touch_blocks(&page.data, &path, touches_before));
        }
        if steps_before.is_some() {
            page.blocks.extend(step_blocks(&page.data, &path, steps_before));
        }
        return Ok(page);
    }
    let children = rows(&page.data["children"]);
    let tree = if children.is_empty() {
        Vec::new()
    } else {
        rows(&query_view(read, ("run", "tree"), json!({ "run": id }))?.data["children"])
    };
    page.live = live_ids(read, &page.data, &tree);
    page.blocks = fact_blocks(&page.data);
    page.blocks.extend(message_blocks(read, &page.data));
    page.blocks.extend(touch_blocks(&page.data, &path, None));
    if !tree.is_empty() {
        page.blocks.push(Block::Heading("Child runs".to_owned()));
        page.blocks.push(Block::Tree(tree.iter().map(tree_node).collect()));
    }
    page.blocks.extend(step_blocks(&page.data, &path, None));
    page.blocks.extend(usage_blocks(&rows(&page.data["usage"])));
    for wake in rows(&page.data["wake"]) {
        let at = wake["created_at"].as_str().unwrap_or_default();
        page.blocks.push(Block::Heading("Wake prompt".to_owned()));
        page.blocks.push(Block::Text {
            label: Some(format!("at {}", at.get(..19).unwrap_or(at).replace('T', " "))),
            text: wake["text"].as_str().unwrap_or_default().to_owned(),
            kind: TextKind::Markdown,
        });
    }
    Ok(page)
}

/// The ids whose events reload the page: the run, its child runs and its session. Empty once all these runs have ended.
fn live_ids(read: &mut Reader<'_>, data: &Value, tree: &[Value]) -> Vec<String> {
    let mut ids = Vec::new();
    let mut pending: Vec<&Value> = tree.iter().collect();
    let mut is_running = data["status"] == "running";
    while let Some(run) = pending.pop() {
        is_running |= run["status"] == "running";
        ids.extend(run["id"].as_str().map(ToOwned::to_owned));
        pending.extend(run["children"].as_array().into_iter().flatten());
    }
    if !is_running {
        return Vec::new();
    }
    ids.extend(data["id"].as_str().map(ToOwned::to_owned));
    let session = data["session_id"].as_str().and_then(|id| read.resolve(&Ref::<kind::Session>::new(id)).ok());
    ids.extend(session.map(|session| session.to_string()));
    ids
}

/// Parses the query parameters.
fn page_parameters(query: &str) -> Result<[Option<usize>; 2], Problem> {
    input::reject_unknown(query, &PAGE_PARAMETERS)?;
    let mut values = [None; 2];
    for (before, name) in values.iter_mut().zip(PAGE_PARAMETERS) {
        if let Some((_, value)) = input::pairs(query).find(|(given, _)| given == name) {
            let number = value.parse().map_err(|_| Rule::usage(format!("{name} must be a number, not {value:?}")))?;
            *before = Some(number);
        }
    }
    Ok(values)
}

fn fact_blocks(data: &Value) -> Vec<Block> {
    let fact = |key: &str| match key {
        "cause_kind" if data["cause_id"].is_string() => blocks::link_by_kind(data, "cause"),
        // The cause already names this queue item.
        "queue_item_id" if data["cause_id"] == data["queue_item_id"] => None,
        key => Some(cell(key, data.get(key)?, None)),
    };
    let shown = FACT_FIELDS.iter().filter(|key| **key != "outcome" || data["outcome"] != data["status"]);
    let facts = shown.filter_map(|&key| match fact(key)? {
        Cell::Empty => None,
        value => Some((blocks::label(key.trim_end_matches("_kind")), value)),
    });
    vec![Block::Facts(facts.collect())]
}

/// The message that requested the run, its final message and its error.
fn message_blocks(read: &mut Reader<'_>, data: &Value) -> Vec<Block> {
    let mut out = Vec::new();
    let cause = data["cause_id"].as_str().filter(|_| data["cause_kind"] == "message");
    if let Some(request) = cause.and_then(|id| query_view(read, ("message", "get"), json!({ "message": id })).ok())
        && let Some(text) = request.data["body"].as_str().filter(|text| !text.trim().is_empty())
    {
        let field = |name: &str| request.data[name].as_str();
        let by = field("from").map_or_else(String::new, |from| format!(", by {from}"));
        let run = field("from_run_id").map_or_else(String::new, |run| format!(" in run {}", blocks::short_id(run)));
        out.push(Block::Text {
            label: Some(format!("Request{by}{run}")),
            text: text.to_owned(),
            kind: TextKind::Markdown,
        });
    }
    let texts = [("final_message", "Final message", TextKind::Markdown), ("error", "Error", TextKind::Plain)];
    for (field, label, kind) in texts {
        if let Some(text) = data[field].as_str().filter(|text| !text.trim().is_empty()) {
            out.push(Block::Text { label: Some(label.to_owned()), text: text.to_owned(), kind });
        }
    }
    out
}

fn touch_blocks(data: &Value, path: &str, before: Option<usize>) -> Vec<Block> {
    if data["no_effect"] == true {
        return vec![Block::Paragraph("The run completed without changing anything itself.".to_owned())];
    }
    let touches = rows(&data["touches"]);
    let (first, end) = window(touches.len(), before, TOUCHES_MAX);
    vec![
        Block::Heading("Touches".to_owned()),
        Block::Table(Table {
            columns: TOUCH_COLUMNS.map(ToOwned::to_owned).to_vec(),
            rows: touches[first..end].iter().map(touch).collect(),
            empty_text: "No touches.".to_owned(),
        }),
    ]
    .into_iter()
    .chain(pagination(path, "touches", first, end, touches.len(), TOUCHES_MAX))
    .chain((!touches.is_empty()).then(|| by_kind_links(data)))
    .collect()
}

/// Links to the page that lists the touches by kind and action.
fn by_kind_links(data: &Value) -> Block {
    let href = format!("/made?run={}", data["id"].as_str().unwrap_or_default());
    let mut links = vec![("by kind and action".to_owned(), href.clone())];
    if !rows(&data["children"]).is_empty() {
        links.push(("with its child runs".to_owned(), format!("{href}&tree=true")));
    }
    Block::Pagination { text: "List touches:".to_owned(), links }
}

fn step_blocks(data: &Value, path: &str, before: Option<usize>) -> Vec<Block> {
    let steps = rows(&data["steps"]);
    if steps.is_empty() {
        return Vec::new();
    }
    let (first, end) = window(steps.len(), before, STEPS_MAX);
    let mut text_budget = STEP_TEXTS_MAX;
    // The newest steps get the text budget first.
    let mut entries: Vec<TimelineEntry> =
        steps[first..end].iter().rev().map(|step| timeline_entry(step, &mut text_budget)).collect();
    entries.reverse();
    let mut out = vec![Block::Heading("Steps".to_owned())];
    out.extend(pagination(path, "steps", first, end, steps.len(), STEPS_MAX));
    out.push(Block::Timeline(entries));
    out
}

/// The range of a long list that is shown.
fn window(total: usize, before: Option<usize>, max: usize) -> (usize, usize) {
    let end = before.unwrap_or(total).min(total);
    (end.saturating_sub(max), end)
}

fn pagination(path: &str, noun: &str, first: usize, end: usize, total: usize, max: usize) -> Option<Block> {
    let mut links = Vec::new();
    if first > 0 {
        links.push(("earlier".to_owned(), format!("{path}?{noun}_before={first}")));
    }
    if end < total {
        links.push(("later".to_owned(), format!("{path}?{noun}_before={}", end + max)));
        links.push(("the whole run".to_owned(), path.to_owned()));
    }
    let number = |number: usize| group_digits(i64::try_from(number).unwrap_or(i64::MAX));
    let text = format!("{} to {} of {} {noun}.", number(first + 1), number(end), number(total));
    (!links.is_empty()).then_some(Block::Pagination { text, links })
}

/// The columns of [`touch`].
pub const TOUCH_COLUMNS: [&str; 5] = ["resource", "action", "times", "studio", "last touched"];

/// The table row of a touch.
pub fn touch(touch: &Value) -> Vec<Cell> {
    let (kind, id) =
        (touch["resource_type"].as_str().unwrap_or_default(), touch["resource_id"].as_str().unwrap_or_default());
    let name = touch["display_path"].as_str().unwrap_or_default();
    vec![
        Cell::link(blocks::page_or_why_path(kind, id), format!("{kind} {}", text::cut(name, 200))),
        cell("action", &touch["action_type"], None),
        cell("times", &touch["times"], None),
        cell("studio", &touch["studio"], None),
        cell("last_at", &touch["last_at"], None),
    ]
}

fn timeline_entry(step: &Value, text_budget: &mut usize) -> TimelineEntry {
    let field = |name: &str| step[name].as_str().unwrap_or_default().to_owned();
    // Digests are useless to readers. The JSON data contains them.
    let text = step["detail"].as_str().map(|detail| detail.split(", sha256 ").next().unwrap_or_default());
    let text = text.map(|text| text::cut(text, STEP_TEXT_MAX.min(*text_budget).max(SHORT_STEP_TEXT_MAX)));
    *text_budget = text_budget.saturating_sub(text.as_ref().map_or(0, String::len));
    TimelineEntry { at: field("created_at"), label: blocks::label(&field("type")), text }
}

fn tree_node(run: &Value) -> TreeNode {
    let mut cells = vec![
        cell("id", &run["id"], nouns::by_name("run")),
        cell("agent", &run["agent"], None),
        cell("role", &run["role"], None),
        cell("task", &run["task"], None),
        cell("status", &run["status"], None),
        Cell::Text(run["duration"].as_str().unwrap_or_default().to_owned()),
    ];
    let count = |number: &Value, one: &str, many: &str| {
        let number = number.as_i64()?;
        Some(Cell::Text(format!("{} {}", group_digits(number), if number == 1 { one } else { many })))
    };
    cells.extend(count(&run["tokens"], "token", "tokens"));
    cells.extend(count(&run["touches"], "touch", "touches"));
    TreeNode { cells, children: run["children"].as_array().into_iter().flatten().map(tree_node).collect() }
}

/// Formats a cost with two digits, or four if it has fractions of a cent.
fn dollars(cost: f64) -> String {
    let exact = format!("${cost:.4}");
    exact.strip_suffix("00").map_or(exact.clone(), ToOwned::to_owned)
}

/// The totals of the model usage, and the last calls. Figures that no call reported are left out.
fn usage_blocks(usage: &[Value]) -> Vec<Block> {
    if usage.is_empty() {
        return Vec::new();
    }
    let mut facts = vec![("calls".to_owned(), Cell::Number(usage.len().to_string()))];
    for field in ["input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens"] {
        let reported: Vec<i64> = usage.iter().filter_map(|call| call[field].as_i64()).collect();
        if !reported.is_empty() {
            facts.push((blocks::label(field), Cell::Number(group_digits(reported.iter().sum()))));
        }
    }
    let costs: Vec<f64> = usage.iter().filter_map(|call| call["cost"].as_f64()).collect();
    if !costs.is_empty() {
        facts.push(("cost".to_owned(), Cell::Number(dollars(costs.iter().sum()))));
    }
    let columns =
        ["model", "input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens", "cost", "created_at"];
    let last = &usage[usage.len().saturating_sub(20)..];
    vec![Block::Heading("Model usage".to_owned()), Block::Facts(facts), blocks::table(last, &columns, None, "")]
}
