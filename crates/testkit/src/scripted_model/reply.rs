//! A model's reply, and the trait that renders it in the format of an API.

use serde_json::{Map, Value};

use super::scenario::{Block, Usage};
use crate::spawn_tool;

/// Placeholder for the tool that starts a subagent, whose name depends on the client.
const SPAWN: &str = "SPAWN";

/// A reply, independent of the API.
#[derive(Debug)]
pub struct Reply {
    /// Unique within a scenario, and the same in every run of it.
    pub id: String,
    pub model: Value,
    pub parts: Vec<Part>,
    pub usage: Usage,
}

#[derive(Debug)]
pub enum Part {
    Text(String),
    Call { id: String, tool: String, input: Map<String, Value> },
}

/// The format of an API: complete replies, and replies as a stream of events.
pub trait ApiFormat {
    fn complete(&self, reply: &Reply) -> Value;

    /// The events before the first part.
    fn opening(&self, reply: &Reply) -> Vec<String>;

    /// The events of one part.
    fn part(&self, reply: &Reply, index: usize) -> Vec<String>;

    /// The events after the last part.
    fn closing(&self, reply: &Reply) -> Vec<String>;

    fn error(&self, status: u16) -> Value;
}

impl Reply {
    pub fn new(id: String, request: &Value, blocks: &[Block]) -> Self {
        let mut parts = Vec::new();
        let mut usage = Usage::default();
        for block in blocks {
            match block {
                Block::Text { text } => parts.push(Part::Text(text.clone())),
                Block::Tool { tool, input } => {
                    let tool = if tool == SPAWN { spawn_tool(request) } else { tool };
                    let id = format!("{id}_{}", parts.len());
                    parts.push(Part::Call { id, tool: tool.to_owned(), input: input.clone() });
                }
                Block::Usage { usage: block_usage } => usage = *block_usage,
                _ => {}
            }
        }
        Self { id, model: request["model"].clone(), parts, usage }
    }

    pub fn calls_tools(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Call { .. }))
    }
}

/// Splits a text into two pieces, so that clients must join the pieces of a stream.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let (start, end) = text.split_at(text.floor_char_boundary(text.len() / 2));
    [start, end].into_iter().filter(|piece| !piece.is_empty())
}
