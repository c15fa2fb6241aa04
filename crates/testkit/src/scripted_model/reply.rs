//! A model's reply, and the shapes that the world's APIs give it.

use serde_json::{Map, Value};

use super::scenario::{Block, Usage};

/// The tool name that stands for whichever tool starts a subagent.
const SPAWN: &str = "SPAWN";

/// What a reply says, in no shape yet.
#[derive(Debug)]
pub struct Reply {
    /// Unique, and the same whenever the scenario is played.
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

/// How an API writes replies: whole, or as the events of a stream.
pub trait Shape {
    fn whole(&self, reply: &Reply) -> Value;

    /// The events before the first part.
    fn opening(&self, reply: &Reply) -> Vec<String>;

    /// The events of one part.
    fn part(&self, reply: &Reply, place: usize) -> Vec<String>;

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
                    let tool = if tool == SPAWN { spawning_tool(request) } else { tool };
                    let id = format!("{id}_{}", parts.len());
                    parts.push(Part::Call { id, tool: tool.to_owned(), input: input.clone() });
                }
                Block::Usage { usage: told } => usage = *told,
                _ => {}
            }
        }
        Self { id, model: request["model"].clone(), parts, usage }
    }

    pub fn calls_tools(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Call { .. }))
    }
}

/// Two pieces of a text, so that whoever reads a stream has to put it together.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let (start, rest) = text.split_at(text.floor_char_boundary(text.len() / 2));
    [start, rest].into_iter().filter(|piece| !piece.is_empty())
}

/// Clients before 2.1.63 call it Task.
fn spawning_tool(request: &Value) -> &'static str {
    let offers = |name| request["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == name));
    if offers("Agent") { "Agent" } else { "Task" }
}
