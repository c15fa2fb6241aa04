//! Formats what tools return: pages as Markdown, results of actions, and errors, each with a limited length.

use serde_json::Value;
use trackway_domain::{text, wake_context::fenced};

use crate::{markdown, page::Page, problem::Problem, sentence};

/// Maximum length of an answer, in characters. The client asks for the rest with `skip`.
pub const ANSWER_MAX: usize = 8_000;
/// Maximum length of a text in the result of an action, in characters. The caller sent the text and knows all of it.
const TEXT_MAX: usize = 300;

/// Maximum length of an error message and of its hint, in characters.
const ERROR_MAX: usize = 2_000;

/// A page without front matter. Its actions are listed at the end, one per line.
pub fn page(page: &Page) -> String {
    let mut out = markdown::body(page);
    if let Some(next) = &page.next {
        out += &format!("\nNext page: `show` `{next}`\n");
    }
    if !page.actions.is_empty() {
        out += "\n## Actions\n\n`act` executes them, `help` describes them.\n\n";
        for offer in &page.actions {
            let preset = Value::Object(offer.preset.clone());
            let preset = if offer.preset.is_empty() { String::new() } else { format!(" with `{preset}`") };
            out += &format!("- `{}`{preset}: {}\n", offer.action.name, markdown::description(offer));
        }
    }
    out
}

/// The result of an action.
pub fn action_result(name: &str, data: Value, is_dry_run: bool) -> String {
    let heading = if is_dry_run { "Would be done" } else { "Done" };
    if data.as_array().is_some_and(Vec::is_empty) {
        return format!("# {heading}: {name}\n\nThe result is empty.\n");
    }
    let data = serde_json::to_string_pretty(&cut_texts(data)).unwrap_or_default();
    part(&format!("# {heading}: {name}\n\n{}\n", fenced("json", &data)), 0, None)
}

fn cut_texts(data: Value) -> Value {
    match data {
        Value::String(long) => Value::String(text::cut(&long, TEXT_MAX)),
        Value::Array(values) => values.into_iter().map(cut_texts).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, cut_texts(value))).collect(),
        other => other,
    }
}

/// An error with its hint.
pub fn problem(problem: &Problem) -> String {
    let message = text::clean(&sentence::render(&problem.message));
    let hint = problem.hint.as_ref().map(|hint| format!("\nhint: {}", text::clean_line(&sentence::render(hint))));
    format!("error: {}{}", text::cut(&message, ERROR_MAX), text::cut(&hint.unwrap_or_default(), ERROR_MAX))
}

/// The part of a text that starts after `skip` characters, with a note on how to read the next part. If the cut is
/// inside a code fence, this part closes the fence and the next part reopens it, so that text of users never appears
/// outside a fence.
pub fn part(whole: &str, skip: usize, path: Option<&str>) -> String {
    let start = byte_offset(whole, skip);
    let rest = &whole[start..];
    let mut out = open_fence(&whole[..start]).map_or_else(String::new, |fence| format!("{fence}text\n"));
    let end = byte_offset(rest, ANSWER_MAX);
    if end == rest.len() {
        return out + rest;
    }
    // Cuts after a line break, if there is one.
    let end = rest[..end].rfind('\n').map_or(end, |newline| newline + 1);
    out += &rest[..end];
    if !out.ends_with('\n') {
        out.push('\n');
    }
    if let Some(fence) = open_fence(&whole[..start + end]) {
        out += &format!("{fence}\n");
    }
    let next = skip + rest[..end].chars().count();
    let total = whole.chars().count();
    match path {
        Some(path) => {
            let separator = if path.contains('?') { '&' } else { '?' };
            out + &format!(
                "\n[Cut: characters {skip} to {next} of {total}. `show` the page `{path}{separator}skip={next}` for more.]\n"
            )
        }
        None => out + &format!("\n[Cut: {next} of {total} characters.]\n"),
    }
}

fn byte_offset(text: &str, character: usize) -> usize {
    text.char_indices().nth(character).map_or(text.len(), |(byte, _)| byte)
}

/// The code fence that is still open at the end of a text.
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
    fn parts_of_a_long_text_add_up_to_the_text() {
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
    fn closes_and_reopens_a_cut_code_fence() {
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
