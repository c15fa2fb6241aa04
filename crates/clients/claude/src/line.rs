//! A line of a transcript, as far as it matters. Unknown types and fields are passed over: they come with every version.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use serde_json::value::RawValue;
use trackway_capture::lenient::{self, count, lenient, or_default};
use trackway_domain::Time;

/// A line.
#[derive(Debug, Default, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the client's marks, as it writes them")]
#[serde(default, rename_all = "camelCase")]
pub struct Line<'a> {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    pub uuid: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    pub parent_uuid: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub timestamp: Option<Time>,
    #[serde(deserialize_with = "lenient::name")]
    pub cwd: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    pub version: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    pub git_branch: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub is_sidechain: bool,
    #[serde(deserialize_with = "or_default")]
    pub is_meta: bool,
    #[serde(deserialize_with = "or_default")]
    pub is_compact_summary: bool,
    #[serde(deserialize_with = "or_default")]
    pub is_api_error_message: bool,
    #[serde(deserialize_with = "lenient::name")]
    pub prompt_id: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    pub request_id: Option<String>,
    #[serde(rename = "parentToolUseID", deserialize_with = "lenient::name")]
    pub parent_tool_use_id: Option<String>,
    #[serde(borrow)]
    pub origin: Option<&'a RawValue>,
    #[serde(borrow)]
    pub message: Option<Message<'a>>,
    #[serde(borrow)]
    pub tool_use_result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub data: Option<&'a RawValue>,
    /// Of a line in a queue.
    #[serde(borrow)]
    pub content: Option<&'a RawValue>,
}

/// Reads a line in one go, and hands it on. In one whose message is of an odd shape, what can be understood counts.
pub fn read<T>(text: &str, take: impl FnOnce(Line<'_>) -> T) -> serde_json::Result<T> {
    #[derive(Deserialize)]
    struct Odd<'a> {
        #[serde(borrow)]
        message: &'a RawValue,
    }
    let failed = match serde_json::from_str(text) {
        Ok(line) => return Ok(take(line)),
        Err(failed) => failed,
    };
    let mended = lenient::mended(text);
    let text = mended.as_deref().unwrap_or(text);
    if let Some(line) = mended.as_deref().and_then(|mended| serde_json::from_str(mended).ok()) {
        return Ok(take(line));
    }
    let Ok(Odd { message }) = serde_json::from_str(text) else { return Err(failed) };
    let start = message.get().as_ptr().addr() - text.as_ptr().addr();
    let rest = format!("{}null{}", &text[..start], &text[start + message.get().len()..]);
    let line: Line<'_> = serde_json::from_str(&rest)?;
    Ok(take(Line { message: Some(Message::of(message)), ..line }))
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
    #[serde(deserialize_with = "lenient::name")]
    pub agent_id: Option<String>,
}

/// What was said.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Message<'a> {
    #[serde(deserialize_with = "lenient::name")]
    pub id: Option<String>,
    pub model: Option<String>,
    pub stop_reason: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub usage: Option<Usage>,
    #[serde(borrow)]
    pub content: Content<'a>,
}

impl<'a> Message<'a> {
    /// Reads a message without its content, which is of an odd shape.
    fn of(raw: &'a RawValue) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Bare {
            id: Option<String>,
            model: Option<String>,
            stop_reason: Option<String>,
            usage: Option<Usage>,
        }
        let Bare { id, model, stop_reason, usage } = lenient(Some(raw));
        Self { id, model, stop_reason, usage, content: Content::default() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Usage {
    #[serde(deserialize_with = "count")]
    pub input_tokens: Option<i64>,
    #[serde(deserialize_with = "count")]
    pub output_tokens: Option<i64>,
    #[serde(deserialize_with = "count")]
    pub cache_creation_input_tokens: Option<i64>,
    #[serde(deserialize_with = "count")]
    pub cache_read_input_tokens: Option<i64>,
}

/// A block of a message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Block<'a> {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub text: Option<String>,
    #[serde(deserialize_with = "lenient::name")]
    pub id: Option<String>,
    pub name: Option<String>,
    #[serde(borrow)]
    pub input: Option<&'a RawValue>,
    #[serde(deserialize_with = "lenient::name")]
    pub tool_use_id: Option<String>,
    #[serde(borrow)]
    pub content: Option<&'a RawValue>,
    #[serde(deserialize_with = "or_default")]
    pub is_error: Option<bool>,
}

/// What a message or a tool's answer holds: a text, or blocks.
#[derive(Debug)]
pub enum Content<'a> {
    Text(String),
    Blocks(Vec<Block<'a>>),
}

impl Default for Content<'_> {
    fn default() -> Self {
        Self::Blocks(Vec::new())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = Content<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text or blocks")
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(Content::Text(text))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Content::default())
            }

            fn visit_seq<S: SeqAccess<'de>>(self, blocks: S) -> Result<Self::Value, S::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(blocks)).map(Content::Blocks)
            }
        }
        deserializer.deserialize_any(Seen)
    }
}

impl Content<'_> {
    /// The text in a value that may be of any shape.
    pub fn text_of(raw: Option<&RawValue>) -> String {
        let Some(raw) = raw.map(RawValue::get) else { return String::new() };
        let text = |raw: &str| serde_json::from_str::<Content<'_>>(raw).ok().map(Content::text);
        text(raw).or_else(|| text(&lenient::mended(raw)?)).unwrap_or_default()
    }

    /// The text in it, blocks of text below each other.
    pub fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Blocks(blocks) => blocks.into_iter().filter_map(|block| block.text).collect::<Vec<_>>().join("\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(json: &str) -> (Option<String>, Option<String>) {
        let line = format!(r#"{{"n":5,"message":{json},"cwd":"/x"}}"#);
        read(&line, |line| {
            assert_eq!(line.cwd.as_deref(), Some("/x"));
            let message = line.message.unwrap_or_default();
            let text = match message.content {
                Content::Text(text) => Some(text),
                Content::Blocks(blocks) => blocks.into_iter().next().and_then(|block| block.text),
            };
            (message.id, text)
        })
        .unwrap()
    }

    #[test]
    fn a_message_of_an_odd_shape_says_what_can_be_understood() {
        let some = |text: &str| Some(text.to_owned());
        for (json, id, text) in [
            (r#"{"id":"m","content":"a\"b"}"#, some("m"), some("a\"b")),
            (r#"{"content":[{"type":"text","text":"x","more":{}}]}"#, None, some("x")),
            (r#"{"id":"m","content":5}"#, some("m"), None),
            (r#"{"id":"m","content":[{"text":7}]}"#, some("m"), None),
            (r#"{"id":"m","content":null}"#, some("m"), None),
            (r#"{"id":7,"content":"x"}"#, None, None),
            (r#"{"id":"m","content":"half \ud83d"}"#, some("m"), some("half \u{fffd}")),
            (
                r#"{"id":"m\u0000","content":[{"type":"text","text":"\ude00","is_error":"no"}]}"#,
                some("m"),
                some("\u{fffd}"),
            ),
            ("5", None, None),
            ("null", None, None),
        ] {
            assert_eq!(message(json), (id, text), "{json}");
        }
        assert!(read("{", |_| ()).is_err() && read("5", |_| ()).is_err());
    }
}
