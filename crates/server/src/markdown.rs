//! A page as Markdown, for agents: front matter that says what can be done, then what there is to know.
//!
//! Whatever somebody wrote stays data: lines are escaped, texts are fenced, titles in front matter are quoted by a
//! YAML library.

use serde_json::{Map, Value, json};
use trackway_domain::{text, wake_context::fenced};

use crate::{
    address::encoded,
    fit::{self, PAGE_MAX},
    input,
    page::{Block, Board, Branch, Cell, Offer, Page, Table, TextKind},
    schemas,
};

/// Bytes of what a page shows, besides texts and what can be done.
const ROOM: usize = PAGE_MAX - 20_000;

/// A whole page.
pub fn page(page: &Page) -> String {
    let mut out = front_matter(page);
    out += &body(page);
    if let Some(next) = &page.next {
        out += &format!("\nThere is more: `{next}`\n");
    }
    if let Some(id) = &page.about {
        out += &format!("\nWhy it is here: `/why?of={}`\n", encoded(id));
    }
    if !page.actions.is_empty() {
        // The page of one action leads to the others of its place.
        let place = page.path.rsplit_once("/actions/").map_or(page.path.as_str(), |(place, _)| place);
        out += &format!("\n## Actions\n\n`GET {}/actions` describes them all.\n\n", place.trim_end_matches('/'));
        for offer in &page.actions {
            out += &format!("- `POST {}` {}\n", offer.path, description(offer));
        }
    }
    out
}

/// What there is to know on a page.
pub fn body(page: &Page) -> String {
    // A text is whole here: this is where the rest of one that is cut elsewhere is read.
    let is_text = |block: &&Block| matches!(block, Block::Text { .. });
    let draw = |block: &Block, _: usize| {
        let mut out = format!("\n{}", self::block(block));
        if !out.ends_with('\n') {
            out.push('\n');
        }
        out
    };
    let others: Vec<&Block> = page.blocks.iter().filter(|block| !is_text(block)).collect();
    let mut others = fit::drawn(&others, ROOM, &page.path, &draw).into_iter();
    let blocks = page
        .blocks
        .iter()
        .map(|block| if is_text(&block) { draw(block, usize::MAX) } else { others.next().unwrap_or_default() });
    format!("# {}\n{}", line(&page.title), blocks.collect::<String>())
}

/// What is at the top: where this is, and what can be done.
fn front_matter(page: &Page) -> String {
    let actions: Vec<Value> = page.actions.iter().map(offered).collect();
    let matter = json!({ "path": page.path, "title": text::clean_line(&page.title), "actions": actions });
    format!(
        "---\n{}---\n\n",
        serde_saphyr::to_string_with_options(&matter, serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX })
            .unwrap_or_default()
    )
}

/// An action with its parameters.
pub fn offered(offer: &Offer) -> Value {
    json!({ "name": offer.action.name, "path": offer.path, "description": description(offer), "parameters": parameters(offer) })
}

/// The parameters that the caller gives.
fn parameters(offer: &Offer) -> Value {
    let schema = schemas::of_action(offer.action);
    let needed = input::required(schema);
    let mut parameters = Map::new();
    for (name, field) in input::fields(schema).into_iter().flatten() {
        if offer.preset.contains_key(name) {
            continue;
        }
        let said = field.get("description").and_then(Value::as_str).unwrap_or_default();
        let one_of = input::choices(field, schema).map(|words| format!("one of {}", words.join(", ")));
        let kind = match input::field_type(field) {
            input::FieldType::Text => one_of.as_deref().unwrap_or("text"),
            input::FieldType::Whole => "whole number",
            input::FieldType::Number => "number",
            input::FieldType::Flag => "true or false",
            input::FieldType::List => "list of texts",
            input::FieldType::Any => "anything",
        };
        let needed = if needed.contains(&name.as_str()) { ", needed" } else { "" };
        parameters.insert(name.clone(), Value::String(format!("{said} ({kind}{needed})")));
    }
    Value::Object(parameters)
}

/// What an action does, in a line.
pub fn description(offer: &Offer) -> String {
    let schema = schemas::of_action(offer.action);
    let said = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    said.lines().next().unwrap_or_default().to_owned()
}

fn block(block: &Block) -> String {
    match block {
        Block::Heading(title) => format!("## {}\n", line(title)),
        Block::Ask { to, field, label, within, .. } => {
            let within =
                within.as_ref().map_or_else(String::new, |(field, value)| format!("&{field}={}", encoded(value)));
            format!("Ask with `{to}?{field}=...{within}`: {label}.\n")
        }
        Block::Say(sentence) => format!("{sentence}\n"),
        Block::Along { said, links } => along(said, links),
        Block::Ways { label, ways } => {
            let ways: Vec<String> = ways
                .iter()
                .map(|way| if way.is_chosen { line(&way.label) } else { format!("[{}]({})", line(&way.label), way.to) })
                .collect();
            format!("- {label}: {}\n", ways.join(", "))
        }
        Block::Filter { path, fields } => {
            let fields: Vec<String> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
            format!("`{path}` can be kept to {}.\n", fields.join(", "))
        }
        Block::Thread(said) => said
            .iter()
            .map(|said| {
                let title = said.title.as_ref().map_or_else(String::new, |title| format!(": {}", line(title)));
                let body = fenced("text", &text::clean(&said.body));
                let run = said.run.as_ref().map_or_else(String::new, |run| format!(" in run {}", cell(run)));
                format!("- [{} {}]({}){run}{title}\n\n{body}\n\n", line(&said.at), line(&said.from), said.to)
            })
            .collect(),
        Block::Reply { .. } => String::new(),
        Block::Facts(facts) => {
            facts.iter().map(|(name, value)| format!("- {}: {}\n", line(name), cell(value))).collect()
        }
        Block::Table(table) => self::table(table),
        Block::Text { label, text, kind } => {
            let info = match kind {
                TextKind::Markdown | TextKind::Plain => "text",
                TextKind::Diff => "diff",
                TextKind::Json => "json",
            };
            let label = label.as_ref().map_or_else(String::new, |label| format!("{}:\n\n", line(label)));
            format!("{label}{}\n", fenced(info, &text::clean(text)))
        }
        Block::Timeline(moments) => moments
            .iter()
            .map(|moment| {
                let said = moment
                    .text
                    .as_deref()
                    .map_or_else(String::new, |said| format!(": {}", line(&text::cut(said, 300))));
                format!("- {} {}{said}\n", moment.at, line(&moment.label))
            })
            .collect(),
        Block::Tree(branches) => branches.iter().map(|branch| tree(branch, 0)).collect(),
        Block::Chain(hops) => hops
            .iter()
            .map(|hop| {
                let label = match &hop.to {
                    Some(to) => format!("[{}]({to})", line(&hop.label)),
                    None if hop.is_missing => "not recorded".to_owned(),
                    None => line(&hop.label),
                };
                format!("- {}: {label}\n", line(&hop.kind))
            })
            .collect(),
        Block::Board(board) => self::board(board),
        Block::Versions(versions) => versions
            .iter()
            .map(|version| {
                let replaces: Vec<String> =
                    version.replaces.iter().map(|(name, level)| format!(", {level} of {}", line(name))).collect();
                format!(
                    "- [{}]({}): {} of {}{} runs completed{}\n",
                    line(&version.name),
                    version.to,
                    version.good,
                    if version.newest_only { "the newest " } else { "" },
                    version.all,
                    replaces.concat()
                )
            })
            .collect(),
        Block::Bars(bars) => bars.iter().map(|bar| format!("- {}: {}\n", cell(&bar.label), line(&bar.note))).collect(),
        Block::Figures(figures) => figures
            .iter()
            .map(|figure| format!("- {}: [{}]({})\n", line(&figure.label), line(&figure.value), figure.to))
            .collect(),
    }
}

/// Where one is in something long.
fn along(said: &str, links: &[(String, String)]) -> String {
    let links: Vec<String> = links.iter().map(|(text, to)| format!("[{}]({to})", line(text))).collect();
    format!("{said} {}\n", links.join(", "))
}

fn board(board: &Board) -> String {
    let mut out = String::new();
    for column in board.columns.iter().filter(|column| column.all > 0) {
        out += &format!("## {}\n\n", column.title);
        if let Some((said, links)) = &column.along {
            out += &format!("{}\n", along(said, links));
        }
        for stickie in &column.stickies {
            let labels = if stickie.labels.is_empty() {
                String::new()
            } else {
                format!(" ({})", line(&stickie.labels.join(", ")))
            };
            let author = stickie.author.as_ref().map_or_else(String::new, |author| format!(", by {}", line(author)));
            let run = stickie.run.as_ref().map_or_else(String::new, |run| format!(" in run {}", cell(run)));
            out += &format!("- [{}](/stickies/{}){labels}{author}{run}\n", line(&stickie.title), stickie.id);
            for text in stickie.note.iter().chain(&stickie.code) {
                let fenced = fenced("text", &text::clean(text));
                out += &fenced.lines().map(|line| format!("  {line}\n")).collect::<String>();
            }
        }
        out.push('\n');
    }
    if !board.relations.is_empty() {
        out += "## Relations\n\n";
    }
    for relation in &board.relations {
        out += &format!(
            "- [{from}](/stickies/{from}) {} [{to}](/stickies/{to})\n",
            relation.name,
            from = relation.from,
            to = relation.to
        );
    }
    if out.is_empty() { "No stickie hangs here yet: `set_stickie` adds one.\n".to_owned() } else { out }
}

fn tree(branch: &Branch, depth: usize) -> String {
    let cells: Vec<String> = branch.cells.iter().map(cell).filter(|cell| !cell.is_empty()).collect();
    let mut out = format!("{}- {}\n", "  ".repeat(depth), cells.join(" · "));
    for child in &branch.children {
        out += &tree(child, depth + 1);
    }
    out
}

fn table(table: &Table) -> String {
    if table.rows.is_empty() {
        return format!("{}\n", if table.empty.is_empty() { "None." } else { &table.empty });
    }
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut out = row(table.columns.iter().map(|name| line(name)).collect());
    out += &row(vec!["---".to_owned(); table.columns.len()]);
    for cells in &table.rows {
        out += &row(cells.iter().map(cell).collect());
    }
    out
}

fn cell(value: &Cell) -> String {
    match value {
        Cell::Nothing => String::new(),
        Cell::Text(text) | Cell::Status(text) | Cell::Time(text) | Cell::Number(text) => line(text),
        Cell::Link { to, text } => format!("[{}]({to})", line(text)),
        Cell::Code(text) => format!("`{}`", text::clean_line(text).replace('`', "'").replace('|', "\\|")),
        Cell::Many(cells) => cells.iter().map(cell).collect::<Vec<_>>().join(", "),
    }
}

/// Somebody's line: whatever could begin something in Markdown is escaped.
pub fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text::clean_line(text).chars() {
        if matches!(character, '\\' | '`' | '*' | '[' | ']' | '<' | '|') {
            out.push('\\');
        }
        out.push(character);
    }
    match out.chars().next() {
        Some('#' | '>' | '-' | '+' | '=' | '~') => format!("\\{out}"),
        _ => out,
    }
}

/// A failure.
pub fn problem(status: u16, message: &str, hint: Option<&str>) -> String {
    let hint = hint.map_or_else(String::new, |hint| format!("\nhint: {}\n", text::clean_line(hint)));
    format!("# {status}\n\nerror: {}\n{hint}", line(message))
}
