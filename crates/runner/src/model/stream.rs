//! Server-sent events, read line by line and no further than is good for anyone.

use std::io::{BufRead, Read};

/// Bytes of an answer that are read. No model says as much in one turn.
pub const ANSWER_MAX: u64 = 4 << 20;

/// How reading an answer stopped.
#[derive(Debug)]
pub enum Stopped {
    TooLong,
    /// The connection broke, or time was up.
    Broken(std::io::Error),
}

/// Hands the data of each event on until there are no more, or `take` has had enough.
pub fn each_event(body: impl BufRead, mut take: impl FnMut(&str) -> bool) -> Result<(), Stopped> {
    let mut body = body.take(ANSWER_MAX);
    let (mut line, mut data) = (Vec::new(), String::new());
    loop {
        line.clear();
        if body.read_until(b'\n', &mut line).map_err(Stopped::Broken)? == 0 {
            return if body.limit() == 0 { Err(Stopped::TooLong) } else { Ok(()) };
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\r', '\n']);
        if let Some(more) = text.strip_prefix("data:") {
            if !data.is_empty() {
                data.push('\n');
            }
            data.push_str(more.strip_prefix(' ').unwrap_or(more));
        } else if text.is_empty() && !data.is_empty() {
            if !take(&data) {
                return Ok(());
            }
            data.clear();
        }
    }
}

/// Reads a whole body.
pub fn whole(body: impl Read) -> Result<Vec<u8>, Stopped> {
    let mut body = body.take(ANSWER_MAX + 1);
    let mut bytes = Vec::new();
    body.read_to_end(&mut bytes).map_err(Stopped::Broken)?;
    if body.limit() == 0 { Err(Stopped::TooLong) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &[u8]) -> Vec<String> {
        let mut all = Vec::new();
        each_event(text, |data| {
            all.push(data.to_owned());
            data != "stop"
        })
        .unwrap();
        all
    }

    #[test]
    fn events_are_put_together() {
        assert_eq!(events(b"event: x\r\ndata: {\"a\":\r\ndata:1}\r\n\r\n: note\n\ndata: b\n\n"), ["{\"a\":\n1}", "b"]);
        assert_eq!(events(b"data: half"), Vec::<String>::new());
        assert_eq!(events(b"data: stop\n\ndata: more\n\n"), ["stop"]);
    }

    #[test]
    fn too_long_is_said() {
        let long = std::iter::repeat_n(b'x', 5 << 20).collect::<Vec<u8>>();
        assert!(matches!(whole(&long[..]), Err(Stopped::TooLong)));
        assert!(matches!(each_event(&long[..], |_| true), Err(Stopped::TooLong)));
    }
}
