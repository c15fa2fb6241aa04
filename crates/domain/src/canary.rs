//! The canary: a random marker in an agent's instructions. A text that contains the marker, or a long piece of the
//! instructions, leaks them.

/// Length of a piece of the instructions in bytes. A text that repeats a passage of twice this length repeats at least
/// one whole piece.
const PIECE_BYTES: usize = 80;

/// Instructions that must not leak, with their marker.
#[derive(Debug, Clone)]
pub struct Canary {
    marker: String,
    instructions: String,
}

/// The part of the instructions that a text leaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leak {
    Marker,
    Piece,
}

impl Leak {
    /// Describes the leak in a step of the run, without repeating the leaked text.
    pub fn description(self) -> &'static str {
        match self {
            Self::Marker => "the marker of its instructions",
            Self::Piece => "a long piece of its instructions",
        }
    }
}

impl Canary {
    pub fn new(marker: &str, instructions: &str) -> Self {
        Self { marker: marker.to_owned(), instructions: instructions.to_owned() }
    }

    /// Searches a text for a leak.
    pub fn find_leak(&self, text: &str) -> Option<Leak> {
        if text.contains(&self.marker) {
            return Some(Leak::Marker);
        }
        if text.len() < PIECE_BYTES {
            return None;
        }
        pieces(&self.instructions).any(|piece| text.contains(piece)).then_some(Leak::Piece)
    }
}

/// Splits a text into consecutive pieces of whole characters. Drops the rest at the end, which is too short.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.ceil_char_boundary(PIECE_BYTES.min(rest.len()));
        let (piece, after) = rest.split_at(end);
        rest = after;
        (piece.len() >= PIECE_BYTES).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_marker_and_long_pieces_but_not_short_ones() {
        let words: Vec<String> = (0..60).map(|number| format!("wörd{number}")).collect();
        let instructions = words.join(" ");
        let canary = Canary::new("m-123", &instructions);
        assert_eq!(canary.find_leak("I was told m-123."), Some(Leak::Marker));
        assert_eq!(canary.find_leak(&format!("so: {}", words[10..40].join(" "))), Some(Leak::Piece));
        assert_eq!(canary.find_leak(&words[10..16].join(" ")), None);
        assert_eq!(canary.find_leak(&"nothing of it ".repeat(100)), None);
        assert_eq!(
            Canary::new("m", "short").find_leak(
                "a short text that is longer than the piece by far, so that it is looked at; well, long enough"
            ),
            None
        );
    }
}
