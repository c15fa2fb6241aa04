//! The canary: a random marker in an agent's instructions. Where it, or a long piece of them, shows up, they leak.

/// Bytes of the instructions that count as a long piece. Whatever repeats twice as many repeats one of these whole.
const PIECE: usize = 80;

/// Instructions that must not leave.
#[derive(Debug, Clone)]
pub struct Canary {
    marker: String,
    instructions: String,
}

/// What leaked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leak {
    Marker,
    Piece,
}

impl Leak {
    /// As a step says it, without repeating what leaked.
    pub fn described(self) -> &'static str {
        match self {
            Self::Marker => "the marker of its instructions",
            Self::Piece => "a long piece of its instructions",
        }
    }
}

impl Canary {
    /// Watches over instructions that carry a marker.
    pub fn new(marker: &str, instructions: &str) -> Self {
        Self { marker: marker.to_owned(), instructions: instructions.to_owned() }
    }

    /// What a text leaks, if anything.
    pub fn leak(&self, text: &str) -> Option<Leak> {
        if text.contains(&self.marker) {
            return Some(Leak::Marker);
        }
        if text.len() < PIECE {
            return None;
        }
        pieces(&self.instructions).any(|piece| text.contains(piece)).then_some(Leak::Piece)
    }
}

/// Pieces one after the other, each of whole characters. What is left at the end is too short to count.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.ceil_char_boundary(PIECE.min(rest.len()));
        let (piece, after) = rest.split_at(end);
        rest = after;
        (piece.len() >= PIECE).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_and_long_pieces_are_seen_and_short_ones_are_not() {
        let words: Vec<String> = (0..60).map(|number| format!("wörd{number}")).collect();
        let instructions = words.join(" ");
        let canary = Canary::new("m-123", &instructions);
        assert_eq!(canary.leak("I was told m-123."), Some(Leak::Marker));
        assert_eq!(canary.leak(&format!("so: {}", words[10..40].join(" "))), Some(Leak::Piece));
        assert_eq!(canary.leak(&words[10..16].join(" ")), None);
        assert_eq!(canary.leak(&"nothing of it ".repeat(100)), None);
        assert_eq!(
            Canary::new("m", "short")
                .leak("a short text that is longer than the piece by far, so that it is looked at; well, long enough"),
            None
        );
    }
}
