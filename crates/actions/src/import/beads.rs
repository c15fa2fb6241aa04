//! Carrying over the issues of beads, from its JSONL.

use std::{collections::HashMap, fmt::Write as _};

use serde::Deserialize;
use serde_json::{Map, Value, error::Category};
use trackway_domain::{
    Variant, text,
    words::{LinkType, Priority, TaskStatus},
};
use trackway_store::Writer;

use super::{
    EXPORT_MAX, Export, ForeignLink, ForeignTask, ImportedTasks, Misfits, Target, TasksAndLinks, carry, is_name,
};
use crate::{
    action::{Action, Done, LongText},
    context::Context,
    error::Result,
};

/// What it is called where nobody says otherwise.
const BEADS: &str = "beads";
/// Labels and tags of a task.
const LIST_MAX: usize = 100;
/// What is told of an issue in the notes of its task, since tasks have no place of their own for it.
const FACTS: &[&str] = &[
    "assignee",
    "owner",
    "created_by",
    "created_at",
    "started_at",
    "due_at",
    "defer_until",
    "closed_at",
    "close_reason",
    "external_ref",
    "spec_id",
];
/// What it works out from the rest, or keeps for itself.
const DERIVED: &[&str] = &["updated_at", "content_hash", "dependency_count", "dependent_count", "comment_count"];

/// Carry over the issues of beads: tasks, links and states
///
/// An issue becomes a task below the command. Importing again adds what is new; a task that is here stays as it is,
/// unless --update is given. What does not fit is left out or changed, and said.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ImportBeads {
    /// Its issues, as .beads/issues.jsonl, to 64,000,000 bytes
    #[arg(value_name = "FILE")]
    pub issues: String,
    /// The command, the first part of the variants (beads, when it is not said)
    #[arg(long)]
    pub command: Option<String>,
    /// The workflow that owns the variants, made where there is none (named as the command, when it is not said)
    #[arg(long)]
    pub workflow: Option<String>,
    /// Take over what the issues say of tasks that are here already
    #[arg(long)]
    #[serde(default)]
    pub update: bool,
}

impl Action for ImportBeads {
    const NAME: &'static str = "import_beads";
    const COMMAND: (&'static str, &'static str) = ("import", "beads");
    const LONG_TEXT: Option<LongText> = Some(LongText::File { field: "issues", bytes_max: EXPORT_MAX });
    type Touched = TasksAndLinks;
    type Output = ImportedTasks;

    fn put_text(&mut self, text: String) {
        self.issues = text;
    }

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let command = Variant::select(None, Some(self.command.as_deref().unwrap_or(BEADS)))?;
        let workflow = self.workflow.as_deref().unwrap_or(command.as_str());
        let target = Target { command: command.as_str(), workflow, update: self.update };
        carry(context, write, read(&self.issues, target.command), &target)
    }
}

#[derive(Debug, Deserialize)]
struct Issue {
    /// Newer versions keep other things in the same file.
    #[serde(rename = "_type")]
    record: Option<String>,
    #[serde(default)]
    id: String,
    title: Option<String>,
    description: Option<String>,
    design: Option<String>,
    acceptance_criteria: Option<String>,
    notes: Option<String>,
    status: Option<String>,
    priority: Option<i64>,
    #[serde(rename = "issue_type")]
    r#type: Option<String>,
    estimated_minutes: Option<i64>,
    labels: Option<Vec<String>>,
    dependencies: Option<Vec<Dependency>>,
    comments: Option<Vec<Comment>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    issue_id: Option<String>,
    depends_on_id: String,
    r#type: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Comment {
    author: Option<String>,
    text: Option<String>,
    created_at: Option<String>,
}

/// Reads every line that can be read.
fn read(issues: &str, command: &str) -> Export {
    let mut export = Export::default();
    let mut told_in = HashMap::new();
    for (line, number) in issues.trim_start_matches('\u{feff}').lines().zip(1..) {
        if line.trim().is_empty() {
            continue;
        }
        let misfits = &mut export.misfits;
        let issue = match serde_json::from_str::<Issue>(line) {
            Ok(issue) => issue,
            Err(error) => {
                misfits.leave_out(format!("line {number}: {}", unreadable(&error)));
                continue;
            }
        };
        let id = issue.id.clone();
        if let Some(record) = issue.record.as_ref().filter(|record| *record != "issue") {
            misfits.leave_out(format!("line {number}: a {record}, not an issue"));
        } else if !is_name(command, &id) {
            misfits.leave_out(format!("line {number}: {id:?} cannot be a part of a variant"));
        } else if issue.status.as_deref() == Some("tombstone") {
            misfits.leave_out(format!("line {number}: {id} was deleted there"));
        } else if let Some(earlier) = told_in.get(&id) {
            misfits.leave_out(format!("line {number}: {id} was told in line {earlier} already"));
        } else {
            for dependency in issue.dependencies.iter().flatten() {
                export.links.extend(link(&id, dependency, misfits));
            }
            export.tasks.push(task(issue, misfits));
            told_in.insert(id, number);
        }
    }
    export
}

/// Why a line cannot be read, in the words of whoever wrote it and not of the parser.
fn unreadable(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        Category::Data => "not an issue as beads writes one",
        Category::Io | Category::Syntax | Category::Eof => "not JSON",
    };
    match error.column() {
        0 => what.to_owned(),
        column => format!("{what} (at byte {column})"),
    }
}

/// Where a dependency leads here.
fn link(id: &str, dependency: &Dependency, misfits: &mut Misfits) -> Option<ForeignLink> {
    let issue = dependency.issue_id.as_deref().filter(|issue| !issue.is_empty()).unwrap_or(id);
    let on = dependency.depends_on_id.as_str();
    let said = dependency.r#type.as_deref().unwrap_or("blocks");
    let (from, link_type, to) = match said {
        "blocks" => (on, LinkType::Blocks, issue),
        "related" | "relates-to" | "parent-child" => (issue, LinkType::RelatesTo, on),
        "discovered-from" => (issue, LinkType::FollowsUp, on),
        "duplicates" => (issue, LinkType::Duplicates, on),
        // `bd supersede OLD --with NEW` writes the old one first.
        "supersedes" => (on, LinkType::Supersedes, issue),
        _ => {
            misfits.leave_out(format!("{issue} {said} {on}: there is no such type of link"));
            return None;
        }
    };
    if said == "parent-child" {
        misfits.adapt("parent-child became relates_to");
    }
    Some(ForeignLink { from: from.to_owned(), link_type, to: to.to_owned() })
}

fn task(issue: Issue, misfits: &mut Misfits) -> ForeignTask {
    for (field, value) in &issue.rest {
        let says_nothing = match value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Array(values) => values.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Number(number) => number.as_i64() == Some(0),
            Value::Bool(true) => false,
        };
        if !says_nothing && !FACTS.contains(&field.as_str()) && !DERIVED.contains(&field.as_str()) {
            misfits.adapt(format!("{field} stays there"));
        }
    }
    let whole_title = text::clean_line(issue.title.as_deref().unwrap_or_default());
    let title = cut(&whole_title, text::LINE_MAX, "title", misfits);
    let description = described(&issue, (title != whole_title).then_some(&*whole_title));
    let notes = noted(&issue);
    let status = status(issue.status.as_deref(), misfits);
    let priority = priority(issue.priority, misfits);
    let estimate = issue.estimated_minutes.filter(|minutes| *minutes > 0).and_then(|minutes| {
        let estimate = format!("{minutes}m").parse();
        estimate.map_err(|_| misfits.adapt("an estimate of more than ten years was dropped")).ok()
    });
    ForeignTask {
        title,
        description: cut(&description, text::TEXT_MAX, "description", misfits),
        notes: cut(&notes, text::TEXT_MAX, "notes", misfits),
        status,
        priority,
        estimate,
        tags: list(issue.r#type.as_slice(), "tag", misfits),
        labels: list(issue.labels.as_deref().unwrap_or_default(), "label", misfits),
        name: issue.id,
    }
}

fn status(said: Option<&str>, misfits: &mut Misfits) -> TaskStatus {
    let (status, fits) = match said.unwrap_or_default() {
        "" | "open" => (TaskStatus::Open, true),
        "in_progress" => (TaskStatus::InProgress, true),
        "blocked" => (TaskStatus::Blocked, true),
        "closed" => (TaskStatus::Done, true),
        "hooked" => (TaskStatus::InProgress, false),
        // What nobody here knows is not handed to the next who asks for work.
        _ => (TaskStatus::OnHold, false),
    };
    if !fits {
        misfits.adapt(format!("status {} became {status}", said.unwrap_or_default()));
    }
    status
}

fn priority(said: Option<i64>, misfits: &mut Misfits) -> Priority {
    match said {
        Some(0) => Priority::P0,
        Some(1) => Priority::P1,
        None | Some(2) => Priority::P2,
        Some(3) => Priority::P3,
        Some(other) => {
            let nearest = if other < 0 { Priority::P0 } else { Priority::P3 };
            misfits.adapt(format!("priority {other} became {nearest}"));
            nearest
        }
    }
}

/// What is to be done: everything that an issue says of that.
fn described(issue: &Issue, whole_title: Option<&str>) -> String {
    let mut said = whole_title.unwrap_or_default().to_owned();
    section(&mut said, None, issue.description.as_deref());
    section(&mut said, Some("Design"), issue.design.as_deref());
    section(&mut said, Some("Acceptance criteria"), issue.acceptance_criteria.as_deref());
    said
}

/// Its notes, then what has no other place.
fn noted(issue: &Issue) -> String {
    let mut said = String::new();
    section(&mut said, None, issue.notes.as_deref());
    let fact = |name: &&str| {
        let value = issue.rest.get(*name)?.as_str().map(text::clean_line)?;
        (!value.is_empty()).then(|| format!("- {name}: {value}\n"))
    };
    section(&mut said, Some("In beads"), Some(&FACTS.iter().filter_map(fact).collect::<String>()));
    let mut comments = String::new();
    for comment in issue.comments.iter().flatten() {
        let who = text::clean_line(comment.author.as_deref().unwrap_or("someone"));
        let when = text::clean_line(comment.created_at.as_deref().unwrap_or_default());
        let what = comment.text.as_deref().unwrap_or_default().trim();
        let _ = write!(comments, "**{who}** {when}\n\n{what}\n\n");
    }
    section(&mut said, Some("Comments"), Some(&comments));
    said
}

fn section(said: &mut String, heading: Option<&str>, body: Option<&str>) {
    let Some(body) = body.map(|body| text::clean(body).trim().to_owned()).filter(|body| !body.is_empty()) else {
        return;
    };
    if !said.is_empty() {
        said.push_str("\n\n");
    }
    if let Some(heading) = heading {
        let _ = write!(said, "## {heading}\n\n");
    }
    said.push_str(&body);
}

fn cut(whole: &str, max: usize, field: &str, misfits: &mut Misfits) -> String {
    if whole.chars().count() <= max {
        return whole.to_owned();
    }
    misfits.adapt(format!("{field} cut to {max} characters"));
    text::cut(whole, max - 1)
}

fn list(said: &[String], field: &str, misfits: &mut Misfits) -> Vec<String> {
    if said.len() > LIST_MAX {
        misfits.adapt(format!("only the first {LIST_MAX} of {field}s"));
    }
    let line = |entry: &String| cut(&text::clean_line(entry), text::LINE_MAX, field, misfits);
    said.iter().take(LIST_MAX).map(line).collect()
}
