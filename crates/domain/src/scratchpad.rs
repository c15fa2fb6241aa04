//! What may stand in an agent's scratchpad.

use crate::{Error, Result, text};

/// Characters (Unicode scalar values) in a scratchpad.
pub const SCRATCHPAD_MAX: usize = 10_000;

/// Content given on purpose: too long is refused, nothing is saved.
pub fn accepted(content: &str) -> Result<String> {
    let cleaned = text::clean(content);
    let length = cleaned.chars().count();
    if length > SCRATCHPAD_MAX {
        return Err(Error::usage(format!("the scratchpad has {length} characters, the limit is {SCRATCHPAD_MAX}"))
            .hint("keep what your future self needs, drop the rest"));
    }
    Ok(cleaned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_counts_characters() {
        assert_eq!(accepted(&"𝔸".repeat(10_000)).unwrap().chars().count(), 10_000);
        let error = accepted(&"𝔸".repeat(10_001)).unwrap_err();
        assert_eq!(error.message, "the scratchpad has 10001 characters, the limit is 10000");
        assert_eq!(accepted("a\u{0}b\tc\n").unwrap(), "ab\tc\n");
        assert_eq!(accepted("").unwrap(), "");
    }
}
