//! What an agent says about a task: three texts, none of them blank.

use crate::{Error, Result, text};

/// Characters in the content of a report.
pub const CONTENT_MAX: usize = text::TEXT_MAX;
/// Characters in the summary of a report.
pub const TLDR_MAX: usize = 10_000;
/// Which report is meant, of those of one agent on one task.
pub const CURRENT: &str = "current";

/// The three texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub one_liner: String,
    pub tldr: String,
    pub content: String,
}

/// A report given on purpose: what is blank or too long is refused, and nothing is saved.
pub fn accepted(one_liner: &str, tldr: &str, content: &str) -> Result<Report> {
    let said = |field: &str, given: &str, max| {
        let cleaned = text::body(field, given, max)?;
        if cleaned.trim().is_empty() {
            return Err(Error::usage(format!("{field} is blank"))
                .hint("a report needs all three: a line, a summary and the content"));
        }
        Ok(cleaned)
    };
    let one_liner = text::line("one-liner", one_liner, text::LINE_MAX)?;
    Ok(Report {
        one_liner: said("one-liner", &one_liner, text::LINE_MAX)?,
        tldr: said("tldr", tldr, TLDR_MAX)?,
        content: said("content", content, CONTENT_MAX)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_are_needed() {
        assert_eq!(
            accepted(" a\nb ", "c", "d\u{0}\n").unwrap(),
            Report { one_liner: "a b".into(), tldr: "c".into(), content: "d\n".into() }
        );
        for (one_liner, tldr, content) in [("", "c", "d"), ("a", " \u{a0}", "d"), ("a", "c", "\u{7}\n\t")] {
            assert!(accepted(one_liner, tldr, content).unwrap_err().to_string().ends_with("is blank"));
        }
    }

    #[test]
    fn too_long_is_refused() {
        let long = "𝔸".repeat(CONTENT_MAX + 1);
        assert_eq!(
            accepted("a", "b", &long).unwrap_err().to_string(),
            "content has 100001 characters, the limit is 100000"
        );
        assert!(accepted("a", "b", &long[4..]).is_ok());
        assert!(accepted(&long, "b", "c").is_err());
        assert!(accepted("a", &long, "c").is_err());
    }
}
