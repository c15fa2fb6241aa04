//! What stands beside the content of a page, as HTML: where something long goes on, other ways to look at it, what a list
//! can be kept to, and what was said with a box to answer in.

use crate::{
    html::{cell, escaped, time},
    page::{FilterField, Said, Way},
    prose,
};

/// Where one is in something long.
pub fn along(said: &str, links: &[(String, String)]) -> String {
    let links: Vec<String> =
        links.iter().map(|(text, to)| format!("<a href=\"{}\">{}</a>", escaped(to), escaped(text))).collect();
    format!("<p class=cut>{} {}</p>\n", escaped(said), links.join(" · "))
}

/// Ways to look at the same.
pub fn ways(label: &str, ways: &[Way]) -> String {
    let items: String = ways
        .iter()
        .map(|way| {
            let chosen = if way.is_chosen { " aria-current=true" } else { "" };
            format!("<li><a href=\"{}\"{chosen}>{}</a></li>", escaped(&way.to), escaped(&way.label))
        })
        .collect();
    format!("<div class=ways><span>{}</span><ul>{items}</ul></div>\n", escaped(label))
}

/// What a list can be kept to. It is open where it is used.
pub fn filter(path: &str, fields: &[FilterField]) -> String {
    let inputs: String = fields
        .iter()
        .map(|field| {
            let name = escaped(field.name);
            let input = if field.choices.is_empty() {
                format!("<input name=\"{name}\" value=\"{}\">", escaped(&field.value))
            } else {
                let choices: String = field
                    .choices
                    .iter()
                    .map(|choice| {
                        let chosen = if *choice == field.value { " selected" } else { "" };
                        let (choice, shown) = (escaped(choice), escaped(&choice.replace('_', " ")));
                        format!("<option value=\"{choice}\"{chosen}>{shown}</option>")
                    })
                    .collect();
                format!("<select name=\"{name}\"><option value=\"\">any</option>{choices}</select>")
            };
            format!("<label><span>{name}</span>{input}</label>")
        })
        .collect();
    let is_used = fields.iter().any(|field| !field.value.is_empty());
    let all = if is_used { format!("<a href=\"{}\">all</a>", escaped(path)) } else { String::new() };
    format!("<form class=filter action=\"{}\">{inputs}<button class=plain>Filter</button>{all}</form>\n", escaped(path))
}

/// What was said, oldest first.
pub fn thread(said: &[Said]) -> String {
    let items: String = said
        .iter()
        .map(|said| {
            let title = said.title.as_ref().map_or_else(String::new, |title| format!("<b>{}</b>", escaped(title)));
            let notes: Vec<String> = said.notes.iter().map(cell).filter(|note| !note.is_empty()).collect();
            let run = said.run.as_ref().map_or_else(String::new, |run| format!(" in run {}", cell(run)));
            format!(
                "<li><p class=by><b>{}</b>{run} <a href=\"{}\">{}</a> {}</p>{title}{}</li>",
                escaped(&said.from),
                escaped(&said.to),
                time(&said.at),
                notes.join(" "),
                prose::html(&said.body),
            )
        })
        .collect();
    format!("<ol class=thread>{items}</ol>\n")
}

/// A box to answer in.
pub fn reply(to: &str) -> String {
    format!(
        "<form class=reply method=post action=\"{}\"><label><span>Reply</span><textarea name=body rows=3 required></textarea></label><button>Send</button></form>\n",
        escaped(to)
    )
}
