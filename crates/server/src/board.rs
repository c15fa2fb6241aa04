//! A board as HTML: columns to drag stickies between, the same by keyboard and without a script, relations as a list that
//! the script draws as arrows.

use crate::{
    blocks::grouped,
    html::{cell, escaped},
    page::{Board, Column, Stickie},
    prose, ways,
};

/// What each column is called, and the priority that it stands for.
pub const COLUMNS: [(&str, Option<&str>); 5] = [
    ("Must", Some("must")),
    ("Should", Some("should")),
    ("Could", Some("could")),
    ("Won't", Some("wont")),
    ("Not said", None),
];

/// Draws it.
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
                escaped(&title(&relation.from)),
                escaped(&relation.name.replace('_', " ").to_lowercase()),
                escaped(&title(&relation.to)),
                from = escaped(&relation.from),
                to = escaped(&relation.to),
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
    let along = column.along.as_ref().map_or_else(String::new, |(said, links)| ways::along(said, links));
    format!(
        "<section class=column data-priority=\"{}\"><h2>{} <small>{}</small></h2>{along}<ul>{cards}</ul></section>",
        column.priority.unwrap_or_default(),
        escaped(column.title),
        grouped(i64::try_from(column.all).unwrap_or(i64::MAX)),
    )
}

fn card(board: &Board, stickie: &Stickie, priority: Option<&str>) -> String {
    let id = escaped(&stickie.id);
    let note = stickie.note.as_deref().map(prose::html).unwrap_or_default();
    let code =
        stickie.code.as_deref().map_or_else(String::new, |code| format!("<pre tabindex=0>{}</pre>", escaped(code)));
    let mut labels: Vec<String> =
        stickie.labels.iter().map(|label| format!("<span class=\"state calm\">{}</span>", escaped(label))).collect();
    labels.extend(stickie.score.map(|score| format!("<span class=\"state calm\">score {score}</span>")));
    let by = match (&stickie.author, &stickie.run) {
        (None, None) => String::new(),
        (author, run) => {
            let author = author.as_deref().map(escaped).unwrap_or_default();
            let run = run.as_ref().map_or_else(String::new, |run| format!(" in run {}", cell(run)));
            format!("<p class=by>{author}{run}</p>")
        }
    };
    let options: String = COLUMNS
        .iter()
        .map(|(title, word)| {
            let selected = if *word == priority { " selected" } else { "" };
            format!("<option value=\"{}\"{selected}>{}</option>", word.unwrap_or_default(), escaped(title))
        })
        .collect();
    format!(
        "<li class=card id=\"s-{id}\" draggable=true data-stickie=\"{id}\"><a href=\"/stickies/{id}\">{title}</a>{note}{code}{by}<p class=labels>{labels}</p><form method=post action=\"/stickies/{id}/actions/update_stickie?then={then}\"><label><span class=quiet-label>Priority of {title}</span><select name=priority>{options}</select></label><button class=plain>Move</button></form></li>",
        title = escaped(&stickie.title),
        labels = labels.join(" "),
        then = escaped(&board.path),
    )
}
