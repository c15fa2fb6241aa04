//! A model that says what a file tells it to: for demos, and for trying things out without a network or a key.
//!
//! `{"actors": [{"match": "WORD", "turns": [[BLOCK, ...], ...]}]}`: the actor is the first whose `match` occurs in the
//! first thing that the user says, the turn is the number of replies so far, and the last turn repeats. The end-of-run
//! prompt is answered by the first actor whose `match` occurs in the prompt, from its first turn on, if there is one. A block is
//! `{"text": "..."}`, `{"tool": NAME, "input": {...}}` or `{"usage": {"input_tokens": 7, "output_tokens": 5}}`.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use serde::Deserialize;
use serde_json::{Map, Value};
use trackway_domain::closing;

use super::{Answer, Call, Model, Patience, Reply, Request, Trouble, Turn, Used};

/// A file of replies.
#[derive(Debug, Deserialize)]
pub struct Scripted {
    actors: Vec<Actor>,
    #[serde(skip)]
    asked: AtomicU64,
}

#[derive(Debug, Deserialize)]
struct Actor {
    #[serde(rename = "match")]
    word: String,
    turns: Vec<Vec<Block>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields, expecting = "a block is text, tool or usage")]
enum Block {
    Text { text: String },
    Tool { tool: String, input: Map<String, Value> },
    Usage { usage: Tokens },
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tokens {
    input_tokens: i64,
    output_tokens: i64,
}

impl Scripted {
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    pub fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", file.display()))
    }
}

impl Model for Scripted {
    fn ask(&self, request: &Request, _: &Patience) -> Answer {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let said = |turn: &Turn| match turn {
            Turn::User(parts) => Some(parts.join("\n\n")),
            _ => None,
        };
        let first = request.turns.iter().find_map(said).unwrap_or_default();
        let last = request.turns.last().and_then(said).filter(|last| last.starts_with(closing::MARK));
        let replies = request.turns.iter().filter(|turn| matches!(turn, Turn::Model { .. })).count();
        let hears = |text: &str| self.actors.iter().find(|actor| text.contains(&actor.word));
        let closes = last.and_then(|last| hears(&last));
        let replies = if closes.is_some_and(|actor| !first.contains(&actor.word)) { 0 } else { replies };
        let Some(actor) = closes.or_else(|| hears(&first)) else {
            let nobody = Trouble::Failed("the script has no actor for this".to_owned());
            return Answer { outcome: Err(nobody), used: Vec::new(), retried: Vec::new() };
        };
        let blocks = actor.turns.get(replies).or(actor.turns.last()).map_or(&[][..], Vec::as_slice);
        let (mut reply, mut tokens) = (Reply::default(), None);
        for block in blocks {
            match block {
                Block::Text { text } => reply.text.push_str(text),
                Block::Tool { tool, input } => reply.calls.push(Call {
                    id: format!("call_{replies}_{}", reply.calls.len()),
                    name: tool.clone(),
                    input: Value::Object(input.clone()),
                }),
                Block::Usage { usage } => tokens = Some(*usage),
            }
        }
        let used = tokens.map(|tokens| Used {
            message_id: Some(format!("scripted_{asked}")),
            model: Some(request.model.clone()),
            input_tokens: Some(tokens.input_tokens),
            output_tokens: Some(tokens.output_tokens),
            ..Used::default()
        });
        Answer { outcome: Ok(reply), used: used.into_iter().collect(), retried: Vec::new() }
    }

    fn name(&self) -> &'static str {
        "scripted"
    }
}
