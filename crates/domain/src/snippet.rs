//! Snippets: the part of a body that shows why a search found it.

use std::ops::{ControlFlow, Range};

use crate::{search_query::SearchQuery, text::clean_line};

/// The characters around each match in a snippet.
pub const MARKS: (char, char) = ('«', '»');
/// Maximum number of characters of a snippet, without marks and ellipses.
const LENGTH: usize = 160;
/// Maximum number of characters of a snippet before the first match.
const LEAD: usize = 40;
/// Maximum number of matches that are considered.
const MATCHES_MAX: usize = 1_000;

/// A line from the part of a body that contains the most different terms, with each match between [`MARKS`].
pub fn snippet(query: &SearchQuery, body: &str) -> String {
    let mut matches: Vec<(usize, Range<usize>)> = Vec::new();
    query.each_match(body, |term, span| {
        matches.push((term, span));
        if matches.len() < MATCHES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let best = best_start(&matches);
    let first = matches.get(best).map_or(0, |(_, span)| span.start);
    let start = body[..first].char_indices().rev().take(LEAD).last().map_or(first, |(at, _)| at);
    let start = if start == 0 { 0 } else { word_start_between(body, start, first) };
    let end = body[start..].char_indices().nth(LENGTH).map_or(body.len(), |(length, _)| start + length);

    let mut line = String::new();
    let mut at = start;
    for span in merge_spans(&matches[best.min(matches.len())..]) {
        if span.start >= end {
            break;
        }
        // A phrase may begin before the snippet.
        let (from, until) = (span.start.max(at), span.end.min(end));
        if from >= until {
            continue;
        }
        line.push_str(&body[at..from]);
        line.push(MARKS.0);
        line.push_str(&body[from..until]);
        line.push(MARKS.1);
        at = until;
    }
    line.push_str(&body[at..end]);
    let line = clean_line(&line).split_whitespace().collect::<Vec<_>>().join(" ");
    let ellipsis = |is_cut: bool| if is_cut { "…" } else { "" };
    format!("{}{line}{}", ellipsis(start > 0), ellipsis(end < body.len()))
}

/// The index of the match at which a snippet should begin, so that it contains the most different terms. Of several
/// such matches, the first one.
fn best_start(matches: &[(usize, Range<usize>)]) -> usize {
    let terms_from = |index: usize| {
        let start = matches[index].1.start;
        let near = matches[index..].iter().take_while(|(_, span)| span.end <= start + LENGTH - LEAD);
        let mut terms: Vec<usize> = near.map(|(term, _)| *term).collect();
        terms.sort_unstable();
        terms.dedup();
        terms.len()
    };
    // `max_by_key` returns the last maximum, which is the first one in reverse order.
    (0..matches.len()).rev().max_by_key(|index| terms_from(*index)).unwrap_or_default()
}

/// The first beginning of a word between `start` and `first`, so that the snippet does not begin inside a word. Returns
/// `start` if there is no space between the two.
fn word_start_between(body: &str, start: usize, first: usize) -> usize {
    let lead = &body[start..first];
    lead.find(char::is_whitespace).map_or(start, |space| {
        let rest = &lead[space..];
        start + space + (rest.len() - rest.trim_start().len())
    })
}

/// Sorts spans, and merges those that touch or overlap.
fn merge_spans(matches: &[(usize, Range<usize>)]) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = matches.iter().map(|(_, span)| span.clone()).collect();
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut joined: Vec<Range<usize>> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn snippet_of(query: &str, body: &str) -> String {
        snippet(&SearchQuery::parse(query).unwrap(), body)
    }

    #[test]
    fn matches_are_marked() {
        assert_eq!(snippet_of("creme \"tea timer\"", "A Crème,\n\n a tea  timer."), "A «Crème», a «tea timer».");
        assert_eq!(snippet_of("京都", "東京都に行く"), "東«京都»に行く");
        assert_eq!(snippet_of("東京都", "東京都に行く"), "«東京都»に行く");
        assert_eq!(snippet_of("min*", "in three minutes"), "in three «minutes»");
        let long = format!("one {} two", "x".repeat(100));
        assert!(snippet_of(&format!("two \"{long}\" {}", "x".repeat(100)), &long).starts_with('«'));
        let line = snippet_of(
            "two \"one y two\"",
            &format!("{}one {}y{} two", "x ".repeat(40), " ".repeat(90), " ".repeat(90)),
        );
        assert_eq!(line, "…«two»");
        assert_eq!(snippet_of("nothing", "a body without it"), "a body without it");
    }

    #[test]
    fn snippet_shows_the_part_with_the_most_terms() {
        let body = format!("tea {} a kettle, tea, and a timer {}", "x ".repeat(200), "y ".repeat(200));
        let line = snippet_of("tea timer kettle", &body);
        assert!(
            line.starts_with("…x x") && line.contains("a «kettle», «tea», and a «timer» y") && line.ends_with("…"),
            "{line}"
        );
    }

    proptest! {
        #[test]
        fn snippet_is_one_line_within_the_limit(query in "[a-c京都猫]{1,3}", body in "[a-cé京都猫 \n,]{0,400}") {
            let line = snippet_of(&query, &body);
            prop_assert!(!line.contains('\n'));
            prop_assert!(line.chars().filter(|letter| !"«»…".contains(*letter)).count() <= LENGTH);
            prop_assert_eq!(line.matches('«').count(), line.matches('»').count());
            prop_assert_eq!(line.contains('«'), SearchQuery::parse(&query).unwrap().matches_body(&body));
        }

        #[test]
        fn snippet_of_any_body_never_panics(query in "\\w{1,2}", body in ".{0,300}") {
            if let Ok(query) = SearchQuery::parse(&query) {
                snippet(&query, &body);
            }
        }
    }
}
