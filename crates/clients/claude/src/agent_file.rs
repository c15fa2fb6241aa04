//! Reads the file `agent-<id>.meta.json`, which the client writes beside a subagent's transcript, and the prefix of the
//! agent id.

use std::path::Path;

use serde::Deserialize;
use trackway_capture::{lenient::without_nul, redact::redacted};
use trackway_domain::{
    enums::Evidence,
    observed::{Fact, SubagentFacts},
};

/// The largest meta file to read, in bytes.
const META_MAX: u64 = 64 << 10;
/// The largest plausible depth of nested agents.
const DEPTH_MAX: i64 = 1_000;

/// The facts from the agent id and from the meta file, if there is one.
pub fn facts(path: &Path, agent: &str) -> Vec<Fact> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Meta {
        agent_type: Option<String>,
        #[serde(deserialize_with = "without_nul")]
        tool_use_id: Option<String>,
        spawn_depth: Option<i64>,
    }
    let meta_path = path.with_extension("meta.json");
    let is_readable = meta_path.metadata().is_ok_and(|file| file.is_file() && file.len() <= META_MAX);
    let meta: Meta = is_readable
        .then(|| std::fs::read(&meta_path).ok())
        .flatten()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let subagent = SubagentFacts {
        agent_type: meta.agent_type.map(|named| redacted(&named).into_owned()),
        depth: meta.spawn_depth.filter(|depth| (0..=DEPTH_MAX).contains(depth)),
        is_not_spawned: is_not_spawned(agent),
        ..SubagentFacts::default()
    };
    let mut facts = vec![Fact::Subagent(subagent)];
    facts.extend(meta.tool_use_id.map(|tool_use_id| Fact::Match {
        tool_use_id,
        agent_id: agent.to_owned(),
        evidence: Evidence::MetaJson,
    }));
    facts
}

/// True for agents that the client starts itself: for a compaction, a prompt suggestion or a side question.
pub fn is_not_spawned(agent: &str) -> bool {
    ["acompact-", "aprompt_suggestion-", "aside_question-"].iter().any(|start| agent.starts_with(start))
}
