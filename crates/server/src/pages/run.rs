//! A run: what it was asked and said, what it made, what it started, what happened in order, what it used, what it was told.

use axum::http::StatusCode;
use serde_json::{Value, json};
use trackway_domain::{Error as Rule, Ref, kind, text};
use trackway_store::Reader;

use super::{ask, rows};
use crate::{
    blocks::{self, cell, grouped},
    input, nouns,
    page::{Block, Branch, Cell, Moment, Page, Table, TextKind},
    problem::Problem,
};

const FACTS: &[&str] = &[
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
/// Steps on a page: the last ones, and a way to the earlier ones.
const STEPS: usize = 100;
/// Touches on a page, likewise; a row of theirs is longer.
const TOUCHES: usize = 60;
/// Characters of all that the steps on a page said.
const SAID: usize = 10_000;
/// Characters of what one step said, and of one for which nothing is left.
const SAID_ONCE: usize = 4_000;
const SAID_LITTLE: usize = 120;

/// What the page of a run can be asked for.
const BEFORES: [&str; 2] = ["steps_before", "touches_before"];

/// Lays a run out. `?steps_before=` and `?touches_before=` show what came before those that are shown without.
pub fn page(read: &mut Reader<'_>, reference: &str, query: &str) -> Result<Page, Problem> {
    let mut show = |wake: bool| ask(read, ("run", "show"), json!({ "run": reference, "wake": wake }));
    let data = match show(true) {
        // Another agent may not read the scratchpad in the wake context; it sees the rest of the run.
        Err(problem) if problem.status == StatusCode::FORBIDDEN => show(false)?.data,
        shown => shown?.data,
    };
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let title = match data["task"].as_str() {
        Some(task) => format!("Run {}: {task}", blocks::short(&id)),
        None => format!("Run {}", blocks::short(&id)),
    };
    let path = format!("/runs/{id}");
    let [steps_before, touches_before] = befores(query)?;
    let mut page = Page::new(path.clone(), title, data);
    if steps_before.is_some() || touches_before.is_some() {
        if touches_before.is_some() {
            page.blocks.extend(made(&page.data, &path, touches_before));
        }
        if steps_before.is_some() {
            page.blocks.extend(happened(&page.data, &path, steps_before));
        }
        return Ok(page);
    }
    let children = rows(&page.data["children"]);
    let tree = if children.is_empty() {
        Vec::new()
    } else {
        rows(&ask(read, ("run", "tree"), json!({ "run": id }))?.data["children"])
    };
    page.live = watched(read, &page.data, &tree);
    page.blocks = facts(&page.data);
    page.blocks.extend(said(read, &page.data));
    page.blocks.extend(made(&page.data, &path, None));
    if !tree.is_empty() {
        page.blocks.push(Block::Heading("What it started".to_owned()));
        page.blocks.push(Block::Tree(tree.iter().map(branch).collect()));
    }
    page.blocks.extend(happened(&page.data, &path, None));
    page.blocks.extend(used(&rows(&page.data["usage"])));
    for told in rows(&page.data["wake"]) {
        let at = told["created_at"].as_str().unwrap_or_default();
        page.blocks.push(Block::Heading("What it was told when it woke".to_owned()));
        page.blocks.push(Block::Text {
            label: Some(format!("at {}", at.get(..19).unwrap_or(at).replace('T', " "))),
            text: told["text"].as_str().unwrap_or_default().to_owned(),
            kind: TextKind::Markdown,
        });
    }
    Ok(page)
}

/// What changes the page: the run and those below it, and the session it is observed in. What has ended stays as it is.
fn watched(read: &mut Reader<'_>, data: &Value, tree: &[Value]) -> Vec<String> {
    let mut watched = Vec::new();
    let mut left: Vec<&Value> = tree.iter().collect();
    let mut is_running = data["status"] == "running";
    while let Some(run) = left.pop() {
        is_running |= run["status"] == "running";
        watched.extend(run["id"].as_str().map(ToOwned::to_owned));
        left.extend(run["children"].as_array().into_iter().flatten());
    }
    if !is_running {
        return Vec::new();
    }
    watched.extend(data["id"].as_str().map(ToOwned::to_owned));
    let session = data["session_id"].as_str().and_then(|id| read.resolve(&Ref::<kind::Session>::new(id)).ok());
    watched.extend(session.map(|session| session.to_string()));
    watched
}

/// Before which steps and touches to show those of a long run.
fn befores(query: &str) -> Result<[Option<usize>; 2], Problem> {
    input::none_but(query, &BEFORES)?;
    let mut befores = [None; 2];
    for (before, name) in befores.iter_mut().zip(BEFORES) {
        if let Some((_, value)) = input::pairs(query).find(|(given, _)| given == name) {
            let number = value.parse().map_err(|_| Rule::usage(format!("{name} is a number, not {value:?}")))?;
            *before = Some(number);
        }
    }
    Ok(befores)
}

fn facts(data: &Value) -> Vec<Block> {
    let told = |key: &str| match key {
        "cause_kind" if data["cause_id"].is_string() => blocks::thing(data, "cause"),
        // The request that caused it has been named.
        "queue_item_id" if data["cause_id"] == data["queue_item_id"] => None,
        key => Some(cell(key, data.get(key)?, None)),
    };
    let shown = FACTS.iter().filter(|key| **key != "outcome" || data["outcome"] != data["status"]);
    let facts = shown.filter_map(|&key| match told(key)? {
        Cell::Nothing => None,
        shown => Some((blocks::words(key.trim_end_matches("_kind")), shown)),
    });
    vec![Block::Facts(facts.collect())]
}

/// What it was asked, what it said at the end, and what went wrong.
fn said(read: &mut Reader<'_>, data: &Value) -> Vec<Block> {
    let mut out = Vec::new();
    let cause = data["cause_id"].as_str().filter(|_| data["cause_kind"] == "message");
    if let Some(asked) = cause.and_then(|id| ask(read, ("message", "get"), json!({ "message": id })).ok())
        && let Some(text) = asked.data["body"].as_str().filter(|text| !text.trim().is_empty())
    {
        let said = |field: &str| asked.data[field].as_str();
        let by = said("from").map_or_else(String::new, |from| format!(", by {from}"));
        let run = said("from_run_id").map_or_else(String::new, |run| format!(" in run {}", blocks::short(run)));
        out.push(Block::Text {
            label: Some(format!("What it was asked{by}{run}")),
            text: text.to_owned(),
            kind: TextKind::Markdown,
        });
    }
    let texts = [
        ("final_message", "What it said at the end", TextKind::Markdown),
        ("error", "What went wrong", TextKind::Plain),
    ];
    for (field, label, kind) in texts {
        if let Some(text) = data[field].as_str().filter(|text| !text.trim().is_empty()) {
            out.push(Block::Text { label: Some(label.to_owned()), text: text.to_owned(), kind });
        }
    }
    out
}

/// What it touched, as far as it fits.
fn made(data: &Value, path: &str, before: Option<usize>) -> Vec<Block> {
    if data["no_effect"] == true {
        return vec![Block::Say("It was completed, and changed nothing by itself.".to_owned())];
    }
    let touches = rows(&data["touches"]);
    let (first, end) = window(touches.len(), before, TOUCHES);
    vec![
        Block::Heading("What it made".to_owned()),
        Block::Table(Table {
            columns: TOUCH_COLUMNS.map(ToOwned::to_owned).to_vec(),
            rows: touches[first..end].iter().map(touch).collect(),
            empty: "Nothing.".to_owned(),
        }),
    ]
    .into_iter()
    .chain(along(path, "touches", first, end, touches.len(), TOUCHES))
    .chain((!touches.is_empty()).then(|| by_kind(data)))
    .collect()
}

/// The page that lists what a run made, by kind and action.
fn by_kind(data: &Value) -> Block {
    let to = format!("/made?run={}", data["id"].as_str().unwrap_or_default());
    let mut links = vec![("by kind and action".to_owned(), to.clone())];
    if !rows(&data["children"]).is_empty() {
        links.push(("with its child runs".to_owned(), format!("{to}&tree=true")));
    }
    Block::Along { said: "List them".to_owned(), links }
}

/// What happened in order, as far as it fits.
fn happened(data: &Value, path: &str, before: Option<usize>) -> Vec<Block> {
    let steps = rows(&data["steps"]);
    if steps.is_empty() {
        return Vec::new();
    }
    let (first, end) = window(steps.len(), before, STEPS);
    let mut left = SAID;
    // The newest come first to what there is room for.
    let mut moments: Vec<Moment> = steps[first..end].iter().rev().map(|step| moment(step, &mut left)).collect();
    moments.reverse();
    let mut out = vec![Block::Heading("What happened".to_owned())];
    out.extend(along(path, "steps", first, end, steps.len(), STEPS));
    out.push(Block::Timeline(moments));
    out
}

/// The part of a long list that is shown.
fn window(all: usize, before: Option<usize>, most: usize) -> (usize, usize) {
    let end = before.unwrap_or(all).min(all);
    (end.saturating_sub(most), end)
}

/// Where one is in a long list.
fn along(path: &str, what: &str, first: usize, end: usize, all: usize, most: usize) -> Option<Block> {
    let mut links = Vec::new();
    if first > 0 {
        links.push(("earlier".to_owned(), format!("{path}?{what}_before={first}")));
    }
    if end < all {
        links.push(("later".to_owned(), format!("{path}?{what}_before={}", end + most)));
        links.push(("the whole run".to_owned(), path.to_owned()));
    }
    let number = |number: usize| grouped(i64::try_from(number).unwrap_or(i64::MAX));
    let said = format!("{} to {} of {} {what}.", number(first + 1), number(end), number(all));
    (!links.is_empty()).then_some(Block::Along { said, links })
}

/// The columns of [`touch`].
pub const TOUCH_COLUMNS: [&str; 5] = ["what", "did", "times", "studio", "last"];

/// A touched thing in a row.
pub fn touch(touch: &Value) -> Vec<Cell> {
    let (kind, id) =
        (touch["resource_type"].as_str().unwrap_or_default(), touch["resource_id"].as_str().unwrap_or_default());
    let name = touch["display_path"].as_str().unwrap_or_default();
    vec![
        Cell::link(blocks::place_of(kind, id), format!("{kind} {}", text::cut(name, 200))),
        cell("action", &touch["action_type"], None),
        cell("times", &touch["times"], None),
        cell("studio", &touch["studio"], None),
        cell("last_at", &touch["last_at"], None),
    ]
}

fn moment(step: &Value, left: &mut usize) -> Moment {
    let text = |field: &str| step[field].as_str().unwrap_or_default().to_owned();
    // A digest says nothing to a reader; it stands in the data.
    let said = step["detail"].as_str().map(|said| said.split(", sha256 ").next().unwrap_or_default());
    let said = said.map(|said| text::cut(said, SAID_ONCE.min(*left).max(SAID_LITTLE)));
    *left = left.saturating_sub(said.as_ref().map_or(0, String::len));
    Moment { at: text("created_at"), label: blocks::words(&text("type")), text: said }
}

fn branch(run: &Value) -> Branch {
    let mut cells = vec![
        cell("id", &run["id"], nouns::of("run")),
        cell("agent", &run["agent"], None),
        cell("role", &run["role"], None),
        cell("task", &run["task"], None),
        cell("status", &run["status"], None),
        Cell::Text(run["duration"].as_str().unwrap_or_default().to_owned()),
    ];
    let count = |number: &Value, one: &str, many: &str| {
        let number = number.as_i64()?;
        Some(Cell::Text(format!("{} {}", grouped(number), if number == 1 { one } else { many })))
    };
    cells.extend(count(&run["tokens"], "token", "tokens"));
    cells.extend(count(&run["touches"], "touch", "touches"));
    Branch { cells, children: run["children"].as_array().into_iter().flatten().map(branch).collect() }
}

/// To the cent where that says it all.
fn dollars(cost: f64) -> String {
    let exact = format!("${cost:.4}");
    exact.strip_suffix("00").map_or(exact.clone(), ToOwned::to_owned)
}

/// The sums of what was used, and the last calls. What no call told is left out.
fn used(usage: &[Value]) -> Vec<Block> {
    if usage.is_empty() {
        return Vec::new();
    }
    let mut facts = vec![("calls".to_owned(), Cell::Number(usage.len().to_string()))];
    for field in ["input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens"] {
        let told: Vec<i64> = usage.iter().filter_map(|call| call[field].as_i64()).collect();
        if !told.is_empty() {
            facts.push((blocks::words(field), Cell::Number(grouped(told.iter().sum()))));
        }
    }
    let costs: Vec<f64> = usage.iter().filter_map(|call| call["cost"].as_f64()).collect();
    if !costs.is_empty() {
        facts.push(("cost".to_owned(), Cell::Number(dollars(costs.iter().sum()))));
    }
    let columns =
        ["model", "input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens", "cost", "created_at"];
    let last = &usage[usage.len().saturating_sub(20)..];
    vec![Block::Heading("What it used".to_owned()), Block::Facts(facts), blocks::table(last, &columns, None, "")]
}
