//! The output of a script on its way into steps: bytes in, text out, cut where it is enough.

use std::{
    mem,
    time::{Duration, Instant},
};

/// Characters of output that are kept of one run.
pub const OUTPUT_MAX: usize = 1_000_000;
/// Bytes of the end of what is past that, which are kept too.
const TAIL_BYTES: usize = 4_000;
/// Bytes that make a step.
const STEP_BYTES: usize = 16_000;
/// How long output waits for more before it becomes a step.
const STEP_WAIT: Duration = Duration::from_millis(250);

/// Gathers output into pieces worth writing down.
#[derive(Debug)]
pub struct Gathering {
    bytes: Vec<u8>,
    since: Option<Instant>,
    /// Characters that may still be kept.
    left: usize,
    /// Whether there was more than that.
    cut: bool,
    /// The end of what is past the limit, and how much that is in bytes.
    tail: Vec<u8>,
    dropped: usize,
    /// Everything that was kept.
    kept: String,
}

impl Default for Gathering {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            since: None,
            left: OUTPUT_MAX,
            cut: false,
            tail: Vec::new(),
            dropped: 0,
            kept: String::new(),
        }
    }
}

impl Gathering {
    /// Takes output in. What is past the limit is dropped, but for its end, which mostly says what went wrong.
    pub fn push(&mut self, output: &[u8]) {
        if self.cut {
            self.drop_but_the_end(output);
        } else if !output.is_empty() {
            self.bytes.extend_from_slice(output);
            self.since.get_or_insert_with(Instant::now);
        }
    }

    fn drop_but_the_end(&mut self, output: &[u8]) {
        self.tail.extend_from_slice(output);
        let over = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..over);
        self.dropped += over;
    }

    /// A piece, when there is enough of it or it has waited.
    pub fn piece(&mut self, now: Instant) -> Option<String> {
        let waited = self.since.is_some_and(|since| now.duration_since(since) >= STEP_WAIT);
        (self.bytes.len() >= STEP_BYTES || waited).then(|| self.take(false))?
    }

    /// What is left at the end.
    pub fn rest(&mut self) -> Option<String> {
        let rest = self.take(true);
        if self.tail.is_empty() {
            return rest;
        }
        let tail = mem::take(&mut self.tail);
        // It may begin within a character.
        let begins = tail.iter().position(|byte| byte & 0xC0 != 0x80).unwrap_or_default();
        let end = String::from_utf8_lossy(&tail[begins..]);
        let end = match self.dropped {
            0 => end.into_owned(),
            dropped => format!("[{dropped} bytes left out]\n{end}"),
        };
        self.kept.push_str(&end);
        Some(rest.unwrap_or_default() + &end)
    }

    /// Everything that was kept, for the message that holds it.
    pub fn into_kept(self) -> String {
        self.kept
    }

    fn take(&mut self, at_end: bool) -> Option<String> {
        // A character may come in two halves: the second is waited for.
        let whole = if at_end { self.bytes.len() } else { whole_characters(&self.bytes) };
        let bytes = mem::take(&mut self.bytes);
        let (now, later) = bytes.split_at(whole);
        self.bytes = later.to_vec();
        self.since = (!self.bytes.is_empty()).then(Instant::now);
        let mut text = String::from_utf8_lossy(now).into_owned();
        let length = text.chars().count();
        if length > self.left {
            let beyond: String = text.chars().skip(self.left).collect();
            self.drop_but_the_end(beyond.as_bytes());
            self.drop_but_the_end(later);
            text = text.chars().take(self.left).collect();
            text.push_str(&format!("\n[output cut at {OUTPUT_MAX} characters]\n"));
            self.cut = true;
            self.bytes.clear();
            self.since = None;
        } else {
            self.left -= length;
        }
        self.kept.push_str(&text);
        (!text.is_empty()).then_some(text)
    }
}

/// How many bytes at the beginning hold whole characters, as far as that can be told.
fn whole_characters(bytes: &[u8]) -> usize {
    let unfinished = (1..=3.min(bytes.len())).find(|back| {
        let byte = bytes[bytes.len() - back];
        let needed = match byte {
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF7 => 4,
            _ => 0,
        };
        needed > *back
    });
    bytes.len() - unfinished.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_in_two_halves_is_one() {
        let mut gathering = Gathering::default();
        let text = "über 日本";
        let mut pieces = String::new();
        for byte in text.as_bytes() {
            gathering.push(&[*byte]);
            pieces.extend(gathering.take(false));
        }
        pieces.extend(gathering.rest());
        assert_eq!(pieces, text);
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_such() {
        let mut gathering = Gathering::default();
        gathering.push(b"a\xff\xfeb\xf0");
        assert_eq!(gathering.rest().as_deref(), Some("a\u{fffd}\u{fffd}b\u{fffd}"));
    }

    #[test]
    fn output_past_the_limit_is_cut_and_says_so() {
        let mut gathering = Gathering::default();
        for _ in 0..OUTPUT_MAX / 1_000 + 5 {
            gathering.push(&[b'x'; 1_000]);
            gathering.take(false);
        }
        gathering.push("日本: the end".as_bytes());
        let rest = gathering.rest().unwrap();
        assert!(rest.starts_with("[1015 bytes left out]\nxxx") && rest.ends_with("xxx日本: the end"), "{rest}");
        let kept = gathering.into_kept();
        assert_eq!(kept[OUTPUT_MAX..], format!("\n[output cut at 1000000 characters]\n{rest}"));
    }
}
