//! Imports the records of claude-nagger.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use serde::Deserialize;
use serde_json::json;
use trackway_domain::{
    Time,
    enums::{ClosedEnum, Evidence, RoleSource, SpawnRoleSource},
    kind, text,
};
use trackway_store::{
    Writer,
    foreign::nagger::{self, KNOWN_VERSION, NaggerDatabase},
};

use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    error::Result,
    session::import::{
        ImportedMatch, ImportedSession, ImportedSpawn, ImportedSubagent, SessionImportResult, import_session,
    },
    touched::NoTouches,
};

/// Schema version of claude-nagger 3.0. Since this version, claude-nagger matches an agent only if the transcript names
/// the call and the agent together, and a role is no longer a tag in the prompt.
const EXACT_SINCE: i64 = 9;
/// The client whose sessions claude-nagger recorded.
const CLIENT: &str = "claude_code";
/// Maximum characters of an id that a client generated.
const ID_MAX: usize = 200;

/// Import sessions, subagents, spawns and their matches from claude-nagger
///
/// Reads the database of any claude-nagger version and does not change it. Hooks and transcripts of the same sessions
/// update the imported records, whether they come before or after the import. Importing again changes nothing.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ImportNagger {
    /// Path of claude-nagger's database: .claude-nagger/state.db in a project
    pub path: PathBuf,
}

impl Action for ImportNagger {
    const NAME: &'static str = "import_nagger";
    const COMMAND: (&'static str, &'static str) = ("import", "nagger");
    type Touched = NoTouches;
    type Output = SessionImportResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let nagger = nagger::read(&self.path)?;
        let mut imported = SessionImportResult::default();
        if nagger.version() > KNOWN_VERSION {
            imported.notices.push(format!(
                "schema version {} is newer than the newest supported version {KNOWN_VERSION}: only known tables and columns were imported",
                nagger.version()
            ));
        }
        if !nagger.not_imported.is_empty() {
            imported.notices.push(format!("not imported: {}", nagger.not_imported.join(", ")));
        }
        let NaggerRecord { sessions, mut repeated_calls, unusable_rows, cross_session_matches } =
            NaggerRecord::convert(nagger);
        // Import in the order of the session ids, so that two concurrent imports cannot deadlock.
        for session in sessions.values() {
            repeated_calls += import_session(context, write, session, &mut imported)?;
        }
        imported.left_out = repeated_calls + unusable_rows + cross_session_matches;
        let reasons = [
            (unusable_rows, "rows without a usable id, line or time"),
            (repeated_calls, "calls that another session made first"),
            (cross_session_matches, "matches with an agent of another session"),
        ];
        let applicable = reasons.iter().filter(|(count, _)| *count > 0);
        imported.notices.extend(applicable.map(|(count, what)| format!("left out {what}: {count}")));
        if !imported.changed {
            return Ok(ActionOutcome::unchanged(imported));
        }
        let detail = json!({
            "sessions": imported.sessions, "subagents": imported.subagents, "spawns": imported.spawns,
            "matched": imported.matched, "left_out": imported.left_out,
        });
        let from = text::cut(&text::clean_line(&self.path.to_string_lossy()), text::LINE_MAX);
        let tenant = Resource::<kind::Tenant>::new(context.tenant, from);
        Ok(ActionOutcome::changed(imported, &tenant, NoTouches).with_detail(detail))
    }
}

/// The rows of a claude-nagger database, converted for the import.
#[derive(Debug, Default)]
struct NaggerRecord {
    sessions: BTreeMap<String, ImportedSession>,
    repeated_calls: i64,
    unusable_rows: i64,
    cross_session_matches: i64,
}

impl NaggerRecord {
    fn convert(nagger: NaggerDatabase) -> Self {
        let since = nagger.versions.iter().filter(|(version, _)| *version >= EXACT_SINCE);
        let exact_since = since.filter_map(|(_, applied)| *applied).min();
        let mut record = Self::default();
        for row in nagger.sessions {
            match (row.session_id.and_then(valid_id), row.created_at) {
                (Some(session), Some(at)) => drop(record.session_mut(&session, at)),
                _ => record.unusable_rows += 1,
            }
        }
        for row in nagger.subagents {
            record.add_subagent(row);
        }
        record.add_spawns(nagger.spawns, exact_since);
        record
    }

    fn session_mut(&mut self, session_id: &str, at: Time) -> &mut ImportedSession {
        let session = self.sessions.entry(session_id.to_owned()).or_insert_with(|| ImportedSession {
            client: CLIENT,
            session_id: session_id.to_owned(),
            started_at: at,
            transcript_path: None,
            subagents: Vec::new(),
            spawns: Vec::new(),
        });
        session.started_at = session.started_at.min(at);
        session
    }

    /// Adds a subagent. A resumed subagent has several rows: the earliest start and the latest end count, and each
    /// missing detail comes from the first row that has it.
    fn add_subagent(&mut self, row: nagger::Subagent) {
        let (Some(session), Some(agent_id), Some(started_at)) =
            (row.session_id.and_then(valid_id), row.agent_id.and_then(valid_id), row.started_at)
        else {
            self.unusable_rows += 1;
            return;
        };
        let session = self.session_mut(&session, started_at);
        session.transcript_path = session.transcript_path.take().or(row.leader_transcript_path.and_then(valid_path));
        let new = ImportedSubagent {
            agent_id,
            agent_type: row.agent_type.and_then(non_empty_line).filter(|agent_type| agent_type != "unknown"),
            role: row.role.and_then(non_empty_line),
            role_source: row.role_source.and_then(|source| match source.as_str() {
                // claude-nagger maps agent types to roles by a list in the user's configuration.
                "trusted_prefix" => Some(RoleSource::SubagentType),
                source => RoleSource::parse(source).ok(),
            }),
            task_match_index: row.task_match_index.filter(|line| *line > 0),
            started_at,
            stopped_at: row.stopped_at,
        };
        match session.subagents.iter_mut().find(|known| known.agent_id == new.agent_id) {
            None => session.subagents.push(new),
            Some(known) => {
                known.agent_type = known.agent_type.take().or(new.agent_type);
                if known.role.is_none() {
                    (known.role, known.role_source) = (new.role, new.role_source);
                }
                known.started_at = known.started_at.min(new.started_at);
                known.stopped_at = known.stopped_at.max(new.stopped_at);
            }
        }
    }

    fn add_spawns(&mut self, rows: Vec<nagger::Spawn>, exact_since: Option<Time>) {
        let mut usable: Vec<_> = rows
            .into_iter()
            .filter_map(|row| {
                let session = row.session_id.clone().and_then(valid_id);
                let index = row.transcript_index.filter(|line| *line > 0);
                let found = session.zip(index).zip(row.created_at);
                self.unusable_rows += i64::from(found.is_none());
                found.map(|((session, index), at)| (session, index, at, row))
            })
            .collect();
        // A resumed session repeats the calls of the session that it continues. A call belongs to the session that
        // recorded it first.
        usable.sort_by_key(|(.., at, _)| *at);
        let mut first_sessions = HashMap::new();
        let mut without_id = HashMap::<_, i64>::new();
        for (session, .., row) in &usable {
            match row.tool_use_id.clone().and_then(valid_id) {
                Some(call) => drop(first_sessions.entry(call).or_insert_with(|| session.clone())),
                None => *without_id.entry((session.clone(), row.prompt_hash.clone())).or_default() += 1,
            }
        }
        for (session_id, index, created_at, row) in usable {
            let tool_use_id = row.tool_use_id.clone().and_then(valid_id);
            if tool_use_id.as_ref().and_then(|call| first_sessions.get(call)).is_some_and(|first| *first != session_id)
            {
                self.repeated_calls += 1;
                continue;
            }
            let matched = self.find_match(&session_id, &row, created_at, exact_since);
            let subagent_type = row.subagent_type.and_then(non_empty_line);
            let role = row.role.and_then(non_empty_line).map(|role| {
                let source =
                    role_source(&role, subagent_type.as_deref(), exact_since.is_some_and(|since| created_at >= since));
                (role, source)
            });
            let has_unique_prompt = without_id.get(&(session_id.clone(), row.prompt_hash.clone())) == Some(&1);
            let prompt_hash = row.prompt_hash.and_then(non_empty_line);
            let spawn = ImportedSpawn {
                tool_use_id,
                has_unique_prompt: has_unique_prompt && prompt_hash.is_some(),
                index,
                subagent_type,
                role,
                prompt_hash,
                created_at,
                matched,
            };
            self.session_mut(&session_id, created_at).spawns.push(spawn);
        }
    }

    fn find_match(
        &mut self,
        session_id: &str,
        row: &nagger::Spawn,
        created_at: Time,
        exact_since: Option<Time>,
    ) -> Option<ImportedMatch> {
        let agent_id = row.matched_agent_id.clone().and_then(valid_id)?;
        let has_agent_id = |subagent: &&ImportedSubagent| subagent.agent_id == agent_id;
        let agent_of_session =
            self.sessions.get(session_id).and_then(|session| session.subagents.iter().find(has_agent_id));
        if agent_of_session.is_none()
            && self.sessions.values().any(|session| session.subagents.iter().any(|other| has_agent_id(&other)))
        {
            // claude-nagger looks up calls by id alone, but a session may repeat the calls of another session.
            self.cross_session_matches += 1;
            return None;
        }
        let at = agent_of_session.map_or(created_at, |subagent| subagent.started_at);
        Some(ImportedMatch {
            agent_id,
            evidence: likely_evidence(row, agent_of_session, exact_since.is_some_and(|since| at >= since)),
            at,
        })
    }
}

/// The most likely evidence of a match. claude-nagger does not record the evidence itself.
///
/// claude-nagger first looks for an `agent_progress` line in the parent's transcript, which names the call and the
/// agent. Without one, versions up to 2.5 take the oldest spawn of the agent's type. These versions could also match by
/// role, but no release passes a role.
fn likely_evidence(spawn: &nagger::Spawn, agent: Option<&ImportedSubagent>, never_guesses: bool) -> Evidence {
    let same_type = agent.is_none_or(|agent| agent.agent_type == spawn.subagent_type);
    let retried = agent.is_some_and(|agent| agent.role_source == Some(RoleSource::RetryMatch));
    match (&spawn.tool_use_id, same_type) {
        (Some(_), _) if never_guesses || retried => Evidence::AgentProgress,
        (Some(_), false) => Evidence::AgentProgress,
        (None, false) => Evidence::Role,
        (_, true) => Evidence::SubagentType,
    }
}

/// The source of a spawn's role. Before claude-nagger 3.0, the role is a tag in the prompt. Since then, the role is the
/// agent's name, or else the agent's type, without a distinguishing number or prefix.
fn role_source(role: &str, subagent_type: Option<&str>, is_version_3: bool) -> SpawnRoleSource {
    let is_derived_from = |name: &str| {
        let rest = name.strip_prefix(role).or_else(|| name.strip_suffix(role));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-') || rest.ends_with('-'))
    };
    match subagent_type {
        _ if !is_version_3 => SpawnRoleSource::PromptTag,
        Some(name) if is_derived_from(name) => SpawnRoleSource::SubagentType,
        _ => SpawnRoleSource::Name,
    }
}

/// The text, if it can be an id that a client generated.
fn valid_id(text: String) -> Option<String> {
    ((1..=ID_MAX).contains(&text.chars().count()) && !text.contains(char::is_control)).then_some(text)
}

/// The text as one line, unless it is empty.
fn non_empty_line(text: String) -> Option<String> {
    Some(text::cut(&text::clean_line(&text), text::LINE_MAX)).filter(|line| !line.is_empty())
}

fn valid_path(text: String) -> Option<String> {
    (!text.is_empty() && !text.contains(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spawn(tool_use_id: Option<&str>) -> nagger::Spawn {
        nagger::Spawn {
            session_id: Some("s".into()),
            transcript_index: Some(2),
            subagent_type: Some("coder".into()),
            role: Some("builder".into()),
            prompt_hash: None,
            tool_use_id: tool_use_id.map(Into::into),
            matched_agent_id: Some("a".into()),
            created_at: Some(Time::from_micros(5)),
        }
    }

    fn agent(agent_type: &str, role_source: RoleSource) -> ImportedSubagent {
        ImportedSubagent {
            agent_id: "a".into(),
            agent_type: Some(agent_type.into()),
            role: None,
            role_source: Some(role_source),
            task_match_index: None,
            started_at: Time::from_micros(5),
            stopped_at: None,
        }
    }

    #[test]
    fn match_is_exact_only_if_claude_nagger_cannot_have_guessed_it() {
        let (named, nameless) = (spawn(Some("toolu_1")), spawn(None));
        let (coder, other) = (agent("coder", RoleSource::TaskMatch), agent("general", RoleSource::TaskMatch));
        let retried = agent("coder", RoleSource::RetryMatch);
        assert_eq!(likely_evidence(&named, Some(&coder), false), Evidence::SubagentType);
        assert_eq!(likely_evidence(&named, None, false), Evidence::SubagentType);
        assert_eq!(likely_evidence(&named, Some(&coder), true), Evidence::AgentProgress);
        assert_eq!(likely_evidence(&named, Some(&retried), false), Evidence::AgentProgress);
        assert_eq!(likely_evidence(&named, Some(&other), false), Evidence::AgentProgress);
        assert_eq!(likely_evidence(&nameless, Some(&other), false), Evidence::Role);
        assert_eq!(likely_evidence(&nameless, Some(&retried), true), Evidence::SubagentType);
    }

    #[test]
    fn role_source_is_the_prompt_tag_only_before_version_3() {
        assert_eq!(role_source("coder", Some("coder"), false), SpawnRoleSource::PromptTag);
        for subagent_type in ["coder", "coder-7097", "claude-coder"] {
            assert_eq!(role_source("coder", Some(subagent_type), true), SpawnRoleSource::SubagentType);
        }
        assert_eq!(role_source("coder", Some("encoder"), true), SpawnRoleSource::Name);
        assert_eq!(role_source("coder", None, true), SpawnRoleSource::Name);
    }
}
