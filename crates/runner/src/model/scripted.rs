//! A model that replies from a file: for demos and trials without a network or an API key.
//!
//! The file is `{"actors": [{"match": "WORD", "turns": [[BLOCK, ...], ...]}]}`. The first actor whose `match` occurs in
//! the first user message replies. The number of replies so far selects the turn; the last turn repeats. If the `match`
//! of an actor occurs in the closing prompt, the first such actor answers that prompt instead. It replies with its
//! first turn if its `match` does not occur in the first user message. A block is `{"text": "..."}`, `{"tool": NAME,
//! "input": {...}}` or `{"usage": {"input_tokens": 7, "output_tokens": 5}}`.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use serde::Deserialize;
use serde_json::{Map, Value};
use trackway_domain::closing;

use super::{Call, CallUsage, Deadline, Model, ModelError, ModelResponse, Reply, Request, Turn};

#[derive(Debug, Deserialize)]
pub struct Scripted {
    actors: Vec<Actor>,
    #[serde(skip)]
    request_count: AtomicU64,
}

#[derive(Debug, Deserialize)]
struct Actor {
    #[serde(rename = "match")]
    pattern: String,
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
    fn ask(&self, request: &Request, _: &Deadline) -> ModelResponse {
        let request_number = self.request_count.fetch_add(1, Ordering::Relaxed);
        let user_text = |turn: &Turn| match turn {
            Turn::User(parts) => Some(parts.join("\n\n")),
            _ => None,
        };
        let first = request.turns.iter().find_map(user_text).unwrap_or_default();
        let last = request.turns.last().and_then(user_text).filter(|last| last.starts_with(closing::PROMPT_MARKER));
        let replies = request.turns.iter().filter(|turn| matches!(turn, Turn::Model { .. })).count();
        let actor_for = |text: &str| self.actors.iter().find(|actor| text.contains(&actor.pattern));
        let closing_actor = last.and_then(|last| actor_for(&last));
        let replies = if closing_actor.is_some_and(|actor| !first.contains(&actor.pattern)) { 0 } else { replies };
        let Some(actor) = closing_actor.or_else(|| actor_for(&first)) else {
            let error = ModelError::Failed("no actor of the script matches this conversation".to_owned());
            return ModelResponse { outcome: Err(error), usage: Vec::new(), retried: Vec::new() };
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
        let call_usage = tokens.map(|tokens| CallUsage {
            message_id: Some(format!("scripted_{request_number}")),
            model: Some(request.model.clone()),
            input_tokens: Some(tokens.input_tokens),
            output_tokens: Some(tokens.output_tokens),
            ..CallUsage::default()
        });
        ModelResponse { outcome: Ok(reply), usage: call_usage.into_iter().collect(), retried: Vec::new() }
    }

    fn name(&self) -> &'static str {
        "scripted"
    }
}
