//! Rules for reports: the three texts that an agent writes about a task. None of them may be blank.

use crate::{Error, Result, text};

/// Maximum number of characters in the content of a report.
pub const CONTENT_MAX: usize = text::TEXT_MAX;
/// Maximum number of characters in the summary of a report.
pub const TLDR_MAX: usize = 10_000;
/// The word that selects the current report among those of one agent on one task.
pub const CURRENT: &str = "current";

/// The texts of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub one_liner: String,
    pub tldr: String,
    pub content: String,
}

/// Cleans a report from an action. Fails if a text is blank or too long, so that nothing is saved.
pub fn validate(one_liner: &str, tldr: &str, content: &str) -> Result<Report> {
    let required_body = |field: &str, given: &str, max| {
        let cleaned = text::check_body(field, given, max)?;
        if cleaned.trim().is_empty() {
            return Err(Error::usage(format!("{field} is blank"))
                .hint("a report needs three texts: a one-liner, a summary (tldr) and the content"));
        }
        Ok(cleaned)
    };
    let one_liner = text::check_line("one-liner", one_liner, text::LINE_MAX)?;
    Ok(Report {
        one_liner: required_body("one-liner", &one_liner, text::LINE_MAX)?,
        tldr: required_body("tldr", tldr, TLDR_MAX)?,
        content: required_body("content", content, CONTENT_MAX)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_texts_are_required() {
        assert_eq!(
            validate(" a\nb ", "c", "d\u{0}\n").unwrap(),
            Report { one_liner: "a b".into(), tldr: "c".into(), content: "d\n".into() }
        );
        for (one_liner, tldr, content) in [("", "c", "d"), ("a", " \u{a0}", "d"), ("a", "c", "\u{7}\n\t")] {
            assert!(validate(one_liner, tldr, content).unwrap_err().to_string().ends_with("is blank"));
        }
    }

    #[test]
    fn texts_that_are_too_long_are_rejected() {
        let long = "𝔸".repeat(CONTENT_MAX + 1);
        assert_eq!(
            validate("a", "b", &long).unwrap_err().to_string(),
            "content has 100001 characters, the limit is 100000"
        );
        assert!(validate("a", "b", &long[4..]).is_ok());
        assert!(validate(&long, "b", "c").is_err());
        assert!(validate("a", &long, "c").is_err());
    }
}
