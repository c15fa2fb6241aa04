//! Reads server-sent events and bodies of responses, up to a size limit.

use std::io::{BufRead, Read};

/// Maximum bytes of a response. No model writes as much in one turn.
pub const ANSWER_MAX: u64 = 4 << 20;

#[derive(Debug)]
pub enum ReadError {
    TooLong,
    /// The connection was lost, or timed out.
    Broken(std::io::Error),
}

/// Calls `take` with the data of each event, until it returns false or the stream ends.
pub fn each_event(body: impl BufRead, mut take: impl FnMut(&str) -> bool) -> Result<(), ReadError> {
    let mut body = body.take(ANSWER_MAX);
    let (mut line, mut data) = (Vec::new(), String::new());
    loop {
        line.clear();
        if body.read_until(b'\n', &mut line).map_err(ReadError::Broken)? == 0 {
            return if body.limit() == 0 { Err(ReadError::TooLong) } else { Ok(()) };
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

pub fn read_all(body: impl Read) -> Result<Vec<u8>, ReadError> {
    let mut body = body.take(ANSWER_MAX + 1);
    let mut bytes = Vec::new();
    body.read_to_end(&mut bytes).map_err(ReadError::Broken)?;
    if body.limit() == 0 { Err(ReadError::TooLong) } else { Ok(bytes) }
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
    fn joins_data_lines_of_an_event() {
        assert_eq!(events(b"event: x\r\ndata: {\"a\":\r\ndata:1}\r\n\r\n: note\n\ndata: b\n\n"), ["{\"a\":\n1}", "b"]);
        assert_eq!(events(b"data: half"), Vec::<String>::new());
        assert_eq!(events(b"data: stop\n\ndata: more\n\n"), ["stop"]);
    }

    #[test]
    fn rejects_responses_over_the_limit() {
        let long = std::iter::repeat_n(b'x', 5 << 20).collect::<Vec<u8>>();
        assert!(matches!(read_all(&long[..]), Err(ReadError::TooLong)));
        assert!(matches!(each_event(&long[..], |_| true), Err(ReadError::TooLong)));
    }
}
