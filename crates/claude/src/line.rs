//! A line of a transcript, as far as it matters. Unknown types and fields are passed over: they come with every version.

use serde::Deserialize;
use serde_json::value::RawValue;
use trackway_domain::Time;

/// A line.
#[derive(Debug, Default, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the client's marks, as it writes them")]
#[serde(default, rename_all = "camelCase")]
pub struct Line<'a> {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub uuid: Option<String>,
    pub parent_uuid: Option<String>,
    pub session_id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub timestamp: Option<Time>,
    pub cwd: Option<String>,
    pub version: Option<String>,
    pub git_branch: Option<String>,
    pub agent_id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub is_sidechain: bool,
    #[serde(deserialize_with = "or_default")]
    pub is_meta: bool,
    #[serde(deserialize_with = "or_default")]
    pub is_compact_summary: bool,
    #[serde(deserialize_with = "or_default")]
    pub is_api_error_message: bool,
    pub prompt_id: Option<String>,
    pub request_id: Option<String>,
    #[serde(rename = "parentToolUseID")]
    pub parent_tool_use_id: Option<String>,
    #[serde(borrow)]
    pub origin: Option<&'a RawValue>,
    #[serde(borrow)]
    pub message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub tool_use_result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub data: Option<&'a RawValue>,
    /// Of a line in a queue.
    #[serde(borrow)]
    pub content: Option<&'a RawValue>,
}

/// A value of an odd shape says nothing, and the rest of the line still does.
fn or_default<'de, D: serde::Deserializer<'de>, T: serde::de::DeserializeOwned + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// Where a line comes from, when not from a person.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Origin {
    pub kind: Option<String>,
}

/// What a progress line tells.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Progress {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub agent_id: Option<String>,
}

/// What was said.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Message<'a> {
    pub id: Option<String>,
    pub model: Option<String>,
    pub stop_reason: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub usage: Option<Usage>,
    #[serde(borrow)]
    pub content: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Usage {
    pub input_tokens: Option<i64>,
    pub output_tokens: Option<i64>,
    pub cache_creation_input_tokens: Option<i64>,
    pub cache_read_input_tokens: Option<i64>,
}

/// A block of a message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Block<'a> {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub text: Option<String>,
    pub id: Option<String>,
    pub name: Option<String>,
    #[serde(borrow)]
    pub input: Option<&'a RawValue>,
    pub tool_use_id: Option<String>,
    #[serde(borrow)]
    pub content: Option<&'a RawValue>,
    pub is_error: Option<bool>,
}

/// What a message or a tool's answer holds: a text, or blocks.
#[derive(Debug)]
pub enum Content<'a> {
    Text(String),
    Blocks(Vec<Block<'a>>),
}

impl<'a> Content<'a> {
    pub fn of(raw: Option<&'a RawValue>) -> Self {
        let Some(raw) = raw else {
            return Self::Blocks(Vec::new());
        };
        if raw.get().starts_with('"') {
            return Self::Text(serde_json::from_str(raw.get()).unwrap_or_default());
        }
        Self::Blocks(serde_json::from_str(raw.get()).unwrap_or_default())
    }

    /// The text in it, blocks of text below each other.
    pub fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Blocks(blocks) => blocks.into_iter().filter_map(|block| block.text).collect::<Vec<_>>().join("\n"),
        }
    }
}
