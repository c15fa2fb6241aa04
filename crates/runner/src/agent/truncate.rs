//! Removes the middle of a conversation that is too long for the model. Its beginning and its end stay.

use std::ops::Range;

use crate::model::Turn;

/// Replaces an empty text. Providers require a text in every message and a result for every call.
const REMOVED: &str = "[left out]";

/// Cuts a conversation to about `limit` bytes: half of them for its beginning, half for its end. A marker at the cut
/// says how many characters were removed. A call and its result are kept or removed together.
pub fn remove_middle(turns: Vec<Turn>, limit: usize) -> Vec<Turn> {
    let total: usize = turns.iter().map(size).sum();
    if total <= limit {
        return turns;
    }
    let cut = limit / 2..total - (limit - limit / 2);
    let mut at = 0;
    let mut middle_cut = MiddleCut { cut, removed_characters: 0, mark: None };
    let mut kept = Vec::with_capacity(turns.len());
    let mut turns = turns.into_iter().peekable();
    while let Some(turn) = turns.next() {
        let mut group = vec![turn];
        group.extend(turns.next_if(|next| matches!(next, Turn::Results(_))));
        let length: usize = group.iter().map(size).sum();
        if middle_cut.cut.start <= at && at + length <= middle_cut.cut.end {
            middle_cut.removed_characters += group.iter().map(characters).sum::<usize>();
            if middle_cut.mark.is_none() {
                middle_cut.mark = Some((kept.len(), 0, 0));
                kept.push(Turn::User(vec![String::new()]));
            }
            at += length;
            continue;
        }
        for turn in group {
            at = middle_cut.cut_turn(turn, at, &mut kept);
        }
    }
    middle_cut.with_marker(kept)
}

struct MiddleCut {
    /// The bytes to remove.
    cut: Range<usize>,
    /// Characters removed so far.
    removed_characters: usize,
    /// The position of the marker: the turn, the part of that turn, and the byte in that part.
    mark: Option<(usize, usize, usize)>,
}

impl MiddleCut {
    /// Adds the remaining part of a turn to `kept`. The turn begins at byte `at`. Returns where the next turn begins.
    fn cut_turn(&mut self, turn: Turn, at: usize, kept: &mut Vec<Turn>) -> usize {
        let number = kept.len();
        let end = at + size(&turn);
        match turn {
            Turn::User(mut parts) => {
                let mut at = at;
                for (part_index, part) in parts.iter_mut().enumerate() {
                    at = self.cut_text(part, at, (number, part_index));
                }
                let marked_part = self.mark.filter(|mark| mark.0 == number).map(|mark| mark.1);
                let mut part_index = 0;
                parts.retain(|part| {
                    let stays = !part.is_empty() || marked_part.is_some_and(|marked| part_index <= marked);
                    part_index += 1;
                    stays
                });
                if parts.is_empty() {
                    // Providers reject a message without a text.
                    parts.push(REMOVED.to_owned());
                }
                kept.push(Turn::User(parts));
            }
            Turn::Model { mut text, mut calls } => {
                let mut at = self.cut_text(&mut text, at, (number, 0));
                for call in &mut calls {
                    let length = call.input.to_string().len();
                    if at < self.cut.end && at + length > self.cut.start {
                        self.removed_characters += call.input.to_string().chars().count();
                        call.input = serde_json::json!({});
                    }
                    at += length;
                }
                kept.push(Turn::Model { text, calls });
            }
            Turn::Results(mut results) => {
                let mut at = at;
                for (part_index, result) in results.iter_mut().enumerate() {
                    let is_blank = result.text.is_empty();
                    at = self.cut_text(&mut result.text, at, (number, part_index));
                    if !is_blank
                        && result.text.is_empty()
                        && self.mark.is_none_or(|mark| (mark.0, mark.1) != (number, part_index))
                    {
                        REMOVED.clone_into(&mut result.text);
                    }
                }
                kept.push(Turn::Results(results));
            }
        }
        end
    }

    /// Cuts a text that begins at byte `at`. Returns where the next text begins.
    fn cut_text(&mut self, text: &mut String, at: usize, (turn, part_index): (usize, usize)) -> usize {
        let end = at + text.len();
        let from = text.floor_char_boundary(self.cut.start.saturating_sub(at).min(text.len()));
        let to = text.ceil_char_boundary(self.cut.end.saturating_sub(at).min(text.len()));
        if from < to {
            self.removed_characters += text[from..to].chars().count();
            text.replace_range(from..to, "");
            self.mark.get_or_insert((turn, part_index, from));
        }
        end
    }

    fn with_marker(self, mut kept: Vec<Turn>) -> Vec<Turn> {
        let marker = format!(
            "[{} characters of this conversation were left out here: it is longer than the model accepts]",
            self.removed_characters
        );
        let Some((turn, part_index, byte)) = self.mark else {
            kept.push(Turn::User(vec![marker]));
            return kept;
        };
        let text = match &mut kept[turn] {
            Turn::User(parts) => &mut parts[part_index],
            Turn::Results(results) => &mut results[part_index].text,
            Turn::Model { text, .. } => text,
        };
        let before = if byte > 0 { "\n\n" } else { "" };
        let after = if byte < text.len() { "\n\n" } else { "" };
        text.insert_str(byte, &format!("{before}{marker}{after}"));
        kept
    }
}

fn size(turn: &Turn) -> usize {
    match turn {
        Turn::User(parts) => parts.iter().map(String::len).sum(),
        Turn::Model { text, calls } => {
            text.len() + calls.iter().map(|call| call.input.to_string().len()).sum::<usize>()
        }
        Turn::Results(results) => results.iter().map(|result| result.text.len()).sum(),
    }
}

fn characters(turn: &Turn) -> usize {
    match turn {
        Turn::User(parts) => parts.iter().map(|part| part.chars().count()).sum(),
        Turn::Model { text, calls } => {
            text.chars().count() + calls.iter().map(|call| call.input.to_string().chars().count()).sum::<usize>()
        }
        Turn::Results(results) => results.iter().map(|result| result.text.chars().count()).sum(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::model::{Call, CallResult};

    fn model(id: &str) -> Turn {
        let call = Call { id: id.to_owned(), name: "fetch_page".to_owned(), input: json!({}) };
        Turn::Model { text: String::new(), calls: vec![call] }
    }

    fn result(id: &str, text: &str) -> Turn {
        Turn::Results(vec![CallResult { call: id.to_owned(), text: text.to_owned(), is_error: false }])
    }

    #[test]
    fn conversation_within_the_limit_is_unchanged() {
        let turns = vec![Turn::User(vec!["wake".into()]), model("1"), result("1", "page")];
        assert_eq!(remove_middle(turns.clone(), 10), turns, "4 + 2 + 4 bytes");
    }

    #[test]
    fn marker_replaces_removed_turns() {
        let page = "p".repeat(98);
        let mut turns = vec![Turn::User(vec!["w".repeat(100)])];
        for id in ["1", "2", "3"] {
            turns.extend([model(id), result(id, &page)]);
        }
        let marker = "[200 characters of this conversation were left out here: it is longer than the model accepts]";
        let kept = vec![turns[0].clone(), Turn::User(vec![marker.to_owned()]), turns[5].clone(), turns[6].clone()];
        assert_eq!(remove_middle(turns, 200), kept);
    }

    #[test]
    fn single_long_text_is_cut_in_its_middle() {
        let turns = vec![Turn::User(vec!["ab".repeat(50)])];
        let marker = "[80 characters of this conversation were left out here: it is longer than the model accepts]";
        let kept = format!("{}\n\n{marker}\n\n{}", "ab".repeat(5), "ab".repeat(5));
        assert_eq!(remove_middle(turns, 20), vec![Turn::User(vec![kept])]);
    }

    fn turn() -> impl Strategy<Value = Vec<Turn>> {
        prop_oneof![
            proptest::collection::vec("[aé𝔸]{0,40}", 1..3).prop_map(|parts| vec![Turn::User(parts)]),
            (".{0,20}", "[xyé]{0,60}").prop_map(|(said, text)| {
                let call = Call { id: "c".into(), name: "search".into(), input: json!({ "words": said }) };
                vec![Turn::Model { text: said, calls: vec![call] }, result("c", &text)]
            }),
        ]
    }

    proptest! {
        #[test]
        fn any_conversation_is_cut_to_size_with_one_marker(groups in proptest::collection::vec(turn(), 1..12), limit in 0..400usize) {
            let turns: Vec<Turn> = groups.concat();
            let cut = remove_middle(turns.clone(), limit);
            let total: usize = turns.iter().map(size).sum();
            if total <= limit {
                prop_assert_eq!(cut, turns);
            } else {
                let markers = format!("{cut:?}").matches("characters of this conversation were left out here").count();
                prop_assert_eq!(markers, 1);
                // The marker, two bytes for each call and the replacements of empty texts do not count.
                let extra = 120 + cut.len() * (REMOVED.len() + 2);
                prop_assert!(cut.iter().map(size).sum::<usize>() <= limit + extra);
                for (index, turn) in cut.iter().enumerate() {
                    let follows_call = index > 0 && matches!(&cut[index - 1], Turn::Model { calls, .. } if !calls.is_empty());
                    prop_assert_eq!(matches!(turn, Turn::Results(_)), follows_call);
                }
            }
        }
    }
}
