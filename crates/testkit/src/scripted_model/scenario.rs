//! Scenarios: the replies of a scripted model, and its faults.
//!
//! A scenario is a JSON file, `{"prompt": "...", "actors": [{"match": "WORD", "turns": [[BLOCK, ...], ...]}, ...]}`.
//!
//! The first actor whose `match` occurs in the first user message answers the request. Without such an actor, the reply
//! is "ok". The number of assistant messages in the request selects the actor's turn; the last turn repeats.
//!
//! A request that ends with a runner's end-of-run prompt goes to the first actor whose `match` occurs in that prompt.
//! The actor plays its first turn. If its `match` also occurs in the first user message, the actor plays its next turn
//! instead.
//!
//! A block is one of
//!
//! - `{"text": "..."}`: text of the reply
//! - `{"tool": NAME, "input": {...}}`: a tool call; `SPAWN` stands for Agent or Task, whichever the request offers
//! - `{"usage": {"input_tokens": 7}}`: the token counts of the reply
//! - `{"delay_ms": 50}`: a delay, after which the reply continues
//! - `{"error": 529}`: an error response with this status; `retry_after_s` adds the header
//! - `{"raw": "<html>"}`: a response with exactly this body; `status` sets a status other than 200
//! - `{"hang": 2}`: no bytes for this many seconds, then the connection drops
//! - `{"cut": true}`: the connection drops in the middle of the next block
//!
//! In a stream, delays, hangs and cuts take effect at their position among the blocks. The last four blocks accept
//! `times`: they then apply only to the first `times` requests of a turn. `$CWD` in texts stands for the directory that
//! the test passes.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Placeholder for the working directory.
const WORKING_DIRECTORY: &str = "$CWD";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The user's first prompt, for tests that start a client.
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

/// Token counts of one reply, with Anthropic's field names.
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

/// Identifies a turn in a scenario. If no actor matches, `actor` is one past the last actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TurnKey {
    pub actor: usize,
    pub turn: usize,
}

impl Scenario {
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("this is not a scenario: {error}\n{text}"))
    }

    /// Reads a scenario of this crate by its name in `scenarios/`.
    pub fn named(name: &str) -> Self {
        Self::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(name).with_extension("json"))
    }

    pub fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file);
        Self::parse(&text.unwrap_or_else(|error| panic!("{}: {error}", file.display())))
    }

    /// Replaces `$CWD` with a directory.
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

    /// Selects the actor and the turn for a request.
    pub(super) fn turn_key(&self, first_user_text: &str, closing: Option<&str>, reply_count: usize) -> TurnKey {
        let matching_actor = |text: &str| self.actors.iter().position(|actor| text.contains(&actor.word));
        if let Some(actor) = closing.and_then(matching_actor) {
            let is_same_conversation = first_user_text.contains(&self.actors[actor].word);
            return TurnKey { actor, turn: if is_same_conversation { reply_count } else { 0 } };
        }
        TurnKey { actor: matching_actor(first_user_text).unwrap_or(self.actors.len()), turn: reply_count }
    }

    /// The blocks of a turn. Omits a fault if earlier requests for this turn have used up its `times`.
    pub(super) fn blocks(&self, turn_key: TurnKey, earlier_requests: usize) -> Vec<Block> {
        let turns = self.actors.get(turn_key.actor).map_or(&[][..], |actor| &actor.turns);
        match turns.get(turn_key.turn).or(turns.last()) {
            Some(blocks) => blocks.iter().filter(|block| block.is_active(earlier_requests)).cloned().collect(),
            None => vec![Block::Text { text: "ok".to_owned() }],
        }
    }
}

impl Block {
    fn is_active(&self, earlier_requests: usize) -> bool {
        match self {
            Self::Error { times, .. } | Self::Raw { times, .. } | Self::Hang { times, .. } => {
                times.is_none_or(|times| earlier_requests < times)
            }
            Self::Cut { cut, times } => *cut && times.is_none_or(|times| earlier_requests < times),
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
