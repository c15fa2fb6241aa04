//! Carrying over what claude-nagger recorded.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use serde::Deserialize;
use serde_json::json;
use trackway_domain::{
    Time, kind, text,
    words::{Evidence, RoleSource, SpawnRoleSource, Words},
};
use trackway_store::{
    Writer,
    foreign::nagger::{self, KNOWN_VERSION, Nagger},
};

use super::{CarriedMatch, CarriedSession, CarriedSpawn, CarriedSubagent, Imported, carry};
use crate::{
    action::{Action, Done, Resource},
    context::Context,
    error::Result,
    touched::Nothing,
};

/// The schema since which a match is made only where the transcript names the call and the agent together, and a role
/// is no longer a tag in the prompt: claude-nagger 3.0.
const EXACT_SINCE: i64 = 9;
/// The client whose sessions claude-nagger recorded.
const CLIENT: &str = "claude_code";
/// Characters in an id that a client made.
const ID_MAX: usize = 200;

/// Carry over what claude-nagger recorded: sessions, subagents, spawns and which spawn made which
///
/// Its database is read, in any version, and left as it is. What hooks or transcripts tell of the same sessions, before
/// or after, makes one record with it; importing again changes nothing.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ImportNagger {
    /// Its database: .claude-nagger/state.db in a project
    pub path: PathBuf,
}

impl Action for ImportNagger {
    const NAME: &'static str = "import_nagger";
    const COMMAND: (&'static str, &'static str) = ("import", "nagger");
    type Touched = Nothing;
    type Output = Imported;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let nagger = nagger::read(&self.path)?;
        let mut imported = Imported::default();
        if nagger.version() > KNOWN_VERSION {
            imported.notices.push(format!(
                "its schema is {}, newer than {KNOWN_VERSION}, the newest known here: what is known was read",
                nagger.version()
            ));
        }
        if !nagger.left.is_empty() {
            imported.notices.push(format!("left there: {}", nagger.left.join(", ")));
        }
        let Meaning { sessions, mut repeated, unusable, astray } = Meaning::of(nagger);
        // In the order of their names: two imports wait for each other, not for ever.
        for session in sessions.values() {
            repeated += carry(context, write, session, &mut imported)?;
        }
        imported.left_out = repeated + unusable + astray;
        let reasons = [
            (unusable, "without a usable id, line or time"),
            (repeated, "of calls that another session made and this one repeats"),
            (astray, "of matches with an agent of another session"),
        ];
        let said = reasons.iter().filter(|(count, _)| *count > 0);
        imported.notices.extend(said.map(|(count, what)| format!("left out: {count} {what}")));
        if !imported.changed {
            return Ok(Done::unchanged(imported));
        }
        let detail = json!({
            "sessions": imported.sessions, "subagents": imported.subagents, "spawns": imported.spawns,
            "matched": imported.matched, "left_out": imported.left_out,
        });
        let from = text::cut(&text::clean_line(&self.path.to_string_lossy()), text::LINE_MAX);
        let tenant = Resource::<kind::Tenant>::outside(context.tenant, from);
        Ok(Done::changed(imported, &tenant, Nothing).with_detail(detail))
    }
}

/// What its rows mean here.
#[derive(Debug, Default)]
struct Meaning {
    sessions: BTreeMap<String, CarriedSession>,
    repeated: i64,
    unusable: i64,
    astray: i64,
}

impl Meaning {
    fn of(nagger: Nagger) -> Self {
        let since = nagger.versions.iter().filter(|(version, _)| *version >= EXACT_SINCE);
        let exact_since = since.filter_map(|(_, applied)| *applied).min();
        let mut meaning = Self::default();
        for row in nagger.sessions {
            match (row.session_id.and_then(id), row.created_at) {
                (Some(session), Some(at)) => drop(meaning.session(&session, at)),
                _ => meaning.unusable += 1,
            }
        }
        for row in nagger.subagents {
            meaning.subagent(row);
        }
        meaning.spawns(nagger.spawns, exact_since);
        meaning
    }

    fn session(&mut self, session_id: &str, at: Time) -> &mut CarriedSession {
        let session = self.sessions.entry(session_id.to_owned()).or_insert_with(|| CarriedSession {
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

    /// An agent that was resumed has several rows: it began with the first, it ended with the last, and the one it has
    /// now says what it is.
    fn subagent(&mut self, row: nagger::Subagent) {
        let (Some(session), Some(agent_id), Some(started_at)) =
            (row.session_id.and_then(id), row.agent_id.and_then(id), row.started_at)
        else {
            self.unusable += 1;
            return;
        };
        let session = self.session(&session, started_at);
        session.transcript_path = session.transcript_path.take().or(row.leader_transcript_path.and_then(path));
        let told = CarriedSubagent {
            agent_id,
            agent_type: row.agent_type.and_then(line).filter(|agent_type| agent_type != "unknown"),
            role: row.role.and_then(line),
            role_source: row.role_source.and_then(|source| match source.as_str() {
                // The name of its type, mapped to a role by a list of its user's.
                "trusted_prefix" => Some(RoleSource::SubagentType),
                source => RoleSource::parse(source).ok(),
            }),
            task_match_index: row.task_match_index.filter(|line| *line > 0),
            started_at,
            stopped_at: row.stopped_at,
        };
        match session.subagents.iter_mut().find(|known| known.agent_id == told.agent_id) {
            None => session.subagents.push(told),
            Some(known) => {
                known.agent_type = known.agent_type.take().or(told.agent_type);
                if known.role.is_none() {
                    (known.role, known.role_source) = (told.role, told.role_source);
                }
                known.started_at = known.started_at.min(told.started_at);
                known.stopped_at = known.stopped_at.max(told.stopped_at);
            }
        }
    }

    fn spawns(&mut self, rows: Vec<nagger::Spawn>, exact_since: Option<Time>) {
        let mut usable: Vec<_> = rows
            .into_iter()
            .filter_map(|row| {
                let session = row.session_id.clone().and_then(id);
                let index = row.transcript_index.filter(|line| *line > 0);
                let found = session.zip(index).zip(row.created_at);
                self.unusable += i64::from(found.is_none());
                found.map(|((session, index), at)| (session, index, at, row))
            })
            .collect();
        // A session that goes on with another repeats its calls: they were made where they were seen first.
        usable.sort_by_key(|(.., at, _)| *at);
        let mut made_in = HashMap::new();
        let mut without_id = HashMap::<_, i64>::new();
        for (session, .., row) in &usable {
            match row.tool_use_id.clone().and_then(id) {
                Some(call) => drop(made_in.entry(call).or_insert_with(|| session.clone())),
                None => *without_id.entry((session.clone(), row.prompt_hash.clone())).or_default() += 1,
            }
        }
        for (session_id, index, created_at, row) in usable {
            let tool_use_id = row.tool_use_id.clone().and_then(id);
            if tool_use_id.as_ref().and_then(|call| made_in.get(call)).is_some_and(|first| *first != session_id) {
                self.repeated += 1;
                continue;
            }
            let matched = self.matched(&session_id, &row, created_at, exact_since);
            let subagent_type = row.subagent_type.and_then(line);
            let role = row.role.and_then(line).map(|role| {
                let source =
                    role_source(&role, subagent_type.as_deref(), exact_since.is_some_and(|since| created_at >= since));
                (role, source)
            });
            let alone = without_id.get(&(session_id.clone(), row.prompt_hash.clone())) == Some(&1);
            let prompt_hash = row.prompt_hash.and_then(line);
            let spawn = CarriedSpawn {
                tool_use_id,
                alone: alone && prompt_hash.is_some(),
                index,
                subagent_type,
                role,
                prompt_hash,
                created_at,
                matched,
            };
            self.session(&session_id, created_at).spawns.push(spawn);
        }
    }

    fn matched(
        &mut self,
        session_id: &str,
        row: &nagger::Spawn,
        created_at: Time,
        exact_since: Option<Time>,
    ) -> Option<CarriedMatch> {
        let agent_id = row.matched_agent_id.clone().and_then(id)?;
        let is_it = |subagent: &&CarriedSubagent| subagent.agent_id == agent_id;
        let own = self.sessions.get(session_id).and_then(|session| session.subagents.iter().find(is_it));
        if own.is_none() && self.sessions.values().any(|session| session.subagents.iter().any(|other| is_it(&other))) {
            // It looks calls up by their id alone, and a session may repeat those of another.
            self.astray += 1;
            return None;
        }
        let at = own.map_or(created_at, |subagent| subagent.started_at);
        Some(CarriedMatch { agent_id, evidence: evidence(row, own, exact_since.is_some_and(|since| at >= since)), at })
    }
}

/// How a match was made, as far as that can be told.
///
/// It first looks for a line of the parent's transcript (`agent_progress`) that names the call and the agent. Up to 2.5
/// it guesses when there is none: the oldest spawn of the agent's type, or of a role when it was given one, which no
/// release ever did. It does not say which it was.
fn evidence(spawn: &nagger::Spawn, agent: Option<&CarriedSubagent>, never_guesses: bool) -> Evidence {
    let same_type = agent.is_none_or(|agent| agent.agent_type == spawn.subagent_type);
    let retried = agent.is_some_and(|agent| agent.role_source == Some(RoleSource::RetryMatch));
    match (&spawn.tool_use_id, same_type) {
        (Some(_), _) if never_guesses || retried => Evidence::AgentProgress,
        (Some(_), false) => Evidence::AgentProgress,
        (None, false) => Evidence::Role,
        (_, true) => Evidence::SubagentType,
    }
}

/// Where a spawn's role comes from: a tag in its prompt, until 3.0; since then its name, else its type, both without
/// the number or the prefix that made them one of several.
fn role_source(role: &str, subagent_type: Option<&str>, since_3: bool) -> SpawnRoleSource {
    let is_of = |name: &str| {
        let rest = name.strip_prefix(role).or_else(|| name.strip_suffix(role));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-') || rest.ends_with('-'))
    };
    match subagent_type {
        _ if !since_3 => SpawnRoleSource::PromptTag,
        Some(name) if is_of(name) => SpawnRoleSource::SubagentType,
        _ => SpawnRoleSource::Name,
    }
}

/// An id as clients make them.
fn id(text: String) -> Option<String> {
    ((1..=ID_MAX).contains(&text.chars().count()) && !text.contains(char::is_control)).then_some(text)
}

/// One line that says something.
fn line(text: String) -> Option<String> {
    Some(text::cut(&text::clean_line(&text), text::LINE_MAX)).filter(|line| !line.is_empty())
}

fn path(text: String) -> Option<String> {
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

    fn agent(agent_type: &str, role_source: RoleSource) -> CarriedSubagent {
        CarriedSubagent {
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
    fn a_match_is_exact_only_where_no_guess_can_have_made_it() {
        let (named, nameless) = (spawn(Some("toolu_1")), spawn(None));
        let (coder, other) = (agent("coder", RoleSource::TaskMatch), agent("general", RoleSource::TaskMatch));
        let retried = agent("coder", RoleSource::RetryMatch);
        assert_eq!(evidence(&named, Some(&coder), false), Evidence::SubagentType);
        assert_eq!(evidence(&named, None, false), Evidence::SubagentType);
        assert_eq!(evidence(&named, Some(&coder), true), Evidence::AgentProgress);
        assert_eq!(evidence(&named, Some(&retried), false), Evidence::AgentProgress);
        assert_eq!(evidence(&named, Some(&other), false), Evidence::AgentProgress);
        assert_eq!(evidence(&nameless, Some(&other), false), Evidence::Role);
        assert_eq!(evidence(&nameless, Some(&retried), true), Evidence::SubagentType);
    }

    #[test]
    fn a_role_was_a_tag_and_became_a_name_or_a_type() {
        assert_eq!(role_source("coder", Some("coder"), false), SpawnRoleSource::PromptTag);
        for subagent_type in ["coder", "coder-7097", "claude-coder"] {
            assert_eq!(role_source("coder", Some(subagent_type), true), SpawnRoleSource::SubagentType);
        }
        assert_eq!(role_source("coder", Some("encoder"), true), SpawnRoleSource::Name);
        assert_eq!(role_source("coder", None, true), SpawnRoleSource::Name);
    }
}
