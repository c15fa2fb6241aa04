//! Tasks of other trackers, carried over. A tracker is one file here, which says what its export means; all of them are
//! written down in the same way, by the actions that define and link tasks.

mod beads;

pub use beads::ImportBeads;

pub use crate::session::ImportNagger;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use serde::Serialize;
use trackway_domain::{
    Duration, Patch, Ref, Variant, kind, text,
    words::{LinkType, Priority, TaskStatus},
};
use trackway_store::{Writer, params};

use crate::{
    action::{About, Action, Done, Resource},
    context::Context,
    error::{Error, Result},
    link::AddLink,
    task::{SetTask, set::TaskSet},
    touched::{Touch, did},
    workflow::SetWorkflow,
};

/// Bytes of an export.
const EXPORT_MAX: u64 = 64_000_000;
/// How many of the things that did not fit are named; all are counted.
const NAMED_MAX: usize = 20;

/// What an export says, in our words.
#[derive(Debug, Default)]
struct Export {
    tasks: Vec<ForeignTask>,
    links: Vec<ForeignLink>,
    misfits: Misfits,
}

/// A task of another tracker. Its texts are cleaned and short enough: what is refused later leaves nothing behind.
#[derive(Debug, PartialEq)]
struct ForeignTask {
    /// Its last segment here.
    name: String,
    title: String,
    description: String,
    notes: String,
    status: TaskStatus,
    priority: Priority,
    estimate: Option<Duration>,
    tags: Vec<String>,
    labels: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ForeignLink {
    from: String,
    link_type: LinkType,
    to: String,
}

/// What did not fit.
#[derive(Debug, Default)]
struct Misfits {
    left_out: i64,
    /// The first of what was left out.
    named: Vec<String>,
    /// What became something else here, and how often.
    adapted: BTreeMap<String, i64>,
}

impl Misfits {
    fn leave_out(&mut self, what: impl fmt::Display) {
        self.left_out += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(text::cut(&text::clean_line(&what.to_string()), text::LINE_MAX));
        }
    }

    fn adapt(&mut self, what: impl fmt::Display) {
        *self.adapted.entry(text::cut(&text::clean_line(&what.to_string()), text::LINE_MAX)).or_default() += 1;
    }

    fn notices(&self) -> Vec<String> {
        let more = |shown: usize, all: usize| (all > shown).then(|| format!("and {} more", all - shown));
        let left_out = usize::try_from(self.left_out).unwrap_or(usize::MAX);
        let named = self.named.iter().map(|what| format!("left out: {what}"));
        let adapted = self.adapted.iter().take(NAMED_MAX).map(|(what, count)| format!("{what}: {count}"));
        named
            .chain(more(self.named.len(), left_out).map(|more| format!("left out: {more}")))
            .chain(adapted)
            .chain(more(NAMED_MAX, self.adapted.len()))
            .collect()
    }
}

/// Where tasks are put.
#[derive(Debug)]
struct Target<'a> {
    /// The first part of their variants.
    command: &'a str,
    workflow: &'a str,
    /// Whether the export's word stands where a task is here already.
    update: bool,
}

/// What is new here, and what did not fit.
#[derive(Debug, Default, Serialize)]
pub struct ImportedTasks {
    pub tasks: i64,
    pub updated: i64,
    /// Tasks that were here already and stay as they are.
    pub present: i64,
    pub links: i64,
    /// What could not be carried over; the notices say what and why.
    pub left_out: i64,
    pub notices: Vec<String>,
}

/// What an import touches.
type TasksAndLinks = ((Touch<kind::Task, did::Create>, Touch<kind::Task, did::Update>), Touch<kind::Link, did::Create>);

/// Writes down what an export says. Rules that a task or link does not keep leave out that one.
fn carry<A>(context: &Context, write: &mut Writer<'_>, export: Export, target: &Target<'_>) -> Result<Done<A>>
where
    A: Action<Touched = TasksAndLinks, Output = ImportedTasks>,
{
    let mut carrying = Carrying {
        context,
        write,
        target,
        imported: ImportedTasks::default(),
        misfits: export.misfits,
        about: Vec::new(),
        standing: HashSet::new(),
        created: Vec::new(),
        changed: Vec::new(),
        linked: Vec::new(),
    };
    if !export.tasks.is_empty() {
        carrying.workflow()?;
    }
    for task in export.tasks {
        carrying.task(task)?;
    }
    for link in unblocked_first(export.links) {
        carrying.link(&link)?;
    }
    Ok(carrying.done())
}

struct Carrying<'a, 'b> {
    context: &'a Context,
    write: &'a mut Writer<'b>,
    target: &'a Target<'a>,
    imported: ImportedTasks,
    misfits: Misfits,
    about: Vec<About>,
    /// The names that are known to have a task.
    standing: HashSet<String>,
    created: Vec<Resource<kind::Task>>,
    changed: Vec<Resource<kind::Task>>,
    linked: Vec<Resource<kind::Link>>,
}

impl Carrying<'_, '_> {
    /// Makes the workflow, unless it is there.
    fn workflow(&mut self) -> Result<()> {
        let made = SetWorkflow::named(self.target.workflow).perform(self.context, self.write)?;
        self.about.extend(made.change.into_iter().flat_map(|change| change.about));
        Ok(())
    }

    fn task(&mut self, task: ForeignTask) -> Result<()> {
        let variant = self.variant(&task.name);
        let there = self.stands(&task.name)?;
        if there && !self.target.update {
            self.imported.present += 1;
            return Ok(());
        }
        let name = task.name.clone();
        let set = SetTask {
            workflow: Some(Ref::new(self.target.workflow)),
            variant: Some(variant.clone()),
            title: Patch::Set(task.title),
            description: Patch::Set(task.description),
            notes: Patch::Set(task.notes),
            status: Some(task.status),
            priority: Some(task.priority),
            estimate: task.estimate.map_or(Patch::Clear, Patch::Set),
            tags: Some(task.tags),
            labels: Some(task.labels),
            ..SetTask::default()
        };
        match set.perform(self.context, self.write) {
            Ok(Done { output: TaskSet { id, new, .. }, change }) => {
                self.standing.insert(name);
                let resource = Resource::outside(id, variant);
                match change {
                    None => self.imported.present += 1,
                    Some(_) if new => {
                        self.imported.tasks += 1;
                        self.created.push(resource);
                    }
                    Some(_) => {
                        self.imported.updated += 1;
                        self.changed.push(resource);
                    }
                }
            }
            Err(Error::Rule(rule)) => self.misfits.leave_out(format!("{name}: {rule}")),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn link(&mut self, link: &ForeignLink) -> Result<()> {
        let named = format!("{} {} {}", link.from, link.link_type, link.to);
        for end in [&link.from, &link.to] {
            if !self.stands(end)? {
                self.misfits.leave_out(format!("{named}: {end} is not here"));
                return Ok(());
            }
        }
        let add = AddLink {
            from: Ref::new(self.variant(&link.from)),
            to: Ref::new(self.variant(&link.to)),
            link_type: link.link_type,
        };
        match add.perform(self.context, self.write) {
            Ok(done) if done.output.new => {
                self.imported.links += 1;
                self.linked.push(done.output.resource());
                self.changed.push(Resource::outside(done.output.from_id, done.output.from.as_str()));
            }
            Ok(_) => {}
            Err(Error::Rule(rule)) => self.misfits.leave_out(format!("{named}: {rule}")),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn variant(&self, name: &str) -> String {
        format!("{}/{name}", self.target.command)
    }

    fn stands(&mut self, name: &str) -> Result<bool> {
        if self.standing.contains(name) {
            return Ok(true);
        }
        // A dependency may say anything, also what no database takes as text.
        if !is_name(self.target.command, name) {
            return Ok(false);
        }
        let variant = self.variant(name);
        let found = self.write.count(
            "select count(*) from tasks where tenant_id = ?1 and variant = ?2 and deleted_at is null",
            params![variant],
        )?;
        if found > 0 {
            self.standing.insert(name.to_owned());
        }
        Ok(found > 0)
    }

    fn done<A: Action<Touched = TasksAndLinks, Output = ImportedTasks>>(mut self) -> Done<A> {
        // A task that was made here and then linked was made, and one that was linked twice changed once.
        let mut told: HashSet<_> = self.created.iter().map(|task| task.id.uuid()).collect();
        self.changed.retain(|task| told.insert(task.id.uuid()));
        self.about.extend(self.created.iter().chain(&self.changed).map(About::from));
        self.imported.left_out = self.misfits.left_out;
        self.imported.notices = self.misfits.notices();
        if self.about.is_empty() {
            return Done::unchanged(self.imported);
        }
        let touched = ((Touch::many(self.created), Touch::many(self.changed)), Touch::many(self.linked));
        Done::changed_several(self.imported, self.about, touched)
    }
}

/// Brings links into an order in which a task's own come after those it waits for. The walk that refuses cycles then ends
/// where it starts: a long chain, told from its end, would be walked again for every link.
fn unblocked_first(mut links: Vec<ForeignLink>) -> Vec<ForeignLink> {
    let mut onward: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut waits: HashMap<&str, usize> = HashMap::new();
    for link in links.iter().filter(|link| link.link_type == LinkType::Blocks) {
        onward.entry(&link.from).or_default().push(&link.to);
        waits.entry(&link.from).or_default();
        *waits.entry(&link.to).or_default() += 1;
    }
    let mut order: Vec<&str> = waits.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
    order.sort_unstable();
    let mut next = 0;
    while let Some(name) = order.get(next).copied() {
        next += 1;
        for to in onward.remove(name).unwrap_or_default() {
            if let Some(count) = waits.get_mut(to) {
                *count -= 1;
                if *count == 0 {
                    order.push(to);
                }
            }
        }
    }
    let places: HashMap<String, usize> =
        order.iter().zip(0..).map(|(name, place)| ((*name).to_owned(), place)).collect();
    links.sort_by_key(|link| places.get(&link.from).copied().unwrap_or(usize::MAX));
    links
}

/// Whether a name can be the last segment of a variant.
fn is_name(command: &str, name: &str) -> bool {
    !name.contains('/') && format!("{command}/{name}").parse::<Variant>().is_ok()
}
