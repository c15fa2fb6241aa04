//! What goes out: pages as Markdown, what came of an action, failures, each kept small.

use serde_json::Value;
use trackway_domain::{text, wake_context::fenced};

use crate::{markdown, page::Page, problem::Problem, sentence::rendered};

/// Characters of an answer; the rest is asked for.
pub const ANSWER_MAX: usize = 8_000;
/// Characters of a text in what came of an action: whoever acted has the rest.
const TEXT_MAX: usize = 300;

/// Characters of what went wrong, and of what to do.
const SAID_MAX: usize = 2_000;

/// A page without its front matter: what can be done stands at the end, in a line each.
pub fn page(page: &Page) -> String {
    let mut out = markdown::body(page);
    if let Some(next) = &page.next {
        out += &format!("\nThere is more: `show` the page `{next}`\n");
    }
    if !page.actions.is_empty() {
        out += "\n## Actions\n\n`act` does them, `help` describes them.\n\n";
        for offer in &page.actions {
            let given = Value::Object(offer.preset.clone());
            let given = if offer.preset.is_empty() { String::new() } else { format!(" with `{given}`") };
            out += &format!("- `{}`{given}: {}\n", offer.action.name, markdown::description(offer));
        }
    }
    out
}

/// What came of an action.
pub fn done(name: &str, data: Value, is_dry: bool) -> String {
    let heading = if is_dry { "Would be done" } else { "Done" };
    if data.as_array().is_some_and(Vec::is_empty) {
        return format!("# {heading}: {name}\n\nNothing: there was none.\n");
    }
    let data = serde_json::to_string_pretty(&shortened(data)).unwrap_or_default();
    part(&format!("# {heading}: {name}\n\n{}\n", fenced("json", &data)), 0, None)
}

fn shortened(data: Value) -> Value {
    match data {
        Value::String(said) => Value::String(text::cut(&said, TEXT_MAX)),
        Value::Array(values) => values.into_iter().map(shortened).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, shortened(value))).collect(),
        other => other,
    }
}

/// A failure, and what to do.
pub fn problem(problem: &Problem) -> String {
    let message = text::clean(&rendered(&problem.message));
    let hint = problem.hint.as_ref().map(|hint| format!("\nhint: {}", text::clean_line(&rendered(hint))));
    format!("error: {}{}", text::cut(&message, SAID_MAX), text::cut(&hint.unwrap_or_default(), SAID_MAX))
}

/// A part of a text from a character on, that says where it goes on. Fences that are cut are closed and opened again, so
/// that what somebody wrote never stands outside of them.
pub fn part(whole: &str, skip: usize, path: Option<&str>) -> String {
    let start = byte_of(whole, skip);
    let rest = &whole[start..];
    let mut out = open_fence(&whole[..start]).map_or_else(String::new, |fence| format!("{fence}text\n"));
    let end = byte_of(rest, ANSWER_MAX);
    if end == rest.len() {
        return out + rest;
    }
    // Between lines, where there are any.
    let end = rest[..end].rfind('\n').map_or(end, |newline| newline + 1);
    out += &rest[..end];
    if !out.ends_with('\n') {
        out.push('\n');
    }
    if let Some(fence) = open_fence(&whole[..start + end]) {
        out += &format!("{fence}\n");
    }
    let next = skip + rest[..end].chars().count();
    let all = whole.chars().count();
    match path {
        Some(path) => {
            let sign = if path.contains('?') { '&' } else { '?' };
            out + &format!(
                "\n[Cut: characters {skip} to {next} of {all}. `show` the page `{path}{sign}skip={next}` for more.]\n"
            )
        }
        None => out + &format!("\n[Cut: {next} of {all} characters.]\n"),
    }
}

fn byte_of(text: &str, character: usize) -> usize {
    text.char_indices().nth(character).map_or(text.len(), |(byte, _)| byte)
}

/// The fence that is still open at the end of a text.
fn open_fence(text: &str) -> Option<&str> {
    let mut open: Option<&str> = None;
    for line in text.lines() {
        let ticks = &line[..line.len() - line.trim_start_matches('`').len()];
        match open {
            Some(fence) if line == fence => open = None,
            None if ticks.len() >= 3 => open = Some(ticks),
            _ => {}
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_comes_in_parts_that_make_the_whole() {
        let lines = (0..2_000).map(|number| format!("line {number} äöü\n")).collect::<Vec<_>>().concat();
        let mut skip = 0;
        let mut read = String::new();
        loop {
            let part = part(&lines, skip, Some("/runs?status=running"));
            match part.split_once("\n[Cut: ") {
                Some((text, marker)) => {
                    read += text;
                    assert!(text.chars().count() <= ANSWER_MAX);
                    skip = marker.split_once("&skip=").unwrap().1.split_once('`').unwrap().0.parse().unwrap();
                }
                None => break read += &part,
            }
        }
        assert_eq!(read, lines);
    }

    #[test]
    fn a_fence_that_is_cut_is_closed_and_opened_again() {
        let whole = format!("# Title\n\n{}\nafter\n", fenced("text", &"`` hostile\n".repeat(1_000)));
        let first = part(&whole, 0, Some("/x"));
        let (text, marker) = first.split_once("\n[Cut: ").unwrap();
        assert!(text.ends_with("\n```\n"), "{text}");
        let skip = marker.split_once("?skip=").unwrap().1.split_once('`').unwrap().0.parse().unwrap();
        let second = part(&whole, skip, Some("/x"));
        assert!(second.starts_with("```text\n`` hostile\n") && second.ends_with("\n```\nafter\n"), "{second}");
        assert_eq!(part("short", 0, Some("/x")), "short");
        assert_eq!(part("short", 99, Some("/x")), "");
    }
}
