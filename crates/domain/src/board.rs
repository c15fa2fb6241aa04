//! The content of boards and stickies, and the rules for changing it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Error, Patch, Result,
    enums::{Lifecycle, StickiePriority},
    patch::{self, UNSET},
    text,
};

/// Maximum number of characters of a structured value, as JSON.
const STRUCTURED_MAX: usize = text::TEXT_MAX;

/// The content of a stickie: everything that people and agents can write on it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StickieContent {
    pub name: Option<String>,
    pub note: Option<String>,
    pub code: Option<String>,
    pub labels: Vec<String>,
    pub priority: Option<StickiePriority>,
    pub score: Option<f64>,
    pub structured: Option<Value>,
    pub archived: bool,
}

/// Changes to the fields of a stickie other than its name. An omitted field stays unchanged; an empty one is cleared.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct StickieFields {
    /// Text of the stickie
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub note: Patch<String>,
    /// Code on the stickie
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub code: Patch<String>,
    /// Label of the stickie. Repeatable; an empty text removes all labels
    #[arg(long = "label", value_name = "LABEL", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub labels: Option<Vec<String>>,
    /// Priority: must, should, could or wont
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub priority: Patch<StickiePriority>,
    /// Score, for comparing stickies
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "NUMBER", allow_negative_numbers = true)]
    #[serde(default)]
    pub score: Patch<f64>,
    /// Structured data, as JSON
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "JSON")]
    #[serde(default)]
    pub structured: Patch<Value>,
}

impl StickieContent {
    /// The content after the changes.
    pub fn with_changes(&self, name: &Patch<String>, changes: &StickieFields) -> Result<Self> {
        let StickieFields { note, code, labels, priority, score, structured: given } = changes;
        if let Patch::Set(score) = score
            && !score.is_finite()
        {
            return Err(Error::usage("score is not a number"));
        }
        Ok(Self {
            name: name.line("name", text::LINE_MAX)?.apply(self.name.clone()),
            note: note.body("note", text::TEXT_MAX)?.apply(self.note.clone()),
            code: code.body("code", text::TEXT_MAX)?.apply(self.code.clone()),
            labels: patch::clean_list("label", labels.as_deref())?.unwrap_or_else(|| self.labels.clone()),
            priority: priority.clone().apply(self.priority),
            score: score.clone().apply(self.score),
            structured: given.clone().try_map(structured)?.apply(self.structured.clone()),
            archived: self.archived,
        })
    }
}

/// Cleans the texts in a structured value, and checks its length.
fn structured(value: Value) -> Result<Value> {
    let cleaned = text::clean_json(value);
    let length = cleaned.to_string().chars().count();
    if length > STRUCTURED_MAX {
        return Err(Error::usage(format!("structured has {length} characters, the limit is {STRUCTURED_MAX}")));
    }
    Ok(cleaned)
}

/// The content of a board: everything that people and agents can write about it. It contains names where the database
/// row contains ids.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BoardContent {
    pub name: Option<String>,
    pub role: Option<String>,
    pub conversation: Option<String>,
    pub project: Option<String>,
    pub task: Option<String>,
    pub background: Option<String>,
    pub guidelines: Option<String>,
    pub lifecycle: Lifecycle,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn omitted_fields_stay_and_empty_fields_clear() {
        let full = StickieContent {
            name: Some("plan".into()),
            note: Some("n".into()),
            code: Some("c".into()),
            labels: vec!["l".into()],
            priority: Some(StickiePriority::Must),
            score: Some(1.5),
            structured: Some(json!({ "a": 1 })),
            archived: true,
        };
        assert_eq!(full.with_changes(&Patch::Unset, &StickieFields::default()).unwrap(), full);
        let nothing: StickieFields = serde_json::from_value(
            json!({ "note": "", "code": null, "labels": null, "priority": null, "score": null, "structured": null }),
        )
        .unwrap();
        let cleared = StickieContent { archived: true, ..StickieContent::default() };
        assert_eq!(full.with_changes(&Patch::Clear, &nothing).unwrap(), cleared);
    }

    #[test]
    fn structured_value_is_cleaned_and_its_fields_are_sorted() {
        let changes = StickieFields {
            structured: Patch::Set(json!({ "b\u{0}": "x\u{0}\r\n", "a": 1 })),
            ..StickieFields::default()
        };
        let content = StickieContent::default().with_changes(&Patch::Unset, &changes).unwrap();
        assert_eq!(content.structured.unwrap().to_string(), r#"{"a":1,"b":"x\n"}"#);
    }
}
