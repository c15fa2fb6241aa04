//! What someone searches for: words, "phrases" and prefixes*, all of which must be found.

use std::ops::{ControlFlow, Range};

use crate::{
    Error, Result,
    search_words::{Form, each_indexed_word, each_word},
};

/// Characters of a query.
const QUERY_CHARS_MAX: usize = 1_000;
/// Words and phrases of a query.
const TERMS_MAX: usize = 32;
/// Other programs read these as operators; to guess which meaning was meant would be wrong half of the time.
const OPERATORS: [&str; 4] = ["AND", "OR", "NOT", "NEAR"];

/// One term: words that follow each other. The last may be the beginning of a longer one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// Folded. There is at least one.
    pub words: Vec<String>,
    pub prefix: bool,
}

/// Terms that must all be found.
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
            let quoted = rest.starts_with('"');
            let written;
            (written, rest) = match rest.strip_prefix('"') {
                Some(phrase) => phrase.split_once('"').ok_or_else(|| not_closed(rest))?,
                None => rest.split_at(
                    rest.find(|character: char| character.is_whitespace() || character == '"').unwrap_or(rest.len()),
                ),
            };
            if !quoted && OPERATORS.contains(&written) {
                return Err(Error::usage(format!("{written} is no operator here: all words of a search are wanted"))
                    .hint(format!("leave it out, or search for the word {:?}", written.to_lowercase())));
            }
            if !quoted && written.strip_prefix('-').is_some_and(|word| term(word, false).is_some()) {
                return Err(Error::usage(format!("{written} leaves nothing out: all words of a search are wanted"))
                    .hint("leave it out, or put it between quotation marks to find the word"));
            }
            let starred = rest.strip_prefix('*');
            rest = starred.unwrap_or(rest).trim_start();
            let prefix = starred.is_some() || written.ends_with('*');
            terms.extend(term(written, prefix).filter(|term| !terms.contains(term)));
        }
        match terms.len() {
            0 if text.trim().is_empty() => Err(Error::usage("there is nothing to search for").hint(SYNTAX)),
            0 => Err(Error::usage(format!("there is no letter or digit to search for in {text:?}")).hint(SYNTAX)),
            1..=TERMS_MAX => Ok(Self { terms }),
            many => Err(Error::usage(format!("the search has {many} words and phrases, the limit is {TERMS_MAX}"))),
        }
    }

    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Whether the order of words matters anywhere.
    pub fn has_phrases(&self) -> bool {
        self.terms.iter().any(|term| term.words.len() > 1)
    }

    /// Whether a body has all terms, as far as it can be searched.
    pub fn is_in(&self, body: &str) -> bool {
        let mut missing: Vec<usize> = (0..self.terms.len()).collect();
        self.each_match(body, |term, _| {
            missing.retain(|index| *index != term);
            if missing.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        missing.is_empty()
    }

    /// Every place where a term stands: which term, and the bytes of the body.
    pub fn each_match(&self, body: &str, mut found: impl FnMut(usize, Range<usize>) -> ControlFlow<()>) {
        // Places where a term has begun: how many of its words were there, and where the first begins.
        let mut begun: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.terms.len()];
        each_indexed_word(body, |word| {
            for (index, (term, begun)) in self.terms.iter().zip(&mut begun).enumerate() {
                let last = term.words.len() - 1;
                let mut whole = None;
                begun.push((0, word.span.start));
                begun.retain_mut(|(seen, start)| {
                    let wanted = &term.words[*seen];
                    let same = if term.prefix && *seen == last {
                        word.folded.starts_with(wanted.as_str())
                    } else {
                        word.folded == wanted
                    };
                    if same && *seen == last {
                        whole = Some(*start);
                    }
                    *seen += 1;
                    same && *seen <= last
                });
                if let Some(start) = whole {
                    found(index, start..word.span.end)?;
                }
            }
            ControlFlow::Continue(())
        });
    }
}

const SYNTAX: &str = "words, \"phrases\" and prefixes* can be searched";

fn not_closed(rest: &str) -> Error {
    Error::usage(format!("the quotation mark before {:?} is never closed", rest.trim_start_matches('"')))
        .hint("put one before and one after the phrase, or leave it out")
}

/// The term that a piece of a query asks for, when there are words in it.
fn term(written: &str, prefix: bool) -> Option<Term> {
    let mut words: Vec<(String, Form)> = Vec::new();
    each_word(written, |word| {
        words.push((word.folded.to_owned(), word.form));
        ControlFlow::Continue(())
    });
    let mut prefix = prefix;
    if words.last()?.1 == Form::Ending {
        // A text may go on where a query in a script without spaces ends. One character alone begins a pair.
        match words.len().checked_sub(2).map(|before| words[before].1) {
            Some(Form::Pair) => {
                words.pop();
            }
            _ => prefix = true,
        }
    }
    Some(Term { words: words.into_iter().map(|(word, _)| word).collect(), prefix })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn terms(text: &str) -> Vec<String> {
        let query = SearchQuery::parse(text).unwrap();
        let shown = |term: &Term| format!("{}{}", term.words.join(" "), if term.prefix { "*" } else { "" });
        query.terms.iter().map(shown).collect()
    }

    #[test]
    fn words_phrases_and_prefixes() {
        assert_eq!(terms("Tea  timer"), ["tea", "timer"]);
        assert_eq!(terms("\"tea timer\" kitchen"), ["tea timer", "kitchen"]);
        assert_eq!(terms("kit* \"three min\"* x"), ["kit*", "three min*", "x"]);
        assert_eq!(terms("foo_bar don't a-b *"), ["foo bar", "don t", "a b"]);
        assert_eq!(terms("a\"b c\"d - & \"\" a"), ["a", "b c", "d"]);
        assert_eq!(terms("and or not \"AND\" NOT*"), ["and", "or", "not", "not*"]);
        assert_eq!(terms("東京都 猫 \"東京 tower\""), ["東京 京都", "猫*", "東京 京 tower"]);
    }

    #[test]
    fn what_is_no_search_is_said() {
        let message = |text: &str| SearchQuery::parse(text).unwrap_err().to_string();
        assert_eq!(message("  "), "there is nothing to search for");
        assert_eq!(message("?! * \"\""), "there is no letter or digit to search for in \"?! * \\\"\\\"\"");
        assert_eq!(message("a \"b c"), "the quotation mark before \"b c\" is never closed");
        assert_eq!(message("a AND"), "AND is no operator here: all words of a search are wanted");
        assert_eq!(message("alpha -beta"), "-beta leaves nothing out: all words of a search are wanted");
        assert_eq!(message(&"x".repeat(1_001)), "the search has 1001 characters, the limit is 1000");
        let many = (0..33).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(message(&many), "the search has 33 words and phrases, the limit is 32");
    }

    #[test]
    fn a_phrase_is_found_in_its_order() {
        let is_in = |query: &str, body: &str| SearchQuery::parse(query).unwrap().is_in(body);
        assert!(is_in("\"a b\"", "a a b"));
        assert!(!is_in("\"a b\"", "b a c b"));
        assert!(is_in("b a", "a, b"));
        assert!(is_in("\"three min\"*", "in three minutes"));
        assert!(!is_in("min", "in three minutes"));
        assert!(is_in("京都", "東京都") && is_in("都", "東京都") && is_in("京", "東京都") && !is_in("都東", "東京都"));
        assert!(is_in("\"東京 tower\"", "東京 Tower") && !is_in("\"東京 tower\"", "東京都 Tower"));
        assert!(is_in("バナナ", "大きなﾊﾞﾅﾅ") && is_in("한국", "저는 한국어를"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            if let Ok(query) = SearchQuery::parse(&text) {
                prop_assert!(query.terms.iter().all(|term| !term.words.is_empty()));
            }
        }

        #[test]
        fn a_part_of_a_text_is_found_in_it(before in ".{0,20}", part in "[^\"]{1,20}", after in ".{0,20}") {
            let spaced = format!("{before} {part} {after}");
            if let Ok(query) = SearchQuery::parse(&format!("\"{part}\"")) {
                prop_assert!(query.is_in(&spaced), "{:?}", query);
            }
        }

        #[test]
        fn characters_without_spaces_are_found_wherever_they_stand(
            before in "[\u{4e00}-\u{4e05}]{0,5}", part in "[\u{4e00}-\u{4e05}]{1,4}", after in "[\u{4e00}-\u{4e05}]{0,5}"
        ) {
            let query = SearchQuery::parse(&part).unwrap();
            let (found, other) = (format!("{before}{part}{after}"), format!("{before}{after}"));
            prop_assert!(query.is_in(&found));
            prop_assert_eq!(query.is_in(&other), other.contains(&part));
        }
    }
}
