//! Page controls as HTML: pagination, tabs, list filters, message threads and the reply form.

use crate::{
    html::{cell, escape, time},
    page::{FilterField, Tab, ThreadMessage},
    safe_html,
};

pub fn pagination(text: &str, links: &[(String, String)]) -> String {
    let links: Vec<String> =
        links.iter().map(|(label, href)| format!("<a href=\"{}\">{}</a>", escape(href), escape(label))).collect();
    format!("<p class=cut>{} {}</p>\n", escape(text), links.join(" · "))
}

pub fn tabs(label: &str, tabs: &[Tab]) -> String {
    let items: String = tabs
        .iter()
        .map(|tab| {
            let current = if tab.is_current { " aria-current=true" } else { "" };
            format!("<li><a href=\"{}\"{current}>{}</a></li>", escape(&tab.href), escape(&tab.label))
        })
        .collect();
    format!("<div class=tabs><span>{}</span><ul>{items}</ul></div>\n", escape(label))
}

/// The filter form of a list, with a link to the unfiltered list if a filter is set.
pub fn filter(path: &str, fields: &[FilterField]) -> String {
    let inputs: String = fields
        .iter()
        .map(|field| {
            let name = escape(field.name);
            let input = if field.choices.is_empty() {
                format!("<input name=\"{name}\" value=\"{}\">", escape(&field.value))
            } else {
                let choices: String = field
                    .choices
                    .iter()
                    .map(|choice| {
                        let selected = if *choice == field.value { " selected" } else { "" };
                        let (choice, label) = (escape(choice), escape(&choice.replace('_', " ")));
                        format!("<option value=\"{choice}\"{selected}>{label}</option>")
                    })
                    .collect();
                format!("<select name=\"{name}\"><option value=\"\">any</option>{choices}</select>")
            };
            format!("<label><span>{name}</span>{input}</label>")
        })
        .collect();
    let is_filtered = fields.iter().any(|field| !field.value.is_empty());
    let reset = if is_filtered { format!("<a href=\"{}\">all</a>", escape(path)) } else { String::new() };
    format!(
        "<form class=filter action=\"{}\">{inputs}<button class=plain>Filter</button>{reset}</form>\n",
        escape(path)
    )
}

pub fn thread(messages: &[ThreadMessage]) -> String {
    let items: String = messages
        .iter()
        .map(|message| {
            let title = message.title.as_ref().map_or_else(String::new, |title| format!("<b>{}</b>", escape(title)));
            let notes: Vec<String> = message.notes.iter().map(cell).filter(|note| !note.is_empty()).collect();
            let run = message.run.as_ref().map_or_else(String::new, |run| format!(" in run {}", cell(run)));
            format!(
                "<li><p class=by><b>{}</b>{run} <a href=\"{}\">{}</a> {}</p>{title}{}</li>",
                escape(&message.from),
                escape(&message.href),
                time(&message.at),
                notes.join(" "),
                safe_html::from_markdown(&message.body),
            )
        })
        .collect();
    format!("<ol class=thread>{items}</ol>\n")
}

pub fn reply_form(path: &str) -> String {
    format!(
        "<form class=reply method=post action=\"{}\"><label><span>Reply</span><textarea name=body rows=3 required></textarea></label><button>Send</button></form>\n",
        escape(path)
    )
}
