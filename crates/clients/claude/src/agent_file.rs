//! The file `agent-<id>.meta.json` that the client writes beside the transcript of a subagent, and what its id states.

use std::path::Path;

use serde::Deserialize;
use trackway_capture::{lenient::name, redact::redacted};
use trackway_domain::{
    observed::{Fact, SubagentFacts},
    words::Evidence,
};

/// Bytes in a meta.json.
const META_MAX: u64 = 64 << 10;
/// How deep agents start agents.
const DEPTH_MAX: i64 = 1_000;

/// The facts in the file beside a subagent's transcript.
pub fn facts(path: &Path, agent: &str) -> Vec<Fact> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Meta {
        agent_type: Option<String>,
        #[serde(deserialize_with = "name")]
        tool_use_id: Option<String>,
        spawn_depth: Option<i64>,
    }
    let beside = path.with_extension("meta.json");
    let ordinary = beside.metadata().is_ok_and(|file| file.is_file() && file.len() <= META_MAX);
    let meta: Meta = ordinary
        .then(|| std::fs::read(&beside).ok())
        .flatten()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let about = SubagentFacts {
        agent_type: meta.agent_type.map(|named| redacted(&named).into_owned()),
        depth: meta.spawn_depth.filter(|depth| (0..=DEPTH_MAX).contains(depth)),
        not_spawned: is_not_spawned(agent),
        ..SubagentFacts::default()
    };
    let mut facts = vec![Fact::Subagent(about)];
    facts.extend(meta.tool_use_id.map(|tool_use_id| Fact::Match {
        tool_use_id,
        agent_id: agent.to_owned(),
        evidence: Evidence::MetaJson,
    }));
    facts
}

/// Agents that the client starts for itself: a compaction, a suggestion, a question on the side.
pub fn is_not_spawned(agent: &str) -> bool {
    ["acompact-", "aprompt_suggestion-", "aside_question-"].iter().any(|start| agent.starts_with(start))
}
