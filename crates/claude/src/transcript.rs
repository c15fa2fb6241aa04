//! A transcript on disk, read from where reading stopped: streaming, whatever is in it.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Take},
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde_json::json;
use sha2::{Digest, Sha256};
use trackway_domain::{
    Time,
    observed::{Fact, Observation, Progress, PromptKey, Seen, SessionFacts, Source, SubagentFacts},
    spawn::hex,
    words::Evidence,
};

use crate::{
    lenient::name,
    line,
    reading::{Reading, State},
    redact::redacted,
};

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
/// Bytes in a meta.json.
const META_MAX: u64 = 64 << 10;
/// How deep agents start agents.
const DEPTH_MAX: i64 = 1_000;
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
    pub state: serde_json::Value,
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

/// A line that is not JSON.
struct Bad;

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

/// Reads what is new, and hands it on in parts that can be written down one by one.
pub fn read<E: From<io::Error>>(
    transcript: &Transcript,
    mark: Option<&Mark>,
    mut sink: impl FnMut(Observation) -> Result<Flow, E>,
) -> Result<Tally, E> {
    let mut file = File::open(&transcript.path)?;
    let about = file.metadata()?;
    let mut head = Vec::with_capacity(HEAD);
    (&mut file).take(about.len().min(HEAD as u64)).read_to_end(&mut head)?;
    let identity = format!("{}{}", place_of(&about), hex(&Sha256::digest(&head)[..8]));
    let known: State = mark.and_then(|mark| serde_json::from_value(mark.state.clone()).ok()).unwrap_or_default();
    let changed = changed_at(&about);
    let is_changed = mark.is_some() && known.changed.as_ref() != Some(&changed);
    let mut is_sealed = |mark: &&Mark| known.seal.is_none() || known.seal == seal(&mut file, mark.offset);
    let goes_on = mark.filter(|mark| mark.identity == identity && mark.offset <= about.len()).filter(&mut is_sealed);
    let (from, state) = goes_on.map_or((0, State::default()), |mark| (mark.offset, known));
    file.seek(SeekFrom::Start(from))?;
    let path = transcript.path.to_string_lossy().into_owned();
    let mut part = Part {
        transcript,
        again: File::open(&transcript.path).ok(),
        reading: Reading::new(&path, transcript.agent.as_deref(), state),
        path,
        identity,
        changed,
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
        if (part.reading.facts.len() >= FACTS_MAX || part.offset - part.begun >= BYTES_MAX)
            && sink(part.told())? == Flow::Stop
        {
            return Ok(part.tally);
        }
    }
    part.reading.pause();
    if is_given_up(&about) {
        part.reading.give_up();
    }
    if part.offset > part.begun || !part.reading.facts.is_empty() || part.anew || is_changed {
        sink(part.told())?;
    }
    Ok(part.tally)
}

/// A part of a transcript that is being read.
struct Part<'a> {
    transcript: &'a Transcript,
    /// The same file once more, for calls whose answer comes much later.
    again: Option<File>,
    reading: Reading,
    path: String,
    identity: String,
    changed: String,
    anew: bool,
    begun: u64,
    offset: u64,
    tally: Tally,
    /// Lines and bad lines that were handed on.
    told: (i64, i64),
    introduced: bool,
}

impl Part<'_> {
    fn line(&mut self, line: &Raw, lines: &Lines) {
        let offset = self.offset;
        self.offset += line.length;
        self.tally.bytes += line.length;
        if self.reading.state.skipping {
            self.reading.state.skipping = !line.whole;
            return;
        }
        let bytes = lines.bytes(line);
        if !line.too_long && bytes.trim_ascii().is_empty() {
            if line.whole {
                self.reading.pass();
            }
            return;
        }
        let again = &mut self.again;
        let mut reread = |offset| again.as_mut().and_then(|file| line_at(file, offset));
        let parsed = if line.too_long { Err(Bad) } else { self.reading.take_bytes(bytes, offset, &mut reread) };
        match parsed {
            Ok(()) => self.tally.lines += 1,
            Err(Bad) if !line.whole && !line.too_long => {
                // Half a line is being written: it is read when it is whole.
                self.offset -= line.length;
                self.tally.bytes -= line.length;
            }
            Err(Bad) => {
                self.reading.state.skipping = !line.whole;
                self.reading.pass();
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
        let mut facts = std::mem::take(&mut self.reading.facts);
        if !std::mem::replace(&mut self.introduced, true) {
            let at = facts.first().map_or_else(|| Time::from(SystemTime::now()), |seen| seen.at);
            facts.splice(0..0, self.introduction(at));
        }
        self.reading.state.changed = Some(self.changed.clone());
        self.reading.state.seal = self.again.as_mut().and_then(|file| seal(file, self.offset));
        let progress = Progress {
            path: self.path.clone(),
            identity: self.identity.clone(),
            agent: self.transcript.agent.clone(),
            from: self.begun.cast_signed(),
            to: self.offset.cast_signed(),
            anew: std::mem::take(&mut self.anew),
            lines: self.tally.lines - self.told.0,
            bad_lines: self.tally.bad_lines - self.told.1,
            state: serde_json::to_value(&self.reading.state).unwrap_or_else(|_| json!({})),
        };
        self.told = (self.tally.lines, self.tally.bad_lines);
        self.begun = self.offset;
        Observation {
            session: self.transcript.session.clone(),
            source: Source::Transcript,
            facts,
            progress: Some(progress),
        }
    }

    /// What the file's name and its neighbour tell.
    fn introduction(&self, at: Time) -> Vec<Seen> {
        let none = PromptKey::default();
        match &self.transcript.agent {
            None => {
                let facts = SessionFacts { transcript_path: Some(self.path.clone()), ..SessionFacts::default() };
                vec![Seen::new(at, None, &none, Fact::Session(Box::new(facts)))]
            }
            Some(agent) => meta(&self.transcript.path, agent, at),
        }
    }
}

/// What `agent-<id>.meta.json` beside a subagent's transcript tells.
pub fn meta(path: &Path, agent: &str, at: Time) -> Vec<Seen> {
    #[derive(Default, serde::Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Meta {
        agent_type: Option<String>,
        #[serde(deserialize_with = "name")]
        tool_use_id: Option<String>,
        spawn_depth: Option<i64>,
    }
    let none = PromptKey::default();
    let beside = path.with_extension("meta.json");
    let ordinary = beside.metadata().is_ok_and(|file| file.is_file() && file.len() <= META_MAX);
    let meta: Meta = ordinary
        .then(|| std::fs::read(&beside).ok())
        .flatten()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let about = SubagentFacts {
        agent_type: meta.agent_type.map(|named| redacted(&named).into_owned()),
        depth: meta.spawn_depth.filter(|depth| (0..=DEPTH_MAX).contains(depth)),
        not_spawned: is_not_spawned(agent),
        ..SubagentFacts::default()
    };
    let mut facts = vec![Seen::new(at, Some(agent), &none, Fact::Subagent(about))];
    if let Some(tool_use_id) = meta.tool_use_id {
        let fact = Fact::Match { tool_use_id, agent_id: agent.to_owned(), evidence: Evidence::MetaJson };
        facts.push(Seen::new(at, Some(agent), &none, fact));
    }
    facts
}

/// Agents that the client starts for itself: a compaction, a suggestion, a question on the side.
pub fn is_not_spawned(agent: &str) -> bool {
    ["acompact-", "aprompt_suggestion-", "aside_question-"].iter().any(|start| agent.starts_with(start))
}

impl Reading {
    fn take_bytes(
        &mut self,
        bytes: &[u8],
        offset: u64,
        again: &mut dyn FnMut(u64) -> Option<Vec<u8>>,
    ) -> Result<(), Bad> {
        let repaired;
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(_) => {
                repaired = String::from_utf8_lossy(bytes);
                &repaired
            }
        };
        match line::read(text, |line| self.take(line, offset, again)) {
            Ok(()) => {}
            // JSON of a shape that no version had so far is passed over; anything else is a bad line.
            Err(_) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => self.pass(),
            Err(_) => return Err(Bad),
        }
        Ok(())
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
