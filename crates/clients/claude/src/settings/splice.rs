//! Inserts values into a JSON text and removes them, without changing anything else.
//!
//! An inserted value is formatted like the text around it: newlines, indentation, single lines. Removing a value is the
//! exact inverse of inserting it. An empty `{}` that a user wrote must therefore stay after the removal, but brackets
//! that the insertion added must go. To mark brackets that existed before, the insertion appends one blank to the line
//! of the opening bracket. If a formatter removes that blank, the removal also removes brackets that become empty.

use std::ops::Range;

use serde_json::Value;

use super::json_spans::Node;

/// A range of the text and its replacement.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    pub span: Range<usize>,
    pub replacement: String,
}

/// Applies edits that do not overlap.
pub fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let mut out = String::with_capacity(text.len() + edits.iter().map(|edit| edit.replacement.len()).sum::<usize>());
    let mut at = 0;
    for edit in edits {
        out.push_str(&text[at..edit.span.start]);
        out.push_str(&edit.replacement);
        at = edit.span.end;
    }
    out.push_str(&text[at..]);
    out
}

/// A value to insert between brackets.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// The key, if the value is inserted into an object.
    pub key: Option<&'a str>,
    pub value: &'a Value,
}

impl<'a> Item<'a> {
    pub fn member(key: &'a str, value: &'a Value) -> Self {
        Self { key: Some(key), value }
    }

    pub fn element(value: &'a Value) -> Self {
        Self { key: None, value }
    }
}

/// The formatting of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    newline: &'static str,
    /// One level of indentation.
    unit: String,
    /// The blank after colons and commas, or an empty string.
    space: &'static str,
    /// Whether the text has several lines. Also true for a text without members.
    has_lines: bool,
}

/// The place of an inserted value: on separate lines with this indentation, or on the current line.
#[derive(Debug, Clone, Copy)]
enum Placement<'a> {
    OwnLines(&'a str),
    Inline,
}

impl<'a> Placement<'a> {
    /// Derived from the blanks before a value.
    fn after(gap: &'a str) -> Self {
        gap.rfind('\n').map_or(Self::Inline, |newline| Self::OwnLines(&gap[newline + 1..]))
    }
}

impl Layout {
    pub fn of(text: &str, root: Option<&Node>) -> Self {
        let newline = match text.find('\n') {
            Some(at) if text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        };
        let first = root.and_then(Node::members).and_then(<[_]>::first);
        let outer = root.map_or("", |root| indent_of_line(text, root.span.start));
        let unit = first.and_then(|first| match Placement::after(gap_before(text, first.key_span.start)) {
            Placement::OwnLines(indent) => indent.strip_prefix(outer).filter(|unit| !unit.is_empty()),
            Placement::Inline => None,
        });
        let spaced = first.is_none_or(|first| {
            text[first.key_span.end..first.value.span.start].ends_with(|character: char| character != ':')
        });
        Self {
            newline,
            unit: unit.unwrap_or("  ").to_owned(),
            space: if spaced { " " } else { "" },
            has_lines: first.is_none() || root.is_some_and(|root| text[root.span.clone()].contains('\n')),
        }
    }

    /// An edit that adds this value to an empty document.
    pub fn document(&self, text: &str, value: &Value) -> Edit {
        let rendered = self.render(Item::element(value), Placement::OwnLines(indent_of_line(text, text.len())));
        Edit { span: text.len()..text.len(), replacement: rendered + self.newline }
    }

    /// An edit that appends items between brackets.
    pub fn append(&self, text: &str, container: &Node, items: &[Item]) -> Edit {
        let children = container.children();
        let Some(last) = children.last() else {
            return self.fill_empty(text, container, items);
        };
        let gap = gap_before(text, last.start);
        let placement = Placement::after(gap);
        let before = match placement {
            Placement::OwnLines(indent) => format!("{}{indent}", self.newline),
            // The blank after the bracket may differ from that after a comma.
            Placement::Inline if children.len() == 1 => self.space.to_owned(),
            Placement::Inline => gap.to_owned(),
        };
        let items: Vec<_> = items.iter().map(|item| self.render(*item, placement)).collect();
        let between = format!(",{before}");
        Edit { span: last.end..last.end, replacement: format!("{between}{}", items.join(&between)) }
    }

    /// An edit that inserts items between empty brackets, after any blanks there.
    fn fill_empty(&self, text: &str, container: &Node, items: &[Item]) -> Edit {
        let outer = indent_of_line(text, container.span.start);
        let inner = format!("{outer}{}", self.unit);
        let (before, between, after, placement) = if self.has_lines {
            let line = format!("{}{inner}", self.newline);
            (line.clone(), format!(",{line}"), format!("{}{outer}", self.newline), Placement::OwnLines(&inner))
        } else {
            (String::new(), format!(",{}", self.space), String::new(), Placement::Inline)
        };
        let items: Vec<_> = items.iter().map(|item| self.render(*item, placement)).collect();
        let blanks = &text[container.interior()];
        Edit { span: container.interior(), replacement: format!("{blanks} {before}{}{after}", items.join(&between)) }
    }

    /// An edit that replaces a value.
    pub fn replace(&self, text: &str, old: &Node, value: &Value) -> Edit {
        let placement = Placement::after(gap_before(text, old.span.start));
        Edit { span: old.span.clone(), replacement: self.render(Item::element(value), placement) }
    }

    fn render(&self, item: Item, placement: Placement) -> String {
        let mut out = String::new();
        self.render_into(&mut out, item, placement);
        out
    }

    fn render_into(&self, out: &mut String, item: Item, placement: Placement) {
        if let Some(key) = item.key {
            out.push_str(&Value::from(key).to_string());
            out.push(':');
            out.push_str(self.space);
        }
        let inside: Vec<Item> = match item.value {
            Value::Object(members) => members.iter().map(|(key, value)| Item::member(key, value)).collect(),
            Value::Array(elements) => elements.iter().map(Item::element).collect(),
            _ => Vec::new(),
        };
        if inside.is_empty() {
            out.push_str(&item.value.to_string());
            return;
        }
        let (open, close) = if item.value.is_object() { ('{', '}') } else { ('[', ']') };
        let inner_indent = match placement {
            Placement::OwnLines(indent) => format!("{indent}{}", self.unit),
            Placement::Inline => String::new(),
        };
        out.push(open);
        for (index, item) in inside.into_iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            match placement {
                Placement::OwnLines(_) => {
                    out.push_str(self.newline);
                    out.push_str(&inner_indent);
                    self.render_into(out, item, Placement::OwnLines(&inner_indent));
                }
                Placement::Inline => {
                    out.push_str(if index > 0 { self.space } else { "" });
                    self.render_into(out, item, Placement::Inline);
                }
            }
        }
        if let Placement::OwnLines(indent) = placement {
            out.push_str(self.newline);
            out.push_str(indent);
        }
        out.push(close);
    }
}

/// Whether brackets stay after values between them were removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalResult {
    KeepBrackets,
    /// The brackets were inserted together with the removed values, and are removed with them.
    RemoveBrackets,
}

/// Adds edits that remove the children whose flag is true.
pub fn remove_children(text: &str, container: &Node, is_removed: &[bool], edits: &mut Vec<Edit>) -> RemovalResult {
    let children = container.children();
    if !is_removed.contains(&true) {
        return RemovalResult::KeepBrackets;
    }
    if !is_removed.contains(&false) {
        let first = children.first().map_or(container.interior().end, |first| first.start);
        return match original_blanks(&text[container.interior().start..first]) {
            Some(blanks) => {
                edits.push(Edit { span: container.interior(), replacement: blanks.to_owned() });
                RemovalResult::KeepBrackets
            }
            None => RemovalResult::RemoveBrackets,
        };
    }
    let mut index = 0;
    while index < children.len() {
        let run = is_removed[index..].iter().take_while(|is_removed| **is_removed).count();
        if run > 0 {
            let span = match index.checked_sub(1) {
                Some(before) => children[before].end..children[index + run - 1].end,
                None => children[0].start..children[run].start,
            };
            edits.push(Edit { span, replacement: String::new() });
        }
        index += run + 1;
    }
    RemovalResult::KeepBrackets
}

/// An edit that removes the whole document, including the end of its last line.
pub fn remove_document(text: &str, root: &Node) -> Edit {
    let after = &text[root.span.end..];
    let newline = ["\r\n", "\n"].into_iter().find(|newline| after.starts_with(newline)).unwrap_or_default();
    Edit { span: root.span.start..root.span.end + newline.len(), replacement: String::new() }
}

/// The blanks that were between empty brackets before the insertion, derived from the text before the first value. None
/// if the brackets were inserted, too.
fn original_blanks(gap: &str) -> Option<&str> {
    let line = match gap.rfind('\n') {
        Some(newline) => gap[..newline].strip_suffix('\r').unwrap_or(&gap[..newline]),
        None => gap,
    };
    line.strip_suffix(' ')
}

/// The blanks before a position.
fn gap_before(text: &str, at: usize) -> &str {
    let before = &text[..at];
    &before[before.trim_end_matches([' ', '\t', '\n', '\r']).len()..]
}

/// The indentation of the line of a position.
fn indent_of_line(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = &text[start..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t', '\r']).len()]
}
