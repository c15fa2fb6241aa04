//! Transcripts on disk, read on from the offset where reading stopped. The client's adapter understands the lines.

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
    observed::{Observation, Progress, Seen, Source},
    spawn::hex,
};
use trackway_store::Clock;
use trackway_views::transcript::{Known, ReadTo};

/// Bytes of a line that is still read; a longer one is counted as bad.
const LINE_MAX: usize = 64 << 20;
/// Bytes read at once.
const BLOCK: usize = 256 << 10;
/// Facts after which what was read is written down.
const FACTS_MAX: usize = 4_000;
/// Bytes after which what was read is written down.
const BYTES_MAX: u64 = 16 << 20;
/// Bad lines that are named.
const NAMED_MAX: usize = 20;
/// How long a file must lie untouched before what it left open is taken as given up.
const GIVEN_UP: std::time::Duration = std::time::Duration::from_hours(1);
/// Bytes at the beginning of a file that tell it from another at once.
const HEAD: usize = 64;
/// Bytes at the beginning, and before where reading stopped, that must be what they were. Sessions begin alike.
const SEALED: u64 = 4 << 10;

/// A transcript: whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    pub path: PathBuf,
    pub session: String,
    /// The subagent whose file it is.
    pub agent: Option<String>,
}

/// Where reading stopped.
#[derive(Debug, Clone, Default)]
pub struct Mark {
    pub identity: String,
    pub offset: u64,
    /// When the file was last changed, as it was then.
    pub changed: Option<String>,
    pub state: Value,
}

impl From<ReadTo> for Mark {
    fn from(ReadTo { identity, read_to, changed, state }: ReadTo) -> Self {
        Self { identity, offset: u64::try_from(read_to).unwrap_or_default(), changed, state }
    }
}

impl From<Known> for Mark {
    fn from(Known { identity, read_to, changed, .. }: Known) -> Self {
        Self { identity, offset: u64::try_from(read_to).unwrap_or_default(), changed, state: Value::Null }
    }
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    pub bytes: u64,
    pub lines: i64,
    pub bad_lines: i64,
    /// Where the first bad lines begin.
    pub bad_at: Vec<u64>,
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Continue,
    Stop,
}

/// A line that cannot be read.
#[derive(Debug)]
pub struct BadLine;

/// Reads the lines of one transcript into facts, in order.
pub trait LineReader {
    /// Reads one line. `offset` is where it begins; `reread` returns an earlier line by its offset.
    fn line(
        &mut self,
        bytes: &[u8],
        offset: u64,
        reread: &mut dyn FnMut(u64) -> Option<Vec<u8>>,
    ) -> Result<(), BadLine>;

    /// Counts a line that is empty or cannot be read.
    fn skip(&mut self);

    /// Called at the end of the file: what was said last may have ended a turn.
    fn pause(&mut self);

    /// Called at the end of a file that nobody has written to for long: what is still open was given up.
    fn give_up(&mut self);

    /// The facts since the last call that emptied them.
    fn facts(&mut self) -> &mut Vec<Seen>;

    /// What has to be remembered to read on from here.
    fn state(&self) -> Value;

    /// Facts that the name of the file and the files beside it state.
    fn introduction(&self, at: Time) -> Vec<Seen>;
}

/// What is remembered of a file, in one value with the state of its reader.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct FileState {
    /// Whether reading stopped inside of a line that is too long: what is left of it is no line.
    skipping: bool,
    /// What the file held at its beginning and before where reading stopped.
    seal: Option<String>,
    /// When the file was last changed, as it was then.
    changed: Option<String>,
}

impl FileState {
    fn of(state: &Value) -> Self {
        Self::deserialize(state).unwrap_or_default()
    }

    fn with(&self, mut state: Value) -> Value {
        if let (Some(fields), Ok(Value::Object(own))) = (state.as_object_mut(), serde_json::to_value(self)) {
            fields.extend(own);
        }
        state
    }
}

/// Whether there may be something to read after a mark: a look at the file, not into it. One that was changed and is as
/// long as before may hold something else by now.
pub fn has_news(path: &Path, mark: Option<&Mark>) -> bool {
    let (Ok(file), Some(mark)) = (path.metadata(), mark) else { return true };
    let is_changed = mark.changed.as_ref().is_some_and(|changed| *changed != changed_at(&file));
    file.len() != mark.offset || !mark.identity.starts_with(&place_of(&file)) || is_changed
}

/// Whether a file has lain untouched for so long that nothing more is to be expected.
pub fn is_given_up(file: &std::fs::Metadata) -> bool {
    file.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age > GIVEN_UP)
}

#[cfg(unix)]
fn place_of(file: &std::fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    format!("{}:{}:", file.dev(), file.ino())
}

#[cfg(not(unix))]
fn place_of(_: &std::fs::Metadata) -> String {
    "file:".to_owned()
}

/// When a file was last changed. The system's own time, which whoever copies a file over it cannot set back.
#[cfg(unix)]
fn changed_at(file: &std::fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    format!("{}.{:09}", file.ctime(), file.ctime_nsec())
}

#[cfg(not(unix))]
fn changed_at(file: &std::fs::Metadata) -> String {
    format!("{:?}", file.modified().ok())
}

/// Reads what is new, and hands it on in parts that can be written one by one. `reader` makes the reader that continues from
/// a state; the state is null at the start of a file.
pub fn read_lines<R: LineReader>(
    client: &'static str,
    transcript: &Transcript,
    mark: Option<&Mark>,
    reader: impl FnOnce(&str, Value) -> R,
    sink: &mut dyn FnMut(Observation) -> Flow,
) -> io::Result<Tally> {
    let mut file = File::open(&transcript.path)?;
    let about = file.metadata()?;
    let mut head = Vec::with_capacity(HEAD);
    (&mut file).take(about.len().min(HEAD as u64)).read_to_end(&mut head)?;
    let identity = format!("{}{}", place_of(&about), hex(&Sha256::digest(&head)[..8]));
    let known = mark.map(|mark| FileState::of(&mark.state)).unwrap_or_default();
    let changed = changed_at(&about);
    let is_changed = mark.is_some() && known.changed.as_ref() != Some(&changed);
    let mut is_sealed = |mark: &&Mark| known.seal.is_none() || known.seal == seal(&mut file, mark.offset);
    let goes_on = mark.filter(|mark| mark.identity == identity && mark.offset <= about.len()).filter(&mut is_sealed);
    let (from, state, skipping) =
        goes_on.map_or((0, Value::Null, false), |mark| (mark.offset, mark.state.clone(), known.skipping));
    file.seek(SeekFrom::Start(from))?;
    let path = transcript.path.to_string_lossy().into_owned();
    let mut part = Part {
        client,
        transcript,
        again: File::open(&transcript.path).ok(),
        reader: reader(&path, state),
        path,
        identity,
        state: FileState { skipping, seal: None, changed: Some(changed) },
        anew: mark.is_some() && goes_on.is_none(),
        begun: from,
        offset: from,
        tally: Tally::default(),
        told: (0, 0),
        introduced: from > 0,
    };
    // As much as there is. What the system makes up as it is read has no length, and may have no end.
    let mut lines = Lines::new(file.take(about.len().saturating_sub(from)));
    while let Some(line) = lines.next()? {
        part.line(&line, &lines);
        if (part.reader.facts().len() >= FACTS_MAX || part.offset - part.begun >= BYTES_MAX)
            && sink(part.told()) == Flow::Stop
        {
            return Ok(part.tally);
        }
    }
    part.reader.pause();
    if is_given_up(&about) {
        part.reader.give_up();
    }
    if part.offset > part.begun || !part.reader.facts().is_empty() || part.anew || is_changed {
        sink(part.told());
    }
    Ok(part.tally)
}

/// A part of a transcript that is being read.
struct Part<'a, R> {
    client: &'static str,
    transcript: &'a Transcript,
    /// The same file once more, for calls whose answer comes much later.
    again: Option<File>,
    reader: R,
    path: String,
    identity: String,
    state: FileState,
    anew: bool,
    begun: u64,
    offset: u64,
    tally: Tally,
    /// Lines and bad lines that were handed on.
    told: (i64, i64),
    introduced: bool,
}

impl<R: LineReader> Part<'_, R> {
    fn line(&mut self, line: &Raw, lines: &Lines) {
        let offset = self.offset;
        self.offset += line.length;
        self.tally.bytes += line.length;
        if self.state.skipping {
            self.state.skipping = !line.whole;
            return;
        }
        let bytes = lines.bytes(line);
        if !line.too_long && bytes.trim_ascii().is_empty() {
            if line.whole {
                self.reader.skip();
            }
            return;
        }
        let again = &mut self.again;
        let mut reread = |offset| again.as_mut().and_then(|file| line_at(file, offset));
        let read = if line.too_long { Err(BadLine) } else { self.reader.line(bytes, offset, &mut reread) };
        match read {
            Ok(()) => self.tally.lines += 1,
            Err(BadLine) if !line.whole && !line.too_long => {
                // Half a line is being written: it is read when it is whole.
                self.offset -= line.length;
                self.tally.bytes -= line.length;
            }
            Err(BadLine) => {
                self.state.skipping = !line.whole;
                self.reader.skip();
                self.tally.lines += 1;
                self.tally.bad_lines += 1;
                if self.tally.bad_at.len() < NAMED_MAX {
                    self.tally.bad_at.push(offset);
                }
            }
        }
    }

    /// What was read since the last part.
    fn told(&mut self) -> Observation {
        let mut facts = std::mem::take(self.reader.facts());
        if !std::mem::replace(&mut self.introduced, true) {
            let at = facts.first().map_or_else(|| Clock::system().now(), |seen| seen.at);
            facts.splice(0..0, self.reader.introduction(at));
        }
        self.state.seal = self.again.as_mut().and_then(|file| seal(file, self.offset));
        let progress = Progress {
            path: self.path.clone(),
            identity: self.identity.clone(),
            agent: self.transcript.agent.clone(),
            from: self.begun.cast_signed(),
            to: self.offset.cast_signed(),
            anew: std::mem::take(&mut self.anew),
            lines: self.tally.lines - self.told.0,
            bad_lines: self.tally.bad_lines - self.told.1,
            state: self.state.with(self.reader.state()),
        };
        self.told = (self.tally.lines, self.tally.bad_lines);
        self.begun = self.offset;
        Observation {
            client: self.client,
            session: self.transcript.session.clone(),
            source: Source::Transcript,
            facts,
            progress: Some(progress),
        }
    }
}

/// What a file holds at its beginning and before an offset, as a digest.
fn seal(file: &mut File, offset: u64) -> Option<String> {
    let length = offset.min(SEALED);
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
    (!line.too_long).then(|| lines.bytes(&line).to_vec())
}

/// Lines of a file, one at a time, through one buffer.
struct Lines<R = Take<File>> {
    file: R,
    buffer: Vec<u8>,
    /// What of the buffer is not handed out yet.
    start: usize,
    end: usize,
    ended: bool,
}

/// Where a line is in the buffer.
struct Raw {
    start: usize,
    end: usize,
    /// Bytes in the file, the line's end included.
    length: u64,
    whole: bool,
    too_long: bool,
}

impl<R: Read> Lines<R> {
    fn new(file: R) -> Self {
        Self { file, buffer: Vec::new(), start: 0, end: 0, ended: false }
    }

    fn bytes(&self, line: &Raw) -> &[u8] {
        &self.buffer[line.start..line.end]
    }

    fn next(&mut self) -> io::Result<Option<Raw>> {
        let mut searched = self.start;
        let mut dropped = 0_u64;
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                let (start, end) = (self.start, searched + found);
                self.start = end + 1;
                let length = (end + 1 - start) as u64 + dropped;
                return Ok(Some(Raw { start, end, length, whole: true, too_long: dropped > 0 }));
            }
            searched = self.end;
            if self.ended {
                let (start, end) = (self.start, self.end);
                self.start = end;
                let length = (end - start) as u64 + dropped;
                return Ok((length > 0).then_some(Raw { start, end, length, whole: false, too_long: dropped > 0 }));
            }
            if self.end - self.start > LINE_MAX {
                // Too long to be one of ours: only its end is looked for from here on.
                dropped += (self.end - self.start) as u64;
                (self.start, self.end, searched) = (0, 0, 0);
            }
            searched -= self.fill()?;
        }
    }

    /// Reads on, and says by how much the buffer moved.
    fn fill(&mut self) -> io::Result<usize> {
        let moved = self.start;
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - moved);
        if self.buffer.len() < self.end + BLOCK {
            self.buffer.resize(self.end + BLOCK, 0);
        }
        match self.file.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.ended = true,
            Ok(count) => self.end += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(moved)
    }
}
