//! Enums whose variants have the same spelling in the database, in flags, in JSON and on pages.

/// An enum with a fixed spelling for each variant.
pub trait ClosedEnum: Copy + Sized + 'static {
    const ALL: &'static [Self];
    /// The name of the enum: `Level`, `TaskStatus`.
    const NAME: &'static str;
    fn as_str(self) -> &'static str;

    fn parse(text: &str) -> crate::Result<Self> {
        Self::ALL.iter().copied().find(|variant| variant.as_str() == text).ok_or_else(|| {
            let all: Vec<_> = Self::ALL.iter().map(|variant| variant.as_str()).collect();
            crate::Error::usage(format!("{text:?} is not a {}", spaced_name(Self::NAME)))
                .hint(format!("one of: {}", all.join(", ")))
        })
    }
}

/// Splits the name of an enum into words: `TaskStatus` becomes `task status`.
fn spaced_name(name: &str) -> String {
    let mut words = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(character.to_lowercase());
    }
    words
}

macro_rules! closed_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema, clap::ValueEnum)]
        #[value(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] #[value(name = $word)] $variant,)*
        }

        impl $crate::enums::ClosedEnum for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),*];
            const NAME: &'static str = stringify!($name);
            fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl $name {
            /// Every variant, in order.
            pub const ALL: &'static [Self] = <Self as $crate::enums::ClosedEnum>::ALL;

            /// The spelling of this variant.
            pub fn as_str(self) -> &'static str {
                $crate::enums::ClosedEnum::as_str(self)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::Error;
            fn from_str(text: &str) -> $crate::Result<Self> {
                <Self as $crate::enums::ClosedEnum>::parse(text)
            }
        }
    };
}
pub(crate) use closed_enum;

closed_enum! {
    /// The progress of a task.
    pub enum TaskStatus {
        Open = "open",
        Groomed = "groomed",
        InProgress = "in_progress",
        Blocked = "blocked",
        OnHold = "on_hold",
        Done = "done",
        Rejected = "rejected",
    }
}

impl TaskStatus {
    /// Whether a task with this status no longer blocks the tasks that wait for it.
    pub fn releases_blocked(self) -> bool {
        matches!(self, Self::Done | Self::Rejected)
    }
}

closed_enum! {
    /// The heading level of a task.
    pub enum Heading {
        H1 = "h1",
        H2 = "h2",
        H3 = "h3",
        H4 = "h4",
        H5 = "h5",
        H6 = "h6",
    }
}

closed_enum! {
    /// The urgency of a task. P0 is the most urgent.
    pub enum Priority {
        P0 = "P0",
        P1 = "P1",
        P2 = "P2",
        P3 = "P3",
    }
}

closed_enum! {
    /// The size of the change that a replacement makes, from patch to major.
    pub enum Level {
        Patch = "patch",
        Minor = "minor",
        Major = "major",
    }
}

closed_enum! {
    /// The type of a link between two tasks, read from the first to the second.
    pub enum LinkType {
        Blocks = "blocks",
        FollowsUp = "follows_up",
        Duplicates = "duplicates",
        Fixes = "fixes",
        Supersedes = "supersedes",
        RelatesTo = "relates_to",
    }
}

impl LinkType {
    /// The name of the link, read from the second task to the first.
    pub fn inverse(self) -> &'static str {
        match self {
            Self::Blocks => "is_blocked_by",
            Self::FollowsUp => "is_followed_up_by",
            Self::Duplicates => "is_duplicated_by",
            Self::Fixes => "is_fixed_by",
            Self::Supersedes => "is_superseded_by",
            Self::RelatesTo => "relates_to",
        }
    }
}

closed_enum! {
    /// The type of a link between an agent and a task: the agent worked on the task, or reported on it.
    pub enum AgentLinkType {
        AgentTask = "agent_task",
    }
}

closed_enum! {
    /// The status of a run.
    pub enum RunStatus {
        Running = "running",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
        TimedOut = "timed_out",
        Incomplete = "incomplete",
    }
}

closed_enum! {
    /// The kind of program that executes a run.
    pub enum RunMode {
        Shell = "shell",
        Agent = "agent",
        ClaudeCode = "claude_code",
        Imported = "imported",
    }
}

closed_enum! {
    /// The permissions of a token.
    pub enum TokenScope {
        /// Everything that the owner of the token may do.
        All = "all",
        /// Reading only.
        Read = "read",
        /// A single login.
        Login = "login",
    }
}

closed_enum! {
    /// The kind of program that executes the runs of an agent.
    pub enum Runner {
        Agent = "agent",
        Shell = "shell",
        ClaudeCode = "claude_code",
        External = "external",
    }
}

/// The executor of an agent's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// A model, which uses pages and actions.
    Model,
    /// The script of the task.
    Script,
    /// The agent client of this name.
    Client(&'static str),
    /// A program outside Trackway, which takes the agent's queue items itself.
    External,
}

/// Parses a runner on the command line. Accepts hyphens for underscores, because clients have hyphens in their names.
#[derive(Debug, Clone)]
pub struct RunnerParser;

impl clap::builder::TypedValueParser for RunnerParser {
    type Value = Runner;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Runner, clap::Error> {
        match value.to_str().map(|word| word.replace('-', "_").parse()) {
            Some(Ok(runner)) => Ok(runner),
            _ => clap::builder::EnumValueParser::new().parse_ref(command, argument, value),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = clap::builder::PossibleValue> + '_>> {
        use clap::ValueEnum;
        Some(Box::new(Runner::value_variants().iter().filter_map(Runner::to_possible_value)))
    }
}

impl RunMode {
    /// The mode of runs in sessions of the client with this name.
    pub fn of_client(name: &str) -> Self {
        Self::parse(name).unwrap_or(Self::Agent)
    }

    /// Whether runs of this mode are observed in a session. Other runs are started for a task.
    pub fn is_observed(self) -> bool {
        match self {
            Self::ClaudeCode | Self::Imported => true,
            Self::Shell | Self::Agent => false,
        }
    }
}

impl Runner {
    /// The runner of agents in sessions of the client with this name.
    pub fn of_client(name: &str) -> Self {
        Self::parse(name).unwrap_or(Self::External)
    }

    /// The executor of the runs of an agent with this runner.
    pub fn driver(self) -> Driver {
        match self {
            Self::Agent => Driver::Model,
            Self::Shell => Driver::Script,
            Self::ClaudeCode => Driver::Client(self.as_str()),
            Self::External => Driver::External,
        }
    }

    /// The mode of runs by an agent with this runner.
    pub fn mode(self) -> RunMode {
        match self {
            Self::Shell => RunMode::Shell,
            Self::ClaudeCode => RunMode::ClaudeCode,
            Self::Agent | Self::External => RunMode::Agent,
        }
    }
}

closed_enum! {
    /// The type of a step of a run.
    pub enum StepType {
        Wake = "wake",
        Think = "think",
        FetchPage = "fetch_page",
        ExecuteAction = "execute_action",
        Shell = "shell",
        Done = "done",
        Error = "error",
        SecurityWarning = "security_warning",
        ScratchpadUpdate = "scratchpad_update",
        ScratchpadUpdateFailed = "scratchpad_update_failed",
    }
}

closed_enum! {
    /// Whether a decision still accepts votes.
    pub enum DecisionStatus {
        Open = "open",
        Closed = "closed",
    }
}

closed_enum! {
    /// Whether enough actors committed to a commitment.
    pub enum CommitmentStatus {
        Pending = "pending",
        Achieved = "achieved",
        Failed = "failed",
    }
}

closed_enum! {
    /// The origin of a role: an action defined it, or Trackway saw it first in a transcript.
    pub enum RoleOrigin {
        Set = "set",
        Seen = "seen",
    }
}

closed_enum! {
    /// The two kinds of actor.
    pub enum ActorKind {
        Person = "person",
        Agent = "agent",
    }
}

closed_enum! {
    /// The value of an on/off switch.
    pub enum Switch {
        On = "on",
        Off = "off",
    }
}

impl Switch {
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

closed_enum! {
    /// The evidence for a match between a spawn and an agent, from the best to the weakest.
    pub enum Evidence {
        PostToolUse = "post_tool_use",
        MetaJson = "meta_json",
        ToolResult = "tool_result",
        TaskNotification = "task_notification",
        AgentProgress = "agent_progress",
        PromptHash = "prompt_hash",
        Role = "role",
        SubagentType = "subagent_type",
    }
}

closed_enum! {
    /// The kind of evidence for a match between a spawn and an agent, in words that fit every agent client.
    pub enum EvidenceKind {
        /// A hook reported the result of the spawning tool call.
        HookResult = "hook_result",
        /// A file beside the subagent's transcript names the tool call.
        Sidecar = "sidecar",
        /// The result of the tool call in the transcript names the agent.
        ToolResult = "tool_result",
        /// A notification that a background agent ended names the agent and the tool call.
        Notification = "notification",
        /// A progress line names the agent and the tool call.
        Progress = "progress",
        /// The agent's first prompt equals the prompt of the tool call.
        PromptHash = "prompt_hash",
        /// The agent and the tool call have the same role.
        Role = "role",
        /// The tool call requested an agent of this type.
        AgentType = "agent_type",
    }
}

impl Evidence {
    /// The kind of this evidence, in words that fit every agent client.
    pub fn kind(self) -> EvidenceKind {
        match self {
            Self::PostToolUse => EvidenceKind::HookResult,
            Self::MetaJson => EvidenceKind::Sidecar,
            Self::ToolResult => EvidenceKind::ToolResult,
            Self::TaskNotification => EvidenceKind::Notification,
            Self::AgentProgress => EvidenceKind::Progress,
            Self::PromptHash => EvidenceKind::PromptHash,
            Self::Role => EvidenceKind::Role,
            Self::SubagentType => EvidenceKind::AgentType,
        }
    }

    /// Whether a match by this evidence is always tentative. A match by `prompt_hash` is tentative only if several
    /// spawns have equal prompts; the row of the match records whether it is tentative.
    pub fn is_fallback(self) -> bool {
        matches!(self, Self::Role | Self::SubagentType)
    }
}

/// Serializes evidence as two fields, `evidence` and `evidence_kind`, of the struct that contains it. The field of the
/// struct must have the attribute `#[serde(flatten)]`, too.
pub fn serialize_with_kind<S: serde::Serializer>(
    evidence: &(impl Into<Option<Evidence>> + Copy),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(serde::Serialize)]
    struct Fields {
        evidence: Option<Evidence>,
        evidence_kind: Option<EvidenceKind>,
    }
    let evidence = (*evidence).into();
    serde::Serialize::serialize(&Fields { evidence, evidence_kind: evidence.map(Evidence::kind) }, serializer)
}

closed_enum! {
    /// The source of a spawn's role.
    pub enum SpawnRoleSource {
        PromptTag = "prompt_tag",
        Name = "name",
        /// The type of the requested agent. Only records imported from another tool have this source.
        SubagentType = "subagent_type",
    }
}

closed_enum! {
    /// The source of a subagent's role.
    pub enum RoleSource {
        TaskMatch = "task_match",
        RetryMatch = "retry_match",
        TranscriptParse = "transcript_parse",
        SubagentType = "subagent_type",
    }
}

closed_enum! {
    /// The kind of change to a file.
    pub enum FileChange {
        Create = "create",
        Update = "update",
        Delete = "delete",
    }
}

closed_enum! {
    /// The evidence that a run changed a file: its tool reported the change, or Trackway saw it in the work tree.
    pub enum ChangeEvidence {
        Tool = "tool",
        Observed = "observed",
    }
}

closed_enum! {
    /// The evidence that a command made a commit, from the weakest to the best.
    pub enum CommitEvidence {
        /// The commit existed after the command, but not at the last check before the command.
        Found = "found",
        /// The commit appeared while the command ran.
        Appeared = "appeared",
        /// The commit appeared while the command ran, and the command names a git subcommand that makes commits.
        Named = "named",
        /// The command printed the hash of the commit.
        Printed = "printed",
    }
}

closed_enum! {
    /// The agents that receive the end-of-run prompt through the hooks of a client.
    #[derive(Default)]
    pub enum Memory {
        Off = "off",
        #[default]
        Subagents = "subagents",
        All = "all",
    }
}

closed_enum! {
    /// The status of a queue item.
    pub enum ItemStatus {
        /// The item is delayed until a later time.
        Waiting = "waiting",
        /// The item cannot be taken, for a reason that it records.
        Blocked = "blocked",
        Ready = "ready",
        Running = "running",
        Completed = "completed",
        /// The last attempt failed: a dead letter.
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

impl ItemStatus {
    /// Whether no agent will take the item any more, unless a person requeues it.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Whether the item needs no more attention. A failed item still needs attention, because a person can requeue it.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled)
    }
}

closed_enum! {
    /// The status of an experiment.
    pub enum ExperimentStatus {
        Open = "open",
        Succeeded = "succeeded",
        Failed = "failed",
        Abandoned = "abandoned",
    }
}

closed_enum! {
    /// The status of a message, as its sender reports it.
    pub enum MessageStatus {
        Ingested = "ingested",
        Succeeded = "succeeded",
        Failed = "failed",
        Timeout = "timeout",
    }
}

closed_enum! {
    /// The result of a test case.
    pub enum TestcaseStatus {
        Ok = "OK",
        Ko = "KO",
        Todo = "TODO",
    }
}

closed_enum! {
    /// The period for which a board is in use.
    #[derive(Default)]
    pub enum Lifecycle {
        #[default]
        Permanent = "permanent",
        Yearly = "yearly",
        Quarterly = "quarterly",
        Monthly = "monthly",
        Weekly = "weekly",
        Daily = "daily",
    }
}

closed_enum! {
    /// The priority of a stickie.
    pub enum StickiePriority {
        Must = "must",
        Should = "should",
        Could = "could",
        Wont = "wont",
    }
}

closed_enum! {
    /// The type of a relation between two stickies, read from the first to the second.
    pub enum RelationType {
        Includes = "INCLUDES",
        Causes = "CAUSES",
        Uses = "USES",
        Represents = "REPRESENTS",
        ContrastsWith = "CONTRASTS_WITH",
    }
}
