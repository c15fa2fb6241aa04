//! The conversation with a model: pages are shown whole only as long as they are fresh.

use std::collections::VecDeque;

use crate::model::{Call, CallResult, Reply, Turn};

/// Characters of a page that are shown at once.
pub const PAGE_MAX: usize = 24_000;
/// Pages that stay whole, the latest ones.
const FRESH: usize = 3;
/// Bytes of reduced pages that are kept for the end-of-run prompt: more than any model takes.
const REDUCED_MAX: usize = 8 << 20;
/// Stands for the result of a call that the end of the run left without one.
const NO_RESULT: &str = "No result: the run ended.";

/// What is said to the model: a text, and the line that stands for it once it is old.
#[derive(Debug, Clone)]
pub struct Shown {
    pub text: String,
    pub brief: Option<String>,
    pub failed: bool,
}

impl Shown {
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), brief: None, failed: false }
    }

    pub fn refused(text: impl Into<String>) -> Self {
        Self { text: text.into(), brief: None, failed: true }
    }

    /// A page from a character on, as much of it as is shown at once.
    pub fn page(path: &str, body: &str, from: usize) -> Self {
        let length = body.chars().count();
        let mut text: String = body.chars().skip(from).take(PAGE_MAX).collect();
        let to = from.saturating_add(PAGE_MAX).min(length);
        if from > 0 || to < length {
            let rest = match () {
                () if from >= length => format!("it has {length} characters only"),
                () if to < length => format!("the rest: fetch_page with path {path:?} and from {to}"),
                () => "this is the end of it".to_owned(),
            };
            text.push_str(&format!("\n\n[{path}, characters {from} to {to} of {length}; {rest}]"));
        }
        let brief = format!("[{path}: {length} characters, shown earlier; fetch it again to read it]");
        Self { text, brief: Some(brief), failed: false }
    }
}

/// A conversation.
#[derive(Debug, Default)]
pub struct Talk {
    turns: Vec<Turn>,
    /// Where pages stand that are still whole, the oldest first: the turn, the place in it, and its line.
    whole: Vec<(usize, usize, String)>,
    /// Pages that became a line, the oldest first, in the same way: the end-of-run prompt follows all that was read.
    reduced: VecDeque<(usize, usize, String)>,
    reduced_bytes: usize,
}

impl Talk {
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Says something, in parts.
    pub fn says(&mut self, parts: Vec<Shown>) {
        self.keep(&parts);
        self.turns.push(Turn::User(parts.into_iter().map(|part| part.text).collect()));
        self.fade();
    }

    pub fn hears(&mut self, reply: Reply) {
        self.turns.push(Turn::Model { text: reply.text, calls: reply.calls });
    }

    /// Says what came of calls.
    pub fn answers(&mut self, results: Vec<(Call, Shown)>) {
        let parts: Vec<Shown> = results.iter().map(|(_, shown)| shown.clone()).collect();
        self.keep(&parts);
        let result =
            |(call, shown): (Call, Shown)| CallResult { call: call.id, text: shown.text, failed: shown.failed };
        self.turns.push(Turn::Results(results.into_iter().map(result).collect()));
        self.fade();
    }

    fn keep(&mut self, parts: &[Shown]) {
        let turn = self.turns.len();
        let pages = parts.iter().enumerate().filter_map(|(place, part)| Some((turn, place, part.brief.clone()?)));
        self.whole.extend(pages);
    }

    /// Reduces pages that are no longer fresh to a line.
    fn fade(&mut self) {
        let old = self.whole.len().saturating_sub(FRESH);
        for (turn, place, brief) in self.whole.drain(..old) {
            if let Some(text) = text_at(&mut self.turns, turn, place) {
                let page = std::mem::replace(text, brief);
                self.reduced_bytes += page.len();
                self.reduced.push_back((turn, place, page));
            }
        }
        while self.reduced_bytes > REDUCED_MAX
            && let Some((_, _, page)) = self.reduced.pop_front()
        {
            self.reduced_bytes -= page.len();
        }
    }

    /// The conversation as the end-of-run prompt follows it: with every page as it was read, and an answer to every call.
    pub fn in_full(&self) -> Vec<Turn> {
        let mut turns = self.turns.clone();
        for (turn, place, page) in &self.reduced {
            if let Some(text) = text_at(&mut turns, *turn, *place) {
                text.clone_from(page);
            }
        }
        if let Some(Turn::Model { calls, .. }) = turns.last()
            && !calls.is_empty()
        {
            // Providers refuse calls without results.
            let result = |call: &Call| CallResult { call: call.id.clone(), text: NO_RESULT.to_owned(), failed: true };
            let results = calls.iter().map(result).collect();
            turns.push(Turn::Results(results));
        }
        turns
    }
}

/// A text that a page stands in.
fn text_at(turns: &mut [Turn], turn: usize, place: usize) -> Option<&mut String> {
    match turns.get_mut(turn)? {
        Turn::User(parts) => parts.get_mut(place),
        Turn::Results(results) => results.get_mut(place).map(|result| &mut result.text),
        Turn::Model { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_page_is_cut_and_says_how_to_go_on() {
        let body = "ü".repeat(PAGE_MAX + 10);
        let first = Shown::page("/x", &body, 0).text;
        assert!(first.ends_with(
            "\n\n[/x, characters 0 to 24000 of 24010; the rest: fetch_page with path \"/x\" and from 24000]"
        ));
        let rest = Shown::page("/x", &body, 24_000).text;
        assert_eq!(
            rest,
            format!("{}\n\n[/x, characters 24000 to 24010 of 24010; this is the end of it]", "ü".repeat(10))
        );
        assert_eq!(Shown::page("/x", "ab", 9).text, "\n\n[/x, characters 9 to 2 of 2; it has 2 characters only]");
        assert_eq!(Shown::page("/x", "ab", 0).text, "ab");
    }

    #[test]
    fn old_pages_become_a_line() {
        let mut talk = Talk::default();
        talk.says(vec![Shown::plain("wake"), Shown::page("/0", "zero", 0)]);
        for number in 1..=3 {
            let call = Call { id: number.to_string(), name: "fetch_page".into(), input: serde_json::json!({}) };
            talk.hears(Reply { text: String::new(), calls: vec![call.clone()] });
            talk.answers(vec![(call, Shown::page(&format!("/{number}"), &number.to_string(), 0))]);
        }
        assert_eq!(
            talk.turns()[0],
            Turn::User(vec!["wake".into(), "[/0: 4 characters, shown earlier; fetch it again to read it]".into()])
        );
        assert_eq!(
            talk.turns()[2],
            Turn::Results(vec![CallResult { call: "1".into(), text: "1".into(), failed: false }])
        );
    }
}
