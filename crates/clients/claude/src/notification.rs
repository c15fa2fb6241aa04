//! Notifications about background agents. The client writes them in the form of user prompts.

use trackway_capture::redact::redacted;
use trackway_domain::{enums::Evidence, observed::Fact};

/// The outcome of a background agent.
#[derive(Debug, PartialEq, Eq)]
pub struct Notification<'a> {
    pub agent: &'a str,
    /// The call that started the agent. The client names it since version 2.1.69.
    pub tool_use_id: Option<&'a str>,
    status: Option<&'a str>,
    summary: Option<&'a str>,
}

/// Whether a text is a notification, even one that cannot be parsed.
pub fn is_notification(text: &str) -> bool {
    text.starts_with("<task-notification>") || text.starts_with("<agent-notification>")
}

impl<'a> Notification<'a> {
    pub fn parse(text: &'a str) -> Option<Self> {
        if !is_notification(text) {
            return None;
        }
        Some(Self {
            agent: tag_text(text, "task-id").or_else(|| tag_text(text, "agent-id"))?,
            tool_use_id: tag_text(text, "tool-use-id"),
            status: tag_text(text, "status"),
            summary: tag_text(text, "summary"),
        })
    }

    /// The match of the agent with its spawn call, if the notification names the call.
    pub fn match_fact(&self) -> Option<Fact> {
        Some(Fact::Match {
            tool_use_id: self.tool_use_id?.to_owned(),
            agent_id: self.agent.to_owned(),
            evidence: Evidence::TaskNotification,
        })
    }

    /// The result of the spawn call, if the agent has ended.
    pub fn spawn_result(&self, tool_use_id: String) -> Option<Fact> {
        let (status, error) = match self.status? {
            "completed" => ("completed", None),
            "failed" => ("failed", Some(redacted(self.summary.unwrap_or("failed")).into_owned())),
            "killed" | "stopped" => ("killed", None),
            _ => return None,
        };
        Some(Fact::SpawnResult { tool_use_id, status: status.to_owned(), error })
    }
}

/// The text between a start tag and its end tag.
pub fn tag_text<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{tag}>"))?;
    rest.split_once(&format!("</{tag}>")).map(|(inside, _)| inside.trim())
}
