//! Closed lists of words: an enum whose variants have one spelling everywhere (database, flags, JSON, pages).

/// An enum with a fixed word per variant.
pub trait Words: Copy + Sized + 'static {
    const ALL: &'static [Self];
    /// What the list is called: `Level`, `TaskStatus`.
    const NAME: &'static str;
    fn word(self) -> &'static str;

    fn parse(text: &str) -> crate::Result<Self> {
        Self::ALL.iter().copied().find(|variant| variant.word() == text).ok_or_else(|| {
            let all: Vec<_> = Self::ALL.iter().map(|variant| variant.word()).collect();
            crate::Error::usage(format!("{text:?} is not a {}", spoken(Self::NAME)))
                .hint(format!("one of: {}", all.join(", ")))
        })
    }
}

/// `TaskStatus` as people say it: `task status`.
fn spoken(name: &str) -> String {
    let mut words = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(character.to_lowercase());
    }
    words
}

macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema, clap::ValueEnum)]
        #[value(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] #[value(name = $word)] $variant,)*
        }

        impl $crate::words::Words for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),*];
            const NAME: &'static str = stringify!($name);
            fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl $name {
            /// Every variant, in order.
            pub const ALL: &'static [Self] = <Self as $crate::words::Words>::ALL;

            /// The word that stands for this variant.
            pub fn word(self) -> &'static str {
                $crate::words::Words::word(self)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::Error;
            fn from_str(text: &str) -> $crate::Result<Self> {
                <Self as $crate::words::Words>::parse(text)
            }
        }
    };
}
pub(crate) use words;

words! {
    /// How far a task is.
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
    /// Whether a task in this status no longer blocks the tasks that wait for it.
    pub fn releases_blocked(self) -> bool {
        matches!(self, Self::Done | Self::Rejected)
    }
}

words! {
    /// The level of a task as a heading.
    pub enum Heading {
        H1 = "h1",
        H2 = "h2",
        H3 = "h3",
        H4 = "h4",
        H5 = "h5",
        H6 = "h6",
    }
}

words! {
    /// How urgent a task is, P0 first.
    pub enum Priority {
        P0 = "P0",
        P1 = "P1",
        P2 = "P2",
        P3 = "P3",
    }
}

words! {
    /// How big a step a replacement is. The order is patch, minor, major.
    pub enum Level {
        Patch = "patch",
        Minor = "minor",
        Major = "major",
    }
}

words! {
    /// How one task relates to another, read from the first to the second.
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
    /// The same link, read from the second task to the first.
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

words! {
    /// How an agent relates to a task: it worked on it, or reported on it.
    pub enum AgentLinkType {
        AgentTask = "agent_task",
    }
}

words! {
    /// Where a run stands.
    pub enum RunStatus {
        Running = "running",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
        TimedOut = "timed_out",
        Incomplete = "incomplete",
    }
}

words! {
    /// What executes a run.
    pub enum RunMode {
        Shell = "shell",
        Agent = "agent",
        ClaudeCode = "claude_code",
        Imported = "imported",
    }
}

words! {
    /// What a token opens.
    pub enum TokenScope {
        /// Everything its holder may do.
        All = "all",
        /// Looking, and nothing else.
        Read = "read",
        /// A login, once.
        Login = "login",
    }
}

words! {
    /// What drives an agent.
    pub enum Runner {
        Agent = "agent",
        Shell = "shell",
        ClaudeCode = "claude_code",
        External = "external",
    }
}

/// How runs of an agent are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// A model, through pages and actions.
    Model,
    /// The script of the task.
    Script,
    /// The agent client of this name.
    Client(&'static str),
    /// Something that takes its items itself.
    Outside,
}

impl RunMode {
    /// The mode of the runs of a client's sessions.
    pub fn of_client(name: &str) -> Self {
        Self::parse(name).unwrap_or(Self::Agent)
    }

    /// Whether such runs are observed in a session instead of being made for a task.
    pub fn is_observed(self) -> bool {
        matches!(self, Self::ClaudeCode | Self::Imported)
    }
}

impl Runner {
    /// What drives the agents of a client's sessions.
    pub fn of_client(name: &str) -> Self {
        Self::parse(name).unwrap_or(Self::External)
    }

    /// How runs of the agent are executed.
    pub fn driver(self) -> Driver {
        match self {
            Self::Agent => Driver::Model,
            Self::Shell => Driver::Script,
            Self::ClaudeCode => Driver::Client(self.word()),
            Self::External => Driver::Outside,
        }
    }

    /// The mode of a run by an agent of this runner.
    pub fn mode(self) -> RunMode {
        match self {
            Self::Shell => RunMode::Shell,
            Self::ClaudeCode => RunMode::ClaudeCode,
            Self::Agent | Self::External => RunMode::Agent,
        }
    }
}

words! {
    /// What one step of a run was.
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

words! {
    /// Whether a decision still takes votes.
    pub enum DecisionStatus {
        Open = "open",
        Closed = "closed",
    }
}

words! {
    /// Whether enough actors committed.
    pub enum CommitmentStatus {
        Pending = "pending",
        Achieved = "achieved",
        Failed = "failed",
    }
}

words! {
    /// Where a role came from: defined by someone, or first seen in a transcript.
    pub enum RoleOrigin {
        Set = "set",
        Seen = "seen",
    }
}

words! {
    /// The two kinds of actor.
    pub enum ActorKind {
        Person = "person",
        Agent = "agent",
    }
}

words! {
    /// A switch as people type it.
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

words! {
    /// What speaks for a match of a spawn and an agent, the best first.
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

impl Evidence {
    /// Whether a match by it is always tentative. One by `prompt_hash` is tentative only where several spawns have equal
    /// prompts; the row says which.
    pub fn is_fallback(self) -> bool {
        matches!(self, Self::Role | Self::SubagentType)
    }
}

words! {
    /// Where a spawn's role comes from.
    pub enum SpawnRoleSource {
        PromptTag = "prompt_tag",
        Name = "name",
        /// The type of the agent it asks for: another tool's reading, never ours.
        SubagentType = "subagent_type",
    }
}

words! {
    /// Where a subagent's role comes from.
    pub enum RoleSource {
        TaskMatch = "task_match",
        RetryMatch = "retry_match",
        TranscriptParse = "transcript_parse",
        SubagentType = "subagent_type",
    }
}

words! {
    /// What became of a file.
    pub enum FileChange {
        Create = "create",
        Update = "update",
        Delete = "delete",
    }
}

words! {
    /// How it is known that a run changed a file: its tool said so, or the work tree was seen to differ.
    pub enum ChangeEvidence {
        Tool = "tool",
        Observed = "observed",
    }
}

words! {
    /// How it is known whose command made a commit, the weakest first.
    pub enum CommitEvidence {
        /// It was there after the command, and not when somebody looked before.
        Found = "found",
        /// It was made while the command ran.
        Appeared = "appeared",
        /// So it was, and the command's words name what makes one.
        Named = "named",
        /// The command printed it.
        Printed = "printed",
    }
}

words! {
    /// Whose runs end with the end-of-run prompt, when the hooks of a client start them.
    #[derive(Default)]
    pub enum Memory {
        Off = "off",
        #[default]
        Subagents = "subagents",
        All = "all",
    }
}

words! {
    /// Where a queue item stands.
    pub enum ItemStatus {
        /// Not before its time.
        Waiting = "waiting",
        /// Why is said.
        Blocked = "blocked",
        Ready = "ready",
        Running = "running",
        Completed = "completed",
        /// No attempts are left: the dead letter.
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

impl ItemStatus {
    /// Whether nothing more will be done about it.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Whether nobody needs to look at it any more.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled)
    }
}

words! {
    /// How a try stands.
    pub enum ExperimentStatus {
        Open = "open",
        Succeeded = "succeeded",
        Failed = "failed",
        Abandoned = "abandoned",
    }
}

words! {
    /// What the sender of a message said about it.
    pub enum MessageStatus {
        Ingested = "ingested",
        Succeeded = "succeeded",
        Failed = "failed",
        Timeout = "timeout",
    }
}

words! {
    /// How a test case went.
    pub enum TestcaseStatus {
        Ok = "OK",
        Ko = "KO",
        Todo = "TODO",
    }
}

words! {
    /// How long a board is kept in use.
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

words! {
    /// How much a stickie matters.
    pub enum StickiePriority {
        Must = "must",
        Should = "should",
        Could = "could",
        Wont = "wont",
    }
}

words! {
    /// How one stickie relates to another, read from the first to the second.
    pub enum RelationType {
        Includes = "INCLUDES",
        Causes = "CAUSES",
        Uses = "USES",
        Represents = "REPRESENTS",
        ContrastsWith = "CONTRASTS_WITH",
    }
}
