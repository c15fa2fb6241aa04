//! The linked-task document: a JSON document about the tasks linked to an agent's task. Agents rely on the names and
//! the order of its fields, so neither may change.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use serde::Serialize;

use crate::{
    Duration, Id, Time, Variant,
    enums::{LinkType, Priority, TaskStatus},
    kind, text,
};

/// The tasks that are directly linked to a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LinkedTasks {
    /// Tasks that link to the task.
    pub linked_from: Vec<LinkedTask>,
    /// Tasks that the task links to.
    pub linked_to: Vec<LinkedTask>,
}

/// A row of the document. The document has the fields in this order.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkedTask {
    pub id: Id<kind::Task>,
    pub title: String,
    pub status: TaskStatus,
    pub status_since: Time,
    pub priority: Priority,
    #[serde(serialize_with = "as_clock")]
    pub estimate: Option<Duration>,
    #[serde(serialize_with = "as_clock")]
    pub time_spent: Option<Duration>,
    pub created_at: Time,
    pub labels: Vec<LabelSummary>,
    pub language_code: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub relations: Vec<&'static str>,
    /// The version that the link names, if it is not the current version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linked_as: Option<LinkedAs>,
    #[serde(flatten)]
    pub report: Option<LinkedReport>,
}

/// The version of a linked task that a link names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkedAs {
    pub id: Id<kind::Task>,
    pub variant: Variant,
}

/// A label: its key as `id`, and its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabelSummary {
    pub id: String,
    pub name: String,
}

/// The current report on a linked task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkedReport {
    #[serde(skip)]
    pub id: Id<kind::Report>,
    #[serde(rename = "taskAgentId")]
    pub agent_id: Id<kind::Agent>,
    #[serde(rename = "latestTaskAgentReport")]
    pub content: String,
    #[serde(rename = "latestTaskAgentReportCreatedAt")]
    pub created_at: Time,
}

/// Limits for the document.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub rows: usize,
    /// Maximum number of characters of all reports together.
    pub characters: usize,
}

/// The limits for the document in a wake context.
pub const WAKE_LIMITS: Limits = Limits { rows: 200, characters: 60_000 };

/// The content that was omitted to stay within the limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Omissions {
    /// The number of rows in the document, and the number of all rows.
    pub rows: Option<(usize, usize)>,
    /// The number of reports in the document, including a shortened one, and the number of all reports.
    pub reports: Option<(usize, usize)>,
    /// The shortened report: its task, its length in the document, and its full length, both in characters.
    pub shortened: Option<(Id<kind::Task>, usize, usize)>,
}

impl LinkedTasks {
    pub fn is_empty(&self) -> bool {
        self.linked_from.is_empty() && self.linked_to.is_empty()
    }

    /// The rows of both lists.
    pub fn rows(&self) -> impl Iterator<Item = &LinkedTask> {
        self.linked_from.iter().chain(&self.linked_to)
    }

    fn rows_mut(&mut self) -> impl Iterator<Item = &mut LinkedTask> {
        self.linked_from.iter_mut().chain(&mut self.linked_to)
    }

    /// Sorts both lists by creation time, then by id.
    pub fn sort(&mut self) {
        for list in [&mut self.linked_from, &mut self.linked_to] {
            list.sort_by_key(|row| (row.created_at, row.id.uuid()));
        }
    }

    /// The document as JSON with an indent of four spaces, or `{}` if there are no linked tasks.
    pub fn document(&self) -> String {
        if self.is_empty() {
            return "{}".to_owned();
        }
        let mut out = Vec::new();
        let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
        let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
        match self.serialize(&mut serializer) {
            Ok(()) => String::from_utf8(out).unwrap_or_else(|_| "{}".to_owned()),
            Err(_) => "{}".to_owned(),
        }
    }

    /// Keeps the newest tasks and the newest reports that fit into the limits, and returns what it omitted.
    pub fn limited_to(mut self, limits: Limits) -> (Self, Omissions) {
        let mut omissions = Omissions::default();
        let row_count = self.rows().count();
        if row_count > limits.rows {
            let key = |row: &LinkedTask, incoming: bool| (row.created_at, row.id.uuid(), incoming);
            let incoming = self.linked_from.iter().map(|row| key(row, true));
            let mut newest: Vec<_> = incoming.chain(self.linked_to.iter().map(|row| key(row, false))).collect();
            newest.sort_unstable_by_key(|key| Reverse(*key));
            let kept: HashSet<_> = newest.into_iter().take(limits.rows).collect();
            self.linked_from.retain(|row| kept.contains(&key(row, true)));
            self.linked_to.retain(|row| kept.contains(&key(row, false)));
            omissions.rows = Some((limits.rows, row_count));
        }
        let mut reports: HashMap<Id<kind::Task>, (Time, usize)> = HashMap::new();
        let mut occurrences: HashMap<Id<kind::Task>, usize> = HashMap::new();
        for row in self.rows() {
            if let Some(report) = &row.report {
                reports.insert(row.id, (report.created_at, report.content.chars().count()));
                *occurrences.entry(row.id).or_default() += 1;
            }
        }
        let mut newest: Vec<_> = reports.into_iter().map(|(task, (at, length))| (at, task, length)).collect();
        newest.sort_unstable_by_key(|(at, task, _)| Reverse((*at, task.uuid())));
        let (mut budget, mut kept) = (limits.characters, HashMap::new());
        for (_, task, length) in &newest {
            // If a task is in both lists, its report appears twice.
            let share = budget / occurrences.get(task).copied().unwrap_or(1).max(1);
            if *length > share {
                if share > 0 {
                    kept.insert(*task, share);
                    omissions.shortened = Some((*task, share, *length));
                }
                break;
            }
            budget -= *length * occurrences.get(task).copied().unwrap_or(1);
            kept.insert(*task, *length);
        }
        if kept.len() < newest.len() {
            omissions.reports = Some((kept.len(), newest.len()));
        }
        if kept.len() < newest.len() || omissions.shortened.is_some() {
            for row in self.rows_mut() {
                match (kept.get(&row.id), &mut row.report) {
                    (Some(length), Some(report)) => report.content = text::cut(&report.content, *length),
                    (_, report) => *report = None,
                }
            }
        }
        (self, omissions)
    }
}

/// The name of a link, read from the task at its start (`outgoing`) or from the task at its end.
pub fn relation_name(link: LinkType, outgoing: bool) -> &'static str {
    if outgoing { link.as_str() } else { link.inverse() }
}

/// Serializes a duration as hours and minutes, rounded down. The hours may exceed 24.
#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
fn as_clock<S: serde::Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let seconds = duration.map_or(0, Duration::seconds).max(0);
    serializer.serialize_str(&format!("{:02}:{:02}", seconds / 3_600, seconds / 60 % 60))
}

/// The total duration that is covered by at least one of these intervals.
pub fn time_spent(mut intervals: Vec<(Time, Time)>) -> Duration {
    intervals.sort_unstable();
    let (mut micros, mut reached) = (0_i64, Time::from_micros(i64::MIN));
    for (start, end) in intervals {
        let start = start.max(reached);
        if end > start {
            micros = micros.saturating_add(end.micros() - start.micros());
            reached = end;
        }
    }
    Duration::from_seconds(micros / 1_000_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;
    use uuid::Uuid;

    use super::*;

    fn at(second: i64) -> Time {
        Time::from_micros(1_772_184_600_000_000).plus_seconds(second)
    }

    fn row(number: u128, created: i64, report: Option<&str>) -> LinkedTask {
        LinkedTask {
            id: Uuid::from_u128(number).into(),
            title: "a title".to_owned(),
            status: TaskStatus::InProgress,
            status_since: at(1),
            priority: Priority::P1,
            estimate: Some(Duration::from_seconds(40 * 3_600)),
            time_spent: Some(Duration::from_seconds(3_659)),
            created_at: at(created),
            labels: vec![LabelSummary { id: "ui".to_owned(), name: "Interface".to_owned() }],
            language_code: None,
            relations: vec!["blocks"],
            linked_as: None,
            report: report.map(|content| LinkedReport {
                id: Uuid::from_u128(number).into(),
                agent_id: Uuid::from_u128(7).into(),
                content: content.to_owned(),
                created_at: at(created),
            }),
        }
    }

    #[test]
    fn document_has_exactly_the_specified_form() {
        assert_eq!(LinkedTasks::default().document(), "{}");
        let bare = LinkedTask {
            estimate: None,
            time_spent: None,
            labels: Vec::new(),
            relations: Vec::new(),
            ..row(1, 0, None)
        };
        let linked_as =
            Some(LinkedAs { id: Uuid::from_u128(3).into(), variant: Variant::select(None, Some("unit/go")).unwrap() });
        let older = LinkedTask { linked_as, ..row(2, 0, Some("said \"so\"\n")) };
        let tasks = LinkedTasks { linked_from: vec![bare], linked_to: vec![older] };
        assert_eq!(
            tasks.document(),
            r#"{
    "linked_from": [
        {
            "id": "00000000-0000-0000-0000-000000000001",
            "title": "a title",
            "status": "in_progress",
            "statusSince": "2026-02-27T09:30:01.000Z",
            "priority": "P1",
            "estimate": "00:00",
            "timeSpent": "00:00",
            "createdAt": "2026-02-27T09:30:00.000Z",
            "labels": [],
            "languageCode": null
        }
    ],
    "linked_to": [
        {
            "id": "00000000-0000-0000-0000-000000000002",
            "title": "a title",
            "status": "in_progress",
            "statusSince": "2026-02-27T09:30:01.000Z",
            "priority": "P1",
            "estimate": "40:00",
            "timeSpent": "01:00",
            "createdAt": "2026-02-27T09:30:00.000Z",
            "labels": [
                {
                    "id": "ui",
                    "name": "Interface"
                }
            ],
            "languageCode": null,
            "relations": [
                "blocks"
            ],
            "linkedAs": {
                "id": "00000000-0000-0000-0000-000000000003",
                "variant": "unit/go"
            },
            "taskAgentId": "00000000-0000-0000-0000-000000000007",
            "latestTaskAgentReport": "said \"so\"\n",
            "latestTaskAgentReportCreatedAt": "2026-02-27T09:30:00.000Z"
        }
    ]
}"#
        );
    }

    #[test]
    fn overlapping_runs_are_not_counted_twice() {
        let spans = [(0, 60), (30, 90), (40, 50), (200, 260), (300, 200)];
        let spent = time_spent(spans.iter().map(|(from, to)| (at(*from), at(*to))).collect());
        assert_eq!(spent.seconds(), 150);
        assert_eq!(time_spent(Vec::new()).seconds(), 0);
    }

    #[test]
    fn newest_rows_and_reports_stay_within_the_limits() {
        let long = "x".repeat(50);
        let mut tasks = LinkedTasks::default();
        for number in 0..10_u8 {
            let row = row(number.into(), number.into(), Some(&long));
            if number % 2 == 0 { tasks.linked_from.push(row) } else { tasks.linked_to.push(row) }
        }
        let limits = Limits { rows: 4, characters: 120 };
        let (kept, omissions) = tasks.clone().limited_to(limits);
        let ids = |list: &[LinkedTask]| list.iter().map(|row| row.id.uuid().as_u128()).collect::<Vec<_>>();
        assert_eq!((ids(&kept.linked_from), ids(&kept.linked_to)), (vec![6, 8], vec![7, 9]));
        assert_eq!(omissions.rows, Some((4, 10)));
        assert_eq!(omissions.reports, Some((3, 4)));
        assert_eq!(omissions.shortened, Some((Uuid::from_u128(7).into(), 20, 50)));
        let lengths: Vec<_> =
            kept.rows().map(|row| row.report.as_ref().map(|report| report.content.chars().count())).collect();
        // The shortened report ends with an ellipsis.
        assert_eq!(lengths, [None, Some(50), Some(21), Some(50)]);
        let whole = Limits { rows: 10, characters: 500 };
        assert_eq!(tasks.clone().limited_to(whole), (tasks, Omissions::default()));
    }

    proptest! {
        #[test]
        fn texts_in_the_document_are_unchanged(content in ".*", title in ".*", rows in 1_u8..5) {
            let list: Vec<_> = (0..rows)
                .map(|number| LinkedTask { title: title.clone(), ..row(number.into(), 0, Some(&content)) })
                .collect();
            let tasks = LinkedTasks { linked_from: list.clone(), linked_to: list };
            let read: Value = serde_json::from_str(&tasks.document()).unwrap();
            for list in ["linked_from", "linked_to"] {
                prop_assert_eq!(read[list].as_array().unwrap().len(), usize::from(rows));
                for row in read[list].as_array().unwrap() {
                    prop_assert_eq!(row["latestTaskAgentReport"].as_str().unwrap(), &content);
                    prop_assert_eq!(row["title"].as_str().unwrap(), &title);
                    let keys: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
                    prop_assert_eq!(keys, [
                        "id", "title", "status", "statusSince", "priority", "estimate", "timeSpent", "createdAt", "labels",
                        "languageCode", "relations", "taskAgentId", "latestTaskAgentReport", "latestTaskAgentReportCreatedAt",
                    ]);
                }
            }
        }

        #[test]
        fn limited_document_respects_the_limits(lengths in prop::collection::vec(0_usize..40, 0..30), rows in 1_usize..20, characters in 0_usize..200) {
            let mut tasks = LinkedTasks::default();
            for (number, length) in lengths.iter().enumerate() {
                let (number, content) = (u32::try_from(number).unwrap(), "é".repeat(*length));
                let row = row(number.into(), number.into(), Some(&content));
                // Some tasks are in both lists, with the same report.
                if number % 3 != 1 { tasks.linked_from.push(row.clone()) }
                if number % 3 != 2 { tasks.linked_to.push(row) }
            }
            let (kept, _) = tasks.limited_to(Limits { rows, characters });
            prop_assert!(kept.rows().count() <= rows);
            let characters_kept: usize = kept.rows().filter_map(|row| row.report.as_ref()).map(|report| report.content.chars().filter(|c| *c != '…').count()).sum();
            prop_assert!(characters_kept <= characters);
        }
    }
}
