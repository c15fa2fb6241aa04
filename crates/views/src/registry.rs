//! Every question there is, for the doors to read.

use serde_json::Value;
use trackway_domain::{Error as Rule, Time};
use trackway_store::{Reader, Result};

use crate::{
    board::{GetBoard, ListBoards},
    commitment::{ListCommitments, ShowCommitment},
    conversation::{GetConversation, ListConversations},
    decision::{DecisionResults, ListDecisions, ShowDecision},
    definitions::{
        GetAgent, GetLabel, GetPerson, GetRole, GetStudio, GetWorkflow, GetWorkspace, ListAgents, ListLabels,
        ListPeople, ListRoles, ListStudios, ListWorkflows, ListWorkspaces,
    },
    event::ListEvents,
    experiment::{GetExperiment, ListExperiments},
    link::ListLinks,
    made::Made,
    message::{GetMessage, ListMessages},
    note::{ListNotes, NoteHistory, ShowNote},
    package::{GetPackage, ListPackages, OutdatedPackages, ResolvePackage},
    queue::{GetItem, HeldItems, ListItems, PeekItems, SizeOfQueue},
    ready::Ready,
    report::{GetReport, ListReports, ReportHistory},
    route::{GetRoute, ListRoutes},
    run::{ListRuns, ShowRun, TreeOfRun},
    scratchpad::{GetScratchpad, ScratchpadDiff, ScratchpadHistory},
    search::Search,
    session::{ListSessions, ShowSession},
    spawn::{ListSpawns, ShowSpawn},
    status::Status,
    stickie::{GetStickie, ListStickies},
    subagent::ListSubagents,
    task::{GetTask, LatestTask, ListTasks, NextTask, history::TaskHistory},
    testcase::{GetTestcase, ListTestcases},
    token::ListTokens,
    trace::ExportTrace,
    usage::UsageBy,
    view::View,
    wake::Wake,
    why::Why,
};

/// An answer on its way to a door.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub data: Value,
    /// Where a list goes on, when it does.
    pub more: Option<String>,
    /// What has to be known to read it right.
    pub remarks: Vec<String>,
    /// The text that is printed as it is instead of the data.
    pub document: Option<String>,
}

/// A question as the doors see it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub command: (&'static str, &'static str),
    pub alias: Option<&'static str>,
    pub columns: &'static [&'static str],
    pub schema: fn() -> schemars::Schema,
    pub arguments: fn(clap::Command) -> clap::Command,
    pub with_matches: fn(&mut Reader<'_>, &clap::ArgMatches, Time) -> Result<Answer>,
    /// Answers it with a JSON object of its fields.
    pub with_json: fn(&mut Reader<'_>, Value, Time) -> Result<Answer>,
}

const fn entry<V: View>() -> Entry {
    Entry {
        command: V::COMMAND,
        alias: V::ALIAS,
        columns: V::COLUMNS,
        schema: || schemars::SchemaGenerator::default().into_root_schema_for::<V>(),
        arguments: V::augment_args,
        with_matches: |read, matches, now| {
            let view = V::from_arg_matches(matches).map_err(|error| Rule::usage(error.to_string()))?;
            ask(&view, read, now)
        },
        with_json: |read, input, now| {
            if holds_nul(&input) {
                return Err(Rule::usage("a text cannot hold the character NUL").into());
            }
            let view: V = serde_json::from_value(input).map_err(|error| Rule::usage(error.to_string()))?;
            ask(&view, read, now)
        },
    }
}

/// Whether a text of it holds what no text here does: SQLite would find nothing, PostgreSQL fails.
fn holds_nul(input: &Value) -> bool {
    match input {
        Value::String(text) => text.contains('\0'),
        Value::Array(values) => values.iter().any(holds_nul),
        Value::Object(fields) => fields.values().any(holds_nul),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn ask<V: View>(view: &V, read: &mut Reader<'_>, now: Time) -> Result<Answer> {
    let output = view.answer(read, now)?;
    let data = serde_json::to_value(&output).map_err(|error| Rule::usage(error.to_string()))?;
    Ok(Answer { data, more: V::more(&output), remarks: V::remarks(&output), document: V::document(&output) })
}

/// The question of a command.
pub fn of(command: (&str, &str)) -> Option<&'static Entry> {
    VIEWS.iter().find(|view| view.command == command)
}

macro_rules! views {
    ($($view:ty),* $(,)?) => {
        /// Every question. One that is not listed here does not exist for any door.
        pub const VIEWS: &[Entry] = &[$(entry::<$view>()),*];
    };
}

views![
    GetRole,
    ListRoles,
    GetWorkflow,
    ListWorkflows,
    GetWorkspace,
    ListWorkspaces,
    GetLabel,
    ListLabels,
    GetStudio,
    ListStudios,
    GetPerson,
    ListPeople,
    GetAgent,
    ListAgents,
    ListTokens,
    GetTask,
    ListTasks,
    LatestTask,
    NextTask,
    TaskHistory,
    Ready,
    ListLinks,
    GetPackage,
    ResolvePackage,
    ListPackages,
    OutdatedPackages,
    PeekItems,
    SizeOfQueue,
    HeldItems,
    ListItems,
    GetItem,
    ListRuns,
    ShowRun,
    TreeOfRun,
    Made,
    Why,
    ExportTrace,
    UsageBy,
    ShowNote,
    NoteHistory,
    ListNotes,
    ShowDecision,
    DecisionResults,
    ListDecisions,
    ShowCommitment,
    ListCommitments,
    GetScratchpad,
    ScratchpadHistory,
    ScratchpadDiff,
    GetReport,
    ListReports,
    ReportHistory,
    Wake,
    ListSessions,
    ShowSession,
    ListSubagents,
    ListSpawns,
    ShowSpawn,
    GetConversation,
    ListConversations,
    GetExperiment,
    ListExperiments,
    GetMessage,
    ListMessages,
    GetRoute,
    ListRoutes,
    GetTestcase,
    ListTestcases,
    Search,
    GetBoard,
    ListBoards,
    GetStickie,
    ListStickies,
    ListEvents,
    Status,
];
