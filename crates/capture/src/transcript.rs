//! Reads transcripts incrementally, from the offset where the last read stopped. The client's adapter parses the lines.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Take},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use trackway_domain::{
    Time,
    observed::{Observation, ObservedFact, Source, TranscriptProgress},
    spawn::hex,
};
use trackway_store::Clock;
use trackway_views::transcript::{KnownTranscript, TranscriptCursor};

/// Maximum number of bytes of a line. A longer line counts as bad.
const LINE_MAX: usize = 64 << 20;
/// Bytes of one read call.
const READ_BYTES: usize = 256 << 10;
/// Number of facts after which the reader emits an observation.
const FACTS_MAX: usize = 4_000;
/// Number of bytes after which the reader emits an observation.
const BYTES_MAX: u64 = 16 << 20;
/// Maximum number of bad lines whose offsets are reported.
const BAD_OFFSETS_MAX: usize = 20;
/// Time without a change to a file after which its session counts as abandoned.
const ABANDONED_AFTER: std::time::Duration = std::time::Duration::from_hours(1);
/// Bytes at the beginning of a file that are part of its identity.
const IDENTITY_BYTES: usize = 64;
/// Bytes at the beginning of a file, and before the cursor, that are part of its seal. Many sessions begin with the
/// same bytes, so the beginning alone is not enough.
const SEAL_BYTES: u64 = 4 << 10;

/// A transcript file, with the session and the agent that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    pub path: PathBuf,
    pub session: String,
    /// The subagent, if the file is not the session's own.
    pub agent: Option<String>,
}

/// The position in a transcript where the last read stopped, and the state of its reader.
#[derive(Debug, Clone, Default)]
pub struct ReadCursor {
    pub identity: String,
    pub offset: u64,
    /// The change time of the file at the last read.
    pub changed: Option<String>,
    pub state: Value,
}

impl From<TranscriptCursor> for ReadCursor {
    fn from(TranscriptCursor { identity, read_to, changed, state }: TranscriptCursor) -> Self {
        Self { identity, offset: u64::try_from(read_to).unwrap_or_default(), changed, state }
    }
}

impl From<KnownTranscript> for ReadCursor {
    fn from(KnownTranscript { identity, read_to, changed, .. }: KnownTranscript) -> Self {
        Self { identity, offset: u64::try_from(read_to).unwrap_or_default(), changed, state: Value::Null }
    }
}

/// The numbers of bytes and lines that a read covered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadStats {
    pub bytes: u64,
    pub lines: i64,
    pub bad_lines: i64,
    /// The offsets of the first bad lines.
    pub bad_at: Vec<u64>,
}

/// Whether the reader should continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Continue,
    Stop,
}

/// A line that cannot be parsed.
#[derive(Debug)]
pub struct BadLine;

/// Parses the lines of one transcript into facts, in order.
pub trait LineReader {
    /// Parses one line. `offset` is the offset of its first byte; `reread` returns an earlier line by its offset.
    fn parse_line(
        &mut self,
        bytes: &[u8],
        offset: u64,
        reread: &mut dyn FnMut(u64) -> Option<Vec<u8>>,
    ) -> Result<(), BadLine>;

    /// Counts a line that is empty or bad.
    fn skip(&mut self);

    /// Called at the present end of the file, where the last message may have ended a turn.
    fn end_of_file(&mut self);

    /// Called at the end of a file whose session is abandoned. Open runs have ended.
    fn abandon(&mut self);

    /// The facts that were not emitted yet. The caller empties the list.
    fn facts(&mut self) -> &mut Vec<ObservedFact>;

    /// The state that a reader needs to continue from here.
    fn state(&self) -> Value;

    /// Facts from the name of the file and from the files next to it.
    fn file_facts(&self, at: Time) -> Vec<ObservedFact>;
}

/// The stored state of a file. It is stored in one JSON object with the state of the file's reader.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct FileState {
    /// Whether the last read stopped inside a line that is too long, so that the rest of the line must be skipped.
    skipping: bool,
    /// A digest of the bytes at the beginning of the file and before the cursor.
    seal: Option<String>,
    /// The change time of the file at the last read.
    changed: Option<String>,
}

impl FileState {
    fn from_reader_state(state: &Value) -> Self {
        Self::deserialize(state).unwrap_or_default()
    }

    fn merged_into(&self, mut state: Value) -> Value {
        if let (Some(fields), Ok(Value::Object(own))) = (state.as_object_mut(), serde_json::to_value(self)) {
            fields.extend(own);
        }
        state
    }
}

/// Whether a file may have new content after the cursor. Checks only the metadata of the file. A changed file of the
/// same length may have other content.
pub fn has_news(path: &Path, cursor: Option<&ReadCursor>) -> bool {
    let (Ok(file), Some(cursor)) = (path.metadata(), cursor) else { return true };
    let is_changed = cursor.changed.as_ref().is_some_and(|changed| *changed != changed_at(&file));
    file.len() != cursor.offset || !cursor.identity.starts_with(&file_identity_prefix(&file)) || is_changed
}

/// Whether nothing has written a file for so long that its session counts as abandoned.
pub fn is_abandoned(file: &std::fs::Metadata) -> bool {
    file.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age > ABANDONED_AFTER)
}

#[cfg(unix)]
fn file_identity_prefix(file: &std::fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    format!("{}:{}:", file.dev(), file.ino())
}

#[cfg(not(unix))]
fn file_identity_prefix(_: &std::fs::Metadata) -> String {
    "file:".to_owned()
}

/// The change time of a file (ctime). A copy that preserves times can set back the modification time, but not the
/// change time.
#[cfg(unix)]
fn changed_at(file: &std::fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    format!("{}.{:09}", file.ctime(), file.ctime_nsec())
}

#[cfg(not(unix))]
fn changed_at(file: &std::fs::Metadata) -> String {
    format!("{:?}", file.modified().ok())
}

/// Reads the new lines of a transcript, and passes observations to `sink` that can be written separately. `new_reader`
/// creates a reader that continues from a state. The state is null at the start of a file.
pub fn read_lines<R: LineReader>(
    client: &'static str,
    transcript: &Transcript,
    cursor: Option<&ReadCursor>,
    new_reader: impl FnOnce(&str, Value) -> R,
    sink: &mut dyn FnMut(Observation) -> Flow,
) -> io::Result<ReadStats> {
    let mut file = File::open(&transcript.path)?;
    let metadata = file.metadata()?;
    let mut head = Vec::with_capacity(IDENTITY_BYTES);
    (&mut file).take(metadata.len().min(IDENTITY_BYTES as u64)).read_to_end(&mut head)?;
    let identity = format!("{}{}", file_identity_prefix(&metadata), hex(&Sha256::digest(&head)[..8]));
    let stored = cursor.map(|cursor| FileState::from_reader_state(&cursor.state)).unwrap_or_default();
    let changed = changed_at(&metadata);
    let is_changed = cursor.is_some() && stored.changed.as_ref() != Some(&changed);
    let mut has_same_seal =
        |cursor: &&ReadCursor| stored.seal.is_none() || stored.seal == seal(&mut file, cursor.offset);
    let valid_cursor = cursor
        .filter(|cursor| cursor.identity == identity && cursor.offset <= metadata.len())
        .filter(&mut has_same_seal);
    let (from, state, skipping) =
        valid_cursor.map_or((0, Value::Null, false), |cursor| (cursor.offset, cursor.state.clone(), stored.skipping));
    file.seek(SeekFrom::Start(from))?;
    let path = transcript.path.to_string_lossy().into_owned();
    let mut part = Part {
        client,
        transcript,
        reread_file: File::open(&transcript.path).ok(),
        reader: new_reader(&path, state),
        path,
        identity,
        state: FileState { skipping, seal: None, changed: Some(changed) },
        is_restarted: cursor.is_some() && valid_cursor.is_none(),
        start: from,
        offset: from,
        stats: ReadStats::default(),
        reported: (0, 0),
        has_file_facts: from > 0,
    };
    // Read only up to the present length. Special files, such as those in /proc, have no length and may be endless.
    let mut lines = Lines::new(file.take(metadata.len().saturating_sub(from)));
    while let Some(line) = lines.next()? {
        part.line(&line, &lines);
        if (part.reader.facts().len() >= FACTS_MAX || part.offset - part.start >= BYTES_MAX)
            && sink(part.take_observation()) == Flow::Stop
        {
            return Ok(part.stats);
        }
    }
    part.reader.end_of_file();
    if is_abandoned(&metadata) {
        part.reader.abandon();
    }
    if part.offset > part.start || !part.reader.facts().is_empty() || part.is_restarted || is_changed {
        sink(part.take_observation());
    }
    Ok(part.stats)
}

/// The part of a transcript since the last observation.
struct Part<'a, R> {
    client: &'static str,
    transcript: &'a Transcript,
    /// A second handle of the file, to read earlier lines again: the answer to a call may come much later than the
    /// call.
    reread_file: Option<File>,
    reader: R,
    path: String,
    identity: String,
    state: FileState,
    is_restarted: bool,
    start: u64,
    offset: u64,
    stats: ReadStats,
    /// The numbers of lines and bad lines in earlier observations.
    reported: (i64, i64),
    has_file_facts: bool,
}

impl<R: LineReader> Part<'_, R> {
    fn line(&mut self, line: &LineRange, lines: &Lines) {
        let offset = self.offset;
        self.offset += line.length;
        self.stats.bytes += line.length;
        if self.state.skipping {
            self.state.skipping = !line.is_complete;
            return;
        }
        let bytes = lines.bytes(line);
        if !line.is_too_long && bytes.trim_ascii().is_empty() {
            if line.is_complete {
                self.reader.skip();
            }
            return;
        }
        let reread_file = &mut self.reread_file;
        let mut reread = |offset| reread_file.as_mut().and_then(|file| line_at(file, offset));
        let read = if line.is_too_long { Err(BadLine) } else { self.reader.parse_line(bytes, offset, &mut reread) };
        match read {
            Ok(()) => self.stats.lines += 1,
            Err(BadLine) if !line.is_complete && !line.is_too_long => {
                // The client is still writing this line. Read it when it is complete.
                self.offset -= line.length;
                self.stats.bytes -= line.length;
            }
            Err(BadLine) => {
                self.state.skipping = !line.is_complete;
                self.reader.skip();
                self.stats.lines += 1;
                self.stats.bad_lines += 1;
                if self.stats.bad_at.len() < BAD_OFFSETS_MAX {
                    self.stats.bad_at.push(offset);
                }
            }
        }
    }

    /// Takes the facts since the last observation.
    fn take_observation(&mut self) -> Observation {
        let mut facts = std::mem::take(self.reader.facts());
        if !std::mem::replace(&mut self.has_file_facts, true) {
            let at = facts.first().map_or_else(|| Clock::system().now(), |seen| seen.at);
            facts.splice(0..0, self.reader.file_facts(at));
        }
        self.state.seal = self.reread_file.as_mut().and_then(|file| seal(file, self.offset));
        let progress = TranscriptProgress {
            path: self.path.clone(),
            identity: self.identity.clone(),
            agent: self.transcript.agent.clone(),
            from: self.start.cast_signed(),
            to: self.offset.cast_signed(),
            is_restarted: std::mem::take(&mut self.is_restarted),
            lines: self.stats.lines - self.reported.0,
            bad_lines: self.stats.bad_lines - self.reported.1,
            state: self.state.merged_into(self.reader.state()),
        };
        self.reported = (self.stats.lines, self.stats.bad_lines);
        self.start = self.offset;
        Observation {
            client: self.client,
            session: self.transcript.session.clone(),
            source: Source::Transcript,
            facts,
            progress: Some(progress),
        }
    }
}

/// A digest of the bytes at the beginning of a file and before an offset.
fn seal(file: &mut File, offset: u64) -> Option<String> {
    let length = offset.min(SEAL_BYTES);
    let mut bytes = Vec::new();
    for start in [0, offset - length] {
        file.seek(SeekFrom::Start(start)).ok()?;
        (&mut *file).take(length).read_to_end(&mut bytes).ok()?;
    }
    Some(hex(&Sha256::digest(&bytes)[..8]))
}

/// The line that begins at an offset.
fn line_at(file: &mut File, offset: u64) -> Option<Vec<u8>> {
    file.seek(SeekFrom::Start(offset)).ok()?;
    let mut lines = Lines::new(file);
    let line = lines.next().ok()??;
    (!line.is_too_long).then(|| lines.bytes(&line).to_vec())
}

/// Reads the lines of a file one by one into a buffer.
struct Lines<R = Take<File>> {
    file: R,
    buffer: Vec<u8>,
    /// The range of the buffer whose lines were not returned yet.
    start: usize,
    end: usize,
    is_at_end: bool,
}

/// The range of a line in the buffer.
struct LineRange {
    start: usize,
    end: usize,
    /// Bytes of the line in the file, with its line feed.
    length: u64,
    is_complete: bool,
    is_too_long: bool,
}

impl<R: Read> Lines<R> {
    fn new(file: R) -> Self {
        Self { file, buffer: Vec::new(), start: 0, end: 0, is_at_end: false }
    }

    fn bytes(&self, line: &LineRange) -> &[u8] {
        &self.buffer[line.start..line.end]
    }

    fn next(&mut self) -> io::Result<Option<LineRange>> {
        let mut searched = self.start;
        let mut dropped = 0_u64;
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                let (start, end) = (self.start, searched + found);
                self.start = end + 1;
                let length = (end + 1 - start) as u64 + dropped;
                return Ok(Some(LineRange { start, end, length, is_complete: true, is_too_long: dropped > 0 }));
            }
            searched = self.end;
            if self.is_at_end {
                let (start, end) = (self.start, self.end);
                self.start = end;
                let length = (end - start) as u64 + dropped;
                return Ok((length > 0).then_some(LineRange {
                    start,
                    end,
                    length,
                    is_complete: false,
                    is_too_long: dropped > 0,
                }));
            }
            if self.end - self.start > LINE_MAX {
                // The line is too long. Drop its bytes, and search only for its end.
                dropped += (self.end - self.start) as u64;
                (self.start, self.end, searched) = (0, 0, 0);
            }
            searched -= self.fill()?;
        }
    }

    /// Reads more bytes, and returns by how much the content of the buffer moved.
    fn fill(&mut self) -> io::Result<usize> {
        let moved = self.start;
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - moved);
        if self.buffer.len() < self.end + READ_BYTES {
            self.buffer.resize(self.end + READ_BYTES, 0);
        }
        match self.file.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.is_at_end = true,
            Ok(count) => self.end += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(moved)
    }
}
