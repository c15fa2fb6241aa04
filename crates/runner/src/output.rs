//! Splits the output of a script into chunks of text for the steps of its run, up to a limit.

use std::{
    mem,
    time::{Duration, Instant},
};

/// Maximum characters of output that are recorded for one run.
pub const OUTPUT_TOKENS_MAX: usize = 1_000_000;
/// Output over the limit is dropped, except for this many bytes at its end.
const TAIL_BYTES: usize = 4_000;
/// Bytes after which a chunk is complete.
const CHUNK_BYTES: usize = 16_000;
/// The time for which a smaller chunk waits for more output.
const CHUNK_WAIT: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub struct OutputBuffer {
    bytes: Vec<u8>,
    since: Option<Instant>,
    /// Characters until the limit.
    left: usize,
    /// Whether the output exceeded the limit.
    is_cut: bool,
    /// The end of the output over the limit.
    tail: Vec<u8>,
    /// Bytes between the limit and `tail`.
    dropped_bytes: usize,
    /// All recorded output.
    text: String,
}

impl Default for OutputBuffer {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            since: None,
            left: OUTPUT_TOKENS_MAX,
            is_cut: false,
            tail: Vec::new(),
            dropped_bytes: 0,
            text: String::new(),
        }
    }
}

impl OutputBuffer {
    /// Adds output. Over the limit only the last bytes are kept, because they usually contain the error.
    pub fn push(&mut self, output: &[u8]) {
        if self.is_cut {
            self.push_tail(output);
        } else if !output.is_empty() {
            self.bytes.extend_from_slice(output);
            self.since.get_or_insert_with(Instant::now);
        }
    }

    fn push_tail(&mut self, output: &[u8]) {
        self.tail.extend_from_slice(output);
        let over = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..over);
        self.dropped_bytes += over;
    }

    /// A chunk, if it is large enough or has waited long enough.
    pub fn next_chunk(&mut self, now: Instant) -> Option<String> {
        let waited = self.since.is_some_and(|since| now.duration_since(since) >= CHUNK_WAIT);
        (self.bytes.len() >= CHUNK_BYTES || waited).then(|| self.take_text(false))?
    }

    /// The last chunk, after the script has ended.
    pub fn take_rest(&mut self) -> Option<String> {
        let rest = self.take_text(true);
        if self.tail.is_empty() {
            return rest;
        }
        let tail = mem::take(&mut self.tail);
        // The tail may begin inside a character.
        let start = tail.iter().position(|byte| byte & 0xC0 != 0x80).unwrap_or_default();
        let end = String::from_utf8_lossy(&tail[start..]);
        let end = match self.dropped_bytes {
            0 => end.into_owned(),
            dropped_bytes => format!("[{dropped_bytes} bytes left out]\n{end}"),
        };
        self.text.push_str(&end);
        Some(rest.unwrap_or_default() + &end)
    }

    /// All recorded output.
    pub fn into_text(self) -> String {
        self.text
    }

    fn take_text(&mut self, at_end: bool) -> Option<String> {
        // The last character may be incomplete until more output arrives.
        let whole = if at_end { self.bytes.len() } else { complete_characters(&self.bytes) };
        let bytes = mem::take(&mut self.bytes);
        let (now, later) = bytes.split_at(whole);
        self.bytes = later.to_vec();
        self.since = (!self.bytes.is_empty()).then(Instant::now);
        let mut text = String::from_utf8_lossy(now).into_owned();
        let length = text.chars().count();
        if length > self.left {
            let beyond: String = text.chars().skip(self.left).collect();
            self.push_tail(beyond.as_bytes());
            self.push_tail(later);
            text = text.chars().take(self.left).collect();
            text.push_str(&format!("\n[output cut at {OUTPUT_TOKENS_MAX} characters]\n"));
            self.is_cut = true;
            self.bytes.clear();
            self.since = None;
        } else {
            self.left -= length;
        }
        self.text.push_str(&text);
        (!text.is_empty()).then_some(text)
    }
}

/// The number of bytes before an incomplete UTF-8 character at the end.
fn complete_characters(bytes: &[u8]) -> usize {
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
    fn joins_characters_split_between_reads() {
        let mut buffer = OutputBuffer::default();
        let text = "über 日本";
        let mut chunks = String::new();
        for byte in text.as_bytes() {
            buffer.push(&[*byte]);
            chunks.extend(buffer.take_text(false));
        }
        chunks.extend(buffer.take_rest());
        assert_eq!(chunks, text);
    }

    #[test]
    fn invalid_utf8_becomes_replacement_characters() {
        let mut buffer = OutputBuffer::default();
        buffer.push(b"a\xff\xfeb\xf0");
        assert_eq!(buffer.take_rest().as_deref(), Some("a\u{fffd}\u{fffd}b\u{fffd}"));
    }

    #[test]
    fn output_over_the_limit_is_cut_with_a_note() {
        let mut buffer = OutputBuffer::default();
        for _ in 0..OUTPUT_TOKENS_MAX / 1_000 + 5 {
            buffer.push(&[b'x'; 1_000]);
            buffer.take_text(false);
        }
        buffer.push("日本: the end".as_bytes());
        let rest = buffer.take_rest().unwrap();
        assert!(rest.starts_with("[1015 bytes left out]\nxxx") && rest.ends_with("xxx日本: the end"), "{rest}");
        let text = buffer.into_text();
        assert_eq!(text[OUTPUT_TOKENS_MAX..], format!("\n[output cut at 1000000 characters]\n{rest}"));
    }
}
