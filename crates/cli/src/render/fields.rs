//! Displays one object, field by field.

use serde_json::{Map, Value};
use trackway_domain::text;

use super::{Renderer, heading};

impl Renderer {
    /// First the short fields in their order, then long texts and lists with headings. Notices are omitted, because
    /// stderr has them.
    pub(super) fn fields(&self, data: &Value) -> String {
        let Value::Object(mut fields) = data.clone() else {
            return self.format_value("", data);
        };
        fields.shift_remove("notices");
        let mut lines = self.short_fields(&fields);
        for (name, value) in fields.iter().filter(|(_, value)| is_long(value)) {
            lines.push(String::new());
            lines.push(heading(&name.replace('_', " ")));
            lines.push(match value {
                Value::Array(rows) => match columns_below(name) {
                    [] => self.nested(rows),
                    columns => self.rows(&excerpts(rows, NESTED_EXCERPT_CHARACTERS), columns),
                },
                Value::String(text) => text.trim_end().to_owned(),
                Value::Object(inner) if !inner.values().any(is_long) => self.short_fields(inner).join("\n"),
                other => other.to_string(),
            });
        }
        lines.join("\n")
    }

    fn short_fields(&self, fields: &Map<String, Value>) -> Vec<String> {
        let shown: Vec<(String, String)> = fields
            .iter()
            .filter(|(name, value)| !is_long(value) && !has_display_name(fields, name))
            .map(|(name, value)| (name.replace('_', " "), self.format_value(name, value)))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let width = shown.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        shown
            .into_iter()
            .map(|(name, value)| match self.width {
                Some(_) => format!("{}  {value}", super::dim(&format!("{name:<width$}"))),
                None => format!("{name}: {value}"),
            })
            .collect()
    }

    /// A nested list. Its columns are the first eight fields that fit in one line and have a value in at least one row.
    /// Long texts are cut.
    fn nested(&self, rows: &[Value]) -> String {
        let Some(Value::Object(first)) = rows.first() else {
            return self.format_value("", &Value::Array(rows.to_vec()));
        };
        let is_line = |value: &Value| value.is_string() || !is_long(value);
        let short =
            |name: &str| rows.iter().all(|row| is_line(&row[name])) && rows.iter().any(|row| !row[name].is_null());
        let named = |name: &str| !has_display_name(first, name);
        let columns: Vec<&str> =
            first.keys().map(String::as_str).filter(|name| short(name) && named(name)).take(8).collect();
        self.rows(&excerpts(rows, NESTED_EXCERPT_CHARACTERS), &columns)
    }
}

/// Explicit columns for nested lists whose first eight fields do not include the author.
fn columns_below(name: &str) -> &'static [&'static str] {
    match name {
        "comments" => &["id", "title", "body", "author", "run_id", "updated_at"],
        "votes" => &["option", "author", "run_id", "accepted", "preferred", "updated_at"],
        _ => &[],
    }
}

/// Displayed characters of a long text in a nested list.
const NESTED_EXCERPT_CHARACTERS: usize = 60;

/// Cuts the long texts of rows.
pub(super) fn excerpts(rows: &[Value], max: usize) -> Value {
    let mut rows = rows.to_vec();
    for value in rows.iter_mut().filter_map(Value::as_object_mut).flat_map(|row| row.iter_mut().map(|(_, value)| value))
    {
        if let (true, Value::String(text)) = (is_long(value), &mut *value) {
            *text = text::cut(&text::clean_line(text), max);
        }
    }
    Value::Array(rows)
}

/// Whether an id is omitted because the object also contains the name.
fn has_display_name(fields: &Map<String, Value>, name: &str) -> bool {
    name.strip_suffix("_id").is_some_and(|base| fields.contains_key(base))
}

fn is_long(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\n') || text.chars().count() > 100,
        Value::Array(values) => values.iter().any(|value| !value.is_string()),
        Value::Object(_) => true,
        _ => false,
    }
}
