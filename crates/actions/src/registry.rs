//! The list of all actions. Every interface (command line, HTTP, MCP) reads it.

use serde_json::Value;
use trackway_domain::{
    Error as Rule,
    kind::{ActionType, ResourceType},
};

use crate::{
    action::{Action, LongText},
    agent::SetAgent,
    archive::{ArchiveCommitment, ArchiveDecision, ArchiveNote},
    board::{ArchiveBoard, DeleteBoard, SetBoard, SyncBoard},
    claim::Claim,
    cleanup::{
        CleanupContents, CleanupEvents, CleanupLeases, CleanupMessages, CleanupNullRole, CleanupOldSpawns,
        CleanupSession,
    },
    commitment::{Commit, CreateCommitment},
    context::Context,
    conversation::SetConversation,
    core::Core,
    decision::{AddOptions, CastVote, CloseDecision, CreateDecision},
    delete::{
        DeleteAgent, DeleteCommitment, DeleteConversation, DeleteDecision, DeleteExperiment, DeleteLabel, DeleteNote,
        DeleteRole, DeleteRoute, DeleteStudio, DeleteWorkflow, DeleteWorkspace,
    },
    error::Result,
    experiment::{EndExperiment, SetExperiment},
    forget::Forget,
    import::{ImportBeads, ImportNagger},
    label::SetLabel,
    link::{AddLink, DeleteLink},
    message::SendMessage,
    note::{ConfirmRead, CreateNote, PinNote, UpdateNote},
    package::{DeletePackage, SetPackage, UpgradePackages},
    person::SetPerson,
    queue::{AddItem, CancelItem, CompleteItem, FailItem, HeartbeatItem, ReleaseItem, RequeueItem, TakeItems},
    report::{SetReport, UpdateReport},
    role::SetRole,
    route::SetRoute,
    run::{CancelRun, EndRun, RecordStep, RecordUsage, StartRun, WakeRun},
    scratchpad::{RestoreScratchpad, SetScratchpad, UpdateScratchpad},
    stickie::{ArchiveStickie, DeleteStickie, RelateStickies, SetStickie, UnrelateStickies, UpdateStickie},
    studio::SetStudio,
    task::{DeleteTask, ReplaceTask, SetTask},
    testcase::{ImportTestcases, SetTestcase},
    token::{CreateToken, RevokeToken},
    touched::Touched,
    workflow::SetWorkflow,
    workspace::SetWorkspace,
};

/// Whether to commit an action, or to roll it back and only return its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Execute,
    DryRun,
}

/// An action's metadata and entry points, independent of its type.
#[derive(Debug, Clone, Copy)]
pub struct ActionEntry {
    pub name: &'static str,
    pub capability: &'static str,
    pub command: (&'static str, &'static str),
    pub alias: Option<&'static str>,
    pub long_text: Option<LongText>,
    pub is_destructive: bool,
    pub touches: fn() -> Vec<(ResourceType, ActionType)>,
    /// JSON schema of the action's fields. Its description is the doc comment of the action's type.
    pub schema: fn() -> schemars::Schema,
    /// Adds the action's flags to a command.
    pub arguments: fn(clap::Command) -> clap::Command,
    /// Executes the action with flags, and with the text that the command line read for `long_text`.
    pub with_matches: fn(&Core, &Context, &clap::ArgMatches, Option<&str>, Mode) -> Result<Value>,
    /// Executes the action with a JSON body.
    pub with_json: fn(&Core, &Context, Value, Mode) -> Result<Value>,
}

const fn action_entry<A: Action>() -> ActionEntry {
    ActionEntry {
        name: A::NAME,
        capability: A::CAPABILITY,
        command: A::COMMAND,
        alias: A::ALIAS,
        long_text: A::LONG_TEXT,
        is_destructive: A::IS_DESTRUCTIVE,
        touches: A::Touched::declared_touches,
        schema: || schemars::SchemaGenerator::default().into_root_schema_for::<A>(),
        arguments: A::augment_args,
        with_matches: |core, context, matches, text, mode| {
            let mut action = A::from_arg_matches(matches).map_err(|error| Rule::usage(error.to_string()))?;
            if let Some(text) = text {
                action.set_long_text(text.to_owned());
            }
            execute_all_parts(core, context, &action, mode)
        },
        with_json: |core, context, input, mode| {
            let action: A =
                serde_json::from_value(input).map_err(|error| Rule::usage(format!("{}: {error}", A::NAME)))?;
            execute_all_parts(core, context, &action, mode)
        },
    }
}

fn execute_all_parts<A: Action>(core: &Core, context: &Context, action: &A, mode: Mode) -> Result<Value> {
    let execute_part = |action: &A| match mode {
        Mode::Execute => core.execute(context, action),
        Mode::DryRun => core.dry_run(context, action),
    };
    let mut output = execute_part(action)?;
    let mut next_part = action.next_part(&output);
    while let Some(action) = next_part {
        let next = execute_part(&action)?;
        next_part = action.next_part(&next);
        output = A::merge_outputs(output, next);
    }
    Ok(serde_json::to_value(output).map_err(|error| Rule::usage(error.to_string()))?)
}

macro_rules! actions {
    ($($action:ty),* $(,)?) => {
        /// All actions. No interface offers an action that is not listed here.
        pub const ACTIONS: &[ActionEntry] = &[$(action_entry::<$action>()),*];
    };
}

actions![
    SetRole,
    DeleteRole,
    SetWorkflow,
    DeleteWorkflow,
    SetWorkspace,
    DeleteWorkspace,
    SetLabel,
    DeleteLabel,
    SetStudio,
    DeleteStudio,
    SetTask,
    ReplaceTask,
    DeleteTask,
    AddLink,
    DeleteLink,
    SetPackage,
    UpgradePackages,
    DeletePackage,
    SetPerson,
    SetAgent,
    DeleteAgent,
    CreateToken,
    RevokeToken,
    StartRun,
    RecordStep,
    RecordUsage,
    WakeRun,
    EndRun,
    CancelRun,
    AddItem,
    TakeItems,
    Claim,
    HeartbeatItem,
    CompleteItem,
    FailItem,
    ReleaseItem,
    CancelItem,
    RequeueItem,
    CreateNote,
    UpdateNote,
    ConfirmRead,
    PinNote,
    ArchiveNote,
    DeleteNote,
    CreateDecision,
    AddOptions,
    CastVote,
    CloseDecision,
    ArchiveDecision,
    DeleteDecision,
    CreateCommitment,
    Commit,
    ArchiveCommitment,
    DeleteCommitment,
    UpdateScratchpad,
    SetScratchpad,
    RestoreScratchpad,
    UpdateReport,
    SetReport,
    CleanupOldSpawns,
    CleanupNullRole,
    CleanupSession,
    Forget,
    ImportBeads,
    ImportNagger,
    SetConversation,
    DeleteConversation,
    SetExperiment,
    EndExperiment,
    DeleteExperiment,
    SendMessage,
    SetRoute,
    DeleteRoute,
    SetTestcase,
    ImportTestcases,
    CleanupContents,
    CleanupLeases,
    CleanupEvents,
    CleanupMessages,
    SetBoard,
    ArchiveBoard,
    DeleteBoard,
    SyncBoard,
    SetStickie,
    UpdateStickie,
    ArchiveStickie,
    DeleteStickie,
    RelateStickies,
    UnrelateStickies,
];

pub fn find_action(name: &str) -> Option<&'static ActionEntry> {
    ACTIONS.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use trackway_domain::capability;

    use super::*;

    #[test]
    fn every_action_is_in_exactly_one_capability_list() {
        for action in ACTIONS {
            let lists = capability::TABLE.iter().filter(|(_, names)| names.contains(&action.capability)).count();
            assert_eq!(lists, 1, "{}", action.name);
        }
    }

    #[test]
    fn every_listed_capability_has_an_action() {
        let listed: BTreeSet<_> = capability::TABLE.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let views = [capability::READ_SCRATCHPADS];
        let needed: BTreeSet<_> = ACTIONS.iter().map(|action| action.capability).chain(views).collect();
        assert_eq!(listed, needed);
    }

    #[test]
    fn names_and_commands_are_unique() {
        let names: BTreeSet<_> = ACTIONS.iter().map(|action| action.name).collect();
        let commands: BTreeSet<_> = ACTIONS.iter().map(|action| action.command).collect();
        assert_eq!((names.len(), commands.len()), (ACTIONS.len(), ACTIONS.len()));
    }

    #[test]
    fn flags_and_schema_name_the_same_fields() {
        for action in ACTIONS {
            let schema = (action.schema)();
            let fields: BTreeSet<String> = schema
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flat_map(|fields| fields.keys().cloned())
                .collect();
            let command = (action.arguments)(clap::Command::new("x"));
            let flags: BTreeSet<String> = command
                .get_arguments()
                .map(|argument| argument.get_id().to_string())
                .map(|id| match id.as_str() {
                    "link_type" | "step_type" => "type".to_owned(),
                    _ => id,
                })
                .collect();
            assert_eq!(fields, flags, "{}", action.name);
            assert!(schema.get("description").is_some(), "{} has no description", action.name);
        }
    }
}
