//! What the client tells the main agent of an agent in the background. It stands where prompts stand, and nobody typed it.

use trackway_capture::redact::redacted;
use trackway_domain::{observed::Fact, words::Evidence};

/// What became of an agent in the background.
#[derive(Debug, PartialEq, Eq)]
pub struct Notification<'a> {
    pub agent: &'a str,
    /// The call that launched it; before 2.1.69 it is not said.
    pub tool_use_id: Option<&'a str>,
    status: Option<&'a str>,
    summary: Option<&'a str>,
}

/// Whether a text is one, whatever it says.
pub fn is_notification(text: &str) -> bool {
    text.starts_with("<task-notification>") || text.starts_with("<agent-notification>")
}

impl<'a> Notification<'a> {
    pub fn read(text: &'a str) -> Option<Self> {
        if !is_notification(text) {
            return None;
        }
        Some(Self {
            agent: between(text, "task-id").or_else(|| between(text, "agent-id"))?,
            tool_use_id: between(text, "tool-use-id"),
            status: between(text, "status"),
            summary: between(text, "summary"),
        })
    }

    /// Which call it was, where that is said.
    pub fn matched(&self) -> Option<Fact> {
        Some(Fact::Match {
            tool_use_id: self.tool_use_id?.to_owned(),
            agent_id: self.agent.to_owned(),
            evidence: Evidence::TaskNotification,
        })
    }

    /// What the call came to, once the agent is at work no more.
    pub fn result(&self, tool_use_id: String) -> Option<Fact> {
        let (status, error) = match self.status? {
            "completed" => ("completed", None),
            "failed" => ("failed", Some(redacted(self.summary.unwrap_or("failed")).into_owned())),
            "killed" | "stopped" => ("killed", None),
            _ => return None,
        };
        Some(Fact::SpawnResult { tool_use_id, status: status.to_owned(), error })
    }
}

/// The text between a tag and its end.
pub fn between<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{tag}>"))?;
    rest.split_once(&format!("</{tag}>")).map(|(inside, _)| inside.trim())
}
