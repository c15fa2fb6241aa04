//! Every action there is, for the doors to read.

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
        DeleteRole, DeleteRoute, DeleteStudio, DeleteTask, DeleteWorkflow, DeleteWorkspace,
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
    task::{ReplaceTask, SetTask},
    testcase::{ImportTestcases, SetTestcase},
    token::{CreateToken, RevokeToken},
    touched::Touched,
    workflow::SetWorkflow,
    workspace::SetWorkspace,
};

/// Whether an action is done, or only shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Execute,
    Rehearse,
}

/// An action as the doors see it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    pub capability: &'static str,
    pub command: (&'static str, &'static str),
    pub alias: Option<&'static str>,
    pub long_text: Option<LongText>,
    pub removes: bool,
    pub touches: fn() -> Vec<(ResourceType, ActionType)>,
    /// The JSON schema of its input; the description is its doc comment.
    pub schema: fn() -> schemars::Schema,
    /// Adds its flags to a command.
    pub arguments: fn(clap::Command) -> clap::Command,
    /// Executes it with flags, and with the text that was read for it.
    pub with_matches: fn(&Core, &Context, &clap::ArgMatches, Option<&str>, Mode) -> Result<Value>,
    /// Executes it with a JSON body.
    pub with_json: fn(&Core, &Context, Value, Mode) -> Result<Value>,
}

const fn entry<A: Action>() -> Entry {
    Entry {
        name: A::NAME,
        capability: A::CAPABILITY,
        command: A::COMMAND,
        alias: A::ALIAS,
        long_text: A::LONG_TEXT,
        removes: A::REMOVES,
        touches: A::Touched::declared,
        schema: || schemars::SchemaGenerator::default().into_root_schema_for::<A>(),
        arguments: A::augment_args,
        with_matches: |core, context, matches, text, mode| {
            let mut action = A::from_arg_matches(matches).map_err(|error| Rule::usage(error.to_string()))?;
            if let Some(text) = text {
                action.put_text(text.to_owned());
            }
            run(core, context, &action, mode)
        },
        with_json: |core, context, input, mode| {
            let action: A =
                serde_json::from_value(input).map_err(|error| Rule::usage(format!("{}: {error}", A::NAME)))?;
            run(core, context, &action, mode)
        },
    }
}

fn run<A: Action>(core: &Core, context: &Context, action: &A, mode: Mode) -> Result<Value> {
    let part = |action: &A| match mode {
        Mode::Execute => core.execute(context, action),
        Mode::Rehearse => core.rehearse(context, action),
    };
    let mut output = part(action)?;
    let mut rest = action.rest(&output);
    while let Some(action) = rest {
        let next = part(&action)?;
        rest = action.rest(&next);
        output = A::together(output, next);
    }
    Ok(serde_json::to_value(output).map_err(|error| Rule::usage(error.to_string()))?)
}

macro_rules! actions {
    ($($action:ty),* $(,)?) => {
        /// Every action. One that is not listed here does not exist for any door.
        pub const ACTIONS: &[Entry] = &[$(entry::<$action>()),*];
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

/// The action of a name.
pub fn named(name: &str) -> Option<&'static Entry> {
    ACTIONS.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use trackway_domain::capability;

    use super::*;

    #[test]
    fn every_action_is_in_exactly_one_list() {
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
