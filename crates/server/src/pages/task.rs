//! The page of a task: its fields, versions with their results, links, reports and runs.

use serde_json::{Value, json};
use trackway_domain::{Ref, kind};
use trackway_store::Reader;
use trackway_views::{run, task::history};

use super::{ViewQuery, blocks_of, prepare_view, query_all, rows, to_value, version};
use crate::{
    address::encode,
    blocks,
    format::Format,
    nouns,
    page::{Block, Cell, Page, Version},
    problem::Problem,
};

/// Number of newest reports and runs on the page.
const NEWEST_MAX: i64 = 10;
/// Fields that get sections of their own: everything that refers to the task.
const SECTION_FIELDS: &[&str] = &["boards", "queue_items", "last_finished_item", "pins", "routes", "messages", "more"];

/// Builds the page. JSON contains the complete history; HTML and Markdown query only what they show.
pub fn page(read: &mut Reader<'_>, reference: &str, format: Format) -> Result<Page, Problem> {
    let task = read.resolve(&Ref::<kind::Task>::new(reference))?;
    let id = task.to_string();
    let newest = json!({ "task": id, "limit": NEWEST_MAX });
    // All queries use the same time, even if some of them are retried.
    let now = read.now();
    let get = prepare_view(("task", "get"), json!({ "task": id }), now)?;
    let links = prepare_view(("link", "list"), json!({ "task": id }), now)?;
    let reports = prepare_view(("report", "list"), newest.clone(), now)?;
    let (history, runs): (ViewQuery<'_>, ViewQuery<'_>) = match format {
        Format::Json => (
            prepare_view(("task", "history"), json!({ "task": id }), now)?,
            prepare_view(("run", "list"), newest, now)?,
        ),
        Format::Markdown | Format::Html => (
            Box::new(|read| Ok(json!({ "versions": to_value(history::version_outcomes(read, task)?)? }))),
            Box::new(|read| to_value(run::newest_of_task(read, task, NEWEST_MAX)?)),
        ),
    };
    let latest = version::null_if_not_found(prepare_view(("task", "latest"), json!({ "id": id }), now)?);
    let next = version::null_if_not_found(prepare_view(("task", "next"), json!({ "id": id, "level": "any" }), now)?);
    let [mut data, mut history, links, reports, runs, latest, next] =
        query_all(read, [get, history, links, reports, runs, latest, next])?;
    let variant = data["variant"].as_str().unwrap_or(reference).to_owned();
    let versions = history["versions"].take();
    let mut out = blocks_of(&data, nouns::by_name("task"), &[&["id", "title", "variant"], SECTION_FIELDS].concat());
    let wake = Cell::link(format!("/wake?task={}", encode(&variant)), "Wake prompt");
    let mut facts = version::facts(&variant, &latest, &next);
    facts.push(("wake".to_owned(), wake));
    out.push(Block::Facts(facts));
    let version_rows = rows(&versions);
    out.push(Block::Heading("Versions and results".to_owned()));
    out.push(Block::Versions(version_rows.iter().map(|version| version_row(version, &variant)).collect()));
    out.extend(related_sections(&data, &["pins", "queue_items"], &variant));
    out.push(Block::Heading("Links".to_owned()));
    out.push(blocks::table(
        &rows(&links),
        &["from", "type", "to", "from_current", "to_current", "blocks_now", "id"],
        nouns::by_name("link"),
        "No links to other tasks.",
    ));
    out.extend(related_sections(&data, &["boards", "routes", "messages"], &variant));
    out.push(Block::Heading("Reports".to_owned()));
    out.push(blocks::table(
        &rows(&reports),
        &["id", "agent", "one_liner", "tldr", "current", "run_id", "created_at"],
        nouns::by_name("report"),
        "No reports yet.",
    ));
    out.push(Block::Heading("Runs".to_owned()));
    out.push(blocks::table(
        &rows(&runs),
        &["id", "agent", "status", "outcome", "started_at", "ended_at"],
        nouns::by_name("run"),
        "No runs yet.",
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
    let path = blocks::page_path("task", &variant).unwrap_or_default();
    let mut page = Page::new(path, title, data);
    page.blocks = out;
    page.live = ["link", "queue_item", "board", "route", "message", "package", "run"].map(ToOwned::to_owned).to_vec();
    page.live.push(id);
    Ok(page)
}

/// A section for rows that refer to a task: the field, the heading, the columns, the noun of the rows, and the text of
/// an empty section. If that text is empty, an empty section is left out.
type Section = (&'static str, &'static str, &'static [&'static str], &'static str, &'static str);

const SECTIONS: &[Section] = &[
    ("pins", "Pinned versions", &["role", "variant", "updated_at"], "package", ""),
    (
        "queue_items",
        "Queue",
        &["id", "status", "role", "agent", "taken_by", "attempt", "in_queue_since", "finished_at", "why", "error"],
        "queue",
        "This task is not in the queue.",
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

/// The sections for these fields.
fn related_sections(data: &Value, fields: &[&str], variant: &str) -> Vec<Block> {
    let mut out = Vec::new();
    for (field, heading, columns, noun, empty_text) in SECTIONS.iter().filter(|(field, ..)| fields.contains(field)) {
        let mut listed = rows(&data[*field]);
        if *field == "queue_items" {
            listed.extend(Some(&data["last_finished_item"]).filter(|item| item.is_object()).cloned());
        }
        if listed.is_empty() && empty_text.is_empty() {
            continue;
        }
        out.push(Block::Heading((*heading).to_owned()));
        out.push(blocks::table(&listed, columns, nouns::by_name(noun), empty_text));
        let more = rows(&data["more"]).into_iter().find(|more| more["of"] == *field);
        if let Some(path) = more.as_ref().and_then(|more| more["path"].as_str()) {
            let links = vec![("all of them".to_owned(), path.to_owned())];
            out.push(Block::Pagination {
                text: format!("The newest {} are shown.", trackway_views::task::related::ROWS_MAX),
                links,
            });
        } else if *field == "queue_items" && !listed.is_empty() {
            let links = vec![("all queue items of this task".to_owned(), format!("/queue?task={}", encode(variant)))];
            out.push(Block::Pagination { text: "Unfinished items and the last finished one.".to_owned(), links });
        }
    }
    out
}

fn version_row(version: &Value, page_variant: &str) -> Version {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&version["variant"]);
    let edges = version["replaces"].as_array().into_iter().flatten();
    Version {
        href: blocks::page_path("task", &name).unwrap_or_default(),
        is_current_page: name == page_variant,
        replaces: edges.map(|edge| (text(&edge["variant"]), text(&edge["level"]))).collect(),
        completed_runs: version["succeeded"].as_i64().unwrap_or(0),
        running_runs: version["running"].as_i64().unwrap_or(0),
        total_runs: version["runs"].as_i64().unwrap_or(0),
        newest_only: version["newest_only"] == true,
        name,
    }
}
