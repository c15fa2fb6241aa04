//! Displays a session: its prompts, and its subagents with the evidence for each.

use serde_json::Value;

use super::{Renderer, dim, heading};

const SUMMARY_FIELDS: &[&str] = &[
    "id",
    "workspace",
    "cwd",
    "version",
    "git_branch",
    "source",
    "continues",
    "started_at",
    "ended_at",
    "transcript_path",
];

impl Renderer {
    pub(super) fn session(&self, data: &Value) -> String {
        let summary: serde_json::Map<String, Value> =
            SUMMARY_FIELDS.iter().map(|field| ((*field).to_owned(), data[*field].clone())).collect();
        let mut parts = vec![self.fields(&Value::Object(summary))];
        if data["prompts"].as_array().is_some_and(|prompts| !prompts.is_empty()) {
            let columns = &["id", "agent", "status", "outcome", "started_at", "final_message"];
            parts.push(format!("{}\n{}", heading("runs of the main agent"), self.rows(&data["prompts"], columns)));
        }
        let mut lines = Vec::new();
        for agent in data["tree"].as_array().into_iter().flatten() {
            self.add_subagent(agent, "", "", &mut lines);
        }
        if !lines.is_empty() {
            parts.push(format!("{}\n{}", heading("subagents"), lines.join("\n")));
        }
        let unmatched: Vec<Value> = data["spawns"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|spawn| spawn["agent_id"].is_null())
            .cloned()
            .collect();
        if !unmatched.is_empty() {
            let columns = &["tool_use_id", "subagent_type", "description", "status", "error"];
            parts.push(format!(
                "{}\n{}",
                heading("spawns without an agent"),
                self.rows(&Value::Array(unmatched), columns)
            ));
        }
        parts.join("\n\n")
    }

    fn add_subagent(&self, agent: &Value, lead: &str, below: &str, lines: &mut Vec<String>) {
        let name = ["role", "agent_type", "agent_id"]
            .iter()
            .map(|field| self.cell(agent, field))
            .find(|name| !name.is_empty());
        let mut facts = vec![self.cell(agent, "status")];
        facts.push(self.cell(agent, "description"));
        facts.push(match agent["evidence"].as_str() {
            Some(evidence) if agent["tentative"] == true => format!("tentative, by {evidence}"),
            Some(evidence) => format!("by {evidence}"),
            None => "no matched spawn".to_owned(),
        });
        facts.retain(|fact| !fact.is_empty());
        lines.push(format!(
            "{lead}{} {}  {}",
            heading(&name.unwrap_or_default()),
            dim(&format!("{} run {}", self.cell(agent, "agent_id"), self.cell(agent, "run_id"))),
            facts.join(", ")
        ));
        let children = agent["children"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (index, child) in children.iter().enumerate() {
            let (fork, onward) = if index + 1 == children.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.add_subagent(child, &format!("{below}{fork}"), &format!("{below}{onward}"), lines);
        }
    }
}
