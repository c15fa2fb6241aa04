//! Renders pages as HTML. Text that users wrote is either escaped here or rendered by [`crate::safe_html`].

use axum::http::StatusCode;
use serde_json::{Map, Value};
use trackway_domain::{
    capability::{self, CapabilityClass},
    text,
};

use crate::{
    address::encode,
    blocks::group_digits,
    board, controls,
    input::{self, FieldType},
    markdown,
    page::{Block, Cell, Hop, Offer, Page, TextKind, TreeNode},
    page_size::{self, PAGE_MAX},
    safe_html, schemas, table, version_graph,
};

/// Maximum size of a text on a page, in bytes. A link leads to the complete text.
const TEXT_MAX: usize = 20_000;
/// A fact longer than this many bytes is two columns wide.
const LONG_FACT: usize = 36;
/// Maximum size of a form on the page of a thing, in bytes. A larger form, prefilled with long texts, gets a page of
/// its own.
const FORM_MAX: usize = 8_000;
/// Space for the head, the navigation and the footer of a page, in bytes.
const LAYOUT_SIZE: usize = 4_000;
/// The links of the navigation bar.
const NAVIGATION: &[(&str, &str)] = &[
    ("/", "Overview"),
    ("/runs", "Runs"),
    ("/tasks", "Tasks"),
    ("/queue", "Queue"),
    ("/agents", "Agents"),
    ("/sessions", "Sessions"),
    ("/conversations", "Conversations"),
    ("/decisions", "Decisions"),
    ("/boards", "Boards"),
    ("/notes", "Notes"),
];

/// Minimum number of inputs for the entries of a list. At least one of them is blank.
const LIST_INPUTS_MIN: usize = 3;

/// Text fields that get a multi-line input.
const MULTILINE_FIELDS: &[&str] = &[
    "background",
    "body",
    "code",
    "content",
    "description",
    "error",
    "guidelines",
    "identity",
    "motivation",
    "note",
    "notes",
    "outcome",
    "script",
    "tldr",
];

/// Actions without a form, because their input is the content of a directory.
const ACTIONS_WITHOUT_FORM: &[&str] = &["sync_board"];

/// Escapes text for HTML content and for quoted attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            character => out.push(character),
        }
    }
    out
}

pub fn page(page: &Page) -> String {
    let forms = forms(&page.actions, &page.path);
    let title = escape(&page.title);
    let available = PAGE_MAX.saturating_sub(forms.len() + 2 * title.len() + LAYOUT_SIZE);
    let render = |block: &Block, max_size: usize| match block {
        Block::Facts(facts) => self::facts(facts, page),
        Block::Text { label, text, kind } => {
            self::text(label.as_deref(), text, *kind, &page.path, max_size.min(TEXT_MAX))
        }
        block => self::block(block),
    };
    let blocks: Vec<&Block> = page.blocks.iter().collect();
    let mut main =
        format!("<h1>{title}</h1>\n") + &page_size::render_blocks(&blocks, available, &page.path, &render).concat();
    if let Some(next) = &page.next {
        main += &format!("<p class=more><a rel=next href=\"{}\">More</a></p>\n", escape(next));
    }
    main += &forms;
    let layout =
        Layout { path: &page.path, live: &page.live, subject_id: page.subject_id.as_deref(), is_signed_in: true };
    with_layout(&page.title, &main, layout)
}

/// The parameters of [`with_layout`].
struct Layout<'a> {
    /// The path of the page; empty for an error.
    path: &'a str,
    /// See [`Page::live`].
    live: &'a [String],
    subject_id: Option<&'a str>,
    /// True if the reader is signed in.
    is_signed_in: bool,
}

/// Adds the head, the navigation and the footer to the main part of a page.
fn with_layout(title: &str, main: &str, layout: Layout<'_>) -> String {
    let Layout { path, live, subject_id, is_signed_in } = layout;
    let links: String = NAVIGATION
        .iter()
        .map(|(href, name)| {
            let is_current = if *href == "/" { path == "/" } else { path.starts_with(href) };
            let current = if is_current { " aria-current=page" } else { "" };
            format!("<li><a href=\"{href}\"{current}>{name}</a></li>")
        })
        .collect();
    let live = if live.is_empty() { String::new() } else { format!(" data-live=\"{}\"", escape(&live.join(" "))) };
    let why = subject_id.map_or_else(|| "/why".to_owned(), |id| format!("/why?of={}", encode(id)));
    let logout = if is_signed_in {
        "<form method=post action=\"/logout\"><button class=link>Log out</button></form>"
    } else {
        ""
    };
    // An error has no other formats to link to.
    let formats = if path.is_empty() {
        String::new()
    } else {
        let base = escape(if path == "/" { "/index" } else { path });
        format!(
            "<span class=forms>This page as <a href=\"{base}.md\">Markdown</a> or <a href=\"{base}.json\">JSON</a></span>"
        )
    };
    format!(
        "<!doctype html>
<html lang=en>
<head>
<meta charset=utf-8>
<meta name=viewport content=\"width=device-width, initial-scale=1\">
<meta name=color-scheme content=\"light dark\">
<title>{title} · Trackway</title>
<link rel=icon href=\"/assets/icon.svg\" type=\"image/svg+xml\">
<link rel=stylesheet href=\"/assets/style.css\">
<script src=\"/assets/trackway.js\" defer></script>
</head>
<body>
<a class=skip href=\"#main\">Skip to content</a>
<header>
<a class=brand href=\"/\"><img src=\"/assets/icon.svg\" alt=\"\" width=22 height=22>Trackway</a>
<nav aria-label=Main><ul>{links}</ul></nav>
<form class=find role=search action=\"/search\"><label><span class=quiet-label>Search messages</span><input type=search name=words placeholder=Search required></label></form>
</header>
<main id=main tabindex=-1{live}>
{main}</main>
<footer><a href=\"{why}\">Why is this here?</a><a href=\"/usage\">Usage</a><a href=\"/events\">Events</a><a href=\"/api\">API</a><a href=\"/whoami\">Who am I</a>{logout}{formats}</footer>
</body>
</html>
",
        title = escape(title),
        why = escape(&why),
    )
}

pub fn block(block: &Block) -> String {
    match block {
        Block::Heading(title) => format!("<h2>{}</h2>\n", escape(title)),
        Block::SearchForm { path, field, label, value, scope } => {
            let scope = scope.as_ref().map_or_else(String::new, |(field, value)| {
                format!("<input type=hidden name=\"{field}\" value=\"{}\">", escape(value))
            });
            format!(
                "<form class=search-form action=\"{path}\">{scope}<label><span>{}</span><input name=\"{field}\" value=\"{}\" required></label><button>{}</button></form>\n",
                escape(label),
                escape(value),
                if *path == "/search" { "Search" } else { "Show" },
            )
        }
        Block::Paragraph(sentence) => match sentence.strip_prefix('_').and_then(|rest| rest.strip_suffix('_')) {
            Some(emphasised) => format!("<p><em>{}</em></p>\n", inline_code(emphasised)),
            None => format!("<p>{}</p>\n", inline_code(sentence)),
        },
        Block::Pagination { text, links } => controls::pagination(text, links),
        Block::Tabs { label, tabs } => controls::tabs(label, tabs),
        Block::Filter { path, fields } => controls::filter(path, fields),
        Block::Thread(messages) => controls::thread(messages),
        Block::ReplyForm { path } => controls::reply_form(path),
        // [`page`] renders these itself, because they depend on the page.
        Block::Facts(_) | Block::Text { .. } => String::new(),
        Block::Table(table) => table::html(table),
        Block::Timeline(entries) => {
            let items: String = entries
                .iter()
                .map(|entry| {
                    let text =
                        entry.text.as_deref().filter(|text| !text.is_empty()).map_or_else(String::new, step_text);
                    format!("<li>{}<b>{}</b>{text}</li>", time(&entry.at), escape(&entry.label))
                })
                .collect();
            format!("<ol class=timeline>{items}</ol>\n")
        }
        Block::Tree(nodes) => format!("<div class=tree>{}</div>\n", tree(nodes)),
        Block::Chain(hops) => chain(hops),
        Block::Board(board) => board::html(board),
        Block::Versions(versions) => version_graph::html(versions),
        Block::Bars(bars) => {
            let items: String = bars
                .iter()
                .map(|bar| {
                    let max = bars.iter().map(|bar| bar.total).max().unwrap_or(1).max(1);
                    let (first, rest) = (bar.highlighted * 200 / max, (bar.total - bar.highlighted) * 200 / max);
                    format!(
                        "<li>{}<svg viewBox=\"0 0 200 10\" width=200 height=10 role=img aria-label=\"{}\" preserveAspectRatio=none><rect class=good width={first} height=10 /><rect class=rest x={first} width={rest} height=10 /></svg><span>{}</span></li>",
                        cell(&bar.label),
                        escape(&bar.note),
                        escape(&bar.note),
                    )
                })
                .collect();
            format!("<ul class=bars>{items}</ul>\n")
        }
        Block::Figures(figures) => {
            let items: String = figures
                .iter()
                .map(|figure| {
                    let alarm = if figure.is_alarming { " class=alarm" } else { "" };
                    format!(
                        "<li{alarm}><a href=\"{}\"><b>{}</b><span>{}</span></a></li>",
                        escape(&figure.href),
                        escape(&figure.value),
                        escape(&figure.label)
                    )
                })
                .collect();
            format!("<ul class=figures>{items}</ul>\n")
        }
    }
}

/// Renders a sentence of the program: text between backticks is code, and a link if it is the path of a page.
pub fn inline_code(text: &str) -> String {
    let code = |part: &str| {
        let code = escape(part);
        let is_page = part.starts_with('/') && !part.starts_with("//") && !part.contains([' ', '\\']);
        if is_page { format!("<a href=\"{code}\"><code>{code}</code></a>") } else { format!("<code>{code}</code>") }
    };
    let part = |(index, part): (usize, &str)| if index % 2 == 1 { code(part) } else { escape(part) };
    text.split('`').enumerate().map(part).collect()
}

/// Renders facts, except those that repeat the title or link to the page itself.
fn facts(facts: &[(String, Cell)], page: &Page) -> String {
    let is_repeated = |value: &Cell| match value {
        Cell::Link { href, .. } => *href == page.path,
        Cell::Text(text) => *text == page.title,
        _ => false,
    };
    let is_own_id = |name: &str, value: &Cell| name == "id" && matches!(value, Cell::Link { .. });
    let rows: String = facts
        .iter()
        .filter(|(name, value)| !is_repeated(value) && !is_own_id(name, value))
        .map(|(name, value)| {
            let class = if matches!(value, Cell::Text(text) if text.len() > LONG_FACT) { " class=wide" } else { "" };
            format!("<div{class}><dt>{}</dt><dd>{}</dd></div>", escape(name), cell(value))
        })
        .collect();
    if rows.is_empty() { rows } else { format!("<dl class=facts>{rows}</dl>\n") }
}

/// Renders the beginning of a text that a user wrote, in at most `max_size` bytes.
fn text(label: Option<&str>, text: &str, kind: TextKind, path: &str, max_size: usize) -> String {
    let render = |text: &str| match kind {
        TextKind::Markdown => format!("<div class=prose>{}</div>", safe_html::from_markdown(text)),
        TextKind::Diff => diff(text),
        TextKind::Plain | TextKind::Json => format!("<pre tabindex=0>{}</pre>", escape(text)),
    };
    // Rendered text is seldom shorter than half of its source.
    let mut end = text.len().min(2 * max_size);
    let mut body = loop {
        end = text.floor_char_boundary(end);
        let body = render(&text[..end]);
        if body.len() <= max_size || end == 0 {
            break body;
        }
        end /= 2;
    };
    if end < text.len() {
        body += &format!(
            "<p class=cut>The first {} of {} characters. <a href=\"{}.md\">Complete text</a></p>",
            group_digits(i64::try_from(text[..end].chars().count()).unwrap_or(i64::MAX)),
            group_digits(i64::try_from(text.chars().count()).unwrap_or(i64::MAX)),
            escape(path),
        );
    }
    let label = label.map_or_else(String::new, |label| format!("<h2 class=label>{}</h2>", escape(label)));
    format!("<section class=text>{label}{body}</section>\n")
}

/// The text of a timeline entry. A long one shows its first line and can be expanded.
fn step_text(text: &str) -> String {
    let text = text::clean(text);
    match text.trim().split_once('\n') {
        None if text.chars().count() <= 200 => format!("<span>{}</span>", escape(text.trim())),
        _ => {
            let first = text::cut(text.trim().lines().next().unwrap_or_default(), 200);
            format!("<details><summary>{}</summary><pre tabindex=0>{}</pre></details>", escape(&first), escape(&text))
        }
    }
}

/// Renders a diff, without its header lines.
fn diff(text: &str) -> String {
    let lines: String = text
        .lines()
        .filter(|line| !["--- ", "+++ ", "\\ No newline"].iter().any(|prefix| line.starts_with(prefix)))
        .map(|line| {
            let class = match line.chars().next() {
                Some('+') => "added",
                Some('-') => "removed",
                Some('@') => "place",
                _ => return format!("{}\n", escape(line)),
            };
            format!("<span class={class}>{}</span>\n", escape(line))
        })
        .collect();
    format!("<pre class=diff tabindex=0>{lines}</pre>")
}

fn tree(nodes: &[TreeNode]) -> String {
    let render = |value: &Cell| match value {
        Cell::Text(text) => format!("<small>{}</small>", escape(text)),
        value => cell(value),
    };
    let item = |node: &TreeNode| {
        let cells: Vec<String> = node.cells.iter().map(render).filter(|cell| !cell.is_empty()).collect();
        let children = if node.children.is_empty() { String::new() } else { tree(&node.children) };
        format!("<li>{}{children}</li>", cells.join(" "))
    };
    format!("<ul>{}</ul>", nodes.iter().map(item).collect::<String>())
}

/// Renders a provenance chain. Consecutive parts without a record share one line.
fn chain(hops: &[Hop]) -> String {
    let kind = |hop: &Hop| escape(&hop.kind.replace('_', " "));
    let items: String = hops
        .chunk_by(|one, next| one.is_missing && next.is_missing)
        .map(|hops| match hops {
            [hop] if !hop.is_missing => {
                let label = match &hop.href {
                    Some(href) => format!("<a href=\"{}\">{}</a>", escape(href), escape(&hop.label)),
                    None => escape(&hop.label),
                };
                format!("<li><span>{}</span>{label}</li>", kind(hop))
            }
            missing => {
                let kinds: Vec<String> = missing.iter().map(kind).collect();
                format!("<li class=missing>not recorded: {}</li>", kinds.join(", "))
            }
        })
        .collect();
    format!("<ol class=chain>{items}</ol>\n")
}

pub fn cell(value: &Cell) -> String {
    match value {
        Cell::Empty => String::new(),
        Cell::Text(text) => escape(text),
        Cell::Number(text) => escape(&format_number(text)),
        Cell::Link { href, text } => {
            let class = if table::is_short_id(text) { " class=id" } else { "" };
            format!("<a{class} href=\"{}\">{}</a>", escape(href), escape(text))
        }
        Cell::Status(status) => {
            format!("<span class=\"state {}\">{}</span>", status_class(status), escape(&status.replace('_', " ")))
        }
        Cell::Time(at) => time(at),
        Cell::Code(text) => format!("<code>{}</code>", escape(text)),
        Cell::List(cells) => cells.iter().map(cell).collect::<Vec<_>>().join(", "),
    }
}

/// Groups the digits of large integers, and cuts fractions after four digits.
fn format_number(number: &str) -> String {
    match number.parse::<i64>() {
        Ok(whole) if whole.abs() >= 1_000 => group_digits(whole),
        Ok(_) => number.to_owned(),
        // Costs are sums of floating-point numbers. Digits below a hundredth of a cent are rounding errors.
        Err(_) => match number.parse::<f64>() {
            Ok(fraction) if number.split('.').nth(1).is_some_and(|digits| digits.len() > 4) => format!("{fraction:.4}"),
            _ => number.to_owned(),
        },
    }
}

/// An exact time. The script replaces it with a relative one, such as "2 hours ago".
pub fn time(at: &str) -> String {
    let at = escape(at);
    let shown = at.get(..16).map_or_else(|| at.clone(), |minute| format!("{} UTC", minute.replace('T', " ")));
    format!("<time datetime=\"{at}\" title=\"{at}\">{shown}</time>")
}

/// The CSS class for the colour of a status.
fn status_class(status: &str) -> &'static str {
    match status {
        "completed" | "succeeded" | "done" | "passed" | "active" | "OK" => "good",
        "failed" | "error" | "exception" | "timed_out" | "blocked" | "dead" | "KO" => "bad",
        "running" | "in_progress" => "busy",
        "incomplete" | "cancelled" | "waiting" => "odd",
        _ => "calm",
    }
}

/// One form per action. Actions that a run executes about itself get no form, because they are meant for agents.
fn forms(offers: &[Offer], path: &str) -> String {
    let forms: String = offers
        .iter()
        .filter(|offer| capability::class_of(offer.action.capability) != Some(CapabilityClass::OwnRun))
        .filter(|offer| !ACTIONS_WITHOUT_FORM.contains(&offer.action.name))
        .map(|offer| form(offer, offer.path == path))
        .collect();
    if forms.is_empty() { forms } else { format!("<section class=actions><h2>Actions</h2>{forms}</section>\n") }
}

/// The form of an action. It is expanded on the page of the action. A large form is only shown there.
fn form(offer: &Offer, is_page: bool) -> String {
    let name = escape(&offer.action.name.replace('_', " "));
    let class = if offer.action.is_destructive { " class=removes" } else { "" };
    let open = if is_page { " open" } else { "" };
    let path = escape(&offer.path);
    let schema = schemas::of_action(offer.action);
    let open_fields =
        || input::fields(schema).into_iter().flatten().filter(|(name, _)| !offer.preset.contains_key(*name));
    let required = input::required(schema);
    let fields: String = open_fields()
        .map(|(name, field)| match offer.choices.iter().find(|(known, _)| known == name) {
            Some((_, choices)) => radio_buttons(name, choices),
            None => self::field(name, field, schema, required.contains(&name.as_str()), &offer.current),
        })
        .collect();
    let confirmation = if offer.action.is_destructive {
        "<label class=check><input type=checkbox required> I am sure</label>"
    } else {
        ""
    };
    let form = format!(
        "<details{class}{open}><summary>{name}</summary><form method=post action=\"{path}\"><p class=about>{}</p>{fields}{confirmation}<button>{}</button></form></details>",
        escape(&markdown::description(offer)),
        escape(&button_label(offer)),
    );
    if is_page || form.len() <= FORM_MAX {
        return form;
    }
    format!(
        "<details{class}><summary>{name}</summary><p>This form is long: <a href=\"{path}\">open {name} on its own page</a>.</p></details>"
    )
}

/// The label of a form's button: its verb.
fn button_label(offer: &Offer) -> String {
    let verb = match offer.action.command.1 {
        "set" | "update" => "save",
        verb => verb,
    };
    let mut characters = verb.replace(['-', '_'], " ").chars().collect::<Vec<_>>();
    if let Some(first) = characters.first_mut() {
        first.make_ascii_uppercase();
    }
    characters.into_iter().collect()
}

/// A field whose value is one of the choices of the page.
fn radio_buttons(name: &str, choices: &[String]) -> String {
    let options: String = choices
        .iter()
        .map(|choice| {
            let value = escape(choice);
            format!(
                "<label class=check><input type=radio name=\"{}\" value=\"{value}\" required> {value}</label>",
                escape(name)
            )
        })
        .collect();
    format!("<fieldset><legend>{}</legend>{options}</fieldset>", escape(&name.replace('_', " ")))
}

fn field(
    name: &str,
    field: &Value,
    schema: &schemars::Schema,
    is_required: bool,
    current: &Map<String, Value>,
) -> String {
    let value = current.get(name);
    let text = match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let description = field.get("description").and_then(Value::as_str).unwrap_or_default();
    let label = format!("<span>{}</span><small>{}</small>", escape(&name.replace('_', " ")), escape(description));
    // An empty `content` is allowed. It clears the stored text.
    let required = if is_required && name != "content" { " required" } else { "" };
    let value_attribute = if text.is_empty() { String::new() } else { format!(" value=\"{}\"", escape(&text)) };
    let name = escape(name);
    let input = match input::field_type(field) {
        FieldType::Boolean => {
            // An unchecked checkbox sends nothing, so a hidden input before it sends `false`.
            let unchecked = match value {
                Some(Value::Bool(_)) => format!("<input type=hidden name=\"{name}\" value=false>"),
                _ => String::new(),
            };
            let checked = if value == Some(&Value::Bool(true)) { " checked" } else { "" };
            return format!(
                "{unchecked}<label class=check><input type=checkbox name=\"{name}\" value=true{checked}> {label}</label>"
            );
        }
        FieldType::Integer => format!("<input type=number step=1 name=\"{name}\"{value_attribute}{required}>"),
        FieldType::Number => format!("<input type=number step=any name=\"{name}\"{value_attribute}{required}>"),
        FieldType::Json => format!("<textarea name=\"{name}\" rows=3{required}></textarea>"),
        FieldType::List => {
            let entries = value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            let filled: Vec<String> =
                entries.map(|entry| format!("<input name=\"{name}\" value=\"{}\">", escape(entry))).collect();
            let more_blanks = LIST_INPUTS_MIN.saturating_sub(filled.len()).max(1) - 1;
            let required = if filled.is_empty() { required } else { "" };
            let first_blank = format!("<input name=\"{name}\"{required}>");
            filled.concat() + &first_blank + &format!("<input name=\"{name}\">").repeat(more_blanks)
        }
        // A single-line input would remove the line breaks of the stored text.
        FieldType::Text if MULTILINE_FIELDS.contains(&name.as_str()) || text.contains('\n') => {
            format!("<textarea name=\"{name}\" rows=5{required}>\n{}</textarea>", escape(&text))
        }
        FieldType::Text => match input::allowed_values(field, schema) {
            Some(choices) => {
                let blank = if required.is_empty() { "<option value=\"\"></option>" } else { "" };
                let options: String = choices
                    .iter()
                    .map(|choice| {
                        let selected = if *choice == text { " selected" } else { "" };
                        format!("<option{selected}>{}</option>", escape(choice))
                    })
                    .collect();
                format!("<select name=\"{name}\"{required}>{blank}{options}</select>")
            }
            None => format!("<input name=\"{name}\"{value_attribute}{required}>"),
        },
    };
    format!("<label>{label}{input}</label>")
}

/// The page of an error, with the form whose input caused it, if any.
pub fn problem(status: StatusCode, message: &str, hint: Option<&str>, form: Option<&Block>) -> String {
    let form = form.map(block).unwrap_or_default();
    let hint = hint.map_or_else(String::new, |hint| format!("<p class=hint>{}</p>", inline_code(hint)));
    let name = status.canonical_reason().unwrap_or_default();
    let main = format!("<h1>{} {}</h1><p>{}</p>{hint}{form}", status.as_u16(), escape(name), escape(message));
    let is_signed_in = status != StatusCode::UNAUTHORIZED;
    with_layout(name, &main, Layout { path: "", live: &[], subject_id: None, is_signed_in })
}
