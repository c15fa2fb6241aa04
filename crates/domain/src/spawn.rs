//! Facts derived from a spawn: the role, the hash of the prompt, and a placeholder for a missing call id.

use sha2::{Digest, Sha256};

use crate::{
    enums::{RoleSource, SpawnRoleSource},
    text,
};

const TAG: &str = "[ROLE:";

/// The role in the first tag `[ROLE:name]` of a prompt.
pub fn tagged_role(prompt: &str) -> Option<String> {
    prompt.match_indices(TAG).find_map(|(start, _)| {
        let (name, _) = prompt[start + TAG.len()..].split_once(']')?;
        (!name.is_empty()).then(|| text::cut(&text::clean_line(name), text::LINE_MAX)).filter(|name| !name.is_empty())
    })
}

/// The role of a spawn: the tag in its prompt, or else the name that it gives the agent.
pub fn spawn_role(prompt: &str, name: Option<&str>) -> Option<(String, SpawnRoleSource)> {
    if let Some(role) = tagged_role(prompt) {
        return Some((role, SpawnRoleSource::PromptTag));
    }
    let name = text::cut(&text::clean_line(name?), text::LINE_MAX);
    (!name.is_empty()).then_some((name, SpawnRoleSource::Name))
}

/// The role of a subagent: the role of its spawn, or else the tag in its own transcript, or else its type.
pub fn subagent_role(
    matched: Option<(&str, RoleSource)>,
    tagged: Option<&str>,
    agent_type: Option<&str>,
) -> Option<(String, RoleSource)> {
    let named = |role: &str, source| Some((role.to_owned(), source));
    match (matched, tagged, agent_type) {
        (Some((role, source)), ..) => named(role, source),
        (_, Some(role), _) => named(role, RoleSource::TranscriptParse),
        (.., Some(agent_type)) if !agent_type.is_empty() => named(agent_type, RoleSource::SubagentType),
        _ => None,
    }
}

/// The first 16 hex digits of the SHA-256 of a prompt.
pub fn prompt_hash(prompt: &str) -> String {
    hex(&Sha256::digest(prompt.as_bytes())[..8])
}

/// A placeholder for the id of a tool call. Some records imported from another tool have only the line of the call in
/// the transcript, counted from 1.
pub fn placeholder_call_id(session: &str, line: i64) -> String {
    format!("nagger:{session}:{line}")
}

/// Encodes bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_is_the_first_tag_with_a_name() {
        assert_eq!(tagged_role("do it [ROLE:coder] now [ROLE:x]").as_deref(), Some("coder"));
        assert_eq!(tagged_role("[ROLE:] [ROLE:a\nb]").as_deref(), Some("a b"));
        assert_eq!(tagged_role("[ROLE:never closed"), None);
        assert_eq!(spawn_role("no tag", Some("helper")), Some(("helper".into(), SpawnRoleSource::Name)));
        assert_eq!(spawn_role("no tag", Some(" ")), None);
    }

    #[test]
    fn prompt_hash_is_the_start_of_the_sha_256() {
        assert_eq!(prompt_hash("abc"), "ba7816bf8f01cfea");
    }

    #[test]
    fn role_of_the_spawn_wins_over_tag_and_type() {
        let all = subagent_role(Some(("coder", RoleSource::TaskMatch)), Some("tag"), Some("general-purpose"));
        assert_eq!(all, Some(("coder".into(), RoleSource::TaskMatch)));
        assert_eq!(subagent_role(None, None, Some("x")), Some(("x".into(), RoleSource::SubagentType)));
        assert_eq!(subagent_role(None, None, Some("")), None);
    }
}
