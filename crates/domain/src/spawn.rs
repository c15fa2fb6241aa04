//! Reading a spawn: the role its prompt names, and the hash its prompt is known by.

use sha2::{Digest, Sha256};

use crate::{
    text,
    words::{RoleSource, SpawnRoleSource},
};

const TAG: &str = "[ROLE:";

/// The role that a tag `[ROLE:name]` in a prompt names.
pub fn tagged_role(prompt: &str) -> Option<String> {
    prompt.match_indices(TAG).find_map(|(start, _)| {
        let (name, _) = prompt[start + TAG.len()..].split_once(']')?;
        (!name.is_empty()).then(|| text::cut(&text::clean_line(name), text::LINE_MAX)).filter(|name| !name.is_empty())
    })
}

/// A spawn's role: the tag in its prompt, else the name it gives the agent.
pub fn role(prompt: &str, name: Option<&str>) -> Option<(String, SpawnRoleSource)> {
    if let Some(role) = tagged_role(prompt) {
        return Some((role, SpawnRoleSource::PromptTag));
    }
    let name = text::cut(&text::clean_line(name?), text::LINE_MAX);
    (!name.is_empty()).then_some((name, SpawnRoleSource::Name))
}

/// A subagent's role: its spawn's, else a tag in its own transcript, else its type.
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

/// What stands for the id of a call where another tool kept only its line in the transcript, from 1.
pub fn call_at_line(session: &str, line: i64) -> String {
    format!("nagger:{session}:{line}")
}

/// Bytes as hex digits.
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
    fn a_role_is_the_first_tag_with_a_name() {
        assert_eq!(tagged_role("do it [ROLE:coder] now [ROLE:x]").as_deref(), Some("coder"));
        assert_eq!(tagged_role("[ROLE:] [ROLE:a\nb]").as_deref(), Some("a b"));
        assert_eq!(tagged_role("[ROLE:never closed"), None);
        assert_eq!(role("no tag", Some("helper")), Some(("helper".into(), SpawnRoleSource::Name)));
        assert_eq!(role("no tag", Some(" ")), None);
    }

    #[test]
    fn a_prompt_hash_is_the_start_of_its_sha_256() {
        assert_eq!(prompt_hash("abc"), "ba7816bf8f01cfea");
    }

    #[test]
    fn a_matched_role_wins_over_a_tag_and_a_type() {
        let all = subagent_role(Some(("coder", RoleSource::TaskMatch)), Some("tag"), Some("general-purpose"));
        assert_eq!(all, Some(("coder".into(), RoleSource::TaskMatch)));
        assert_eq!(subagent_role(None, None, Some("x")), Some(("x".into(), RoleSource::SubagentType)));
        assert_eq!(subagent_role(None, None, Some("")), None);
    }
}
