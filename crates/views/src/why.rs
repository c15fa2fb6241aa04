//! Why a thing is there: the chain from it to the person who answers for it.

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
    display::RunShown,
    params,
    registry::Entry,
    row,
    tables::{Run, Spawn},
};
use uuid::Uuid;

use crate::{file, view::View};

/// Parent runs followed.
const DEPTH_MAX: usize = 1_000;
/// Runs listed that touched the thing.
const TOUCHES_MAX: i64 = 20;
/// Characters of a prompt in the chain.
const PROMPT_SHOWN: usize = 120;

/// Show where a thing comes from: the run, the agent, the task, the person
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Why {
    /// The id of a resource or run, a variant, a path, path:line, a commit or a URL
    pub thing: String,
}

/// What is known of a line that was asked about.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineShown {
    pub number: usize,
    pub text: String,
    /// `exact`, `moved` or `not recorded`.
    pub fit: &'static str,
}

/// One step of the chain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hop {
    pub kind: &'static str,
    pub id: Uuid,
    pub label: String,
}

/// A link of the chain: recorded, or missing.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    Recorded(Hop),
    Missing(&'static str),
}

row! {
    /// A run that touched the thing.
    pub struct TouchedBy {
        run_id: Id<kind::Run>,
        action_type: ActionType,
        times: i64,
        first_at: Time,
        last_at: Time,
    }
}

/// The answer.
#[derive(Debug, PartialEq)]
pub struct Chain {
    pub places: Vec<Place>,
    pub deleted: bool,
    pub touched_by: Vec<TouchedBy>,
    /// Whether a file has changed since its last recorded change, where that can be told.
    pub changed_since: Option<bool>,
    pub line: Option<LineShown>,
}

impl Chain {
    pub fn recorded(&self) -> impl Iterator<Item = &Hop> {
        self.places.iter().filter_map(|place| match place {
            Place::Recorded(hop) => Some(hop),
            Place::Missing(_) => None,
        })
    }

    /// A kind that the chain has is not missing from it, though a run further up could have had one, too.
    fn without_recorded_kinds(mut self) -> Self {
        let recorded: HashSet<&str> = self.recorded().map(|hop| hop.kind).collect();
        self.places.retain(|place| !matches!(place, Place::Missing(kind) if recorded.contains(kind)));
        self
    }

    /// The kinds that were not recorded, each once.
    pub fn missing(&self) -> Vec<&'static str> {
        let mut kinds = Vec::new();
        for place in &self.places {
            if let Place::Missing(kind) = place
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
        struct Shape<'a> {
            chain: Vec<&'a Hop>,
            missing: Vec<&'static str>,
            deleted: bool,
            touched_by: &'a [TouchedBy],
            #[serde(skip_serializing_if = "Option::is_none")]
            changed_since: Option<bool>,
            #[serde(skip_serializing_if = "Option::is_none")]
            line: Option<&'a LineShown>,
        }
        Shape {
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
        let known = read.anything(thing)?;
        // A path means the file in this workspace before one of the same name elsewhere.
        if known.as_ref().is_none_or(|entry| entry.kind == Kind::File)
            && let Some(found) = file::at(read, thing)?
        {
            return file_chain(read, &found, now);
        }
        // A file of that name stands right here, and nothing is recorded about that one.
        let another =
            |entry: &Entry| entry.kind == Kind::File && entry.display_path == thing && file::is_on_disk(thing);
        let known = known.filter(|entry| !another(entry));
        if let Some(entry) = known {
            let path = (entry.kind == Kind::File).then(|| file::on_disk(read, entry.id)).transpose()?.flatten();
            let mut chain = chain(read, &entry, now)?;
            chain.changed_since = path.map(|path| file::changed_since(read, entry.id, &path)).transpose()?.flatten();
            return Ok(chain);
        }
        if let Some(entry) = file::commit(read, thing)? {
            return chain(read, &entry, now);
        }
        let place = thing.rsplit_once(':').and_then(|(path, line)| Some((path, line.parse::<usize>().ok()?)));
        if let Some((path, number)) = place
            && let Some(found) = file::at(read, path)?
        {
            return line_chain(read, &found, number, now);
        }
        Err(not_found(thing).into())
    }
}

/// The chain of what a page of ours shows. Of anyone else's page only a commit is known, by its whole hash.
fn page_chain(read: &mut Reader<'_>, url: &str, page: &str, reference: &str, now: Time) -> Result<Chain> {
    // A report stands at the page of its task, too.
    let stands_at = |kind: Kind| page_of(kind) == page || (kind == Kind::Task && page == "reports");
    let shown = match read.anything(reference)?.filter(|entry| stands_at(entry.kind)) {
        None => named_at(read, page, reference)?,
        shown => shown,
    };
    let hash = reference.rsplit('/').next().unwrap_or_default();
    let entry = match shown {
        None if [40, 64].contains(&hash.len()) => file::commit(read, hash)?,
        shown => shown,
    };
    chain(read, &entry.ok_or_else(|| not_found(url))?, now)
}

/// Kinds whose pages have names in their paths; the pages of tasks have variants.
const NAMED: [Kind; 8] =
    [Kind::Board, Kind::Label, Kind::Role, Kind::Studio, Kind::Agent, Kind::Person, Kind::Workflow, Kind::Workspace];

/// Finds a row by the name in its page's path.
fn named_at(read: &mut Reader<'_>, page: &str, name: &str) -> Result<Option<Entry>> {
    let Some(kind) = NAMED.into_iter().find(|kind| page_of(*kind) == page) else {
        return Ok(None);
    };
    match read.resolve_among(name, &[kind]) {
        Ok((_, id)) => read.entry(id),
        Err(Error::Rule(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first part of the paths of a kind of thing.
fn page_of(kind: Kind) -> String {
    match kind {
        Kind::Person => "people".to_owned(),
        Kind::QueueItem => "queue".to_owned(),
        kind => format!("{kind}s"),
    }
}

fn not_found(thing: &str) -> Rule {
    let error = Rule::not_found(format!("nothing is recorded about {thing:?}"));
    let path = thing.rsplit_once(':').map_or(thing, |(path, _)| path);
    if let Some(hint) = ids::too_short(thing) {
        return error.hint(hint);
    }
    if file::is_on_disk(thing) || file::is_on_disk(path) || thing.contains('/') {
        error.hint(sentence![
            "what agents did before is in their transcripts: ",
            command!("ingest"),
            "; what they do from now on is recorded after: ",
            command!("connect claude-code"),
        ])
    } else {
        error.hint(
            "give the id of a resource or a run, a task's variant, a file, a line of it as path:line, or a commit",
        )
    }
}

/// The chain of a file: the run that made it, else the one that changed it last.
fn file_chain(read: &mut Reader<'_>, found: &file::Found, now: Time) -> Result<Chain> {
    let mut chain = chain(read, &found.entry, now)?;
    chain.changed_since = file::changed_since(read, found.entry.id, &found.path)?;
    Ok(chain)
}

/// The chain of a line: the run that wrote it, when the record knows.
fn line_chain(read: &mut Reader<'_>, found: &file::Found, number: usize, now: Time) -> Result<Chain> {
    let file::Traced { text, writer } = file::writer(read, found, number)?;
    let resource = hop("resource", found.entry.id, format!("file {}:{number}", found.entry.display_path));
    let mut chain = Chain {
        places: vec![resource],
        deleted: false,
        touched_by: Vec::new(),
        changed_since: file::changed_since(read, found.entry.id, &found.path)?,
        line: Some(LineShown { number, text, fit: writer.map_or("not recorded", |(_, fit)| fit.word()) }),
    };
    match writer {
        Some((run, _)) => follow_runs(read, run, now, &mut chain.places)?,
        None => chain.places.push(Place::Missing("run")),
    }
    Ok(chain)
}

/// The chain of a thing that the registry knows.
pub fn chain(read: &mut Reader<'_>, entry: &Entry, now: Time) -> Result<Chain> {
    let mut chain = Chain {
        places: Vec::new(),
        deleted: entry.deleted_at.is_some(),
        touched_by: Vec::new(),
        changed_since: None,
        line: None,
    };
    match entry.kind {
        Kind::Run => follow_runs(read, entry.id.into(), now, &mut chain.places)?,
        Kind::QueueItem => {
            chain.touched_by = touched_by(read, entry.id)?;
            follow_request(read, entry, now, &mut chain.places)?;
        }
        Kind::Agent => follow_agent(read, entry, &mut chain.places)?,
        Kind::Session => follow_session(read, entry, &mut chain.places)?,
        Kind::Spawn | Kind::Subagent => follow_observed(read, entry, now, &mut chain.places)?,
        Kind::Message => {
            chain.touched_by = touched_by(read, entry.id)?;
            follow_observed(read, entry, now, &mut chain.places)?;
        }
        _ => {
            chain.touched_by = touched_by(read, entry.id)?;
            let maker = match entry.kind {
                Kind::File => file::maker(read, entry.id)?,
                _ => maker(&chain.touched_by, entry),
            };
            let observed = match maker {
                Some(run) if entry.kind == Kind::File && file::is_observed(read, entry.id, run)? => " (observed)",
                _ => "",
            };
            chain.places.push(hop("resource", entry.id, format!("{} {}{observed}", entry.kind, entry.display_path)));
            let commit = match (entry.kind, maker) {
                (Kind::File, None) => file::committed_in(read, entry.id)?,
                _ => None,
            };
            match (maker, commit) {
                (Some(run), _) => follow_runs(read, run, now, &mut chain.places)?,
                // All that is known of it is that a run put it into a commit.
                (None, Some((commit, run))) => {
                    chain.places.push(hop("resource", commit.id, format!("{} {}", commit.kind, commit.display_path)));
                    follow_runs(read, run, now, &mut chain.places)?;
                }
                (None, None) => made_outside_a_run(read, entry, &mut chain.places)?,
            }
        }
    }
    Ok(chain)
}

fn hop(kind: &'static str, id: Uuid, label: impl Into<String>) -> Place {
    Place::Recorded(Hop { kind, id, label: label.into() })
}

/// What was typed.
#[derive(Debug, PartialEq)]
enum Address<'a> {
    Thing(Cow<'a, str>),
    /// The path of a URL: its first part, and the rest.
    Page {
        page: &'a str,
        reference: Cow<'a, str>,
    },
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

/// The run that made the thing: its first touch, unless someone made it outside a run before that.
fn maker(touches: &[TouchedBy], entry: &Entry) -> Option<Id<kind::Run>> {
    let first = touches.first()?;
    let made_here = !matches!(
        first.action_type,
        ActionType::Update
            | ActionType::Delete
            | ActionType::Close
            | ActionType::Pin
            | ActionType::Archive
            | ActionType::Commit
    );
    (made_here || entry.created_by.is_none()).then_some(first.run_id)
}

fn made_outside_a_run(read: &mut Reader<'_>, entry: &Entry, places: &mut Vec<Place>) -> Result<()> {
    places.push(Place::Missing("run"));
    let creator = entry.created_by.map(|id| read.entry(id)).transpose()?.flatten();
    places.push(match creator {
        Some(creator) if creator.kind == Kind::Person => hop("person", creator.id, creator.display_path),
        Some(creator) => hop("agent", creator.id, creator.display_path),
        None => Place::Missing("person"),
    });
    Ok(())
}

fn follow_agent(read: &mut Reader<'_>, entry: &Entry, places: &mut Vec<Place>) -> Result<()> {
    places.push(hop("agent", entry.id, entry.display_path.clone()));
    let owner = read.one::<(Uuid, String)>(
        "select p.id, p.handle from agents a join people p on p.id = a.owner_id where a.tenant_id = ?1 and a.id = ?2",
        params![entry.id],
    )?;
    places.push(owner.map_or(Place::Missing("person"), |(id, handle)| hop("person", id, handle)));
    Ok(())
}

/// From a run to its agent, role and task, then to the run it is part of, up to the person. Only what a run of its kind
/// could have had is missing: a session of a client need not have a task, a run that somebody started by hand has no queue
/// item, and only a subagent has a spawn.
fn follow_runs(read: &mut Reader<'_>, from: Id<kind::Run>, now: Time, places: &mut Vec<Place>) -> Result<()> {
    let mut next = Some(from);
    for _ in 0..DEPTH_MAX {
        let Some(id) = next else { break };
        let shown = read.shown_by_id::<RunShown>("u", id)?;
        let run = &shown.run;
        let took = Duration::from_seconds(shown.seconds(now).max(0));
        let preposition = if run.ended_at.is_some() { "after" } else { "for" };
        places.push(hop("run", run.id.uuid(), format!("{} {preposition} {took}", run.status)));
        places.push(hop("agent", run.agent_id.uuid(), shown.agent.clone()));
        places.push(match (run.role_id, &shown.role) {
            (Some(role), Some(name)) => hop("role", role.uuid(), name.clone()),
            _ => Place::Missing("role"),
        });
        let is_observed = run.mode.is_observed();
        match (run.task_id, &shown.task, run.task_revision) {
            (Some(task), Some(variant), Some(revision)) => {
                places.push(hop("task", task.uuid(), format!("{variant} @ {revision}")));
            }
            _ if is_observed => {}
            _ => places.push(Place::Missing("task")),
        }
        next = run.parent_run_id;
        if next.is_some() {
            let spawn = caused_by(run, "spawn");
            if spawn.is_some() || run.subagent_id.is_some() {
                places.push(spawn_hop(read, spawn)?);
            }
            continue;
        }
        if let Some(item) = run.queue_item_id {
            next = follow_item(read, item, places)?;
        } else {
            let message = caused_by(run, "message");
            if message.is_some() || (is_observed && run.session_id.is_some()) {
                places.push(message_hop(read, message)?);
            }
        }
        if next.is_some() {
            continue;
        }
        if let (Some(session), Some(name)) = (run.session_id, &shown.session_id) {
            places.push(hop("session", session.uuid(), name.clone()));
        }
        places.push(match (run.initiated_by, shown.initiated_by) {
            (Some(person), Some(handle)) => hop("person", person.uuid(), handle),
            _ => Place::Missing("person"),
        });
    }
    if next.is_some() {
        places.push(Place::Missing("person"));
    }
    Ok(())
}

/// The cause of a run, if it is of this kind.
fn caused_by(run: &Run, kind: &str) -> Option<Uuid> {
    run.cause_id.filter(|_| run.cause_kind.as_deref() == Some(kind))
}

/// The call that started a run's agent.
fn spawn_hop(read: &mut Reader<'_>, spawn: Option<Uuid>) -> Result<Place> {
    let Some(spawn) = spawn else {
        return Ok(Place::Missing("spawn"));
    };
    let found = read.row::<Spawn>("where tenant_id = ?1 and id = ?2", params![spawn])?;
    Ok(found.map_or(Place::Missing("spawn"), |spawn| {
        let what = spawn.description.map(|description| format!(" {description}")).unwrap_or_default();
        let sure = match spawn.evidence {
            Some(evidence) if spawn.tentative => format!(" (tentative, by {evidence})"),
            Some(evidence) => format!(" (by {evidence})"),
            None => String::new(),
        };
        hop("spawn", spawn.id.uuid(), format!("{}{what}{sure}", spawn.tool_use_id))
    }))
}

row! {
    /// What asked for an item.
    pub struct Asked {
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

/// From a queue item to what asked for it: a route, a message, and the run that asked or sent it.
fn follow_item(
    read: &mut Reader<'_>,
    item: Id<kind::QueueItem>,
    places: &mut Vec<Place>,
) -> Result<Option<Id<kind::Run>>> {
    let asked = read.one::<Asked>(
        "select q.description, q.attempt, q.why, q.message_id, q.route_id, o.tag, case when q.cause_kind = 'run' then q.cause_id end, m.from_run_id
         from queue_items q left join routes o on o.id = q.route_id left join messages m on m.id = q.message_id
         where q.tenant_id = ?1 and q.id = ?2",
        params![item],
    )?;
    let Some(asked) = asked else {
        places.push(Place::Missing("queue_item"));
        return Ok(None);
    };
    let said = asked.description.or(asked.why).map(|said| format!(" {}", text::clean_line(&said))).unwrap_or_default();
    let label = text::cut(&format!("attempt {}{said}", asked.attempt), PROMPT_SHOWN);
    places.push(hop("queue_item", item.uuid(), label));
    if let (Some(route), Some(tag)) = (asked.route_id, asked.tag) {
        places.push(hop("route", route, format!("tag {tag}")));
    }
    // Only an item that a message or a route created can lack a message.
    if asked.message_id.is_some() || asked.route_id.is_some() {
        places.push(message_hop(read, asked.message_id)?);
    }
    Ok(asked.message_run.or(asked.cause_run))
}

/// A message in the chain.
fn message_hop(read: &mut Reader<'_>, message: Option<Uuid>) -> Result<Place> {
    let Some(message) = message else {
        return Ok(Place::Missing("message"));
    };
    let found = read.one::<(String,)>(
        "select c.body from messages m join contents c on c.id = m.content_id where m.tenant_id = ?1 and m.id = ?2",
        params![message],
    )?;
    Ok(found.map_or(Place::Missing("message"), |(body,)| {
        hop("message", message, text::cut(&text::clean_line(&body), PROMPT_SHOWN))
    }))
}

/// The chain of a queue item itself.
fn follow_request(read: &mut Reader<'_>, entry: &Entry, now: Time, places: &mut Vec<Place>) -> Result<()> {
    if let Some(run) = follow_item(read, entry.id.into(), places)? {
        return follow_runs(read, run, now, places);
    }
    let person = read.one::<(Uuid, String)>(
        "select p.id, p.handle from queue_items q join people p on p.id = q.initiated_by where q.tenant_id = ?1 and q.id = ?2",
        params![entry.id],
    )?;
    places.push(person.map_or(Place::Missing("person"), |(id, handle)| hop("person", id, handle)));
    Ok(())
}

fn follow_session(read: &mut Reader<'_>, entry: &Entry, places: &mut Vec<Place>) -> Result<()> {
    places.push(hop("session", entry.id, entry.display_path.clone()));
    let person = read.one::<(Uuid, String)>(
        "select p.id, p.handle from runs r join people p on p.id = r.initiated_by where r.tenant_id = ?1 and r.session_id = ?2 order by r.id limit 1",
        params![entry.id],
    )?;
    places.push(person.map_or(Place::Missing("person"), |(id, handle)| hop("person", id, handle)));
    Ok(())
}

/// A spawn, a subagent or a message: from the run it belongs to.
fn follow_observed(read: &mut Reader<'_>, entry: &Entry, now: Time, places: &mut Vec<Place>) -> Result<()> {
    let (kind, sql) = match entry.kind {
        Kind::Spawn => ("spawn", "select run_id from task_spawns where tenant_id = ?1 and id = ?2"),
        Kind::Message => (
            "message",
            // A prompt stands at the beginning of the run it began; what was sent comes from its own run or from no run.
            "select coalesce(m.from_run_id, (select r.id from runs r where r.tenant_id = ?1 and r.session_id = m.session_id and r.cause_id = m.id order by r.id limit 1))
             from messages m where m.tenant_id = ?1 and m.id = ?2",
        ),
        _ => ("resource", "select id from runs where tenant_id = ?1 and subagent_id = ?2 order by id desc limit 1"),
    };
    places.push(hop(kind, entry.id, entry.display_path.clone()));
    let run = read.one::<(Option<Id<kind::Run>>,)>(sql, params![entry.id])?;
    let run = match run.and_then(|(run,)| run) {
        // A message that was cleaned up is known by its touch only.
        None => maker(&touched_by(read, entry.id)?, entry),
        run => run,
    };
    match run {
        Some(run) => follow_runs(read, run, now, places),
        None => made_outside_a_run(read, entry, places),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_page_and_its_reference_or_a_file() {
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
    fn kinds_have_pages() {
        let pages = [Kind::Run, Kind::Person, Kind::QueueItem, Kind::Stickie].map(page_of);
        assert_eq!(pages, ["runs", "people", "queue", "stickies"]);
    }
}
