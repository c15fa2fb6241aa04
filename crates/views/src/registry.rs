//! The list of all views, from which the command line, HTTP and MCP build their commands, routes and tools.

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
    made::ListMade,
    message::{GetMessage, ListMessages},
    note::{ListNotes, NoteHistory, ShowNote},
    package::{GetPackage, ListPackages, OutdatedPackages, ResolvePackage},
    queue::{CountItems, GetItem, ListHeldItems, ListItems, PeekItems},
    ready::Ready,
    report::{GetReport, ListReports, ReportHistory},
    route::{GetRoute, ListRoutes},
    run::{ListRuns, ShowRun, ShowRunTree},
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
    usage::SumUsage,
    view::View,
    wake::Wake,
    why::Why,
};

/// The result of a view, in the form that all interfaces render.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewOutput {
    pub data: Value,
    /// The flag that requests the next page of a list.
    pub next_page: Option<String>,
    /// Limitations of the result, for example that only the newest rows were counted.
    pub remarks: Vec<String>,
    /// A text that the command line prints verbatim instead of the data.
    pub document: Option<String>,
}

/// A view without its type, for the interfaces.
#[derive(Debug, Clone, Copy)]
pub struct ViewEntry {
    pub command: (&'static str, &'static str),
    pub alias: Option<&'static str>,
    pub columns: &'static [&'static str],
    pub schema: fn() -> schemars::Schema,
    pub arguments: fn(clap::Command) -> clap::Command,
    /// Parses the fields of the view from command-line arguments, and reads the result.
    pub with_matches: fn(&mut Reader<'_>, &clap::ArgMatches, Time) -> Result<ViewOutput>,
    /// Parses the fields of the view from a JSON object, and reads the result.
    pub with_json: fn(&mut Reader<'_>, Value, Time) -> Result<ViewOutput>,
}

const fn view_entry<V: View>() -> ViewEntry {
    ViewEntry {
        command: V::COMMAND,
        alias: V::ALIAS,
        columns: V::COLUMNS,
        schema: || schemars::SchemaGenerator::default().into_root_schema_for::<V>(),
        arguments: V::augment_args,
        with_matches: |read, matches, now| {
            let view = V::from_arg_matches(matches).map_err(|error| Rule::usage(error.to_string()))?;
            answer(&view, read, now)
        },
        with_json: |read, input, now| {
            if contains_nul(&input) {
                return Err(Rule::usage("a text cannot hold the character NUL").into());
            }
            let view: V = serde_json::from_value(input).map_err(|error| Rule::usage(error.to_string()))?;
            answer(&view, read, now)
        },
    }
}

/// Whether a string contains NUL. No stored text contains NUL: a query for it would find nothing in SQLite and fail in
/// PostgreSQL.
fn contains_nul(input: &Value) -> bool {
    match input {
        Value::String(text) => text.contains('\0'),
        Value::Array(values) => values.iter().any(contains_nul),
        Value::Object(fields) => fields.values().any(contains_nul),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn answer<V: View>(view: &V, read: &mut Reader<'_>, now: Time) -> Result<ViewOutput> {
    let output = view.answer(read, now)?;
    let data = serde_json::to_value(&output).map_err(|error| Rule::usage(error.to_string()))?;
    Ok(ViewOutput {
        data,
        next_page: V::next_page(&output),
        remarks: V::remarks(&output),
        document: V::document(&output),
    })
}

/// Finds a view by noun and verb.
pub fn find_view(command: (&str, &str)) -> Option<&'static ViewEntry> {
    VIEWS.iter().find(|view| view.command == command)
}

macro_rules! views {
    ($($view:ty),* $(,)?) => {
        /// All views. No interface offers a view that is not listed here.
        pub const VIEWS: &[ViewEntry] = &[$(view_entry::<$view>()),*];
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
    CountItems,
    ListHeldItems,
    ListItems,
    GetItem,
    ListRuns,
    ShowRun,
    ShowRunTree,
    ListMade,
    Why,
    ExportTrace,
    SumUsage,
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
