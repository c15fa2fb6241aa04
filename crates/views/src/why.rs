//! Provenance: the chain from a resource, file or line to the run, the task and the responsible person.

use std::{borrow::Cow, collections::HashSet};

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use trackway_domain::{
    Duration, Error as Rule, Id, Time, command, ids,
    kind::{self, ActionType, Kind},
    sentence, text,
};
use trackway_store::{
    Error, Reader, Result,
    display::RunRow,
    params,
    registry::Entry,
    row,
    tables::{Run, Spawn},
};
use uuid::Uuid;

use crate::{file, view::View};

/// Maximum number of parent runs that are followed.
const DEPTH_MAX: usize = 1_000;
/// Maximum number of touching runs that are listed.
const TOUCHES_MAX: i64 = 20;
/// Characters of a prompt or description in a label.
const LABEL_MAX: usize = 120;

/// Show where something comes from: the run, agent, task and person behind it
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Why {
    /// Id of a resource or run, task variant, path, path:line, commit, or URL of a page
    pub thing: String,
}

/// The requested line of a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineDetails {
    pub number: usize,
    pub text: String,
    /// How the line was found in the recorded changes: `exact`, `moved` or `not recorded`.
    pub fit: &'static str,
}

/// A recorded step of the chain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hop {
    pub kind: &'static str,
    pub id: Uuid,
    pub label: String,
}

/// A step of the chain. A missing step was not recorded, although runs of this kind normally have it.
#[derive(Debug, Clone, PartialEq)]
pub enum ChainLink {
    Recorded(Hop),
    Missing(&'static str),
}

row! {
    /// A run that touched the resource.
    pub struct TouchedBy {
        run_id: Id<kind::Run>,
        action_type: ActionType,
        times: i64,
        first_at: Time,
        last_at: Time,
    }
}

/// The chain from a resource or run to a person.
#[derive(Debug, PartialEq)]
pub struct Chain {
    pub links: Vec<ChainLink>,
    pub deleted: bool,
    pub touched_by: Vec<TouchedBy>,
    /// Whether a file has changed since its last recorded change. `None` if the recorded content is unknown.
    pub changed_since: Option<bool>,
    pub line: Option<LineDetails>,
}

impl Chain {
    pub fn recorded(&self) -> impl Iterator<Item = &Hop> {
        self.links.iter().filter_map(|link| match link {
            ChainLink::Recorded(hop) => Some(hop),
            ChainLink::Missing(_) => None,
        })
    }

    /// Drops missing steps of kinds that the chain contains elsewhere, for example the task of a parent run.
    fn without_recorded_kinds(mut self) -> Self {
        let recorded: HashSet<&str> = self.recorded().map(|hop| hop.kind).collect();
        self.links.retain(|link| !matches!(link, ChainLink::Missing(kind) if recorded.contains(kind)));
        self
    }

    /// The kinds of the missing steps, each once.
    pub fn missing(&self) -> Vec<&'static str> {
        let mut kinds = Vec::new();
        for link in &self.links {
            if let ChainLink::Missing(kind) = link
                && !kinds.contains(kind)
            {
                kinds.push(*kind);
            }
        }
        kinds
    }
}

impl Serialize for Chain {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ChainJson<'a> {
            chain: Vec<&'a Hop>,
            missing: Vec<&'static str>,
            deleted: bool,
            touched_by: &'a [TouchedBy],
            #[serde(skip_serializing_if = "Option::is_none")]
            changed_since: Option<bool>,
            #[serde(skip_serializing_if = "Option::is_none")]
            line: Option<&'a LineDetails>,
        }
        ChainJson {
            chain: self.recorded().collect(),
            missing: self.missing(),
            deleted: self.deleted,
            touched_by: &self.touched_by,
            changed_since: self.changed_since,
            line: self.line.as_ref(),
        }
        .serialize(serializer)
    }
}

impl View for Why {
    const COMMAND: (&'static str, &'static str) = ("", "why");
    type Output = Chain;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Chain> {
        Ok(self.whole_chain(read, now)?.without_recorded_kinds())
    }
}

impl Why {
    fn whole_chain(&self, read: &mut Reader<'_>, now: Time) -> Result<Chain> {
        let thing = match Address::of(&self.thing) {
            Address::Thing(thing) => thing,
            Address::Page { page, reference } => return page_chain(read, &self.thing, page, &reference, now),
        };
        let thing = thing.as_ref();
        let known = read.find_entry(thing)?;
        // For a path, the file at this path takes precedence over a recorded file of the same name elsewhere.
        if known.as_ref().is_none_or(|entry| entry.kind == Kind::File)
            && let Some(found) = file::find_by_path(read, thing)?
        {
            return file_chain(read, &found, now);
        }
        // If the path exists here but is not recorded, a recorded file of the same name elsewhere is another file.
        let is_other_file =
            |entry: &Entry| entry.kind == Kind::File && entry.display_path == thing && file::is_on_disk(thing);
        let known = known.filter(|entry| !is_other_file(entry));
        if let Some(entry) = known {
            let path = (entry.kind == Kind::File).then(|| file::disk_path(read, entry.id)).transpose()?.flatten();
            let mut chain = entry_chain(read, &entry, now)?;
            chain.changed_since =
                path.map(|path| file::has_unrecorded_change(read, entry.id, &path)).transpose()?.flatten();
            return Ok(chain);
        }
        if let Some(entry) = file::find_commit(read, thing)? {
            return entry_chain(read, &entry, now);
        }
        let line_reference = thing.rsplit_once(':').and_then(|(path, line)| Some((path, line.parse::<usize>().ok()?)));
        if let Some((path, number)) = line_reference
            && let Some(found) = file::find_by_path(read, path)?
        {
            return line_chain(read, &found, number, now);
        }
        Err(not_found(thing).into())
    }
}

/// The chain of the resource that a page of this server shows. The URL may also lead to a commit on another site, if it
/// ends with the full hash.
fn page_chain(read: &mut Reader<'_>, url: &str, page: &str, reference: &str, now: Time) -> Result<Chain> {
    // A task also has a page under `/reports`.
    let is_on_page = |kind: Kind| page_segment(kind) == page || (kind == Kind::Task && page == "reports");
    let shown = match read.find_entry(reference)?.filter(|entry| is_on_page(entry.kind)) {
        None => find_named(read, page, reference)?,
        shown => shown,
    };
    let hash = reference.rsplit('/').next().unwrap_or_default();
    let entry = match shown {
        None if [40, 64].contains(&hash.len()) => file::find_commit(read, hash)?,
        shown => shown,
    };
    entry_chain(read, &entry.ok_or_else(|| not_found(url))?, now)
}

/// Kinds whose page paths contain a name. The paths of task pages contain a variant, which `find_entry` resolves.
const KINDS_WITH_NAMED_PAGES: [Kind; 8] =
    [Kind::Board, Kind::Label, Kind::Role, Kind::Studio, Kind::Agent, Kind::Person, Kind::Workflow, Kind::Workspace];

/// Finds a row by the name in the path of its page.
fn find_named(read: &mut Reader<'_>, page: &str, name: &str) -> Result<Option<Entry>> {
    let Some(kind) = KINDS_WITH_NAMED_PAGES.into_iter().find(|kind| page_segment(*kind) == page) else {
        return Ok(None);
    };
    match read.resolve_among(name, &[kind]) {
        Ok((_, id)) => read.entry_by_id(id),
        Err(Error::Rule(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first path segment of the pages of a kind, such as `runs`.
fn page_segment(kind: Kind) -> String {
    match kind {
        Kind::Person => "people".to_owned(),
        Kind::QueueItem => "queue".to_owned(),
        kind => format!("{kind}s"),
    }
}

fn not_found(thing: &str) -> Rule {
    let error = Rule::not_found(format!("nothing is recorded about {thing:?}"));
    let path = thing.rsplit_once(':').map_or(thing, |(path, _)| path);
    if let Some(hint) = ids::short_suffix_hint(thing) {
        return error.hint(hint);
    }
    if file::is_on_disk(thing) || file::is_on_disk(path) || thing.contains('/') {
        error.hint(sentence![
            "record past work of agents from their transcripts: ",
            command!("ingest"),
            "; record future work: ",
            command!("connect"),
        ])
    } else {
        error.hint(
            "give the id of a resource or a run, a task's variant, a file, a line of it as path:line, or a commit",
        )
    }
}

/// The chain of a file. It starts with the run that created the file, or with the run that last changed it.
fn file_chain(read: &mut Reader<'_>, found: &file::RecordedFile, now: Time) -> Result<Chain> {
    let mut chain = entry_chain(read, &found.entry, now)?;
    chain.changed_since = file::has_unrecorded_change(read, found.entry.id, &found.path)?;
    Ok(chain)
}

/// The chain of a line. It starts with the run that wrote the line, if known.
fn line_chain(read: &mut Reader<'_>, found: &file::RecordedFile, number: usize, now: Time) -> Result<Chain> {
    let file::TracedLine { text, writer } = file::trace_line(read, found, number)?;
    let resource = hop("resource", found.entry.id, format!("file {}:{number}", found.entry.display_path));
    let mut chain = Chain {
        links: vec![resource],
        deleted: false,
        touched_by: Vec::new(),
        changed_since: file::has_unrecorded_change(read, found.entry.id, &found.path)?,
        line: Some(LineDetails { number, text, fit: writer.map_or("not recorded", |(_, fit)| fit.as_str()) }),
    };
    match writer {
        Some((run, _)) => follow_runs(read, run, now, &mut chain.links)?,
        None => chain.links.push(ChainLink::Missing("run")),
    }
    Ok(chain)
}

/// The chain of a registered row.
pub fn entry_chain(read: &mut Reader<'_>, entry: &Entry, now: Time) -> Result<Chain> {
    let mut chain = Chain {
        links: Vec::new(),
        deleted: entry.deleted_at.is_some(),
        touched_by: Vec::new(),
        changed_since: None,
        line: None,
    };
    match entry.kind {
        Kind::Run => follow_runs(read, entry.id.into(), now, &mut chain.links)?,
        Kind::QueueItem => {
            chain.touched_by = touched_by(read, entry.id)?;
            follow_queue_item(read, entry, now, &mut chain.links)?;
        }
        Kind::Agent => follow_agent(read, entry, &mut chain.links)?,
        Kind::Session => follow_session(read, entry, &mut chain.links)?,
        Kind::Spawn | Kind::Subagent => follow_observed(read, entry, now, &mut chain.links)?,
        Kind::Message => {
            chain.touched_by = touched_by(read, entry.id)?;
            follow_observed(read, entry, now, &mut chain.links)?;
        }
        _ => {
            chain.touched_by = touched_by(read, entry.id)?;
            let run = match entry.kind {
                Kind::File => file::creating_run(read, entry.id)?,
                _ => creating_run(&chain.touched_by, entry),
            };
            let observed = match run {
                Some(run) if entry.kind == Kind::File && file::is_only_observed(read, entry.id, run)? => " (observed)",
                _ => "",
            };
            chain.links.push(hop("resource", entry.id, format!("{} {}{observed}", entry.kind, entry.display_path)));
            let commit = match (entry.kind, run) {
                (Kind::File, None) => file::newest_commit(read, entry.id)?,
                _ => None,
            };
            match (run, commit) {
                (Some(run), _) => follow_runs(read, run, now, &mut chain.links)?,
                // No change of the file is recorded, but a run committed it.
                (None, Some((commit, run))) => {
                    chain.links.push(hop("resource", commit.id, format!("{} {}", commit.kind, commit.display_path)));
                    follow_runs(read, run, now, &mut chain.links)?;
                }
                (None, None) => push_creator_outside_run(read, entry, &mut chain.links)?,
            }
        }
    }
    Ok(chain)
}

fn hop(kind: &'static str, id: Uuid, label: impl Into<String>) -> ChainLink {
    ChainLink::Recorded(Hop { kind, id, label: label.into() })
}

/// The argument of `why`.
#[derive(Debug, PartialEq)]
enum Address<'a> {
    /// A name, an id or a path.
    Thing(Cow<'a, str>),
    /// The first segment of a URL's path, and the rest of the path.
    Page { page: &'a str, reference: Cow<'a, str> },
}

impl<'a> Address<'a> {
    fn of(typed: &'a str) -> Self {
        let Some((scheme, rest)) = typed.split_once("://") else {
            return Self::Thing(typed.into());
        };
        let host = rest.find('/').unwrap_or(rest.len());
        let decoded = |text: &'a str| percent_decode_str(text).decode_utf8_lossy();
        if scheme.eq_ignore_ascii_case("file") {
            return Self::Thing(decoded(&rest[host..]));
        }
        let path = rest[host..].split(['?', '#']).next().unwrap_or_default().trim_matches('/');
        let (page, reference) = path.split_once('/').unwrap_or((path, ""));
        Self::Page { page, reference: decoded(reference) }
    }
}

fn touched_by(read: &mut Reader<'_>, resource: Uuid) -> Result<Vec<TouchedBy>> {
    read.query(
        "select run_id, action_type, times, first_at, last_at from run_resources where tenant_id = ?1 and resource_id = ?2 order by first_at limit ?3",
        params![resource, TOUCHES_MAX],
    )
}

/// The run of the first touch, if that touch created the resource, or if the creator is unknown. Otherwise `None`: the
/// creator acted outside a run.
fn creating_run(touches: &[TouchedBy], entry: &Entry) -> Option<Id<kind::Run>> {
    let first = touches.first()?;
    let is_creation = !matches!(
        first.action_type,
        ActionType::Update
            | ActionType::Delete
            | ActionType::Close
            | ActionType::Pin
            | ActionType::Archive
            | ActionType::Commit
    );
    (is_creation || entry.created_by.is_none()).then_some(first.run_id)
}

fn push_creator_outside_run(read: &mut Reader<'_>, entry: &Entry, links: &mut Vec<ChainLink>) -> Result<()> {
    links.push(ChainLink::Missing("run"));
    let creator = entry.created_by.map(|id| read.entry_by_id(id)).transpose()?.flatten();
    links.push(match creator {
        Some(creator) if creator.kind == Kind::Person => hop("person", creator.id, creator.display_path),
        Some(creator) => hop("agent", creator.id, creator.display_path),
        None => ChainLink::Missing("person"),
    });
    Ok(())
}

fn follow_agent(read: &mut Reader<'_>, entry: &Entry, links: &mut Vec<ChainLink>) -> Result<()> {
    links.push(hop("agent", entry.id, entry.display_path.clone()));
    let owner = read.one::<(Uuid, String)>(
        "select p.id, p.handle from agents a join people p on p.id = a.owner_id where a.tenant_id = ?1 and a.id = ?2",
        params![entry.id],
    )?;
    links.push(owner.map_or(ChainLink::Missing("person"), |(id, handle)| hop("person", id, handle)));
    Ok(())
}

/// Appends the agent, role and task of a run, then its parent runs in the same way, and last the person. A step counts
/// as missing only if runs of this kind normally have it: a client session need not have a task, a manually started run
/// has no queue item, and only a subagent has a spawn.
fn follow_runs(read: &mut Reader<'_>, from: Id<kind::Run>, now: Time, links: &mut Vec<ChainLink>) -> Result<()> {
    let mut next = Some(from);
    for _ in 0..DEPTH_MAX {
        let Some(id) = next else { break };
        let shown = read.display_row_by_id::<RunRow>("u", id)?;
        let run = &shown.run;
        let took = Duration::from_seconds(shown.seconds(now).max(0));
        let preposition = if run.ended_at.is_some() { "after" } else { "for" };
        links.push(hop("run", run.id.uuid(), format!("{} {preposition} {took}", run.status)));
        links.push(hop("agent", run.agent_id.uuid(), shown.agent.clone()));
        links.push(match (run.role_id, &shown.role) {
            (Some(role), Some(name)) => hop("role", role.uuid(), name.clone()),
            _ => ChainLink::Missing("role"),
        });
        let is_observed = run.mode.is_observed();
        match (run.task_id, &shown.task, run.task_revision) {
            (Some(task), Some(variant), Some(revision)) => {
                links.push(hop("task", task.uuid(), format!("{variant} @ {revision}")));
            }
            _ if is_observed => {}
            _ => links.push(ChainLink::Missing("task")),
        }
        next = run.parent_run_id;
        if next.is_some() {
            let spawn = caused_by(run, "spawn");
            if spawn.is_some() || run.subagent_id.is_some() {
                links.push(spawn_hop(read, spawn)?);
            }
            continue;
        }
        if let Some(item) = run.queue_item_id {
            next = follow_item_cause(read, item, links)?;
        } else {
            let message = caused_by(run, "message");
            if message.is_some() || (is_observed && run.session_id.is_some()) {
                links.push(message_hop(read, message)?);
            }
        }
        if next.is_some() {
            continue;
        }
        if let (Some(session), Some(name)) = (run.session_id, &shown.session_id) {
            links.push(hop("session", session.uuid(), name.clone()));
        }
        links.push(match (run.initiated_by, shown.initiated_by) {
            (Some(person), Some(handle)) => hop("person", person.uuid(), handle),
            _ => ChainLink::Missing("person"),
        });
    }
    if next.is_some() {
        links.push(ChainLink::Missing("person"));
    }
    Ok(())
}

/// The id of a run's cause, if the cause is of this kind.
fn caused_by(run: &Run, kind: &str) -> Option<Uuid> {
    run.cause_id.filter(|_| run.cause_kind.as_deref() == Some(kind))
}

/// The step for the spawn that started a subagent.
fn spawn_hop(read: &mut Reader<'_>, spawn: Option<Uuid>) -> Result<ChainLink> {
    let Some(spawn) = spawn else {
        return Ok(ChainLink::Missing("spawn"));
    };
    let found = read.row::<Spawn>("where tenant_id = ?1 and id = ?2", params![spawn])?;
    Ok(found.map_or(ChainLink::Missing("spawn"), |spawn| {
        let what = spawn.description.map(|description| format!(" {description}")).unwrap_or_default();
        let evidence = match spawn.evidence {
            Some(evidence) if spawn.tentative => format!(" (tentative, by {evidence})"),
            Some(evidence) => format!(" (by {evidence})"),
            None => String::new(),
        };
        hop("spawn", spawn.id.uuid(), format!("{}{what}{evidence}", spawn.tool_use_id))
    }))
}

row! {
    /// The origin of a queue item: who or what requested it, and why.
    pub struct ItemRequest {
        description: Option<String>,
        attempt: i64,
        why: Option<String>,
        message_id: Option<Uuid>,
        route_id: Option<Uuid>,
        tag: Option<String>,
        cause_run: Option<Id<kind::Run>>,
        message_run: Option<Id<kind::Run>>,
    }
}

/// Appends a queue item with its route and message. Returns the run that requested the item or sent the message.
fn follow_item_cause(
    read: &mut Reader<'_>,
    item: Id<kind::QueueItem>,
    links: &mut Vec<ChainLink>,
) -> Result<Option<Id<kind::Run>>> {
    let request = read.one::<ItemRequest>(
        "select q.description, q.attempt, q.why, q.message_id, q.route_id, o.tag, case when q.cause_kind = 'run' then q.cause_id end, m.from_run_id
         from queue_items q left join routes o on o.id = q.route_id left join messages m on m.id = q.message_id
         where q.tenant_id = ?1 and q.id = ?2",
        params![item],
    )?;
    let Some(request) = request else {
        links.push(ChainLink::Missing("queue_item"));
        return Ok(None);
    };
    let reason =
        request.description.or(request.why).map(|text| format!(" {}", text::clean_line(&text))).unwrap_or_default();
    let label = text::cut(&format!("attempt {}{reason}", request.attempt), LABEL_MAX);
    links.push(hop("queue_item", item.uuid(), label));
    if let (Some(route), Some(tag)) = (request.route_id, request.tag) {
        links.push(hop("route", route, format!("tag {tag}")));
    }
    // An item with a route must have a message. Other items may have none.
    if request.message_id.is_some() || request.route_id.is_some() {
        links.push(message_hop(read, request.message_id)?);
    }
    Ok(request.message_run.or(request.cause_run))
}

/// The step for a message.
fn message_hop(read: &mut Reader<'_>, message: Option<Uuid>) -> Result<ChainLink> {
    let Some(message) = message else {
        return Ok(ChainLink::Missing("message"));
    };
    let found = read.one::<(String,)>(
        "select c.body from messages m join contents c on c.id = m.content_id where m.tenant_id = ?1 and m.id = ?2",
        params![message],
    )?;
    Ok(found.map_or(ChainLink::Missing("message"), |(body,)| {
        hop("message", message, text::cut(&text::clean_line(&body), LABEL_MAX))
    }))
}

/// Appends a queue item, and the run or the person that requested it.
fn follow_queue_item(read: &mut Reader<'_>, entry: &Entry, now: Time, links: &mut Vec<ChainLink>) -> Result<()> {
    if let Some(run) = follow_item_cause(read, entry.id.into(), links)? {
        return follow_runs(read, run, now, links);
    }
    let person = read.one::<(Uuid, String)>(
        "select p.id, p.handle from queue_items q join people p on p.id = q.initiated_by where q.tenant_id = ?1 and q.id = ?2",
        params![entry.id],
    )?;
    links.push(person.map_or(ChainLink::Missing("person"), |(id, handle)| hop("person", id, handle)));
    Ok(())
}

fn follow_session(read: &mut Reader<'_>, entry: &Entry, links: &mut Vec<ChainLink>) -> Result<()> {
    links.push(hop("session", entry.id, entry.display_path.clone()));
    let person = read.one::<(Uuid, String)>(
        "select p.id, p.handle from runs r join people p on p.id = r.initiated_by where r.tenant_id = ?1 and r.session_id = ?2 order by r.id limit 1",
        params![entry.id],
    )?;
    links.push(person.map_or(ChainLink::Missing("person"), |(id, handle)| hop("person", id, handle)));
    Ok(())
}

/// Appends a spawn, a subagent or a message, and its run.
fn follow_observed(read: &mut Reader<'_>, entry: &Entry, now: Time, links: &mut Vec<ChainLink>) -> Result<()> {
    let (kind, sql) = match entry.kind {
        Kind::Spawn => ("spawn", "select run_id from task_spawns where tenant_id = ?1 and id = ?2"),
        Kind::Message => (
            "message",
            // A sent message belongs to the run that sent it. A prompt belongs to the run that it started.
            "select coalesce(m.from_run_id, (select r.id from runs r where r.tenant_id = ?1 and r.session_id = m.session_id and r.cause_id = m.id order by r.id limit 1))
             from messages m where m.tenant_id = ?1 and m.id = ?2",
        ),
        _ => ("resource", "select id from runs where tenant_id = ?1 and subagent_id = ?2 order by id desc limit 1"),
    };
    links.push(hop(kind, entry.id, entry.display_path.clone()));
    let run = read.one::<(Option<Id<kind::Run>>,)>(sql, params![entry.id])?;
    let run = match run.and_then(|(run,)| run) {
        // After a cleanup has deleted the message, only its touch names the run.
        None => creating_run(&touched_by(read, entry.id)?, entry),
        run => run,
    };
    match run {
        Some(run) => follow_runs(read, run, now, links),
        None => push_creator_outside_run(read, entry, links),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_urls_as_pages_or_files() {
        for (url, page, reference) in [
            ("http://127.0.0.1:7878/runs/1a2b3c4d", "runs", "1a2b3c4d"),
            ("http://127.0.0.1:7878/tasks/unit/go%20on?x=1", "tasks", "unit/go on"),
            ("https://h/notes/1a2b3c4d/#top", "notes", "1a2b3c4d"),
            ("trackway:///tasks/unit/go", "tasks", "unit/go"),
            ("https://example.org/some/other/README.md", "some", "other/README.md"),
            ("http://h", "", ""),
        ] {
            assert_eq!(Address::of(url), Address::Page { page, reference: reference.into() });
        }
        for (typed, thing) in [
            ("unit/go", "unit/go"),
            ("file:///etc/a%20b.md", "/etc/a b.md"),
            ("FILE://localhost/etc/passwd:3", "/etc/passwd:3"),
        ] {
            assert_eq!(Address::of(typed), Address::Thing(thing.into()));
        }
    }

    #[test]
    fn kinds_have_page_segments() {
        let pages = [Kind::Run, Kind::Person, Kind::QueueItem, Kind::Stickie].map(page_segment);
        assert_eq!(pages, ["runs", "people", "queue", "stickies"]);
    }
}
