//! Rules for the content of an agent's scratchpad.

use serde_json::Value;

use crate::{Error, Result, text};

/// Maximum number of characters (Unicode scalar values) in a scratchpad.
pub const SCRATCHPAD_MAX: usize = 10_000;

/// Cleans new content from an action. Fails if the content is too long, so that nothing is saved.
pub fn validate(content: &str) -> Result<String> {
    let cleaned = text::clean(content);
    let length = cleaned.chars().count();
    if length > SCRATCHPAD_MAX {
        let limit = format!("Scratchpad content exceeds maximum length of {SCRATCHPAD_MAX} characters");
        return Err(
            Error::usage(format!("{limit} (it has {length})")).hint("keep what your future self needs, drop the rest")
        );
    }
    Ok(cleaned)
}

/// The effect of an agent's reply to the end-of-run prompt on its scratchpad.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScratchpadReply {
    /// The scratchpad stays unchanged.
    Keep,
    /// The reply has new content.
    Replace(String),
    /// The reply is invalid, for this reason.
    Invalid(String),
}

/// Parses the scratchpad in a reply. A null, missing or blank scratchpad changes nothing. A text that is too long is
/// cut, because the agent gets no chance to shorten it.
pub fn parse_reply(reply: Option<&Value>) -> ScratchpadReply {
    match reply {
        None | Some(Value::Null) => ScratchpadReply::Keep,
        Some(Value::String(content)) => {
            let cleaned: String = text::clean(content).chars().take(SCRATCHPAD_MAX).collect();
            if cleaned.trim().is_empty() { ScratchpadReply::Keep } else { ScratchpadReply::Replace(cleaned) }
        }
        Some(_) => ScratchpadReply::Invalid("the scratchpad in the reply is not a text".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn reply_is_cut_and_an_empty_reply_keeps_the_scratchpad() {
        assert_eq!(parse_reply(None), ScratchpadReply::Keep);
        for nothing in [json!(null), json!(""), json!(" \n\t "), json!("\u{0}\u{7}")] {
            assert_eq!(parse_reply(Some(&nothing)), ScratchpadReply::Keep);
        }
        assert_eq!(parse_reply(Some(&json!("a\u{0}b"))), ScratchpadReply::Replace("ab".into()));
        let long = parse_reply(Some(&json!("𝔸".repeat(10_001))));
        assert_eq!(long, ScratchpadReply::Replace("𝔸".repeat(10_000)));
        for odd in [json!(1), json!(true), json!(["x"]), json!({"x": 1})] {
            assert!(matches!(parse_reply(Some(&odd)), ScratchpadReply::Invalid(_)));
        }
    }

    proptest! {
        #[test]
        fn content_from_a_reply_is_valid_for_the_action(content in ".{0,200}") {
            if let ScratchpadReply::Replace(new) = parse_reply(Some(&json!(content))) {
                prop_assert_eq!(validate(&new).unwrap(), new);
            }
        }
    }

    #[test]
    fn limit_counts_characters() {
        assert_eq!(validate(&"𝔸".repeat(10_000)).unwrap().chars().count(), 10_000);
        let error = validate(&"𝔸".repeat(10_001)).unwrap_err();
        assert_eq!(error.to_string(), "Scratchpad content exceeds maximum length of 10000 characters (it has 10001)");
        assert_eq!(validate("a\u{0}b\tc\n").unwrap(), "ab\tc\n");
        assert_eq!(validate("").unwrap(), "");
    }
}
