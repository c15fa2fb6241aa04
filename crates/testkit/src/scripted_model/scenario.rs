//! What a scripted model says, and how it misbehaves.
//!
//! A scenario is a JSON file, `{"prompt": "...", "actors": [{"match": "WORD", "turns": [[BLOCK, ...], ...]}, ...]}`. The
//! actor is the first whose `match` occurs in the request's first user message; the turn is the number of assistant
//! messages so far, and the last turn repeats. The end-of-run prompt of a runner is for the first actor whose `match`
//! occurs in the prompt, from its first turn on, unless its `match` occurs in the first message, too. A request that is nobody's is answered with "ok". A block is one of
//!
//! - `{"text": "..."}`: said
//! - `{"tool": NAME, "input": {...}}`: called; `SPAWN` is Agent or Task, whichever is offered
//! - `{"usage": {"input_tokens": 7}}`: the reply's numbers
//! - `{"delay_ms": 50}`: a pause, then on
//! - `{"error": 529}`: an answer with this status; `retry_after_s` adds the header
//! - `{"raw": "<html>"}`: a body as it is; `status` if not 200
//! - `{"hang": 2}`: silence for so many seconds, then the connection is gone
//! - `{"cut": true}`: the connection is gone in the middle of what comes next
//!
//! In a stream, pauses, silence and cuts happen where they stand among the blocks. The last four take `times`: they happen
//! to the first so many requests of a turn, and later ones are answered as if they were not there. `$CWD` in a text is the
//! directory that whoever starts the model names.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Stands for the working directory.
const WORKING_DIRECTORY: &str = "$CWD";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What the user says first, where a client is started with it.
    #[serde(default)]
    pub prompt: String,
    pub actors: Vec<Actor>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Actor {
    #[serde(rename = "match")]
    pub word: String,
    pub turns: Vec<Vec<Block>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields, expecting = "a block is text, tool, usage, delay_ms, error, raw, hang or cut")]
pub enum Block {
    Text { text: String },
    Tool { tool: String, input: Map<String, Value> },
    Usage { usage: Usage },
    Delay { delay_ms: u64 },
    Error { error: u16, retry_after_s: Option<u64>, times: Option<usize> },
    Raw { raw: String, status: Option<u16>, times: Option<usize> },
    Hang { hang: u64, times: Option<usize> },
    Cut { cut: bool, times: Option<usize> },
}

/// Tokens of one reply, in Anthropic's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_creation_input_tokens: u64,
    pub cache_read_input_tokens: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self { input_tokens: 10, output_tokens: 20, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 }
    }
}

/// The place of a turn in a scenario. One past the last actor is nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Cue {
    pub actor: usize,
    pub turn: usize,
}

impl Scenario {
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("this is not a scenario: {error}\n{text}"))
    }

    /// One of this crate's own, by its name in `scenarios/`.
    pub fn named(name: &str) -> Self {
        Self::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(name).with_extension("json"))
    }

    pub fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file);
        Self::parse(&text.unwrap_or_else(|error| panic!("{}: {error}", file.display())))
    }

    /// The same, with `$CWD` replaced.
    #[must_use]
    pub fn in_directory(mut self, directory: &Path) -> Self {
        let directory = directory.to_str().expect("a directory whose name is text");
        let blocks = self.actors.iter_mut().flat_map(|actor| &mut actor.turns).flatten();
        for block in blocks {
            match block {
                Block::Text { text } | Block::Raw { raw: text, .. } => {
                    *text = text.replace(WORKING_DIRECTORY, directory);
                }
                Block::Tool { input, .. } => input.values_mut().for_each(|value| replace(value, directory)),
                _ => {}
            }
        }
        self
    }

    /// Whose turn it is, and which.
    pub(super) fn cue(&self, first_words: &str, closing: Option<&str>, replies_so_far: usize) -> Cue {
        let hears = |text: &str| self.actors.iter().position(|actor| text.contains(&actor.word));
        if let Some(actor) = closing.and_then(hears) {
            let goes_on = first_words.contains(&self.actors[actor].word);
            return Cue { actor, turn: if goes_on { replies_so_far } else { 0 } };
        }
        Cue { actor: hears(first_words).unwrap_or(self.actors.len()), turn: replies_so_far }
    }

    /// What is said at a cue that came so many times before.
    pub(super) fn blocks(&self, cue: Cue, earlier: usize) -> Vec<Block> {
        let turns = self.actors.get(cue.actor).map_or(&[][..], |actor| &actor.turns);
        match turns.get(cue.turn).or(turns.last()) {
            Some(blocks) => blocks.iter().filter(|block| block.happens(earlier)).cloned().collect(),
            None => vec![Block::Text { text: "ok".to_owned() }],
        }
    }
}

impl Block {
    fn happens(&self, earlier: usize) -> bool {
        match self {
            Self::Error { times, .. } | Self::Raw { times, .. } | Self::Hang { times, .. } => {
                times.is_none_or(|times| earlier < times)
            }
            Self::Cut { cut, times } => *cut && times.is_none_or(|times| earlier < times),
            _ => true,
        }
    }
}

fn replace(value: &mut Value, directory: &str) {
    match value {
        Value::String(text) => *text = text.replace(WORKING_DIRECTORY, directory),
        Value::Array(values) => values.iter_mut().for_each(|value| replace(value, directory)),
        Value::Object(fields) => fields.values_mut().for_each(|value| replace(value, directory)),
        _ => {}
    }
}
