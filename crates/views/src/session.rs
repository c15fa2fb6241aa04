//! Sessions of clients, the agents they started, and the calls that started them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time, field, kind,
    queue::within,
    text,
    words::{Evidence, FileChange, RunStatus},
};
use trackway_store::{
    Reader, Result,
    display::{RunShown, SessionShown, SpawnShown, SubagentShown},
    params, row,
    sql::ToParam,
};
use uuid::Uuid;

use crate::{
    page::{LIMIT_MAX, Listed},
    view::View,
};

/// List sessions, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListSessions {
    /// Only in this workspace
    #[arg(long)]
    pub workspace: Option<Ref<kind::Workspace>>,
    /// How many to show
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: i64,
    /// Go on with those that began before this time, or before this session
    #[arg(long, value_name = "TIME|SESSION")]
    #[schemars(length(min = 1))]
    pub before: Option<String>,
}

fn hundred() -> i64 {
    100
}

impl View for ListSessions {
    const COMMAND: (&'static str, &'static str) = ("session", "list");
    const COLUMNS: &'static [&'static str] =
        &["id", "prompt", "workspace", "version", "runs", "subagents", "started_at", "ended_at"];
    type Output = Listed<SessionShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        within(field!(limit), self.limit, 1, LIMIT_MAX)?;
        let workspace = read.resolve_optional(self.workspace.as_ref())?;
        let mut conditions = String::new();
        let one_more = self.limit + 1;
        let mut params: Vec<_> = params![one_more].to_vec();
        let (time, session): (Option<Time>, _) = match self.before.as_deref().map(|before| (before, before.parse())) {
            None => (None, None),
            Some((_, Ok(time))) => (Some(time), None),
            // Several may have begun at the same time.
            Some((before, Err(_))) => (None, Some(read.resolve(&Ref::<kind::Session>::new(before))?)),
        };
        if let Some(time) = &time {
            params.push(time.to_param());
            conditions += &format!(" and e.started_at < ?{}", params.len() + 1);
        }
        if let Some(session) = &session {
            params.push(session.to_param());
            conditions += &format!(
                " and (e.started_at, e.id) < (select b.started_at, b.id from sessions b where b.tenant_id = ?1 and b.id = ?{})",
                params.len() + 1
            );
        }
        if let Some(workspace) = &workspace {
            params.push(workspace.to_param());
            conditions += &format!(" and e.workspace_id = ?{}", params.len() + 1);
        }
        let mut rows = read.shown::<SessionShown>(
            &format!("where e.tenant_id = ?1{conditions} order by e.started_at desc, e.id desc limit ?2"),
            &params,
        )?;
        rows.iter_mut().for_each(title);
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = rows.len() > limit;
        rows.truncate(limit);
        let more = rows.last().filter(|_| more).map(|last| format!("--before {}", last.session.id));
        Ok(Listed { rows, more })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

/// Show a session: its runs, the agents it started, and the evidence for each
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowSession {
    /// The session, by its id or the end of it
    pub session: Ref<kind::Session>,
}

/// A session in full.
#[derive(Debug, PartialEq, Serialize)]
pub struct SessionInFull {
    #[serde(flatten)]
    pub session: SessionShown,
    pub prompts: Vec<Prompt>,
    /// The agents it started, each below the one that started it.
    pub tree: Vec<Started>,
    pub spawns: Vec<SpawnShown>,
}

/// A run that a prompt began.
#[derive(Debug, PartialEq, Serialize)]
pub struct Prompt {
    #[serde(flatten)]
    pub run: RunShown,
    /// The first line of what was asked.
    pub prompt: Option<String>,
}

/// The first line in which something is said.
fn first_line(said: &str) -> Option<String> {
    said.lines().map(text::clean_line).find(|line| !line.trim().is_empty())
}

/// A session is called by the first line of its first prompt.
fn title(shown: &mut SessionShown) {
    shown.prompt = shown.prompt.take().and_then(|said| first_line(&said));
}

/// An agent in the tree of a session.
#[derive(Debug, PartialEq, Serialize)]
pub struct Started {
    pub agent_id: String,
    pub agent_type: Option<String>,
    pub role: Option<String>,
    pub description: Option<String>,
    pub tool_use_id: Option<String>,
    pub evidence: Option<Evidence>,
    pub tentative: bool,
    pub run_id: Option<Id<kind::Run>>,
    pub status: Option<RunStatus>,
    pub children: Vec<Started>,
}

impl View for ShowSession {
    const COMMAND: (&'static str, &'static str) = ("session", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = SessionInFull;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<SessionInFull> {
        let id = read.resolve(&self.session)?;
        let mut session = read.shown_by_id::<SessionShown>("e", id)?;
        title(&mut session);
        let subagents = read.shown::<SubagentShown>(
            "where a.tenant_id = ?1 and a.session_id = ?2 order by a.started_at, a.id",
            params![id],
        )?;
        let spawns = read.shown::<SpawnShown>(
            "where s.tenant_id = ?1 and s.session_id = ?2 order by s.created_at, s.id",
            params![id],
        )?;
        let runs = read.shown::<RunShown>(
            "where u.tenant_id = ?1 and u.session_id = ?2 and u.subagent_id is null order by u.id",
            params![id],
        )?;
        let asked: HashMap<_, _> = read
            .query::<(Id<kind::Run>, String)>(
                "select r.id, substr(c.body, 1, 200) from runs r join messages m on m.id = r.cause_id join contents c on c.id = m.content_id
                 where r.tenant_id = ?1 and r.session_id = ?2 and r.subagent_id is null and r.cause_kind = 'message'",
                params![id],
            )?
            .into_iter()
            .collect();
        let prompt = |run: RunShown| Prompt { prompt: asked.get(&run.run.id).and_then(|said| first_line(said)), run };
        let prompts = runs.into_iter().map(prompt).collect();
        Ok(SessionInFull { session, prompts, tree: tree(&subagents, &spawns), spawns })
    }
}

fn tree(subagents: &[SubagentShown], spawns: &[SpawnShown]) -> Vec<Started> {
    let by_agent: HashMap<&str, &SpawnShown> =
        spawns.iter().rev().filter_map(|spawn| Some((spawn.spawn.matched_agent_id.as_deref()?, spawn))).collect();
    let mut below: HashMap<Option<&str>, Vec<&SubagentShown>> = HashMap::new();
    let known = |agent: &str| subagents.iter().any(|shown| shown.subagent.agent_id == agent);
    for shown in subagents {
        let parent = shown
            .subagent
            .parent_agent_id
            .as_deref()
            .filter(|parent| known(parent) && *parent != shown.subagent.agent_id);
        below.entry(parent).or_default().push(shown);
    }
    branches(None, &mut below, &by_agent)
}

fn branches<'a>(
    parent: Option<&'a str>,
    below: &mut HashMap<Option<&'a str>, Vec<&'a SubagentShown>>,
    spawns: &HashMap<&str, &SpawnShown>,
) -> Vec<Started> {
    // Taken out as they are shown: a circle, which no client makes, ends here.
    let children = below.remove(&parent).unwrap_or_default();
    children
        .into_iter()
        .map(|shown| {
            let agent = &shown.subagent;
            let spawn = spawns.get(agent.agent_id.as_str()).map(|spawn| &spawn.spawn);
            Started {
                agent_id: agent.agent_id.clone(),
                agent_type: agent.agent_type.clone(),
                role: agent.role.clone(),
                description: spawn.and_then(|spawn| spawn.description.clone()),
                tool_use_id: spawn.map(|spawn| spawn.tool_use_id.clone()),
                evidence: spawn.and_then(|spawn| spawn.evidence),
                tentative: spawn.is_some_and(|spawn| spawn.tentative),
                run_id: shown.run_id,
                status: shown.status,
                children: branches(Some(agent.agent_id.as_str()), below, spawns),
            }
        })
        .collect()
}

row! {
    /// What the record holds of one session.
    pub struct SessionCounts {
        session: String,
        subagents: i64,
        spawns: i64,
        matched: i64,
        tentative: i64,
        touches: i64,
        usage: i64,
    }
}

/// What the record holds of each session.
pub fn counts(read: &mut Reader<'_>) -> Result<Vec<SessionCounts>> {
    read.query(
        "select e.session_id,
         (select count(*) from subagents a where a.tenant_id = ?1 and a.session_id = e.id),
         coalesce(s.spawns, 0), coalesce(s.matched, 0), coalesce(s.tentative, 0), coalesce(t.touches, 0), coalesce(x.calls, 0)
         from sessions e
         left join (select session_id, count(*) as spawns, count(matched_agent_id) as matched,
                    count(case when tentative then 1 end) as tentative
                    from task_spawns where tenant_id = ?1 group by session_id) s on s.session_id = e.id
         left join (select r.session_id, count(*) as touches from runs r join run_resources y on y.run_id = r.id
                    where r.tenant_id = ?1 and r.session_id is not null group by r.session_id) t on t.session_id = e.id
         left join (select r.session_id, count(*) as calls from runs r join run_usage y on y.tenant_id = ?1 and y.run_id = r.id
                    where r.tenant_id = ?1 and r.session_id is not null group by r.session_id) x on x.session_id = e.id
         where e.tenant_id = ?1",
        &[],
    )
}

/// How an agent of a session stands: for a hook that speaks to it.
#[derive(Debug)]
pub struct Standing {
    pub run_id: Id<kind::Run>,
    /// Whether that one has not ended.
    pub is_open: bool,
    pub started_at: Time,
    pub asked_at: Option<Time>,
    pub who: StandingAgent,
    pub root: Option<String>,
    pub shell_at: Option<Time>,
    /// Whether a spawn made it, or may have; the main agent needs none.
    pub spawned: bool,
}

row! {
    /// The newest run of an agent in a session.
    pub struct StandingRun {
        run_id: Id<kind::Run>,
        agent_id: Id<kind::Agent>,
        role_id: Option<Id<kind::Role>>,
        started_at: Time,
        asked_at: Option<Time>,
        root: Option<String>,
        shell_at: Option<Time>,
        spawned: bool,
        is_open: bool,
    }
}

row! {
    /// Whose run it is, and what that one noted.
    pub struct StandingAgent {
        handle: String,
        end_of_run: bool,
        owner: String,
        /// What its owner says it is.
        identity: Option<String>,
        role: Option<String>,
        scratchpad: Option<String>,
        revision: Option<i64>,
    }
}

/// How an agent of a session stands now. None before its first run.
pub fn standing(read: &mut Reader<'_>, client: &str, session: &str, agent: Option<&str>) -> Result<Option<Standing>> {
    let (join, which, shell) = match agent {
        None => ("", "u.subagent_id is null", "e.shell_at"),
        Some(_) => (
            "cross join subagents b",
            "b.tenant_id = ?1 and b.session_id = e.id and b.agent_id = ?4 and u.subagent_id = b.id",
            "b.shell_at",
        ),
    };
    let spawned = match agent {
        None => "true",
        // One of several of its type, which nothing tells apart yet, was spawned all the same.
        Some(_) => {
            "exists (select 1 from task_spawns s where s.tenant_id = ?1 and s.session_id = e.id and (s.matched_agent_id = b.agent_id
             or s.matched_agent_id is null and s.error is null and b.spawnable and coalesce(s.subagent_type, b.agent_type) = b.agent_type))"
        }
    };
    let mut params = params![session, client].to_vec();
    params.extend(agent.as_ref().map(ToParam::to_param));
    // Two questions, and the order of the first given: SQLite takes longer to plan all of it than to do it.
    let Some(run) = read.one::<StandingRun>(
        &format!(
            "select u.id, u.agent_id, u.role_id, u.started_at, u.asked_at, e.root, {shell}, {spawned}, u.ended_at is null from sessions e {join} cross join runs u
             where e.tenant_id = ?1 and e.session_id = ?2 and e.client = ?3 and u.tenant_id = ?1 and u.session_id = e.id and {which} order by u.id desc limit 1"
        ),
        &params,
    )?
    else {
        return Ok(None);
    };
    // The queue item's choice comes before the task's, and the task's before the agent's.
    let select = standing_agent("coalesce(i.end_of_run, k.end_of_run, a.end_of_run)");
    let who = read.one::<StandingAgent>(
        &format!(
            "{select} left join roles r on r.id = ?3 left join runs x on x.id = ?4 left join tasks k on k.id = x.task_id
             left join queue_items i on i.id = x.queue_item_id where a.tenant_id = ?1 and a.id = ?2"
        ),
        params![run.agent_id, run.role_id, run.run_id],
    )?;
    Ok(who.map(|who| Standing {
        run_id: run.run_id,
        is_open: run.is_open,
        started_at: run.started_at,
        asked_at: run.asked_at,
        who,
        root: run.root,
        shell_at: run.shell_at,
        spawned: run.spawned,
    }))
}

/// Selects [`StandingAgent`], whose role is `r`; the argument says whether it is asked the end-of-run prompt.
fn standing_agent(end_of_run: &str) -> String {
    format!(
        "select a.handle, {end_of_run}, o.handle, a.identity, r.name, p.content, p.revision from agents a
         join people o on o.id = a.owner_id left join scratchpads p on p.agent_id = a.id"
    )
}

/// Who will work in a session in which nothing was done so far: the main agent of its workspace, whoever that becomes.
pub fn main_agent(read: &mut Reader<'_>, client: &str, session: &str, person: Uuid) -> Result<Option<StandingAgent>> {
    let Some((workspace, owner)) = read.one::<(String, String)>(
        "select w.name, p.handle from sessions e join workspaces w on w.id = e.workspace_id cross join people p
         where e.tenant_id = ?1 and e.session_id = ?2 and e.client = ?4 and p.tenant_id = ?1 and p.id = ?3",
        params![session, person, client],
    )?
    else {
        return Ok(None);
    };
    let handle = format!("main@{workspace}");
    let known = read.one::<StandingAgent>(
        &format!(
            "{} left join roles r on r.id = a.role_id where a.tenant_id = ?1 and a.handle = ?2 and a.deleted_at is null",
            standing_agent("a.end_of_run")
        ),
        params![handle],
    )?;
    let new = || StandingAgent {
        handle,
        end_of_run: false,
        owner,
        identity: None,
        role: None,
        scratchpad: None,
        revision: None,
    };
    Ok(Some(known.unwrap_or_else(new)))
}

/// The commits that work trees of a session were last seen at, as it keeps them.
pub fn heads(read: &mut Reader<'_>, client: &str, session: &str) -> Result<Option<String>> {
    let found = read.one::<(Option<String>,)>(
        "select head from sessions where tenant_id = ?1 and session_id = ?2 and client = ?3",
        params![session, client],
    )?;
    Ok(found.and_then(|(heads,)| heads))
}

row! {
    /// The last recorded change of a file.
    pub struct LastChange {
        change: FileChange,
        digest: Option<String>,
        created_at: Time,
    }
}

/// The last recorded change of a file, by its path in the workspace of a directory.
pub fn last_change(read: &mut Reader<'_>, directory: &str, path: &str) -> Result<Option<LastChange>> {
    read.one(
        "select c.change, c.digest, c.created_at from workspaces w
         join files f on f.tenant_id = ?1 and f.workspace_id = w.id and f.path_key = ?3
         join file_changes c on c.tenant_id = ?1 and c.file_id = f.id
         where w.tenant_id = ?1 and w.directory = ?2 and w.deleted_at is null order by c.created_at desc limit 1",
        params![directory, text::key(path)],
    )
}
