//! Why a thing is there: the chain from it to the person who answers for it.

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Duration, Error as Rule, Id, Time,
    kind::{self, ActionType, Kind},
};
use trackway_store::{Reader, Result, params, registry::Entry, row, shown::RunShown};
use uuid::Uuid;

use crate::view::View;

/// Parent runs followed.
const DEPTH_MAX: usize = 1_000;
/// Runs listed that touched the thing.
const TOUCHES_MAX: i64 = 20;

/// Show where a thing comes from: the run, the agent, the task, the person
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct Why {
    /// The id of a resource or run, a variant, a path, a commit or a URL
    pub thing: String,
}

/// One step of the chain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hop {
    pub kind: &'static str,
    pub id: Uuid,
    pub label: String,
}

/// A place in the chain: what stands there, or that it was not recorded.
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
    }
}

/// The answer.
#[derive(Debug, PartialEq)]
pub struct Chain {
    pub places: Vec<Place>,
    pub deleted: bool,
    pub touched_by: Vec<TouchedBy>,
}

impl Chain {
    pub fn recorded(&self) -> impl Iterator<Item = &Hop> {
        self.places.iter().filter_map(|place| match place {
            Place::Recorded(hop) => Some(hop),
            Place::Missing(_) => None,
        })
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
        }
        Shape {
            chain: self.recorded().collect(),
            missing: self.missing(),
            deleted: self.deleted,
            touched_by: &self.touched_by,
        }
        .serialize(serializer)
    }
}

impl View for Why {
    const COMMAND: (&'static str, &'static str) = ("", "why");
    type Output = Chain;

    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Chain> {
        let entry = find(read, &self.thing)?;
        chain(read, &entry, now)
    }
}

/// The chain of a thing that the registry knows.
pub fn chain(read: &mut Reader<'_>, entry: &Entry, now: Time) -> Result<Chain> {
    let mut chain = Chain { places: Vec::new(), deleted: entry.deleted_at.is_some(), touched_by: Vec::new() };
    match entry.kind {
        Kind::Run => follow_runs(read, entry.id.into(), now, &mut chain.places)?,
        Kind::Agent => follow_agent(read, entry, &mut chain.places)?,
        _ => {
            chain.touched_by = touched_by(read, entry.id)?;
            chain.places.push(hop("resource", entry.id, format!("{} {}", entry.kind, entry.display_path)));
            let maker = maker(&chain.touched_by, entry);
            match maker {
                Some(run) => follow_runs(read, run, now, &mut chain.places)?,
                None => made_outside_a_run(read, entry, &mut chain.places)?,
            }
        }
    }
    Ok(chain)
}

fn hop(kind: &'static str, id: Uuid, label: impl Into<String>) -> Place {
    Place::Recorded(Hop { kind, id, label: label.into() })
}

/// What the caller means, by whatever it is called.
fn find(read: &mut Reader<'_>, thing: &str) -> Result<Entry> {
    if let Some(entry) = read.anything(address(thing))? {
        return Ok(entry);
    }
    Err(Rule::not_found(format!("nothing is recorded about {thing:?}"))
        .hint("give the id of a resource or a run, or a task's variant; files are known once a run has recorded them")
        .into())
}

/// What a URL of ours names: the variant after `/tasks/`, else its last part.
fn address(thing: &str) -> &str {
    let Some((_, rest)) = thing.split_once("://") else {
        return thing;
    };
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    let path = path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    path.strip_prefix("tasks/").unwrap_or_else(|| path.rsplit('/').next().unwrap_or(path))
}

fn touched_by(read: &mut Reader<'_>, resource: Uuid) -> Result<Vec<TouchedBy>> {
    read.query(
        "select run_id, action_type, times, first_at from run_resources where tenant_id = ?1 and resource_id = ?2 order by first_at limit ?3",
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

/// From a run to its agent, role and task, then to the run it is part of, up to the person.
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
        places.push(match (run.task_id, &shown.task, run.task_revision) {
            (Some(task), Some(variant), Some(revision)) => hop("task", task.uuid(), format!("{variant} @ {revision}")),
            _ => Place::Missing("task"),
        });
        next = run.parent_run_id;
        if next.is_some() {
            places.push(Place::Missing("spawn"));
            continue;
        }
        places.push(Place::Missing("queue_item"));
        places.push(Place::Missing("message"));
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

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn a_url_names_its_last_part_or_its_variant() {
        for (thing, meant) in [
            ("http://127.0.0.1:7878/runs/1a2b3c4d", "1a2b3c4d"),
            ("http://127.0.0.1:7878/tasks/unit/go?x=1", "unit/go"),
            ("https://h/notes/1a2b3c4d/#top", "1a2b3c4d"),
            ("unit/go", "unit/go"),
            ("http://h", ""),
        ] {
            assert_eq!(address(thing), meant);
        }
    }
}
