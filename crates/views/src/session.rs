//! Sessions of agent clients: lists, details, and the state that the hook daemon needs.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time,
    enums::{Evidence, FileChange, RunStatus},
    field,
    kind::{self, Kind},
    queue::check_range,
    text,
};
use trackway_store::{
    Reader, Result,
    display::{RunRow, SessionRow, SpawnRow, SubagentRow},
    params, row,
    sql::ToParam,
};
use uuid::Uuid;

use crate::{
    page::{LIMIT_MAX, ListPage},
    view::View,
};

/// List sessions, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListSessions {
    /// Only sessions in this workspace
    #[arg(long)]
    pub workspace: Option<Ref<kind::Workspace>>,
    /// Maximum number of sessions
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: i64,
    /// Only sessions that began before this time or this session
    #[arg(long, value_name = "TIME|SESSION")]
    #[schemars(length(min = 1))]
    pub before: Option<String>,
}

fn default_limit() -> i64 {
    100
}

impl View for ListSessions {
    const COMMAND: (&'static str, &'static str) = ("session", "list");
    const COLUMNS: &'static [&'static str] =
        &["id", "prompt", "workspace", "version", "runs", "subagents", "started_at", "ended_at"];
    type Output = ListPage<SessionRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        check_range(field!(limit), self.limit, 1, LIMIT_MAX)?;
        let workspace = read.resolve_optional(self.workspace.as_ref())?;
        let mut conditions = String::new();
        let limit_plus_one = self.limit + 1;
        let mut params: Vec<_> = params![limit_plus_one].to_vec();
        let (time, session): (Option<Time>, _) = match self.before.as_deref().map(|before| (before, before.parse())) {
            None => (None, None),
            Some((_, Ok(time))) => (Some(time), None),
            // A session marks an exact position in the list. A time does not, because several sessions can begin at
            // once.
            Some((before, Err(_))) => (None, Some(find_session(read, before)?)),
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
        let mut rows = read.display_rows::<SessionRow>(
            &format!("where e.tenant_id = ?1{conditions} order by e.started_at desc, e.id desc limit ?2"),
            &params,
        )?;
        rows.iter_mut().for_each(shorten_prompt);
        let page_size = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let has_more = rows.len() > page_size;
        rows.truncate(page_size);
        let next_page = rows.last().filter(|_| has_more).map(|last| format!("--before {}", last.session.id));
        Ok(ListPage { rows, next_page })
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}

/// The session with this id. A Trackway id, as in `next_page`, takes precedence over an id that a client has assigned.
fn find_session(read: &mut Reader<'_>, given: &str) -> Result<Id<kind::Session>> {
    if let Ok(id) = Uuid::try_parse(given)
        && read.entry_by_id(id)?.is_some_and(|entry| entry.kind == Kind::Session)
    {
        return Ok(id.into());
    }
    read.resolve(&Ref::<kind::Session>::new(given))
}

/// Show a session with its runs, its subagents, and the evidence for each subagent
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowSession {
    /// The session, by id or by the last characters of the id
    pub session: Ref<kind::Session>,
}

/// A session with its prompts, subagents and spawns.
#[derive(Debug, PartialEq, Serialize)]
pub struct SessionDetails {
    #[serde(flatten)]
    pub session: SessionRow,
    pub prompts: Vec<PromptRun>,
    /// The subagents, each as a child of the agent that started it.
    pub tree: Vec<SubagentNode>,
    pub spawns: Vec<SpawnRow>,
}

/// A run of the main agent, with the prompt that started it.
#[derive(Debug, PartialEq, Serialize)]
pub struct PromptRun {
    #[serde(flatten)]
    pub run: RunRow,
    /// The first line of the prompt.
    pub prompt: Option<String>,
}

/// The first line that is not blank.
fn first_line(text: &str) -> Option<String> {
    text.lines().map(text::clean_line).find(|line| !line.trim().is_empty())
}

/// Reduces the prompt of a session to one line, which serves as its title.
fn shorten_prompt(shown: &mut SessionRow) {
    shown.prompt = shown.prompt.take().and_then(|text| first_line(&text));
}

/// A subagent in the tree of a session.
#[derive(Debug, PartialEq, Serialize)]
pub struct SubagentNode {
    pub agent_id: String,
    pub agent_type: Option<String>,
    pub role: Option<String>,
    pub description: Option<String>,
    pub tool_use_id: Option<String>,
    #[serde(flatten, serialize_with = "trackway_domain::enums::serialize_with_kind")]
    pub evidence: Option<Evidence>,
    pub tentative: bool,
    pub run_id: Option<Id<kind::Run>>,
    pub status: Option<RunStatus>,
    pub children: Vec<SubagentNode>,
}

impl View for ShowSession {
    const COMMAND: (&'static str, &'static str) = ("session", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = SessionDetails;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<SessionDetails> {
        let id = read.resolve(&self.session)?;
        let mut session = read.display_row_by_id::<SessionRow>("e", id)?;
        shorten_prompt(&mut session);
        let subagents = read.display_rows::<SubagentRow>(
            "where a.tenant_id = ?1 and a.session_id = ?2 order by a.started_at, a.id",
            params![id],
        )?;
        let spawns = read.display_rows::<SpawnRow>(
            "where s.tenant_id = ?1 and s.session_id = ?2 order by s.created_at, s.id",
            params![id],
        )?;
        let runs = read.display_rows::<RunRow>(
            "where u.tenant_id = ?1 and u.session_id = ?2 and u.subagent_id is null order by u.id",
            params![id],
        )?;
        let prompts_by_run: HashMap<_, _> = read
            .query::<(Id<kind::Run>, String)>(
                "select r.id, substr(c.body, 1, 200) from runs r join messages m on m.id = r.cause_id join contents c on c.id = m.content_id
                 where r.tenant_id = ?1 and r.session_id = ?2 and r.subagent_id is null and r.cause_kind = 'message'",
                params![id],
            )?
            .into_iter()
            .collect();
        let prompt =
            |run: RunRow| PromptRun { prompt: prompts_by_run.get(&run.run.id).and_then(|text| first_line(text)), run };
        let prompts = runs.into_iter().map(prompt).collect();
        Ok(SessionDetails { session, prompts, tree: subagent_tree(&subagents, &spawns), spawns })
    }
}

fn subagent_tree(subagents: &[SubagentRow], spawns: &[SpawnRow]) -> Vec<SubagentNode> {
    let by_agent: HashMap<&str, &SpawnRow> =
        spawns.iter().rev().filter_map(|spawn| Some((spawn.spawn.matched_agent_id.as_deref()?, spawn))).collect();
    let mut children_by_parent: HashMap<Option<&str>, Vec<&SubagentRow>> = HashMap::new();
    let is_known = |agent: &str| subagents.iter().any(|shown| shown.subagent.agent_id == agent);
    for shown in subagents {
        let parent = shown
            .subagent
            .parent_agent_id
            .as_deref()
            .filter(|parent| is_known(parent) && *parent != shown.subagent.agent_id);
        children_by_parent.entry(parent).or_default().push(shown);
    }
    subtree(None, &mut children_by_parent, &by_agent)
}

fn subtree<'a>(
    parent: Option<&'a str>,
    children_by_parent: &mut HashMap<Option<&'a str>, Vec<&'a SubagentRow>>,
    spawns: &HashMap<&str, &SpawnRow>,
) -> Vec<SubagentNode> {
    // Removing the children from the map makes the recursion end, even if broken data contains a cycle.
    let children = children_by_parent.remove(&parent).unwrap_or_default();
    children
        .into_iter()
        .map(|shown| {
            let agent = &shown.subagent;
            let spawn = spawns.get(agent.agent_id.as_str()).map(|spawn| &spawn.spawn);
            SubagentNode {
                agent_id: agent.agent_id.clone(),
                agent_type: agent.agent_type.clone(),
                role: agent.role.clone(),
                description: spawn.and_then(|spawn| spawn.description.clone()),
                tool_use_id: spawn.map(|spawn| spawn.tool_use_id.clone()),
                evidence: spawn.and_then(|spawn| spawn.evidence),
                tentative: spawn.is_some_and(|spawn| spawn.tentative),
                run_id: shown.run_id,
                status: shown.status,
                children: subtree(Some(agent.agent_id.as_str()), children_by_parent, spawns),
            }
        })
        .collect()
}

row! {
    /// The numbers of recorded rows of one session.
    pub struct SessionCounts {
        client: String,
        session: String,
        subagents: i64,
        spawns: i64,
        matched: i64,
        tentative: i64,
        touches: i64,
        usage: i64,
    }
}

/// The numbers of recorded rows of each session.
pub fn session_counts(read: &mut Reader<'_>) -> Result<Vec<SessionCounts>> {
    read.query(
        "select e.client, e.session_id,
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

/// The state of the main agent or a subagent of a session. The hook intake uses it to choose the answer to the client.
#[derive(Debug)]
pub struct SessionAgentState {
    pub run_id: Id<kind::Run>,
    /// Whether the run has not ended.
    pub is_open: bool,
    pub started_at: Time,
    /// The time at which the agent got the end-of-run prompt.
    pub asked_at: Option<Time>,
    pub agent: SessionAgent,
    /// The root directory of the session's work tree.
    pub root: Option<String>,
    /// The time of the agent's last shell command.
    pub shell_at: Option<Time>,
    /// Whether a spawn started this subagent, or may have started it. Always true for the main agent.
    pub has_spawn: bool,
}

row! {
    /// The newest run of an agent in a session.
    pub struct LatestRun {
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
    /// An agent of a session, with its owner, role and scratchpad.
    pub struct SessionAgent {
        handle: String,
        end_of_run: bool,
        owner: String,
        /// The description of the agent by its owner.
        identity: Option<String>,
        role: Option<String>,
        scratchpad: Option<String>,
        revision: Option<i64>,
    }
}

/// Reads the state of an agent. `agent` is the client's id of a subagent, or `None` for the main agent. The result is
/// `None` before the agent's first run.
pub fn session_agent_state(
    read: &mut Reader<'_>,
    client: &str,
    session: &str,
    agent: Option<&str>,
) -> Result<Option<SessionAgentState>> {
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
        // An unmatched spawn of the same type counts too: it may have started this subagent, although no evidence of a
        // match is recorded yet.
        Some(_) => {
            "exists (select 1 from task_spawns s where s.tenant_id = ?1 and s.session_id = e.id and (s.matched_agent_id = b.agent_id
             or s.matched_agent_id is null and s.error is null and b.spawnable and coalesce(s.subagent_type, b.agent_type) = b.agent_type))"
        }
    };
    let mut params = params![session, client].to_vec();
    params.extend(agent.as_ref().map(ToParam::to_param));
    // Two queries, the first with a fixed join order, because SQLite takes longer to plan one large query than to
    // execute it.
    let Some(run) = read.one::<LatestRun>(
        &format!(
            "select u.id, u.agent_id, u.role_id, u.started_at, u.asked_at, e.root, {shell}, {spawned}, u.ended_at is null from sessions e {join} cross join runs u
             where e.tenant_id = ?1 and e.session_id = ?2 and e.client = ?3 and u.tenant_id = ?1 and u.session_id = e.id and {which} order by u.id desc limit 1"
        ),
        &params,
    )?
    else {
        return Ok(None);
    };
    // The queue item overrides the task, and the task overrides the agent.
    let select = select_session_agent("coalesce(i.end_of_run, k.end_of_run, a.end_of_run)");
    let agent = read.one::<SessionAgent>(
        &format!(
            "{select} left join roles r on r.id = ?3 left join runs x on x.id = ?4 left join tasks k on k.id = x.task_id
             left join queue_items i on i.id = x.queue_item_id where a.tenant_id = ?1 and a.id = ?2"
        ),
        params![run.agent_id, run.role_id, run.run_id],
    )?;
    Ok(agent.map(|agent| SessionAgentState {
        run_id: run.run_id,
        is_open: run.is_open,
        started_at: run.started_at,
        asked_at: run.asked_at,
        agent,
        root: run.root,
        shell_at: run.shell_at,
        has_spawn: run.spawned,
    }))
}

/// SQL that selects a [`SessionAgent`]. The caller joins the role as `r`. `end_of_run` is the SQL expression for the
/// column of this name.
fn select_session_agent(end_of_run: &str) -> String {
    format!(
        "select a.handle, {end_of_run}, o.handle, a.identity, r.name, p.content, p.revision from agents a
         join people o on o.id = a.owner_id left join scratchpads p on p.agent_id = a.id"
    )
}

/// The main agent of a session that has no run yet. If the agent does not exist, returns the one that the first run
/// will create.
pub fn main_agent(read: &mut Reader<'_>, client: &str, session: &str, person: Uuid) -> Result<Option<SessionAgent>> {
    let Some((workspace, owner)) = read.one::<(String, String)>(
        "select w.name, p.handle from sessions e join workspaces w on w.id = e.workspace_id cross join people p
         where e.tenant_id = ?1 and e.session_id = ?2 and e.client = ?4 and p.tenant_id = ?1 and p.id = ?3",
        params![session, person, client],
    )?
    else {
        return Ok(None);
    };
    let handle = format!("main@{workspace}");
    let existing = read.one::<SessionAgent>(
        &format!(
            "{} left join roles r on r.id = a.role_id where a.tenant_id = ?1 and a.handle = ?2 and a.deleted_at is null",
            select_session_agent("a.end_of_run")
        ),
        params![handle],
    )?;
    let new = || SessionAgent {
        handle,
        end_of_run: false,
        owner,
        identity: None,
        role: None,
        scratchpad: None,
        revision: None,
    };
    Ok(Some(existing.unwrap_or_else(new)))
}

/// The last known HEAD commits of a session's work trees, in the stored format.
pub fn recorded_heads(read: &mut Reader<'_>, client: &str, session: &str) -> Result<Option<String>> {
    let found = read.one::<(Option<String>,)>(
        "select head from sessions where tenant_id = ?1 and session_id = ?2 and client = ?3",
        params![session, client],
    )?;
    Ok(found.and_then(|(heads,)| heads))
}

row! {
    pub struct LastChange {
        change: FileChange,
        digest: Option<String>,
        created_at: Time,
    }
}

/// The last recorded change of a file. `directory` is the directory of the workspace, `path` is relative to it.
pub fn last_change(read: &mut Reader<'_>, directory: &str, path: &str) -> Result<Option<LastChange>> {
    read.one(
        "select c.change, c.digest, c.created_at from workspaces w
         join files f on f.tenant_id = ?1 and f.workspace_id = w.id and f.path_key = ?3
         join file_changes c on c.tenant_id = ?1 and c.file_id = f.id
         where w.tenant_id = ?1 and w.directory = ?2 and w.deleted_at is null order by c.created_at desc limit 1",
        params![directory, text::lookup_key(path)],
    )
}
