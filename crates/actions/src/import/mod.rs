//! Imports the records of other tools, with one module per tool. The module of an issue tracker converts the tracker's
//! export into an [`Export`]; the import then executes the actions for tasks and links. The module of a tool that
//! records sessions converts the sessions for `session::import`.

mod beads;
mod nagger;

pub use beads::ImportBeads;
pub use nagger::ImportNagger;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use serde::Serialize;
use trackway_domain::{
    Duration, Patch, Ref, Variant,
    enums::{LinkType, Priority, TaskStatus},
    kind, text,
};
use trackway_store::{Writer, params};

use crate::{
    action::{Action, ActionOutcome, Resource, Subject},
    context::Context,
    error::{Error, Result},
    link::AddLink,
    task::{SetTask, set::SetTaskResult},
    touched::{Touch, action_type},
    workflow::SetWorkflow,
};

/// Maximum size of an export, in bytes.
const EXPORT_MAX: u64 = 64_000_000;
/// Maximum number of notices of each kind. All mismatches are counted.
const NOTICES_MAX: usize = 20;

/// An export, converted to our terms.
#[derive(Debug, Default)]
struct Export {
    tasks: Vec<ForeignTask>,
    links: Vec<ForeignLink>,
    mismatches: Mismatches,
}

/// A task of another tracker. Its texts are cleaned and within the limits, so that they do not make the write fail.
#[derive(Debug, PartialEq)]
struct ForeignTask {
    /// The last segment of the variant.
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

/// The parts of the source that could not be imported unchanged.
#[derive(Debug, Default)]
struct Mismatches {
    skipped: i64,
    /// Descriptions of the first skipped records.
    skipped_records: Vec<String>,
    /// The changes that made records fit Trackway, each with its number of occurrences.
    adapted: BTreeMap<String, i64>,
}

impl Mismatches {
    fn skip(&mut self, what: impl fmt::Display) {
        self.skipped += 1;
        if self.skipped_records.len() < NOTICES_MAX {
            self.skipped_records.push(text::cut(&text::clean_line(&what.to_string()), text::LINE_MAX));
        }
    }

    fn adapt(&mut self, what: impl fmt::Display) {
        *self.adapted.entry(text::cut(&text::clean_line(&what.to_string()), text::LINE_MAX)).or_default() += 1;
    }

    fn notices(&self) -> Vec<String> {
        let more = |shown: usize, all: usize| (all > shown).then(|| format!("and {} more", all - shown));
        let skipped = usize::try_from(self.skipped).unwrap_or(usize::MAX);
        let skipped_notices = self.skipped_records.iter().map(|what| format!("left out: {what}"));
        let adapted = self.adapted.iter().take(NOTICES_MAX).map(|(what, count)| format!("{what}: {count}"));
        skipped_notices
            .chain(more(self.skipped_records.len(), skipped).map(|more| format!("left out: {more}")))
            .chain(adapted)
            .chain(more(NOTICES_MAX, self.adapted.len()))
            .collect()
    }
}

/// The command, the workflow and the mode of an import.
#[derive(Debug)]
struct Target<'a> {
    /// The first segment of the variants.
    command: &'a str,
    workflow: &'a str,
    /// Whether the export overwrites existing tasks.
    update: bool,
}

/// The numbers of imported rows, and notices about parts that could not be imported unchanged.
#[derive(Debug, Default, Serialize)]
pub struct ImportedTasks {
    pub tasks: i64,
    pub updated: i64,
    /// Existing tasks that the import did not change.
    pub present: i64,
    pub links: i64,
    /// Records that were not imported. The notices say which and why.
    pub left_out: i64,
    pub notices: Vec<String>,
}

type ImportTouches = (
    (Touch<kind::Task, action_type::Create>, Touch<kind::Task, action_type::Update>),
    Touch<kind::Link, action_type::Create>,
);

/// Writes an export. Tasks and links that violate a rule are skipped with a notice.
fn import<A>(context: &Context, write: &mut Writer<'_>, export: Export, target: &Target<'_>) -> Result<ActionOutcome<A>>
where
    A: Action<Touched = ImportTouches, Output = ImportedTasks>,
{
    let mut importer = Importer {
        context,
        write,
        target,
        imported: ImportedTasks::default(),
        mismatches: export.mismatches,
        subjects: Vec::new(),
        existing_names: HashSet::new(),
        created: Vec::new(),
        changed: Vec::new(),
        linked: Vec::new(),
    };
    if !export.tasks.is_empty() {
        importer.ensure_workflow()?;
    }
    for task in export.tasks {
        importer.import_task(task)?;
    }
    for link in sort_blockers_first(export.links) {
        importer.import_link(&link)?;
    }
    Ok(importer.into_outcome())
}

struct Importer<'a, 'b> {
    context: &'a Context,
    write: &'a mut Writer<'b>,
    target: &'a Target<'a>,
    imported: ImportedTasks,
    mismatches: Mismatches,
    subjects: Vec<Subject>,
    /// Names that are known to have a task.
    existing_names: HashSet<String>,
    created: Vec<Resource<kind::Task>>,
    changed: Vec<Resource<kind::Task>>,
    linked: Vec<Resource<kind::Link>>,
}

impl Importer<'_, '_> {
    /// Creates the workflow if it is missing.
    fn ensure_workflow(&mut self) -> Result<()> {
        let outcome = SetWorkflow::named(self.target.workflow).perform(self.context, self.write)?;
        self.subjects.extend(outcome.change.into_iter().flat_map(|change| change.subjects));
        Ok(())
    }

    fn import_task(&mut self, task: ForeignTask) -> Result<()> {
        let variant = self.variant(&task.name);
        let exists = self.task_exists(&task.name)?;
        if exists && !self.target.update {
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
            Ok(ActionOutcome { output: SetTaskResult { id, new, .. }, change }) => {
                self.existing_names.insert(name);
                let resource = Resource::new(id, variant);
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
            Err(Error::Rule(rule)) => self.mismatches.skip(format!("{name}: {rule}")),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn import_link(&mut self, link: &ForeignLink) -> Result<()> {
        let link_text = format!("{} {} {}", link.from, link.link_type, link.to);
        for end in [&link.from, &link.to] {
            if !self.task_exists(end)? {
                self.mismatches.skip(format!("{link_text}: there is no task {end}"));
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
                self.changed.push(Resource::new(done.output.from_id, done.output.from.as_str()));
            }
            Ok(_) => {}
            Err(Error::Rule(rule)) => self.mismatches.skip(format!("{link_text}: {rule}")),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn variant(&self, name: &str) -> String {
        format!("{}/{name}", self.target.command)
    }

    fn task_exists(&mut self, name: &str) -> Result<bool> {
        if self.existing_names.contains(name) {
            return Ok(true);
        }
        // A dependency can contain any string, even one that the database rejects.
        if !is_variant_segment(self.target.command, name) {
            return Ok(false);
        }
        let variant = self.variant(name);
        let found = self.write.count(
            "select count(*) from tasks where tenant_id = ?1 and variant = ?2 and deleted_at is null",
            params![variant],
        )?;
        if found > 0 {
            self.existing_names.insert(name.to_owned());
        }
        Ok(found > 0)
    }

    fn into_outcome<A: Action<Touched = ImportTouches, Output = ImportedTasks>>(mut self) -> ActionOutcome<A> {
        // Log one event per task: a created task that was also linked counts as created, and a task that was linked
        // twice counts as changed once.
        let mut seen: HashSet<_> = self.created.iter().map(|task| task.id.uuid()).collect();
        self.changed.retain(|task| seen.insert(task.id.uuid()));
        self.subjects.extend(self.created.iter().chain(&self.changed).map(Subject::from));
        self.imported.left_out = self.mismatches.skipped;
        self.imported.notices = self.mismatches.notices();
        if self.subjects.is_empty() {
            return ActionOutcome::unchanged(self.imported);
        }
        let touched = ((Touch::many(self.created), Touch::many(self.changed)), Touch::many(self.linked));
        ActionOutcome::changed_several(self.imported, self.subjects, touched)
    }
}

/// Sorts links topologically: the links to a task come before the links from it. When a link is added, the cycle check
/// walks onward from the link's end, where there are no links yet. In the opposite order it would walk the whole chain
/// for every link.
fn sort_blockers_first(mut links: Vec<ForeignLink>) -> Vec<ForeignLink> {
    let mut blocked_by: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut open_blockers: HashMap<&str, usize> = HashMap::new();
    for link in links.iter().filter(|link| link.link_type == LinkType::Blocks) {
        blocked_by.entry(&link.from).or_default().push(&link.to);
        open_blockers.entry(&link.from).or_default();
        *open_blockers.entry(&link.to).or_default() += 1;
    }
    let mut order: Vec<&str> = open_blockers.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
    order.sort_unstable();
    let mut next = 0;
    while let Some(name) = order.get(next).copied() {
        next += 1;
        for to in blocked_by.remove(name).unwrap_or_default() {
            if let Some(count) = open_blockers.get_mut(to) {
                *count -= 1;
                if *count == 0 {
                    order.push(to);
                }
            }
        }
    }
    let positions: HashMap<String, usize> =
        order.iter().zip(0..).map(|(name, position)| ((*name).to_owned(), position)).collect();
    links.sort_by_key(|link| positions.get(&link.from).copied().unwrap_or(usize::MAX));
    links
}

/// Whether the name is valid as the last segment of a variant.
fn is_variant_segment(command: &str, name: &str) -> bool {
    !name.contains('/') && format!("{command}/{name}").parse::<Variant>().is_ok()
}
