//! Importing the issues of beads from its JSONL file.

use std::{collections::HashMap, fmt::Write as _};

use serde::Deserialize;
use serde_json::{Map, Value, error::Category};
use trackway_domain::{
    Variant,
    enums::{LinkType, Priority, TaskStatus},
    text,
};
use trackway_store::Writer;

use super::{
    EXPORT_MAX, Export, ForeignLink, ForeignTask, ImportTouches, ImportedTasks, Mismatches, Target, import,
    is_variant_segment,
};
use crate::{
    action::{Action, ActionOutcome, LongText},
    context::Context,
    error::Result,
};

/// The default of `--command`, and so also of `--workflow`.
const BEADS: &str = "beads";
/// Maximum number of labels or tags of a task.
const LIST_MAX: usize = 100;
/// Fields of an issue that go into the notes of the task, because tasks have no such field.
const NOTED_FIELDS: &[&str] = &[
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
/// Fields of an issue that are not imported, because beads derives them or uses them internally.
const IGNORED_FIELDS: &[&str] = &["updated_at", "content_hash", "dependency_count", "dependent_count", "comment_count"];

/// Import the issues of beads as tasks, with their links and statuses
///
/// Each issue becomes a task with the variant COMMAND/ID. A second import adds new issues; existing tasks stay unchanged
/// without --update. Notices list everything that was left out or changed because Trackway has no equivalent.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ImportBeads {
    /// Issues of beads, from .beads/issues.jsonl, at most 64,000,000 bytes
    #[arg(value_name = "FILE")]
    pub issues: String,
    /// Command: the first part of the variants [default: beads]
    #[arg(long)]
    pub command: Option<String>,
    /// Workflow that owns the variants. The import creates a missing workflow [default: the name of the command]
    #[arg(long)]
    pub workflow: Option<String>,
    /// Overwrite existing tasks with the content of their issues
    #[arg(long)]
    #[serde(default)]
    pub update: bool,
}

impl Action for ImportBeads {
    const NAME: &'static str = "import_beads";
    const COMMAND: (&'static str, &'static str) = ("import", "beads");
    const LONG_TEXT: Option<LongText> = Some(LongText::File { field: "issues", bytes_max: EXPORT_MAX });
    type Touched = ImportTouches;
    type Output = ImportedTasks;

    fn set_long_text(&mut self, text: String) {
        self.issues = text;
    }

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let command = Variant::select(None, Some(self.command.as_deref().unwrap_or(BEADS)))?;
        let workflow = self.workflow.as_deref().unwrap_or(command.as_str());
        let target = Target { command: command.as_str(), workflow, update: self.update };
        import(context, write, parse_export(&self.issues, target.command), &target)
    }
}

#[derive(Debug, Deserialize)]
struct Issue {
    /// The record type. Newer versions of beads store other records than issues in the same file.
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

/// Parses the export. A line that cannot be imported is skipped with a notice.
fn parse_export(issues: &str, command: &str) -> Export {
    let mut export = Export::default();
    let mut line_of_id = HashMap::new();
    for (line, number) in issues.trim_start_matches('\u{feff}').lines().zip(1..) {
        if line.trim().is_empty() {
            continue;
        }
        let mismatches = &mut export.mismatches;
        let issue = match serde_json::from_str::<Issue>(line) {
            Ok(issue) => issue,
            Err(error) => {
                mismatches.skip(format!("line {number}: {}", parse_error_text(&error)));
                continue;
            }
        };
        let id = issue.id.clone();
        if let Some(record) = issue.record.as_ref().filter(|record| *record != "issue") {
            mismatches.skip(format!("line {number}: this is a {record}, not an issue"));
        } else if !is_variant_segment(command, &id) {
            mismatches.skip(format!("line {number}: {id:?} is not valid as part of a variant"));
        } else if issue.status.as_deref() == Some("tombstone") {
            mismatches.skip(format!("line {number}: {id} is deleted in beads"));
        } else if let Some(earlier) = line_of_id.get(&id) {
            mismatches.skip(format!("line {number}: {id} is already in line {earlier}"));
        } else {
            for dependency in issue.dependencies.iter().flatten() {
                export.links.extend(convert_link(&id, dependency, mismatches));
            }
            export.tasks.push(convert_task(issue, mismatches));
            line_of_id.insert(id, number);
        }
    }
    export
}

/// A parse error as users can understand it, without the parser's Rust terms.
fn parse_error_text(error: &serde_json::Error) -> String {
    let problem = match error.classify() {
        Category::Data => "not a valid beads issue",
        Category::Io | Category::Syntax | Category::Eof => "not JSON",
    };
    match error.column() {
        0 => problem.to_owned(),
        column => format!("{problem} (at byte {column})"),
    }
}

/// Converts a dependency into a link between tasks.
fn convert_link(id: &str, dependency: &Dependency, mismatches: &mut Mismatches) -> Option<ForeignLink> {
    let issue = dependency.issue_id.as_deref().filter(|issue| !issue.is_empty()).unwrap_or(id);
    let on = dependency.depends_on_id.as_str();
    let dependency_type = dependency.r#type.as_deref().unwrap_or("blocks");
    let (from, link_type, to) = match dependency_type {
        "blocks" => (on, LinkType::Blocks, issue),
        "related" | "relates-to" | "parent-child" => (issue, LinkType::RelatesTo, on),
        "discovered-from" => (issue, LinkType::FollowsUp, on),
        "duplicates" => (issue, LinkType::Duplicates, on),
        // `bd supersede OLD --with NEW` stores the old issue first.
        "supersedes" => (on, LinkType::Supersedes, issue),
        _ => {
            mismatches.skip(format!("{issue} {dependency_type} {on}: there is no such type of link"));
            return None;
        }
    };
    if dependency_type == "parent-child" {
        mismatches.adapt("parent-child became relates_to");
    }
    Some(ForeignLink { from: from.to_owned(), link_type, to: to.to_owned() })
}

fn convert_task(issue: Issue, mismatches: &mut Mismatches) -> ForeignTask {
    for (field, value) in &issue.rest {
        let is_empty = match value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Array(values) => values.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Number(number) => number.as_i64() == Some(0),
            Value::Bool(true) => false,
        };
        if !is_empty && !NOTED_FIELDS.contains(&field.as_str()) && !IGNORED_FIELDS.contains(&field.as_str()) {
            mismatches.adapt(format!("{field} is not imported"));
        }
    }
    let whole_title = text::clean_line(issue.title.as_deref().unwrap_or_default());
    let title = truncate(&whole_title, text::LINE_MAX, "title", mismatches);
    let description = description_of(&issue, (title != whole_title).then_some(&*whole_title));
    let notes = notes_of(&issue);
    let status = convert_status(issue.status.as_deref(), mismatches);
    let priority = convert_priority(issue.priority, mismatches);
    let estimate = issue.estimated_minutes.filter(|minutes| *minutes > 0).and_then(|minutes| {
        let estimate = format!("{minutes}m").parse();
        estimate.map_err(|_| mismatches.adapt("an estimate of more than ten years is not imported")).ok()
    });
    ForeignTask {
        title,
        description: truncate(&description, text::TEXT_MAX, "description", mismatches),
        notes: truncate(&notes, text::TEXT_MAX, "notes", mismatches),
        status,
        priority,
        estimate,
        tags: truncate_list(issue.r#type.as_slice(), "tag", mismatches),
        labels: truncate_list(issue.labels.as_deref().unwrap_or_default(), "label", mismatches),
        name: issue.id,
    }
}

fn convert_status(given: Option<&str>, mismatches: &mut Mismatches) -> TaskStatus {
    let (status, is_known) = match given.unwrap_or_default() {
        "" | "open" => (TaskStatus::Open, true),
        "in_progress" => (TaskStatus::InProgress, true),
        "blocked" => (TaskStatus::Blocked, true),
        "closed" => (TaskStatus::Done, true),
        "hooked" => (TaskStatus::InProgress, false),
        // A task with an unknown status must not be offered as ready work.
        _ => (TaskStatus::OnHold, false),
    };
    if !is_known {
        mismatches.adapt(format!("status {} became {status}", given.unwrap_or_default()));
    }
    status
}

fn convert_priority(given: Option<i64>, mismatches: &mut Mismatches) -> Priority {
    match given {
        Some(0) => Priority::P0,
        Some(1) => Priority::P1,
        None | Some(2) => Priority::P2,
        Some(3) => Priority::P3,
        Some(other) => {
            let nearest = if other < 0 { Priority::P0 } else { Priority::P3 };
            mismatches.adapt(format!("priority {other} became {nearest}"));
            nearest
        }
    }
}

/// The description of the task: the issue's description, design and acceptance criteria. A truncated title comes
/// first, in full length.
fn description_of(issue: &Issue, whole_title: Option<&str>) -> String {
    let mut description = whole_title.unwrap_or_default().to_owned();
    push_section(&mut description, None, issue.description.as_deref());
    push_section(&mut description, Some("Design"), issue.design.as_deref());
    push_section(&mut description, Some("Acceptance criteria"), issue.acceptance_criteria.as_deref());
    description
}

/// The notes of the task: the issue's notes, the fields that tasks do not have, and the comments.
fn notes_of(issue: &Issue) -> String {
    let mut notes = String::new();
    push_section(&mut notes, None, issue.notes.as_deref());
    let field_line = |name: &&str| {
        let value = issue.rest.get(*name)?.as_str().map(text::clean_line)?;
        (!value.is_empty()).then(|| format!("- {name}: {value}\n"))
    };
    push_section(&mut notes, Some("In beads"), Some(&NOTED_FIELDS.iter().filter_map(field_line).collect::<String>()));
    let mut comments = String::new();
    for comment in issue.comments.iter().flatten() {
        let who = text::clean_line(comment.author.as_deref().unwrap_or("someone"));
        let when = text::clean_line(comment.created_at.as_deref().unwrap_or_default());
        let what = comment.text.as_deref().unwrap_or_default().trim();
        let _ = write!(comments, "**{who}** {when}\n\n{what}\n\n");
    }
    push_section(&mut notes, Some("Comments"), Some(&comments));
    notes
}

fn push_section(output: &mut String, heading: Option<&str>, body: Option<&str>) {
    let Some(body) = body.map(|body| text::clean(body).trim().to_owned()).filter(|body| !body.is_empty()) else {
        return;
    };
    if !output.is_empty() {
        output.push_str("\n\n");
    }
    if let Some(heading) = heading {
        let _ = write!(output, "## {heading}\n\n");
    }
    output.push_str(&body);
}

fn truncate(value: &str, max: usize, field: &str, mismatches: &mut Mismatches) -> String {
    if value.chars().count() <= max {
        return value.to_owned();
    }
    mismatches.adapt(format!("{field} was cut to {max} characters"));
    text::cut(value, max - 1)
}

fn truncate_list(entries: &[String], field: &str, mismatches: &mut Mismatches) -> Vec<String> {
    if entries.len() > LIST_MAX {
        mismatches.adapt(format!("only the first {LIST_MAX} {field}s are imported"));
    }
    let line = |entry: &String| truncate(&text::clean_line(entry), text::LINE_MAX, field, mismatches);
    entries.iter().take(LIST_MAX).map(line).collect()
}
