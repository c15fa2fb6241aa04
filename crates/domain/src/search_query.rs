//! Search queries: words, "phrases" and prefixes*. A text matches if it contains all of them.

use std::ops::{ControlFlow, Range};

use crate::{
    Error, Result,
    search_words::{WordForm, each_indexed_word, each_word},
};

/// Maximum number of characters of a query.
const QUERY_CHARS_MAX: usize = 1_000;
/// Maximum number of words and phrases of a query.
const TERMS_MAX: usize = 32;
/// Operators of other search programs. A query with one of them is rejected, because its meaning would be ambiguous.
const OPERATORS: [&str; 4] = ["AND", "OR", "NOT", "NEAR"];

/// One or more consecutive words. The last one may be a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// At least one word. Case and accents are folded.
    pub words: Vec<String>,
    /// Whether the last word may be the beginning of a longer one.
    pub is_prefix: bool,
}

/// A parsed query: terms that a text must contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    terms: Vec<Term>,
}

impl SearchQuery {
    pub fn parse(text: &str) -> Result<Self> {
        let length = text.chars().count();
        if length > QUERY_CHARS_MAX {
            return Err(Error::usage(format!("the search has {length} characters, the limit is {QUERY_CHARS_MAX}")));
        }
        let mut terms: Vec<Term> = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let is_quoted = rest.starts_with('"');
            let token;
            (token, rest) = match rest.strip_prefix('"') {
                Some(phrase) => phrase.split_once('"').ok_or_else(|| unclosed_quote_error(rest))?,
                None => rest.split_at(
                    rest.find(|character: char| character.is_whitespace() || character == '"').unwrap_or(rest.len()),
                ),
            };
            if !is_quoted && OPERATORS.contains(&token) {
                return Err(Error::usage(format!("{token} is not an operator: a search requires all of its words"))
                    .hint(format!("omit it, or search for the word {:?}", token.to_lowercase())));
            }
            if !is_quoted && token.strip_prefix('-').is_some_and(|word| parse_term(word, false).is_some()) {
                return Err(Error::usage(format!("{token} excludes nothing: a search requires all of its words"))
                    .hint("omit it, or put it in quotation marks to search for the word"));
            }
            let starred = rest.strip_prefix('*');
            rest = starred.unwrap_or(rest).trim_start();
            let is_prefix = starred.is_some() || token.ends_with('*');
            terms.extend(parse_term(token, is_prefix).filter(|term| !terms.contains(term)));
        }
        match terms.len() {
            0 if text.trim().is_empty() => Err(Error::usage("the search is empty").hint(SYNTAX_HINT)),
            0 => Err(Error::usage(format!("the search {text:?} has no letter or digit")).hint(SYNTAX_HINT)),
            1..=TERMS_MAX => Ok(Self { terms }),
            many => Err(Error::usage(format!("the search has {many} words and phrases, the limit is {TERMS_MAX}"))),
        }
    }

    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Whether the query has a phrase, so that the order of words matters.
    pub fn has_phrases(&self) -> bool {
        self.terms.iter().any(|term| term.words.len() > 1)
    }

    /// Whether the indexed part of a body contains all terms.
    pub fn matches_body(&self, body: &str) -> bool {
        let mut missing: Vec<usize> = (0..self.terms.len()).collect();
        self.each_match(body, |term, _| {
            missing.retain(|index| *index != term);
            if missing.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        missing.is_empty()
    }

    /// Calls `found` with each match: the index of the term, and the range of bytes in the body. `found` may end the
    /// search.
    pub fn each_match(&self, body: &str, mut found: impl FnMut(usize, Range<usize>) -> ControlFlow<()>) {
        // Partial matches of each term: how many of its words have matched, and where the first of them begins.
        let mut partial: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.terms.len()];
        each_indexed_word(body, |word| {
            for (index, (term, partial)) in self.terms.iter().zip(&mut partial).enumerate() {
                let last = term.words.len() - 1;
                let mut match_start = None;
                partial.push((0, word.span.start));
                partial.retain_mut(|(matched, start)| {
                    let wanted = &term.words[*matched];
                    let is_same = if term.is_prefix && *matched == last {
                        word.folded.starts_with(wanted.as_str())
                    } else {
                        word.folded == wanted
                    };
                    if is_same && *matched == last {
                        match_start = Some(*start);
                    }
                    *matched += 1;
                    is_same && *matched <= last
                });
                if let Some(start) = match_start {
                    found(index, start..word.span.end)?;
                }
            }
            ControlFlow::Continue(())
        });
    }
}

const SYNTAX_HINT: &str = "search for words, \"phrases\" and prefixes*";

fn unclosed_quote_error(rest: &str) -> Error {
    Error::usage(format!("the quotation mark before {:?} is not closed", rest.trim_start_matches('"')))
        .hint("put quotation marks before and after the phrase, or remove them")
}

/// Parses one token of a query. Returns nothing if the token has no words.
fn parse_term(token: &str, is_prefix: bool) -> Option<Term> {
    let mut words: Vec<(String, WordForm)> = Vec::new();
    each_word(token, |word| {
        words.push((word.folded.to_owned(), word.form));
        ControlFlow::Continue(())
    });
    let mut is_prefix = is_prefix;
    if words.last()?.1 == WordForm::Ending {
        // In a script without spaces, a matching text may continue after the last character of the query, and then this
        // character is not an `Ending` in the text. Drop the ending if the pair before it contains the character. A
        // single character has no such pair: search for it as a prefix, which also matches the pairs that begin with
        // it.
        match words.len().checked_sub(2).map(|before| words[before].1) {
            Some(WordForm::Pair) => {
                words.pop();
            }
            _ => is_prefix = true,
        }
    }
    Some(Term { words: words.into_iter().map(|(word, _)| word).collect(), is_prefix })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn terms(text: &str) -> Vec<String> {
        let query = SearchQuery::parse(text).unwrap();
        let shown = |term: &Term| format!("{}{}", term.words.join(" "), if term.is_prefix { "*" } else { "" });
        query.terms.iter().map(shown).collect()
    }

    #[test]
    fn parses_words_phrases_and_prefixes() {
        assert_eq!(terms("Tea  timer"), ["tea", "timer"]);
        assert_eq!(terms("\"tea timer\" kitchen"), ["tea timer", "kitchen"]);
        assert_eq!(terms("kit* \"three min\"* x"), ["kit*", "three min*", "x"]);
        assert_eq!(terms("foo_bar don't a-b *"), ["foo bar", "don t", "a b"]);
        assert_eq!(terms("a\"b c\"d - & \"\" a"), ["a", "b c", "d"]);
        assert_eq!(terms("and or not \"AND\" NOT*"), ["and", "or", "not", "not*"]);
        assert_eq!(terms("東京都 猫 \"東京 tower\""), ["東京 京都", "猫*", "東京 京 tower"]);
    }

    #[test]
    fn invalid_searches_are_rejected_with_the_reason() {
        let message = |text: &str| SearchQuery::parse(text).unwrap_err().to_string();
        assert_eq!(message("  "), "the search is empty");
        assert_eq!(message("?! * \"\""), "the search \"?! * \\\"\\\"\" has no letter or digit");
        assert_eq!(message("a \"b c"), "the quotation mark before \"b c\" is not closed");
        assert_eq!(message("a AND"), "AND is not an operator: a search requires all of its words");
        assert_eq!(message("alpha -beta"), "-beta excludes nothing: a search requires all of its words");
        assert_eq!(message(&"x".repeat(1_001)), "the search has 1001 characters, the limit is 1000");
        let many = (0..33).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(message(&many), "the search has 33 words and phrases, the limit is 32");
    }

    #[test]
    fn phrase_matches_only_words_in_the_same_order() {
        let matches_body = |query: &str, body: &str| SearchQuery::parse(query).unwrap().matches_body(body);
        assert!(matches_body("\"a b\"", "a a b"));
        assert!(!matches_body("\"a b\"", "b a c b"));
        assert!(matches_body("b a", "a, b"));
        assert!(matches_body("\"three min\"*", "in three minutes"));
        assert!(!matches_body("min", "in three minutes"));
        assert!(
            matches_body("京都", "東京都")
                && matches_body("都", "東京都")
                && matches_body("京", "東京都")
                && !matches_body("都東", "東京都")
        );
        assert!(matches_body("\"東京 tower\"", "東京 Tower") && !matches_body("\"東京 tower\"", "東京都 Tower"));
        assert!(matches_body("バナナ", "大きなﾊﾞﾅﾅ") && matches_body("한국", "저는 한국어를"));
    }

    proptest! {
        #[test]
        fn parsed_terms_are_never_empty(text in ".*") {
            if let Ok(query) = SearchQuery::parse(&text) {
                prop_assert!(query.terms.iter().all(|term| !term.words.is_empty()));
            }
        }

        #[test]
        fn quoted_part_of_a_text_is_found_in_it(before in ".{0,20}", part in "[^\"]{1,20}", after in ".{0,20}") {
            let spaced = format!("{before} {part} {after}");
            if let Ok(query) = SearchQuery::parse(&format!("\"{part}\"")) {
                prop_assert!(query.matches_body(&spaced), "{:?}", query);
            }
        }

        #[test]
        fn part_of_a_text_without_spaces_is_found_at_any_position(
            before in "[\u{4e00}-\u{4e05}]{0,5}", part in "[\u{4e00}-\u{4e05}]{1,4}", after in "[\u{4e00}-\u{4e05}]{0,5}"
        ) {
            let query = SearchQuery::parse(&part).unwrap();
            let (found, other) = (format!("{before}{part}{after}"), format!("{before}{after}"));
            prop_assert!(query.matches_body(&found));
            prop_assert_eq!(query.matches_body(&other), other.contains(&part));
        }
    }
}
