//! Putting values into a JSON text and taking them out again, without touching anything else in it.
//!
//! What was put in looks like what stands around it: its newlines, its indentation, one line where there is one line.
//! Taking out is the exact inverse of putting in. For that, a text must tell whether the brackets around what was put
//! in were there before: an empty `{}` that someone wrote has to stay. It tells by one blank at the end of the line of
//! the opening bracket. When a formatter takes that blank away, brackets that become empty go.

use std::ops::Range;

use serde_json::Value;

use super::json_spans::Node;

/// A part of a text and what comes in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    pub span: Range<usize>,
    pub with: String,
}

/// Makes edits that do not overlap, all at once.
pub fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let mut out = String::with_capacity(text.len() + edits.iter().map(|edit| edit.with.len()).sum::<usize>());
    let mut at = 0;
    for edit in edits {
        out.push_str(&text[at..edit.span.start]);
        out.push_str(&edit.with);
        at = edit.span.end;
    }
    out.push_str(&text[at..]);
    out
}

/// Something to put into brackets.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// The key, where the brackets are those of an object.
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

/// How a text is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    newline: &'static str,
    /// One step of indentation.
    unit: String,
    /// A blank after colons and commas.
    space: &'static str,
    /// Whether it has more than one line, or nothing yet that says so.
    has_lines: bool,
}

/// Where something goes: on lines of its own with this indentation, or into the line.
#[derive(Debug, Clone, Copy)]
enum Place<'a> {
    Lines(&'a str),
    Line,
}

impl<'a> Place<'a> {
    /// By the blanks that stand before it.
    fn after(gap: &'a str) -> Self {
        gap.rfind('\n').map_or(Self::Line, |newline| Self::Lines(&gap[newline + 1..]))
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
        let unit = first.and_then(|first| match Place::after(gap_before(text, first.key_span.start)) {
            Place::Lines(indent) => indent.strip_prefix(outer).filter(|unit| !unit.is_empty()),
            Place::Line => None,
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

    /// A document with nothing but this value in place of one with nothing in it.
    pub fn document(&self, text: &str, value: &Value) -> Edit {
        let written = self.written(Item::element(value), Place::Lines(indent_of_line(text, text.len())));
        Edit { span: text.len()..text.len(), with: written + self.newline }
    }

    /// Adds to what is between brackets, at the end.
    pub fn append(&self, text: &str, container: &Node, items: &[Item]) -> Edit {
        let children = container.children();
        let Some(last) = children.last() else {
            return self.fill(text, container, items);
        };
        let gap = gap_before(text, last.start);
        let place = Place::after(gap);
        let before = match place {
            Place::Lines(indent) => format!("{}{indent}", self.newline),
            // The blank after a bracket is not that after a comma.
            Place::Line if children.len() == 1 => self.space.to_owned(),
            Place::Line => gap.to_owned(),
        };
        let items: Vec<_> = items.iter().map(|item| self.written(*item, place)).collect();
        let between = format!(",{before}");
        Edit { span: last.end..last.end, with: format!("{between}{}", items.join(&between)) }
    }

    /// Puts something between brackets that have nothing between them but blanks, which stay in front.
    fn fill(&self, text: &str, container: &Node, items: &[Item]) -> Edit {
        let outer = indent_of_line(text, container.span.start);
        let inner = format!("{outer}{}", self.unit);
        let (before, between, after, place) = if self.has_lines {
            let line = format!("{}{inner}", self.newline);
            (line.clone(), format!(",{line}"), format!("{}{outer}", self.newline), Place::Lines(&inner))
        } else {
            (String::new(), format!(",{}", self.space), String::new(), Place::Line)
        };
        let items: Vec<_> = items.iter().map(|item| self.written(*item, place)).collect();
        let blanks = &text[container.interior()];
        Edit { span: container.interior(), with: format!("{blanks} {before}{}{after}", items.join(&between)) }
    }

    /// Puts a value in the place of another.
    pub fn replace(&self, text: &str, old: &Node, value: &Value) -> Edit {
        let place = Place::after(gap_before(text, old.span.start));
        Edit { span: old.span.clone(), with: self.written(Item::element(value), place) }
    }

    fn written(&self, item: Item, place: Place) -> String {
        let mut out = String::new();
        self.write(&mut out, item, place);
        out
    }

    fn write(&self, out: &mut String, item: Item, place: Place) {
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
        let inner_indent = match place {
            Place::Lines(indent) => format!("{indent}{}", self.unit),
            Place::Line => String::new(),
        };
        out.push(open);
        for (index, item) in inside.into_iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            match place {
                Place::Lines(_) => {
                    out.push_str(self.newline);
                    out.push_str(&inner_indent);
                    self.write(out, item, Place::Lines(&inner_indent));
                }
                Place::Line => {
                    out.push_str(if index > 0 { self.space } else { "" });
                    self.write(out, item, Place::Line);
                }
            }
        }
        if let Place::Lines(indent) = place {
            out.push_str(self.newline);
            out.push_str(indent);
        }
        out.push(close);
    }
}

/// What is left of brackets after things were taken out of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The brackets stay.
    Something,
    /// They were made for what was taken out, and go with it.
    Nothing,
}

/// Takes children out of brackets: those with `true`.
pub fn take_out(text: &str, container: &Node, gone: &[bool], edits: &mut Vec<Edit>) -> Left {
    let children = container.children();
    if !gone.contains(&true) {
        return Left::Something;
    }
    if !gone.contains(&false) {
        let first = children.first().map_or(container.interior().end, |first| first.start);
        return match blanks_before_filling(&text[container.interior().start..first]) {
            Some(blanks) => {
                edits.push(Edit { span: container.interior(), with: blanks.to_owned() });
                Left::Something
            }
            None => Left::Nothing,
        };
    }
    let mut index = 0;
    while index < children.len() {
        let run = gone[index..].iter().take_while(|gone| **gone).count();
        if run > 0 {
            let span = match index.checked_sub(1) {
                Some(before) => children[before].end..children[index + run - 1].end,
                None => children[0].start..children[run].start,
            };
            edits.push(Edit { span, with: String::new() });
        }
        index += run + 1;
    }
    Left::Something
}

/// Takes the whole document away, with the end of its line.
pub fn take_out_document(text: &str, root: &Node) -> Edit {
    let after = &text[root.span.end..];
    let newline = ["\r\n", "\n"].into_iter().find(|newline| after.starts_with(newline)).unwrap_or_default();
    Edit { span: root.span.start..root.span.end + newline.len(), with: String::new() }
}

/// What stood between brackets that were empty before something was put in, by what stands before the first thing now.
fn blanks_before_filling(gap: &str) -> Option<&str> {
    let line = match gap.rfind('\n') {
        Some(newline) => gap[..newline].strip_suffix('\r').unwrap_or(&gap[..newline]),
        None => gap,
    };
    line.strip_suffix(' ')
}

/// The blanks before a place.
fn gap_before(text: &str, at: usize) -> &str {
    let before = &text[..at];
    &before[before.trim_end_matches([' ', '\t', '\n', '\r']).len()..]
}

/// The blanks that the line of a place begins with.
fn indent_of_line(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = &text[start..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t', '\r']).len()]
}
