//! The conversation with a model. Old pages are replaced by one line, so that the conversation does not grow with every
//! page.

use std::collections::VecDeque;

use crate::model::{Call, CallResult, Reply, Turn};

/// Maximum characters of a page in one message.
pub const PAGE_MAX: usize = 24_000;
/// Maximum number of pages that stay complete: the latest ones.
const WHOLE_PAGES_MAX: usize = 3;
/// Maximum number of bytes of shortened pages that are kept for the closing call. No model accepts more.
const SHORTENED_BYTES_MAX: usize = 8 << 20;
/// The result of a call that was not executed before the run ended.
const NO_RESULT: &str = "No result: the run ended.";

/// One text of a message to the model.
#[derive(Debug, Clone)]
pub struct MessagePart {
    pub text: String,
    /// The line that replaces the text later; none to keep the text.
    pub short_form: Option<String>,
    pub is_error: bool,
}

impl MessagePart {
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), short_form: None, is_error: false }
    }

    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), short_form: None, is_error: true }
    }

    /// Up to `PAGE_MAX` characters of a page, beginning with character `from`.
    pub fn page(path: &str, body: &str, from: usize) -> Self {
        let length = body.chars().count();
        let mut text: String = body.chars().skip(from).take(PAGE_MAX).collect();
        let to = from.saturating_add(PAGE_MAX).min(length);
        if from > 0 || to < length {
            let rest = match () {
                () if from >= length => format!("the page has only {length} characters"),
                () if to < length => format!("next part: fetch_page with path {path:?} and from {to}"),
                () => "end of page".to_owned(),
            };
            text.push_str(&format!("\n\n[{path}, characters {from} to {to} of {length}; {rest}]"));
        }
        let short_form = format!("[{path}: {length} characters, shown earlier; fetch it again to read it]");
        Self { text, short_form: Some(short_form), is_error: false }
    }
}

/// The position of a page in a conversation: the index of the turn, and of the part in that turn.
type Position = (usize, usize);

#[derive(Debug, Default)]
pub struct Conversation {
    turns: Vec<Turn>,
    /// Positions of complete pages with the line that will replace them, oldest first.
    full_pages: Vec<(Position, String)>,
    /// Shortened pages with their complete text, oldest first. The closing call restores them.
    shortened: VecDeque<(Position, String)>,
    shortened_bytes: usize,
}

impl Conversation {
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Adds a message to the model.
    pub fn add_user_turn(&mut self, parts: Vec<MessagePart>) {
        self.track_pages(&parts);
        self.turns.push(Turn::User(parts.into_iter().map(|part| part.text).collect()));
        self.shorten_old_pages();
    }

    pub fn add_reply(&mut self, reply: Reply) {
        self.turns.push(Turn::Model { text: reply.text, calls: reply.calls });
    }

    /// Adds the results of the model's calls.
    pub fn add_results(&mut self, results: Vec<(Call, MessagePart)>) {
        let parts: Vec<MessagePart> = results.iter().map(|(_, part)| part.clone()).collect();
        self.track_pages(&parts);
        let result =
            |(call, part): (Call, MessagePart)| CallResult { call: call.id, text: part.text, is_error: part.is_error };
        self.turns.push(Turn::Results(results.into_iter().map(result).collect()));
        self.shorten_old_pages();
    }

    fn track_pages(&mut self, parts: &[MessagePart]) {
        let turn = self.turns.len();
        let pages =
            parts.iter().enumerate().filter_map(|(index, part)| Some(((turn, index), part.short_form.clone()?)));
        self.full_pages.extend(pages);
    }

    fn shorten_old_pages(&mut self) {
        let old = self.full_pages.len().saturating_sub(WHOLE_PAGES_MAX);
        for (position, short_form) in self.full_pages.drain(..old) {
            if let Some(text) = text_at(&mut self.turns, position) {
                let page = std::mem::replace(text, short_form);
                self.shortened_bytes += page.len();
                self.shortened.push_back((position, page));
            }
        }
        while self.shortened_bytes > SHORTENED_BYTES_MAX
            && let Some((_, page)) = self.shortened.pop_front()
        {
            self.shortened_bytes -= page.len();
        }
    }

    /// The conversation for the closing call: with all pages complete, and a result for every call.
    pub fn with_full_pages(&self) -> Vec<Turn> {
        let mut turns = self.turns.clone();
        for (position, page) in &self.shortened {
            if let Some(text) = text_at(&mut turns, *position) {
                text.clone_from(page);
            }
        }
        if let Some(Turn::Model { calls, .. }) = turns.last()
            && !calls.is_empty()
        {
            // Providers reject calls without results.
            let result = |call: &Call| CallResult { call: call.id.clone(), text: NO_RESULT.to_owned(), is_error: true };
            let results = calls.iter().map(result).collect();
            turns.push(Turn::Results(results));
        }
        turns
    }
}

fn text_at(turns: &mut [Turn], (turn, part_index): Position) -> Option<&mut String> {
    match turns.get_mut(turn)? {
        Turn::User(parts) => parts.get_mut(part_index),
        Turn::Results(results) => results.get_mut(part_index).map(|result| &mut result.text),
        Turn::Model { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_page_is_cut_and_names_the_next_offset() {
        let body = "ü".repeat(PAGE_MAX + 10);
        let first = MessagePart::page("/x", &body, 0).text;
        assert!(first.ends_with(
            "\n\n[/x, characters 0 to 24000 of 24010; next part: fetch_page with path \"/x\" and from 24000]"
        ));
        let rest = MessagePart::page("/x", &body, 24_000).text;
        assert_eq!(rest, format!("{}\n\n[/x, characters 24000 to 24010 of 24010; end of page]", "ü".repeat(10)));
        assert_eq!(
            MessagePart::page("/x", "ab", 9).text,
            "\n\n[/x, characters 9 to 2 of 2; the page has only 2 characters]"
        );
        assert_eq!(MessagePart::page("/x", "ab", 0).text, "ab");
    }

    #[test]
    fn old_pages_are_replaced_by_one_line() {
        let mut conversation = Conversation::default();
        conversation.add_user_turn(vec![MessagePart::text("wake"), MessagePart::page("/0", "zero", 0)]);
        for number in 1..=3 {
            let call = Call { id: number.to_string(), name: "fetch_page".into(), input: serde_json::json!({}) };
            conversation.add_reply(Reply { text: String::new(), calls: vec![call.clone()] });
            conversation.add_results(vec![(call, MessagePart::page(&format!("/{number}"), &number.to_string(), 0))]);
        }
        assert_eq!(
            conversation.turns()[0],
            Turn::User(vec!["wake".into(), "[/0: 4 characters, shown earlier; fetch it again to read it]".into()])
        );
        assert_eq!(
            conversation.turns()[2],
            Turn::Results(vec![CallResult { call: "1".into(), text: "1".into(), is_error: false }])
        );
    }
}
