//! Reads the client's transcripts, which have one JSON value per line.

use serde_json::Value;
use trackway_capture::transcript::{BadLine, Flow, LineReader, ReadCursor, ReadStats, Transcript, read_lines};
use trackway_domain::{
    Time,
    observed::{Fact, Observation, ObservedFact, PromptKey, SessionFacts},
};

use crate::{NAME, agent_file, fact_extractor::FactExtractor, line};

/// Reads a transcript from the cursor to the end, and passes the facts on in batches.
pub fn read(
    transcript: &Transcript,
    mark: Option<&ReadCursor>,
    sink: &mut dyn FnMut(Observation) -> Flow,
) -> std::io::Result<ReadStats> {
    let reader = |path: &str, state: Value| Reader {
        transcript,
        extractor: FactExtractor::new(
            path,
            transcript.agent.as_deref(),
            serde_json::from_value(state).unwrap_or_default(),
        ),
    };
    read_lines(NAME, transcript, mark, reader, sink)
}

struct Reader<'a> {
    transcript: &'a Transcript,
    extractor: FactExtractor,
}

impl LineReader for Reader<'_> {
    fn parse_line(
        &mut self,
        bytes: &[u8],
        offset: u64,
        reread: &mut dyn FnMut(u64) -> Option<Vec<u8>>,
    ) -> Result<(), BadLine> {
        let text = String::from_utf8_lossy(bytes);
        match line::read(&text, |line| self.extractor.process_line(line, offset, reread)) {
            Ok(()) => {}
            // Skips valid JSON of an unknown shape. Anything else is a bad line.
            Err(_) if serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok() => self.extractor.skip_line(),
            Err(_) => return Err(BadLine),
        }
        Ok(())
    }

    fn skip(&mut self) {
        self.extractor.skip_line();
    }

    fn end_of_file(&mut self) {
        self.extractor.end_of_file();
    }

    fn abandon(&mut self) {
        self.extractor.abandon();
    }

    fn facts(&mut self) -> &mut Vec<ObservedFact> {
        &mut self.extractor.facts
    }

    fn state(&self) -> Value {
        serde_json::to_value(&self.extractor.state).unwrap_or_default()
    }

    fn file_facts(&self, at: Time) -> Vec<ObservedFact> {
        match &self.transcript.agent {
            None => {
                let path = self.transcript.path.to_string_lossy().into_owned();
                let facts = SessionFacts { transcript_path: Some(path), ..SessionFacts::default() };
                vec![ObservedFact::new(at, None, &PromptKey::default(), Fact::Session(Box::new(facts)))]
            }
            Some(agent) => {
                let seen = |fact| ObservedFact::new(at, Some(agent), &PromptKey::default(), fact);
                agent_file::facts(&self.transcript.path, agent).into_iter().map(seen).collect()
            }
        }
    }
}
