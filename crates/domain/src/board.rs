//! What a board and a stickie say, and how what was said changes it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Error, Patch, Result,
    patch::{self, UNSET},
    text,
    words::{Lifecycle, StickiePriority},
};

/// Characters of a structured value.
const STRUCTURED_MAX: usize = text::TEXT_MAX;

/// Everything that people and agents write on a stickie.
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

/// What is said of a stickie besides its name. Omitted is unchanged, empty clears.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct StickieFields {
    /// Its text
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub note: Patch<String>,
    /// Code that belongs to it
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub code: Patch<String>,
    /// A label; repeat for several, empty for none
    #[arg(long = "label", value_name = "LABEL", num_args = 1..)]
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub labels: Option<Vec<String>>,
    /// How much it matters: must, should, could or wont
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub priority: Patch<StickiePriority>,
    /// A number to compare it by
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "NUMBER", allow_negative_numbers = true)]
    #[serde(default)]
    pub score: Patch<f64>,
    /// Anything else, as JSON
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "JSON")]
    #[serde(default)]
    pub structured: Patch<Value>,
}

impl StickieContent {
    /// The content after this was said.
    pub fn changed(&self, name: &Patch<String>, said: &StickieFields) -> Result<Self> {
        let StickieFields { note, code, labels, priority, score, structured: given } = said;
        if let Patch::Set(score) = score
            && !score.is_finite()
        {
            return Err(Error::usage("score is not a number"));
        }
        Ok(Self {
            name: name.line("name", text::LINE_MAX)?.apply(self.name.clone()),
            note: note.body("note", text::TEXT_MAX)?.apply(self.note.clone()),
            code: code.body("code", text::TEXT_MAX)?.apply(self.code.clone()),
            labels: patch::list("label", labels.as_deref())?.unwrap_or_else(|| self.labels.clone()),
            priority: priority.clone().apply(self.priority),
            score: score.clone().apply(self.score),
            structured: given.clone().try_map(structured)?.apply(self.structured.clone()),
            archived: self.archived,
        })
    }
}

/// A structured value with clean texts, not too long.
fn structured(value: Value) -> Result<Value> {
    let cleaned = text::clean_json(value);
    let length = cleaned.to_string().chars().count();
    if length > STRUCTURED_MAX {
        return Err(Error::usage(format!("structured has {length} characters, the limit is {STRUCTURED_MAX}")));
    }
    Ok(cleaned)
}

/// Everything that people and agents say of a board, with names where the row has ids.
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
    fn omitted_stays_and_empty_clears() {
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
        assert_eq!(full.changed(&Patch::Unset, &StickieFields::default()).unwrap(), full);
        let nothing: StickieFields = serde_json::from_value(
            json!({ "note": "", "code": null, "labels": null, "priority": null, "score": null, "structured": null }),
        )
        .unwrap();
        let cleared = StickieContent { archived: true, ..StickieContent::default() };
        assert_eq!(full.changed(&Patch::Clear, &nothing).unwrap(), cleared);
    }

    #[test]
    fn a_structured_value_has_no_control_characters_and_no_order() {
        let said = StickieFields {
            structured: Patch::Set(json!({ "b\u{0}": "x\u{0}\r\n", "a": 1 })),
            ..StickieFields::default()
        };
        let content = StickieContent::default().changed(&Patch::Unset, &said).unwrap();
        assert_eq!(content.structured.unwrap().to_string(), r#"{"a":1,"b":"x\n"}"#);
    }
}
