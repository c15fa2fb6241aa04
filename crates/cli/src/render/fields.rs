//! One thing, field by field.

use serde_json::{Map, Value};

use super::{Page, heading};

impl Page {
    /// Short fields first, in their order; then long texts and lists under headings of their own.
    pub(super) fn fields(&self, data: &Value) -> String {
        let Value::Object(fields) = data else {
            return self.cell(data);
        };
        let mut lines = self.short_fields(fields);
        for (name, value) in fields.iter().filter(|(_, value)| is_long(value)) {
            lines.push(String::new());
            lines.push(heading(&name.replace('_', " ")));
            lines.push(match value {
                Value::Array(rows) => self.nested(rows),
                Value::String(text) => text.trim_end().to_owned(),
                other => other.to_string(),
            });
        }
        lines.join("\n")
    }

    fn short_fields(&self, fields: &Map<String, Value>) -> Vec<String> {
        let shown: Vec<(String, String)> = fields
            .iter()
            .filter(|(_, value)| !is_long(value))
            .map(|(name, value)| (name.replace('_', " "), self.cell(value)))
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

    fn nested(&self, rows: &[Value]) -> String {
        let columns: Vec<&str> = rows
            .first()
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(|row| row.iter().filter(|(_, value)| !is_long(value)).map(|(name, _)| name.as_str()))
            .collect();
        self.rows(&Value::Array(rows.to_vec()), &columns)
    }
}

fn is_long(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\n') || text.chars().count() > 100,
        Value::Array(values) => values.iter().any(|value| !value.is_string()),
        Value::Object(_) => true,
        _ => false,
    }
}
