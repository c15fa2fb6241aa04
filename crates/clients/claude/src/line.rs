//! A line of a transcript. The parser ignores unknown types and fields, because every client version adds some.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use serde_json::value::RawValue;
use trackway_capture::lenient::{self, integer, lenient, or_default};
use trackway_domain::Time;

#[derive(Debug, Default, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the flags as the client writes them")]
#[serde(default, rename_all = "camelCase")]
pub struct Line<'a> {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(deserialize_with = "lenient::without_nul")]
    pub uuid: Option<String>,
    #[serde(deserialize_with = "lenient::without_nul")]
    pub parent_uuid: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub timestamp: Option<Time>,
    #[serde(deserialize_with = "lenient::without_nul")]
    pub cwd: Option<String>,
    #[serde(deserialize_with = "lenient::without_nul")]
    pub version: Option<String>,
    #[serde(deserialize_with = "lenient::without_nul")]
    pub git_branch: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub is_sidechain: bool,
    #[serde(deserialize_with = "or_default")]
    pub is_meta: bool,
    #[serde(deserialize_with = "or_default")]
    pub is_compact_summary: bool,
    #[serde(deserialize_with = "or_default")]
    pub is_api_error_message: bool,
    #[serde(deserialize_with = "lenient::without_nul")]
    pub prompt_id: Option<String>,
    #[serde(deserialize_with = "lenient::without_nul")]
    pub request_id: Option<String>,
    #[serde(rename = "parentToolUseID", deserialize_with = "lenient::without_nul")]
    pub parent_tool_use_id: Option<String>,
    #[serde(borrow)]
    pub origin: Option<&'a RawValue>,
    #[serde(borrow)]
    pub message: Option<Message<'a>>,
    #[serde(borrow)]
    pub tool_use_result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub data: Option<&'a RawValue>,
    /// Present in `queue-operation` lines.
    #[serde(borrow)]
    pub content: Option<&'a RawValue>,
}

/// Parses a line and passes it to `handle`. If the message is malformed, keeps the parts that can be parsed.
pub fn read<T>(text: &str, handle: impl FnOnce(Line<'_>) -> T) -> serde_json::Result<T> {
    #[derive(Deserialize)]
    struct MessageField<'a> {
        #[serde(borrow)]
        message: &'a RawValue,
    }
    let error = match serde_json::from_str(text) {
        Ok(line) => return Ok(handle(line)),
        Err(error) => error,
    };
    let replaced = lenient::replace_lone_surrogates(text);
    let text = replaced.as_deref().unwrap_or(text);
    if let Some(line) = replaced.as_deref().and_then(|replaced| serde_json::from_str(replaced).ok()) {
        return Ok(handle(line));
    }
    let Ok(MessageField { message }) = serde_json::from_str(text) else { return Err(error) };
    let start = message.get().as_ptr().addr() - text.as_ptr().addr();
    let rest = format!("{}null{}", &text[..start], &text[start + message.get().len()..]);
    let line: Line<'_> = serde_json::from_str(&rest)?;
    Ok(handle(Line { message: Some(Message::of(message)), ..line }))
}

/// The origin of a line that no person typed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Origin {
    pub kind: Option<String>,
}

/// The data of a progress line.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Progress {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(deserialize_with = "lenient::without_nul")]
    pub agent_id: Option<String>,
}

/// A message of the user or the model.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Message<'a> {
    #[serde(deserialize_with = "lenient::without_nul")]
    pub id: Option<String>,
    pub model: Option<String>,
    pub stop_reason: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub usage: Option<Usage>,
    #[serde(borrow)]
    pub content: Content<'a>,
}

impl<'a> Message<'a> {
    /// Parses a message without its content, which is malformed.
    fn of(raw: &'a RawValue) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct WithoutContent {
            id: Option<String>,
            model: Option<String>,
            stop_reason: Option<String>,
            usage: Option<Usage>,
        }
        let WithoutContent { id, model, stop_reason, usage } = lenient(Some(raw));
        Self { id, model, stop_reason, usage, content: Content::default() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Usage {
    #[serde(deserialize_with = "integer")]
    pub input_tokens: Option<i64>,
    #[serde(deserialize_with = "integer")]
    pub output_tokens: Option<i64>,
    #[serde(deserialize_with = "integer")]
    pub cache_creation_input_tokens: Option<i64>,
    #[serde(deserialize_with = "integer")]
    pub cache_read_input_tokens: Option<i64>,
}

/// A content block of a message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Block<'a> {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub text: Option<String>,
    #[serde(deserialize_with = "lenient::without_nul")]
    pub id: Option<String>,
    pub name: Option<String>,
    #[serde(borrow)]
    pub input: Option<&'a RawValue>,
    #[serde(deserialize_with = "lenient::without_nul")]
    pub tool_use_id: Option<String>,
    #[serde(borrow)]
    pub content: Option<&'a RawValue>,
    #[serde(deserialize_with = "or_default")]
    pub is_error: Option<bool>,
}

/// The content of a message or of a tool result: a text, or blocks.
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
        struct ContentVisitor;
        impl<'de> Visitor<'de> for ContentVisitor {
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
        deserializer.deserialize_any(ContentVisitor)
    }
}

impl Content<'_> {
    /// The text in a value of unknown shape.
    pub fn text_of(raw: Option<&RawValue>) -> String {
        let Some(raw) = raw.map(RawValue::get) else { return String::new() };
        let text = |raw: &str| serde_json::from_str::<Content<'_>>(raw).ok().map(Content::text);
        text(raw).or_else(|| text(&lenient::replace_lone_surrogates(raw)?)).unwrap_or_default()
    }

    /// The text, or the text blocks joined with newlines.
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
    fn keeps_readable_fields_of_malformed_messages() {
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
