//! Renders a board as HTML. Stickies can be dragged between columns, or moved with a form, which also works by keyboard
//! and without JavaScript. The script draws the list of relations as arrows.

use crate::{
    blocks::group_digits,
    controls,
    html::{cell, escape},
    page::{Board, Column, Stickie},
    safe_html,
};

/// The columns with their titles and priorities.
pub const COLUMNS: [(&str, Option<&str>); 5] = [
    ("Must", Some("must")),
    ("Should", Some("should")),
    ("Could", Some("could")),
    ("Won't", Some("wont")),
    ("No priority", None),
];

pub fn html(board: &Board) -> String {
    let columns: String = board.columns.iter().map(|column| self::column(board, column)).collect();
    let title = |id: &str| {
        let all = board.columns.iter().flat_map(|column| &column.stickies);
        all.into_iter().find(|stickie| stickie.id == id).map_or_else(|| id.to_owned(), |stickie| stickie.title.clone())
    };
    let relations: String = board
        .relations
        .iter()
        .map(|relation| {
            format!(
                "<li data-from=\"{from}\" data-to=\"{to}\"><a href=\"/stickies/{from}\">{}</a> <span class=\"state calm\">{}</span> <a href=\"/stickies/{to}\">{}</a></li>",
                escape(&title(&relation.from)),
                escape(&relation.name.replace('_', " ").to_lowercase()),
                escape(&title(&relation.to)),
                from = escape(&relation.from),
                to = escape(&relation.to),
            )
        })
        .collect();
    let relations = if relations.is_empty() {
        String::new()
    } else {
        format!("<h2>Relations</h2><ul class=relations>{relations}</ul>")
    };
    format!("<div class=board data-board>{columns}</div>{relations}\n")
}

fn column(board: &Board, column: &Column) -> String {
    let cards: String = column.stickies.iter().map(|stickie| card(board, stickie, column.priority)).collect();
    let pagination =
        column.pagination.as_ref().map_or_else(String::new, |(text, links)| controls::pagination(text, links));
    format!(
        "<section class=column data-priority=\"{}\"><h2>{} <small>{}</small></h2>{pagination}<ul>{cards}</ul></section>",
        column.priority.unwrap_or_default(),
        escape(column.title),
        group_digits(i64::try_from(column.total).unwrap_or(i64::MAX)),
    )
}

fn card(board: &Board, stickie: &Stickie, priority: Option<&str>) -> String {
    let id = escape(&stickie.id);
    let note = stickie.note.as_deref().map(safe_html::from_markdown).unwrap_or_default();
    let code =
        stickie.code.as_deref().map_or_else(String::new, |code| format!("<pre tabindex=0>{}</pre>", escape(code)));
    let mut labels: Vec<String> =
        stickie.labels.iter().map(|label| format!("<span class=\"state calm\">{}</span>", escape(label))).collect();
    labels.extend(stickie.score.map(|score| format!("<span class=\"state calm\">score {score}</span>")));
    let by = match (&stickie.author, &stickie.run) {
        (None, None) => String::new(),
        (author, run) => {
            let author = author.as_deref().map(escape).unwrap_or_default();
            let run = run.as_ref().map_or_else(String::new, |run| format!(" in run {}", cell(run)));
            format!("<p class=by>{author}{run}</p>")
        }
    };
    let options: String = COLUMNS
        .iter()
        .map(|(title, value)| {
            let selected = if *value == priority { " selected" } else { "" };
            format!("<option value=\"{}\"{selected}>{}</option>", value.unwrap_or_default(), escape(title))
        })
        .collect();
    format!(
        "<li class=card id=\"s-{id}\" draggable=true data-stickie=\"{id}\"><a href=\"/stickies/{id}\">{title}</a>{note}{code}{by}<p class=labels>{labels}</p><form method=post action=\"/stickies/{id}/actions/update_stickie?then={then}\"><label><span class=quiet-label>Priority of {title}</span><select name=priority>{options}</select></label><button class=plain>Move</button></form></li>",
        title = escape(&stickie.title),
        labels = labels.join(" "),
        then = escape(&board.path),
    )
}
