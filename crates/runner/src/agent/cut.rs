//! Cutting a conversation from the middle: what began it and what came last stay.

use std::ops::Range;

use crate::model::Turn;

/// Stands for a result of which nothing is left: a provider wants one for each call.
const LEFT_OUT: &str = "[left out]";

/// Cuts a conversation to about this many bytes. Half of them go to its beginning and half to its end; a marker where the
/// cut is says how much was left out. Calls stay with their results, or go with them.
pub fn middle(turns: Vec<Turn>, limit: usize) -> Vec<Turn> {
    let whole: usize = turns.iter().map(size).sum();
    if whole <= limit {
        return turns;
    }
    let cut = limit / 2..whole - (limit - limit / 2);
    let mut at = 0;
    let mut cutting = Cutting { cut, left_out: 0, mark: None };
    let mut kept = Vec::with_capacity(turns.len());
    let mut turns = turns.into_iter().peekable();
    while let Some(turn) = turns.next() {
        let mut group = vec![turn];
        group.extend(turns.next_if(|next| matches!(next, Turn::Results(_))));
        let length: usize = group.iter().map(size).sum();
        if cutting.cut.start <= at && at + length <= cutting.cut.end {
            cutting.left_out += group.iter().map(characters).sum::<usize>();
            if cutting.mark.is_none() {
                cutting.mark = Some((kept.len(), 0, 0));
                kept.push(Turn::User(vec![String::new()]));
            }
            at += length;
            continue;
        }
        for turn in group {
            at = cutting.turn(turn, at, &mut kept);
        }
    }
    cutting.marked(kept)
}

/// A cut on its way through a conversation.
struct Cutting {
    /// The bytes that are left out.
    cut: Range<usize>,
    /// Characters that were left out so far.
    left_out: usize,
    /// Where the marker goes: the turn, the text in it, and the byte of that text.
    mark: Option<(usize, usize, usize)>,
}

impl Cutting {
    /// Keeps what is to be kept of a turn that begins at this byte, and says where the next one begins.
    fn turn(&mut self, turn: Turn, at: usize, kept: &mut Vec<Turn>) -> usize {
        let number = kept.len();
        let end = at + size(&turn);
        match turn {
            Turn::User(mut parts) => {
                let mut at = at;
                for (place, part) in parts.iter_mut().enumerate() {
                    at = self.text(part, at, (number, place));
                }
                let marked = self.mark.filter(|mark| mark.0 == number).map(|mark| mark.1);
                let mut place = 0;
                parts.retain(|part| {
                    let stays = !part.is_empty() || marked.is_some_and(|marked| place <= marked);
                    place += 1;
                    stays
                });
                if parts.is_empty() {
                    // Providers refuse a message without a text.
                    parts.push(LEFT_OUT.to_owned());
                }
                kept.push(Turn::User(parts));
            }
            Turn::Model { mut text, mut calls } => {
                let mut at = self.text(&mut text, at, (number, 0));
                for call in &mut calls {
                    let length = call.input.to_string().len();
                    if at < self.cut.end && at + length > self.cut.start {
                        self.left_out += call.input.to_string().chars().count();
                        call.input = serde_json::json!({});
                    }
                    at += length;
                }
                kept.push(Turn::Model { text, calls });
            }
            Turn::Results(mut results) => {
                let mut at = at;
                for (place, result) in results.iter_mut().enumerate() {
                    let is_blank = result.text.is_empty();
                    at = self.text(&mut result.text, at, (number, place));
                    if !is_blank
                        && result.text.is_empty()
                        && self.mark.is_none_or(|mark| (mark.0, mark.1) != (number, place))
                    {
                        LEFT_OUT.clone_into(&mut result.text);
                    }
                }
                kept.push(Turn::Results(results));
            }
        }
        end
    }

    /// Cuts a text that begins at this byte, and says where the next one begins.
    fn text(&mut self, text: &mut String, at: usize, (turn, place): (usize, usize)) -> usize {
        let end = at + text.len();
        let from = text.floor_char_boundary(self.cut.start.saturating_sub(at).min(text.len()));
        let to = text.ceil_char_boundary(self.cut.end.saturating_sub(at).min(text.len()));
        if from < to {
            self.left_out += text[from..to].chars().count();
            text.replace_range(from..to, "");
            self.mark.get_or_insert((turn, place, from));
        }
        end
    }

    /// The conversation with its marker.
    fn marked(self, mut kept: Vec<Turn>) -> Vec<Turn> {
        let marker = format!(
            "[{} characters of this conversation were left out here: it is longer than the model takes]",
            self.left_out
        );
        let Some((turn, place, byte)) = self.mark else {
            kept.push(Turn::User(vec![marker]));
            return kept;
        };
        let text = match &mut kept[turn] {
            Turn::User(parts) => &mut parts[place],
            Turn::Results(results) => &mut results[place].text,
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
        Turn::Results(vec![CallResult { call: id.to_owned(), text: text.to_owned(), failed: false }])
    }

    #[test]
    fn a_conversation_within_the_limit_is_left_alone() {
        let turns = vec![Turn::User(vec!["wake".into()]), model("1"), result("1", "page")];
        assert_eq!(middle(turns.clone(), 10), turns, "4 + 2 + 4 bytes");
    }

    #[test]
    fn the_marker_stands_where_turns_were_left_out() {
        let page = "p".repeat(98);
        let mut turns = vec![Turn::User(vec!["w".repeat(100)])];
        for id in ["1", "2", "3"] {
            turns.extend([model(id), result(id, &page)]);
        }
        let marker = "[200 characters of this conversation were left out here: it is longer than the model takes]";
        let kept = vec![turns[0].clone(), Turn::User(vec![marker.to_owned()]), turns[5].clone(), turns[6].clone()];
        assert_eq!(middle(turns, 200), kept);
    }

    #[test]
    fn one_long_text_is_cut_inside() {
        let turns = vec![Turn::User(vec!["ab".repeat(50)])];
        let marker = "[80 characters of this conversation were left out here: it is longer than the model takes]";
        let kept = format!("{}\n\n{marker}\n\n{}", "ab".repeat(5), "ab".repeat(5));
        assert_eq!(middle(turns, 20), vec![Turn::User(vec![kept])]);
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
            let cut = middle(turns.clone(), limit);
            let whole: usize = turns.iter().map(size).sum();
            if whole <= limit {
                prop_assert_eq!(cut, turns);
            } else {
                let markers = format!("{cut:?}").matches("characters of this conversation were left out here").count();
                prop_assert_eq!(markers, 1);
                // The marker, two bytes for each call and the stand-ins for results come on top.
                let extra = 120 + cut.len() * (LEFT_OUT.len() + 2);
                prop_assert!(cut.iter().map(size).sum::<usize>() <= limit + extra);
                for (place, turn) in cut.iter().enumerate() {
                    let follows_call = place > 0 && matches!(&cut[place - 1], Turn::Model { calls, .. } if !calls.is_empty());
                    prop_assert_eq!(matches!(turn, Turn::Results(_)), follows_call);
                }
            }
        }
    }
}
