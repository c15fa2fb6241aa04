//! A page as HTML, for people. Everything somebody wrote is escaped here, or goes through [`crate::prose`].

use axum::http::StatusCode;
use serde_json::{Map, Value};
use trackway_domain::{
    capability::{self, Allowance},
    text,
};

use crate::{
    address::encoded,
    blocks::grouped,
    board,
    fit::{self, PAGE_MAX},
    graph,
    input::{self, FieldType},
    markdown,
    page::{Block, Branch, Cell, Hop, Offer, Page, TextKind},
    prose, schemas, table, ways,
};

/// Bytes of a text on a page. The rest of it is a link away.
const TEXT_MAX: usize = 20_000;
/// Bytes of a fact from which on it takes the place of two.
const LONG_FACT: usize = 36;
/// Bytes of a form among others; one that begins with long texts stands on a page of its own.
const FORM_MAX: usize = 8_000;
/// Bytes around what a page holds: head, navigation, foot.
const FRAME: usize = 4_000;
/// What the bar at the top leads to.
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

/// Places for the entries of a list; there is always one more than there are entries.
const LIST_BLANKS: usize = 3;

/// Texts for which one line would be too small.
const LONG_FIELDS: &[&str] = &[
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

/// Actions whose input is a whole folder: nobody types one.
const NOT_TYPED: &[&str] = &["sync_board"];

/// Text in HTML, and in a quoted attribute.
pub fn escaped(text: &str) -> String {
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

/// A whole page.
pub fn page(page: &Page) -> String {
    let forms = forms(&page.actions, &page.path);
    let title = escaped(&page.title);
    let room = PAGE_MAX.saturating_sub(forms.len() + 2 * title.len() + FRAME);
    let draw = |block: &Block, most: usize| match block {
        Block::Facts(facts) => self::facts(facts, page),
        Block::Text { label, text, kind } => self::text(label.as_deref(), text, *kind, &page.path, most.min(TEXT_MAX)),
        block => self::block(block),
    };
    let blocks: Vec<&Block> = page.blocks.iter().collect();
    let mut main = format!("<h1>{title}</h1>\n") + &fit::drawn(&blocks, room, &page.path, &draw).concat();
    if let Some(next) = &page.next {
        main += &format!("<p class=more><a rel=next href=\"{}\">More</a></p>\n", escaped(next));
    }
    main += &forms;
    let frame = Frame { path: &page.path, live: &page.live, about: page.about.as_deref(), is_in: true };
    framed(&page.title, &main, frame)
}

/// What is known of a page around its main part.
struct Frame<'a> {
    /// Where it is; what went wrong is nowhere.
    path: &'a str,
    /// What changes it while one looks at it.
    live: &'a [String],
    about: Option<&'a str>,
    /// Whether who reads it got in.
    is_in: bool,
}

/// Puts the frame around the main part: head, navigation, foot.
fn framed(title: &str, main: &str, frame: Frame<'_>) -> String {
    let Frame { path, live, about, is_in } = frame;
    let links: String = NAVIGATION
        .iter()
        .map(|(to, name)| {
            let is_here = if *to == "/" { path == "/" } else { path.starts_with(to) };
            let here = if is_here { " aria-current=page" } else { "" };
            format!("<li><a href=\"{to}\"{here}>{name}</a></li>")
        })
        .collect();
    let live = if live.is_empty() { String::new() } else { format!(" data-live=\"{}\"", escaped(&live.join(" "))) };
    let why = about.map_or_else(|| "/why".to_owned(), |id| format!("/why?of={}", encoded(id)));
    let leave =
        if is_in { "<form method=post action=\"/logout\"><button class=link>Log out</button></form>" } else { "" };
    // What went wrong has no page of its own.
    let forms = if path.is_empty() {
        String::new()
    } else {
        let beside = escaped(if path == "/" { "/index" } else { path });
        format!(
            "<span class=forms>This page as <a href=\"{beside}.md\">Markdown</a> or <a href=\"{beside}.json\">JSON</a></span>"
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
<footer><a href=\"{why}\">Why is this here?</a><a href=\"/usage\">Usage</a><a href=\"/events\">Events</a><a href=\"/api\">API</a><a href=\"/whoami\">Who am I</a>{leave}{forms}</footer>
</body>
</html>
",
        title = escaped(title),
        why = escaped(&why),
    )
}

pub fn block(block: &Block) -> String {
    match block {
        Block::Heading(title) => format!("<h2>{}</h2>\n", escaped(title)),
        Block::Ask { to, field, label, said, within } => {
            let within = within.as_ref().map_or_else(String::new, |(field, value)| {
                format!("<input type=hidden name=\"{field}\" value=\"{}\">", escaped(value))
            });
            format!(
                "<form class=ask action=\"{to}\">{within}<label><span>{}</span><input name=\"{field}\" value=\"{}\" required></label><button>{}</button></form>\n",
                escaped(label),
                escaped(said),
                if *to == "/search" { "Search" } else { "Ask" },
            )
        }
        Block::Say(sentence) => match sentence.strip_prefix('_').and_then(|rest| rest.strip_suffix('_')) {
            Some(emphasised) => format!("<p><em>{}</em></p>\n", sentences(emphasised)),
            None => format!("<p>{}</p>\n", sentences(sentence)),
        },
        Block::Along { said, links } => ways::along(said, links),
        Block::Ways { label, ways } => ways::ways(label, ways),
        Block::Filter { path, fields } => ways::filter(path, fields),
        Block::Thread(said) => ways::thread(said),
        Block::Reply { to } => ways::reply(to),
        // They are drawn with the page they stand on.
        Block::Facts(_) | Block::Text { .. } => String::new(),
        Block::Table(table) => table::html(table),
        Block::Timeline(moments) => {
            let items: String = moments
                .iter()
                .map(|moment| {
                    let said = moment.text.as_deref().filter(|said| !said.is_empty()).map_or_else(String::new, said);
                    format!("<li>{}<b>{}</b>{said}</li>", time(&moment.at), escaped(&moment.label))
                })
                .collect();
            format!("<ol class=timeline>{items}</ol>\n")
        }
        Block::Tree(branches) => format!("<div class=tree>{}</div>\n", tree(branches)),
        Block::Chain(hops) => chain(hops),
        Block::Board(board) => board::html(board),
        Block::Versions(versions) => graph::html(versions),
        Block::Bars(bars) => {
            let items: String = bars
                .iter()
                .map(|bar| {
                    let most = bars.iter().map(|bar| bar.all).max().unwrap_or(1).max(1);
                    let (good, rest) = (bar.good * 200 / most, (bar.all - bar.good) * 200 / most);
                    format!(
                        "<li>{}<svg viewBox=\"0 0 200 10\" width=200 height=10 role=img aria-label=\"{}\" preserveAspectRatio=none><rect class=good width={good} height=10 /><rect class=rest x={good} width={rest} height=10 /></svg><span>{}</span></li>",
                        cell(&bar.label),
                        escaped(&bar.note),
                        escaped(&bar.note),
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
                        escaped(&figure.to),
                        escaped(&figure.value),
                        escaped(&figure.label)
                    )
                })
                .collect();
            format!("<ul class=figures>{items}</ul>\n")
        }
    }
}

/// A sentence of ours: what stands between backticks is code, and leads there where it is a page.
pub fn sentences(text: &str) -> String {
    let code = |part: &str| {
        let code = escaped(part);
        let is_page = part.starts_with('/') && !part.starts_with("//") && !part.contains([' ', '\\']);
        if is_page { format!("<a href=\"{code}\"><code>{code}</code></a>") } else { format!("<code>{code}</code>") }
    };
    let part = |(index, part): (usize, &str)| if index % 2 == 1 { code(part) } else { escaped(part) };
    text.split('`').enumerate().map(part).collect()
}

/// What is known. What only says the title or the address again is left out.
fn facts(facts: &[(String, Cell)], page: &Page) -> String {
    let is_said = |value: &Cell| match value {
        Cell::Link { to, .. } => *to == page.path,
        Cell::Text(text) => *text == page.title,
        _ => false,
    };
    let is_itself = |name: &str, value: &Cell| name == "id" && matches!(value, Cell::Link { .. });
    let rows: String = facts
        .iter()
        .filter(|(name, value)| !is_said(value) && !is_itself(name, value))
        .map(|(name, value)| {
            let class = if matches!(value, Cell::Text(text) if text.len() > LONG_FACT) { " class=wide" } else { "" };
            format!("<div{class}><dt>{}</dt><dd>{}</dd></div>", escaped(name), cell(value))
        })
        .collect();
    if rows.is_empty() { rows } else { format!("<dl class=facts>{rows}</dl>\n") }
}

/// Somebody's text, as much of it as there is room for.
fn text(label: Option<&str>, text: &str, kind: TextKind, path: &str, most: usize) -> String {
    let drawn = |text: &str| match kind {
        TextKind::Markdown => format!("<div class=prose>{}</div>", prose::html(text)),
        TextKind::Diff => diff(text),
        TextKind::Plain | TextKind::Json => format!("<pre tabindex=0>{}</pre>", escaped(text)),
    };
    // What is drawn is seldom less than half of what is written.
    let mut end = text.len().min(2 * most);
    let mut body = loop {
        end = text.floor_char_boundary(end);
        let body = drawn(&text[..end]);
        if body.len() <= most || end == 0 {
            break body;
        }
        end /= 2;
    };
    if end < text.len() {
        body += &format!(
            "<p class=cut>The first {} of {} characters. <a href=\"{}.md\">All of it</a></p>",
            grouped(i64::try_from(text[..end].chars().count()).unwrap_or(i64::MAX)),
            grouped(i64::try_from(text.chars().count()).unwrap_or(i64::MAX)),
            escaped(path),
        );
    }
    let label = label.map_or_else(String::new, |label| format!("<h2 class=label>{}</h2>", escaped(label)));
    format!("<section class=text>{label}{body}</section>\n")
}

/// What a step said: the first line, and the rest when asked for.
fn said(text: &str) -> String {
    let text = text::clean(text);
    match text.trim().split_once('\n') {
        None if text.chars().count() <= 200 => format!("<span>{}</span>", escaped(text.trim())),
        _ => {
            let first = text::cut(text.trim().lines().next().unwrap_or_default(), 200);
            format!("<details><summary>{}</summary><pre tabindex=0>{}</pre></details>", escaped(&first), escaped(&text))
        }
    }
}

/// What was added and removed, without the lines that only programs need.
fn diff(text: &str) -> String {
    let lines: String = text
        .lines()
        .filter(|line| !["--- ", "+++ ", "\\ No newline"].iter().any(|noise| line.starts_with(noise)))
        .map(|line| {
            let class = match line.chars().next() {
                Some('+') => "added",
                Some('-') => "removed",
                Some('@') => "place",
                _ => return format!("{}\n", escaped(line)),
            };
            format!("<span class={class}>{}</span>\n", escaped(line))
        })
        .collect();
    format!("<pre class=diff tabindex=0>{lines}</pre>")
}

fn tree(branches: &[Branch]) -> String {
    let drawn = |value: &Cell| match value {
        Cell::Text(text) => format!("<small>{}</small>", escaped(text)),
        value => cell(value),
    };
    let item = |branch: &Branch| {
        let cells: Vec<String> = branch.cells.iter().map(drawn).filter(|cell| !cell.is_empty()).collect();
        let below = if branch.children.is_empty() { String::new() } else { tree(&branch.children) };
        format!("<li>{}{below}</li>", cells.join(" "))
    };
    format!("<ul>{}</ul>", branches.iter().map(item).collect::<String>())
}

/// From a thing to the person who answers for it. What is not recorded in between is one thin line.
fn chain(hops: &[Hop]) -> String {
    let kind = |hop: &Hop| escaped(&hop.kind.replace('_', " "));
    let items: String = hops
        .chunk_by(|one, next| one.is_missing && next.is_missing)
        .map(|hops| match hops {
            [hop] if !hop.is_missing => {
                let label = match &hop.to {
                    Some(to) => format!("<a href=\"{}\">{}</a>", escaped(to), escaped(&hop.label)),
                    None => escaped(&hop.label),
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

/// A value in its place.
pub fn cell(value: &Cell) -> String {
    match value {
        Cell::Nothing => String::new(),
        Cell::Text(text) => escaped(text),
        Cell::Number(text) => escaped(&apart(text)),
        Cell::Link { to, text } => {
            let class = if table::is_id(text) { " class=id" } else { "" };
            format!("<a{class} href=\"{}\">{}</a>", escaped(to), escaped(text))
        }
        Cell::Status(status) => {
            format!("<span class=\"state {}\">{}</span>", tone(status), escaped(&status.replace('_', " ")))
        }
        Cell::Time(at) => time(at),
        Cell::Code(text) => format!("<code>{}</code>", escaped(text)),
        Cell::Many(cells) => cells.iter().map(cell).collect::<Vec<_>>().join(", "),
    }
}

/// A whole number that is long has its thousands apart, a fraction ends somewhere.
fn apart(number: &str) -> String {
    match number.parse::<i64>() {
        Ok(whole) if whole.abs() >= 1_000 => grouped(whole),
        Ok(_) => number.to_owned(),
        // More than a hundredth of a cent is noise of the sum.
        Err(_) => match number.parse::<f64>() {
            Ok(fraction) if number.split('.').nth(1).is_some_and(|digits| digits.len() > 4) => format!("{fraction:.4}"),
            _ => number.to_owned(),
        },
    }
}

/// A moment, exact; the script beside the page says how long ago that is.
pub fn time(at: &str) -> String {
    let at = escaped(at);
    let shown = at.get(..16).map_or_else(|| at.clone(), |minute| format!("{} UTC", minute.replace('T', " ")));
    format!("<time datetime=\"{at}\" title=\"{at}\">{shown}</time>")
}

/// How a state looks.
fn tone(status: &str) -> &'static str {
    match status {
        "completed" | "succeeded" | "done" | "passed" | "active" | "OK" => "good",
        "failed" | "error" | "exception" | "timed_out" | "blocked" | "dead" | "KO" => "bad",
        "running" | "in_progress" => "busy",
        "incomplete" | "cancelled" | "waiting" => "odd",
        _ => "calm",
    }
}

/// A form for each action. What only a run says about itself is not offered to people.
fn forms(offers: &[Offer], path: &str) -> String {
    let forms: String = offers
        .iter()
        .filter(|offer| capability::allowance(offer.action.capability) != Some(Allowance::OwnRun))
        .filter(|offer| !NOT_TYPED.contains(&offer.action.name))
        .map(|offer| form(offer, offer.path == path))
        .collect();
    if forms.is_empty() { forms } else { format!("<section class=actions><h2>Actions</h2>{forms}</section>\n") }
}

/// A form, open where it is the page. A long one is only there.
fn form(offer: &Offer, is_page: bool) -> String {
    let name = escaped(&offer.action.name.replace('_', " "));
    let class = if offer.action.removes { " class=removes" } else { "" };
    let open = if is_page { " open" } else { "" };
    let path = escaped(&offer.path);
    let schema = schemas::of_action(offer.action);
    let asked = || input::fields(schema).into_iter().flatten().filter(|(name, _)| !offer.preset.contains_key(*name));
    let needed = input::required(schema);
    let fields: String = asked()
        .map(|(name, field)| match offer.choices.iter().find(|(known, _)| known == name) {
            Some((_, choices)) => picked(name, choices),
            None => self::field(name, field, schema, needed.contains(&name.as_str()), &offer.present),
        })
        .collect();
    let sure =
        if offer.action.removes { "<label class=check><input type=checkbox required> Yes, really</label>" } else { "" };
    let form = format!(
        "<details{class}{open}><summary>{name}</summary><form method=post action=\"{path}\"><p class=about>{}</p>{fields}{sure}<button>{}</button></form></details>",
        escaped(&markdown::description(offer)),
        escaped(&button(offer)),
    );
    if is_page || form.len() <= FORM_MAX {
        return form;
    }
    format!(
        "<details{class}><summary>{name}</summary><p>It is long: <a href=\"{path}\">{name} on a page of its own</a>.</p></details>"
    )
}

/// What the button of a form says: a word.
fn button(offer: &Offer) -> String {
    let verb = match offer.action.command.1 {
        "set" | "update" => "save",
        verb => verb,
    };
    let mut letters = verb.replace(['-', '_'], " ").chars().collect::<Vec<_>>();
    if let Some(first) = letters.first_mut() {
        first.make_ascii_uppercase();
    }
    letters.into_iter().collect()
}

/// A field that is one of few things which the page knows.
fn picked(name: &str, choices: &[String]) -> String {
    let options: String = choices
        .iter()
        .map(|choice| {
            let value = escaped(choice);
            format!(
                "<label class=check><input type=radio name=\"{}\" value=\"{value}\" required> {value}</label>",
                escaped(name)
            )
        })
        .collect();
    format!("<fieldset><legend>{}</legend>{options}</fieldset>", escaped(&name.replace('_', " ")))
}

fn field(name: &str, field: &Value, schema: &schemars::Schema, needed: bool, present: &Map<String, Value>) -> String {
    let stands = present.get(name);
    let present = match stands {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let said = field.get("description").and_then(Value::as_str).unwrap_or_default();
    let label = format!("<span>{}</span><small>{}</small>", escaped(&name.replace('_', " ")), escaped(said));
    // An empty content clears.
    let needed = if needed && name != "content" { " required" } else { "" };
    let value = if present.is_empty() { String::new() } else { format!(" value=\"{}\"", escaped(&present)) };
    let name = escaped(name);
    let input = match input::field_type(field) {
        FieldType::Flag => {
            // A box that is not ticked sends nothing: what comes before it says that it was there.
            let otherwise = match stands {
                Some(Value::Bool(_)) => format!("<input type=hidden name=\"{name}\" value=false>"),
                _ => String::new(),
            };
            let ticked = if stands == Some(&Value::Bool(true)) { " checked" } else { "" };
            return format!(
                "{otherwise}<label class=check><input type=checkbox name=\"{name}\" value=true{ticked}> {label}</label>"
            );
        }
        FieldType::Whole => format!("<input type=number step=1 name=\"{name}\"{value}{needed}>"),
        FieldType::Number => format!("<input type=number step=any name=\"{name}\"{value}{needed}>"),
        FieldType::Any => format!("<textarea name=\"{name}\" rows=3{needed}></textarea>"),
        FieldType::List => {
            let entries = stands.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            let filled: Vec<String> =
                entries.map(|entry| format!("<input name=\"{name}\" value=\"{}\">", escaped(entry))).collect();
            let blanks = LIST_BLANKS.saturating_sub(filled.len()).max(1) - 1;
            let needed = if filled.is_empty() { needed } else { "" };
            let first = format!("<input name=\"{name}\"{needed}>");
            filled.concat() + &first + &format!("<input name=\"{name}\">").repeat(blanks)
        }
        // A browser takes the ends of lines out of a field of one line.
        FieldType::Text if LONG_FIELDS.contains(&name.as_str()) || present.contains('\n') => {
            format!("<textarea name=\"{name}\" rows=5{needed}>\n{}</textarea>", escaped(&present))
        }
        FieldType::Text => match input::choices(field, schema) {
            Some(choices) => {
                let none = if needed.is_empty() { "<option value=\"\"></option>" } else { "" };
                let options: String = choices
                    .iter()
                    .map(|choice| {
                        let chosen = if *choice == present { " selected" } else { "" };
                        format!("<option{chosen}>{}</option>", escaped(choice))
                    })
                    .collect();
                format!("<select name=\"{name}\"{needed}>{none}{options}</select>")
            }
            None => format!("<input name=\"{name}\"{value}{needed}>"),
        },
    };
    format!("<label>{label}{input}</label>")
}

/// A failure.
pub fn problem(status: StatusCode, message: &str, hint: Option<&str>, ask: Option<&Block>) -> String {
    let ask = ask.map(block).unwrap_or_default();
    let hint = hint.map_or_else(String::new, |hint| format!("<p class=hint>{}</p>", sentences(hint)));
    let name = status.canonical_reason().unwrap_or_default();
    let main = format!("<h1>{} {}</h1><p>{}</p>{hint}{ask}", status.as_u16(), escaped(name), escaped(message));
    let is_in = status != StatusCode::UNAUTHORIZED;
    framed(name, &main, Frame { path: "", live: &[], about: None, is_in })
}
