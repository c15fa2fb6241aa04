//! Renders pages as Markdown, for agents: front matter that lists the actions, then the content.
//!
//! Text that users wrote stays data: lines are escaped, longer texts are fenced, and a YAML library quotes the titles
//! in the front matter.

use serde_json::{Map, Value, json};
use trackway_domain::{text, wake_context::fenced};

use crate::{
    address::encode,
    input,
    page::{Block, Board, Cell, Offer, Page, Table, TextKind, TreeNode},
    page_size::{self, PAGE_MAX},
    schemas,
};

/// Maximum size of the blocks of a page, apart from its texts and actions, in bytes.
const BLOCKS_MAX: usize = PAGE_MAX - 20_000;

pub fn page(page: &Page) -> String {
    let mut out = front_matter(page);
    out += &body(page);
    if let Some(next) = &page.next {
        out += &format!("\nNext page: `{next}`\n");
    }
    if let Some(id) = &page.subject_id {
        out += &format!("\nWhy this is here: `/why?of={}`\n", encode(id));
    }
    if !page.actions.is_empty() {
        // The page of one action links to the list of all actions of the same page.
        let subject_path = page.path.rsplit_once("/actions/").map_or(page.path.as_str(), |(path, _)| path);
        out += &format!("\n## Actions\n\n`GET {}/actions` describes them all.\n\n", subject_path.trim_end_matches('/'));
        for offer in &page.actions {
            out += &format!("- `POST {}` {}\n", offer.path, description(offer));
        }
    }
    out
}

/// The content of a page, without front matter and actions.
pub fn body(page: &Page) -> String {
    // Texts are complete in Markdown, because the cut texts of HTML pages link to the Markdown page.
    let is_text = |block: &&Block| matches!(block, Block::Text { .. });
    let render = |block: &Block, _: usize| {
        let mut out = format!("\n{}", self::block(block));
        if !out.ends_with('\n') {
            out.push('\n');
        }
        out
    };
    let other_blocks: Vec<&Block> = page.blocks.iter().filter(|block| !is_text(block)).collect();
    let mut other_blocks = page_size::render_blocks(&other_blocks, BLOCKS_MAX, &page.path, &render).into_iter();
    let blocks = page
        .blocks
        .iter()
        .map(|block| if is_text(&block) { render(block, usize::MAX) } else { other_blocks.next().unwrap_or_default() });
    format!("# {}\n{}", line(&page.title), blocks.collect::<String>())
}

/// The YAML front matter: path, title and actions.
fn front_matter(page: &Page) -> String {
    let actions: Vec<Value> = page.actions.iter().map(offer_json).collect();
    let matter = json!({ "path": page.path, "title": text::clean_line(&page.title), "actions": actions });
    format!(
        "---\n{}---\n\n",
        serde_saphyr::to_string_with_options(&matter, serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX })
            .unwrap_or_default()
    )
}

/// An action with its parameters, as JSON.
pub fn offer_json(offer: &Offer) -> Value {
    json!({ "name": offer.action.name, "path": offer.path, "description": description(offer), "parameters": parameters(offer) })
}

/// The parameters that the page does not fill in, each with a description and its type.
fn parameters(offer: &Offer) -> Value {
    let schema = schemas::of_action(offer.action);
    let required = input::required(schema);
    let mut parameters = Map::new();
    for (name, field) in input::fields(schema).into_iter().flatten() {
        if offer.preset.contains_key(name) {
            continue;
        }
        let description = field.get("description").and_then(Value::as_str).unwrap_or_default();
        let enumeration = input::allowed_values(field, schema).map(|values| format!("one of {}", values.join(", ")));
        let kind = match input::field_type(field) {
            input::FieldType::Text => enumeration.as_deref().unwrap_or("text"),
            input::FieldType::Integer => "integer",
            input::FieldType::Number => "number",
            input::FieldType::Boolean => "true or false",
            input::FieldType::List => "list of texts",
            input::FieldType::Json => "any JSON value",
        };
        let required = if required.contains(&name.as_str()) { ", required" } else { "" };
        parameters.insert(name.clone(), Value::String(format!("{description} ({kind}{required})")));
    }
    Value::Object(parameters)
}

/// The first line of an action's description.
pub fn description(offer: &Offer) -> String {
    let schema = schemas::of_action(offer.action);
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    description.lines().next().unwrap_or_default().to_owned()
}

fn block(block: &Block) -> String {
    match block {
        Block::Heading(title) => format!("## {}\n", line(title)),
        Block::SearchForm { path, field, label, scope, .. } => {
            let scope = scope.as_ref().map_or_else(String::new, |(field, value)| format!("&{field}={}", encode(value)));
            format!("Fill in `{path}?{field}=...{scope}`: {label}.\n")
        }
        Block::Paragraph(sentence) => format!("{sentence}\n"),
        Block::Pagination { text, links } => pagination(text, links),
        Block::Tabs { label, tabs } => {
            let tabs: Vec<String> =
                tabs.iter()
                    .map(|tab| {
                        if tab.is_current { line(&tab.label) } else { format!("[{}]({})", line(&tab.label), tab.href) }
                    })
                    .collect();
            format!("- {label}: {}\n", tabs.join(", "))
        }
        Block::Filter { path, fields } => {
            let fields: Vec<String> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
            format!("Filters of `{path}`: {}.\n", fields.join(", "))
        }
        Block::Thread(messages) => messages
            .iter()
            .map(|message| {
                let title = message.title.as_ref().map_or_else(String::new, |title| format!(": {}", line(title)));
                let body = fenced("text", &text::clean(&message.body));
                let run = message.run.as_ref().map_or_else(String::new, |run| format!(" in run {}", cell(run)));
                format!("- [{} {}]({}){run}{title}\n\n{body}\n\n", line(&message.at), line(&message.from), message.href)
            })
            .collect(),
        Block::ReplyForm { .. } => String::new(),
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
        Block::Timeline(entries) => entries
            .iter()
            .map(|entry| {
                let text =
                    entry.text.as_deref().map_or_else(String::new, |text| format!(": {}", line(&text::cut(text, 300))));
                format!("- {} {}{text}\n", entry.at, line(&entry.label))
            })
            .collect(),
        Block::Tree(nodes) => nodes.iter().map(|node| tree(node, 0)).collect(),
        Block::Chain(hops) => hops
            .iter()
            .map(|hop| {
                let label = match &hop.href {
                    Some(href) => format!("[{}]({href})", line(&hop.label)),
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
                    version.href,
                    version.completed_runs,
                    if version.newest_only { "the newest " } else { "" },
                    version.total_runs,
                    replaces.concat()
                )
            })
            .collect(),
        Block::Bars(bars) => bars.iter().map(|bar| format!("- {}: {}\n", cell(&bar.label), line(&bar.note))).collect(),
        Block::Figures(figures) => figures
            .iter()
            .map(|figure| format!("- {}: [{}]({})\n", line(&figure.label), line(&figure.value), figure.href))
            .collect(),
    }
}

fn pagination(text: &str, links: &[(String, String)]) -> String {
    let links: Vec<String> = links.iter().map(|(label, href)| format!("[{}]({href})", line(label))).collect();
    format!("{text} {}\n", links.join(", "))
}

fn board(board: &Board) -> String {
    let mut out = String::new();
    for column in board.columns.iter().filter(|column| column.total > 0) {
        out += &format!("## {}\n\n", column.title);
        if let Some((text, links)) = &column.pagination {
            out += &format!("{}\n", pagination(text, links));
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
    if out.is_empty() { "No stickies yet. Add one with `set_stickie`.\n".to_owned() } else { out }
}

fn tree(node: &TreeNode, depth: usize) -> String {
    let cells: Vec<String> = node.cells.iter().map(cell).filter(|cell| !cell.is_empty()).collect();
    let mut out = format!("{}- {}\n", "  ".repeat(depth), cells.join(" · "));
    for child in &node.children {
        out += &tree(child, depth + 1);
    }
    out
}

fn table(table: &Table) -> String {
    if table.rows.is_empty() {
        return format!("{}\n", if table.empty_text.is_empty() { "None." } else { &table.empty_text });
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
        Cell::Empty => String::new(),
        Cell::Text(text) | Cell::Status(text) | Cell::Time(text) | Cell::Number(text) => line(text),
        Cell::Link { href, text } => format!("[{}]({href})", line(text)),
        Cell::Code(text) => format!("`{}`", text::clean_line(text).replace('`', "'").replace('|', "\\|")),
        Cell::List(cells) => cells.iter().map(cell).collect::<Vec<_>>().join(", "),
    }
}

/// Escapes the characters of a user's line that Markdown would interpret.
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

/// The Markdown form of an error.
pub fn problem(status: u16, message: &str, hint: Option<&str>) -> String {
    let hint = hint.map_or_else(String::new, |hint| format!("\nhint: {}\n", text::clean_line(hint)));
    format!("# {status}\n\nerror: {}\n{hint}", line(message))
}
