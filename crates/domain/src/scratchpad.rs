//! What may stand in an agent's scratchpad.

use serde_json::Value;

use crate::{Error, Result, text};

/// Characters (Unicode scalar values) in a scratchpad.
pub const SCRATCHPAD_MAX: usize = 10_000;

/// Content given on purpose: too long is refused, nothing is saved.
pub fn accepted(content: &str) -> Result<String> {
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

/// What an agent's reply at the end of a run means for its scratchpad.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndOfRun {
    /// Nothing to add.
    Keep,
    /// The new content.
    Replace(String),
    /// A reply that cannot be taken, and why.
    Refused(String),
}

/// Reads the scratchpad of a reply: null, missing or blank changes nothing, too long is cut at a character, and
/// anything else than a text is a failed update.
pub fn at_end_of_run(reply: Option<&Value>) -> EndOfRun {
    match reply {
        None | Some(Value::Null) => EndOfRun::Keep,
        Some(Value::String(content)) => {
            let cleaned: String = text::clean(content).chars().take(SCRATCHPAD_MAX).collect();
            if cleaned.trim().is_empty() { EndOfRun::Keep } else { EndOfRun::Replace(cleaned) }
        }
        Some(_) => EndOfRun::Refused("the scratchpad in the reply is not a text".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_end_of_a_run_cuts_and_keeps() {
        assert_eq!(at_end_of_run(None), EndOfRun::Keep);
        for nothing in [json!(null), json!(""), json!(" \n\t "), json!("\u{0}\u{7}")] {
            assert_eq!(at_end_of_run(Some(&nothing)), EndOfRun::Keep);
        }
        assert_eq!(at_end_of_run(Some(&json!("a\u{0}b"))), EndOfRun::Replace("ab".into()));
        let long = at_end_of_run(Some(&json!("𝔸".repeat(10_001))));
        assert_eq!(long, EndOfRun::Replace("𝔸".repeat(10_000)));
        for odd in [json!(1), json!(true), json!(["x"]), json!({"x": 1})] {
            assert!(matches!(at_end_of_run(Some(&odd)), EndOfRun::Refused(_)));
        }
    }

    proptest! {
        #[test]
        fn what_the_end_of_a_run_keeps_the_action_accepts(content in ".{0,200}") {
            if let EndOfRun::Replace(kept) = at_end_of_run(Some(&json!(content))) {
                prop_assert_eq!(accepted(&kept).unwrap(), kept);
            }
        }
    }

    #[test]
    fn the_limit_counts_characters() {
        assert_eq!(accepted(&"𝔸".repeat(10_000)).unwrap().chars().count(), 10_000);
        let error = accepted(&"𝔸".repeat(10_001)).unwrap_err();
        assert_eq!(error.to_string(), "Scratchpad content exceeds maximum length of 10000 characters (it has 10001)");
        assert_eq!(accepted("a\u{0}b\tc\n").unwrap(), "ab\tc\n");
        assert_eq!(accepted("").unwrap(), "");
    }
}
