//! The closed list of kinds of things that have ids, and a marker type for each kind, so that the compiler tells ids of
//! different kinds apart.

use crate::enums::closed_enum;

closed_enum! {
    /// A kind of thing that has an id.
    pub enum Kind {
        Tenant = "tenant",
        Studio = "studio",
        Person = "person",
        Agent = "agent",
        Token = "token",
        Role = "role",
        Workflow = "workflow",
        Workspace = "workspace",
        Label = "label",
        Task = "task",
        Link = "link",
        Package = "package",
        Run = "run",
        Note = "note",
        Decision = "decision",
        DecisionOption = "option",
        Vote = "vote",
        Confirmation = "confirmation",
        Commitment = "commitment",
        File = "file",
        Commit = "commit",
        Scratchpad = "scratchpad",
        Session = "session",
        Subagent = "subagent",
        Spawn = "spawn",
        Message = "message",
        Report = "report",
        QueueItem = "queue_item",
        Conversation = "conversation",
        Experiment = "experiment",
        Route = "route",
        Testcase = "testcase",
        Board = "board",
        Stickie = "stickie",
    }
}

/// A marker type for one kind. It is the type parameter of `Id` and `Ref`.
pub trait Marker: 'static {
    const KIND: Kind;
}

macro_rules! markers {
    ($($name:ident),* $(,)?) => {
        $(
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum $name {}
            impl Marker for $name {
                const KIND: Kind = Kind::$name;
            }
        )*

        #[cfg(test)]
        const MARKER_KINDS: &[Kind] = &[$(<$name as Marker>::KIND),*];
    };
}

markers!(
    Tenant,
    Studio,
    Person,
    Agent,
    Token,
    Role,
    Workflow,
    Workspace,
    Label,
    Task,
    Link,
    Package,
    Run,
    Note,
    Decision,
    DecisionOption,
    Vote,
    Confirmation,
    Commitment,
    File,
    Commit,
    Scratchpad,
    Session,
    Subagent,
    Spawn,
    Message,
    Report,
    QueueItem,
    Conversation,
    Experiment,
    Route,
    Testcase,
    Board,
    Stickie,
);

closed_enum! {
    /// A kind of thing that a run can touch. The specification and the database constraints have the same closed list.
    pub enum ResourceType {
        Note = "note",
        Decision = "decision",
        DecisionOption = "option",
        Vote = "vote",
        Confirmation = "confirmation",
        Commitment = "commitment",
        Message = "message",
        Stickie = "stickie",
        Board = "board",
        Report = "report",
        Task = "task",
        File = "file",
        Commit = "commit",
        Conversation = "conversation",
        Experiment = "experiment",
        Testcase = "testcase",
        Route = "route",
        Link = "link",
        Package = "package",
        Label = "label",
        QueueItem = "queue_item",
    }
}

closed_enum! {
    /// The operation by which a run touched a resource.
    pub enum ActionType {
        Create = "create",
        Update = "update",
        Delete = "delete",
        AddOption = "add_option",
        Vote = "vote",
        Confirm = "confirm",
        Commit = "commit",
        Close = "close",
        Send = "send",
        Pin = "pin",
        Archive = "archive",
        Report = "report",
    }
}

/// A kind of thing that runs can touch.
pub trait Touchable: Marker {
    const RESOURCE: ResourceType;
}

macro_rules! touchable {
    ($($name:ident),* $(,)?) => {
        $(impl Touchable for $name { const RESOURCE: ResourceType = ResourceType::$name; })*
    };
}

touchable!(
    Note,
    Decision,
    DecisionOption,
    Vote,
    Confirmation,
    Commitment,
    Task,
    File,
    Commit,
    Message,
    Report,
    Board,
    Stickie,
    Conversation,
    Experiment,
    Testcase,
    Route,
    Link,
    Package,
    Label,
    QueueItem
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_marker() {
        assert_eq!(MARKER_KINDS, Kind::ALL);
    }
}
