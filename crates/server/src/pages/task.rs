//! A task: what is to be done, its versions and how each of them went, what it is linked to, what was reported.

use serde_json::{Value, json};
use trackway_domain::{Ref, kind};
use trackway_store::Reader;
use trackway_views::{run, task::history};

use super::{Asked, ask_all, asked_with, blocks_of, rows, value, version};
use crate::{
    address::encoded,
    blocks,
    format::Format,
    nouns,
    page::{Block, Cell, Page, Version},
    problem::Problem,
};

/// Reports and runs that are shown, the newest.
const LATEST: i64 = 10;
/// What refers to the task, which has sections of its own.
const RELATED: &[&str] = &["boards", "queue_items", "last_finished_item", "pins", "routes", "messages", "more"];

/// Lays a task out. Only as JSON is all of it read: the rest of it is shown nowhere else.
pub fn page(read: &mut Reader<'_>, reference: &str, format: Format) -> Result<Page, Problem> {
    let task = read.resolve(&Ref::<kind::Task>::new(reference))?;
    let id = task.to_string();
    let latest = json!({ "task": id, "limit": LATEST });
    // All questions get the same time, also when some of them are asked again.
    let now = read.now();
    let get = asked_with(("task", "get"), json!({ "task": id }), now)?;
    let links = asked_with(("link", "list"), json!({ "task": id }), now)?;
    let reports = asked_with(("report", "list"), latest.clone(), now)?;
    let (history, runs): (Asked<'_>, Asked<'_>) = match format {
        Format::Json => {
            (asked_with(("task", "history"), json!({ "task": id }), now)?, asked_with(("run", "list"), latest, now)?)
        }
        Format::Markdown | Format::Html => (
            Box::new(|read| Ok(json!({ "versions": value(history::outcomes(read, task)?)? }))),
            Box::new(|read| value(run::latest_on(read, task, LATEST)?)),
        ),
    };
    let latest = version::if_found(asked_with(("task", "latest"), json!({ "id": id }), now)?);
    let next = version::if_found(asked_with(("task", "next"), json!({ "id": id, "level": "any" }), now)?);
    let [mut data, mut history, links, reports, runs, latest, next] =
        ask_all(read, [get, history, links, reports, runs, latest, next])?;
    let variant = data["variant"].as_str().unwrap_or(reference).to_owned();
    let versions = history["versions"].take();
    let mut out = blocks_of(&data, nouns::of("task"), &[&["id", "title", "variant"], RELATED].concat());
    let wake = Cell::link(format!("/wake?task={}", encoded(&variant)), "What an agent would be told");
    let mut leading = version::facts(&variant, &latest, &next);
    leading.push(("wake".to_owned(), wake));
    out.push(Block::Facts(leading));
    let all = rows(&versions);
    out.push(Block::Heading("Versions, and how they went".to_owned()));
    out.push(Block::Versions(all.iter().map(|version| version_of(version, &variant)).collect()));
    out.extend(related(&data, &["pins", "queue_items"], &variant));
    out.push(Block::Heading("Links".to_owned()));
    out.push(blocks::table(
        &rows(&links),
        &["from", "type", "to", "from_current", "to_current", "blocks_now", "id"],
        nouns::of("link"),
        "It is linked to no other task.",
    ));
    out.extend(related(&data, &["boards", "routes", "messages"], &variant));
    out.push(Block::Heading("Reports".to_owned()));
    out.push(blocks::table(
        &rows(&reports),
        &["id", "agent", "one_liner", "tldr", "current", "run_id", "created_at"],
        nouns::of("report"),
        "Nobody has reported on it yet.",
    ));
    out.push(Block::Heading("Runs".to_owned()));
    out.push(blocks::table(
        &rows(&runs),
        &["id", "agent", "status", "outcome", "started_at", "ended_at"],
        nouns::of("run"),
        "It has not been run yet.",
    ));
    let title = data["title"]
        .as_str()
        .filter(|title| !title.is_empty())
        .map_or_else(|| variant.clone(), |title| format!("{title} ({variant})"));
    if format == Format::Json {
        data["latest"] = latest;
        data["next"] = next;
        data["versions"] = versions;
        data["links"] = links;
        data["reports"] = reports;
        data["runs"] = runs;
    }
    let path = blocks::path_of("task", &variant).unwrap_or_default();
    let mut page = Page::new(path, title, data);
    page.blocks = out;
    page.live = ["link", "queue_item", "board", "route", "message", "package", "run"].map(ToOwned::to_owned).to_vec();
    page.live.push(id);
    Ok(page)
}

/// A section for what refers to a task: the field, its heading, the columns, the noun of its rows, and what is said when there
/// are none. Without such a sentence an empty section is left out.
type Section = (&'static str, &'static str, &'static [&'static str], &'static str, &'static str);

const SECTIONS: &[Section] = &[
    ("pins", "Pinned versions", &["role", "variant", "updated_at"], "package", ""),
    (
        "queue_items",
        "Queue",
        &["id", "status", "role", "agent", "taken_by", "attempt", "in_queue_since", "finished_at", "why", "error"],
        "queue",
        "It is not in the queue.",
    ),
    ("boards", "Boards", &["name", "id", "task", "project", "lifecycle", "stickie_count", "changed_at"], "board", ""),
    ("routes", "Routes", &["id", "tag", "role", "task", "would_run", "workspace"], "route", ""),
    (
        "messages",
        "Messages",
        &["id", "created_at", "from", "from_run_id", "to", "title", "status", "body"],
        "message",
        "",
    ),
];

/// The sections of some fields.
fn related(data: &Value, fields: &[&str], variant: &str) -> Vec<Block> {
    let mut out = Vec::new();
    for (field, heading, columns, noun, empty) in SECTIONS.iter().filter(|(field, ..)| fields.contains(field)) {
        let mut listed = rows(&data[*field]);
        if *field == "queue_items" {
            listed.extend(Some(&data["last_finished_item"]).filter(|item| item.is_object()).cloned());
        }
        if listed.is_empty() && empty.is_empty() {
            continue;
        }
        out.push(Block::Heading((*heading).to_owned()));
        out.push(blocks::table(&listed, columns, nouns::of(noun), empty));
        let rest = rows(&data["more"]).into_iter().find(|rest| rest["of"] == *field);
        if let Some(path) = rest.as_ref().and_then(|rest| rest["path"].as_str()) {
            let links = vec![("all of them".to_owned(), path.to_owned())];
            out.push(Block::Along {
                said: format!("The newest {} are here.", trackway_views::task::related::ROWS_MAX),
                links,
            });
        } else if *field == "queue_items" && !listed.is_empty() {
            let links = vec![("all its queue items".to_owned(), format!("/queue?task={}", encoded(variant)))];
            out.push(Block::Along { said: "Unfinished, and the last finished one.".to_owned(), links });
        }
    }
    out
}

fn version_of(version: &Value, here: &str) -> Version {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&version["variant"]);
    let edges = version["replaces"].as_array().into_iter().flatten();
    Version {
        to: blocks::path_of("task", &name).unwrap_or_default(),
        is_here: name == here,
        replaces: edges.map(|edge| (text(&edge["variant"]), text(&edge["level"]))).collect(),
        good: version["succeeded"].as_i64().unwrap_or(0),
        running: version["running"].as_i64().unwrap_or(0),
        all: version["runs"].as_i64().unwrap_or(0),
        newest_only: version["newest_only"] == true,
        name,
    }
}
