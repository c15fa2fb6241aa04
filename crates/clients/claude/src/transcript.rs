//! Transcripts of the client: one JSON value on each line.

use serde_json::Value;
use trackway_capture::transcript::{BadLine, Flow, LineReader, Mark, Tally, Transcript, read_lines};
use trackway_domain::{
    Time,
    observed::{Fact, Observation, PromptKey, Seen, SessionFacts},
};

use crate::{agent_file, line, reading::Reading};

/// Reads what is new in a transcript, and hands it on in parts.
pub fn read(
    transcript: &Transcript,
    mark: Option<&Mark>,
    sink: &mut dyn FnMut(Observation) -> Flow,
) -> std::io::Result<Tally> {
    let reader = |path: &str, state: Value| Reader {
        transcript,
        reading: Reading::new(path, transcript.agent.as_deref(), serde_json::from_value(state).unwrap_or_default()),
    };
    read_lines(transcript, mark, reader, sink)
}

/// Reads the lines of one file.
struct Reader<'a> {
    transcript: &'a Transcript,
    reading: Reading,
}

impl LineReader for Reader<'_> {
    fn line(
        &mut self,
        bytes: &[u8],
        offset: u64,
        reread: &mut dyn FnMut(u64) -> Option<Vec<u8>>,
    ) -> Result<(), BadLine> {
        let text = String::from_utf8_lossy(bytes);
        match line::read(&text, |line| self.reading.take(line, offset, reread)) {
            Ok(()) => {}
            // JSON of a shape that no version had so far is skipped; anything else is a bad line.
            Err(_) if serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok() => self.reading.pass(),
            Err(_) => return Err(BadLine),
        }
        Ok(())
    }

    fn skip(&mut self) {
        self.reading.pass();
    }

    fn pause(&mut self) {
        self.reading.pause();
    }

    fn give_up(&mut self) {
        self.reading.give_up();
    }

    fn facts(&mut self) -> &mut Vec<Seen> {
        &mut self.reading.facts
    }

    fn state(&self) -> Value {
        serde_json::to_value(&self.reading.state).unwrap_or_default()
    }

    fn introduction(&self, at: Time) -> Vec<Seen> {
        match &self.transcript.agent {
            None => {
                let path = self.transcript.path.to_string_lossy().into_owned();
                let facts = SessionFacts { transcript_path: Some(path), ..SessionFacts::default() };
                vec![Seen::new(at, None, &PromptKey::default(), Fact::Session(Box::new(facts)))]
            }
            Some(agent) => {
                let seen = |fact| Seen::new(at, Some(agent), &PromptKey::default(), fact);
                agent_file::facts(&self.transcript.path, agent).into_iter().map(seen).collect()
            }
        }
    }
}
