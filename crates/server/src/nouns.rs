//! The pages that every kind of thing has: a list, and one for each, with what can be done there.

/// A kind of thing with pages.
#[derive(Debug, PartialEq)]
pub struct Noun {
    /// As on the command line.
    pub noun: &'static str,
    /// The first part of its paths.
    pub path: &'static str,
    /// What a list of them is called.
    pub title: &'static str,
    /// The verb that shows one.
    pub one: Option<&'static str>,
    /// The verb that lists them.
    pub list: Option<&'static str>,
    /// Actions of other nouns on the page of one, with the field that the page fills in, if any.
    pub also: &'static [(&'static str, &'static str)],
    /// Nouns whose things belong to one of these, by the parameter of their list that says so: they stand on its page.
    pub holds: &'static [(&'static str, &'static str)],
    /// The field that names one of them, where that is not its id.
    pub named_by: Option<&'static str>,
    /// What an empty list says; where there is no list, what can be done instead.
    pub empty: &'static str,
}

const fn noun(noun: &'static str, path: &'static str, title: &'static str, empty: &'static str) -> Noun {
    Noun { noun, path, title, one: None, list: Some("list"), also: &[], holds: &[], named_by: None, empty }
}

impl Noun {
    const fn shown_by(mut self, verb: &'static str) -> Self {
        self.one = Some(verb);
        self
    }

    const fn also(mut self, actions: &'static [(&'static str, &'static str)]) -> Self {
        self.also = actions;
        self
    }

    const fn holds(mut self, nouns: &'static [(&'static str, &'static str)]) -> Self {
        self.holds = nouns;
        self
    }

    const fn named_by(mut self, field: &'static str) -> Self {
        self.named_by = Some(field);
        self
    }

    const fn unlisted(mut self) -> Self {
        self.list = None;
        self
    }
}

/// Every kind of thing with pages.
pub const NOUNS: &[Noun] = &[
    noun(
        "run",
        "runs",
        "Runs",
        "No run yet. `trackway connect claude-code` records what Claude Code does from now on, `trackway ingest` reads what it did before, `trackway run start --agent A` begins one.",
    )
    .shown_by("show"),
    noun("task", "tasks", "Tasks", "No task yet. `trackway task set --workflow W --command C` makes one.")
        .shown_by("get")
        .also(&[
            ("queue_add", "task"),
            ("add_link", "from"),
            ("set_package", "task"),
            ("update_report", "task"),
            ("claim", "task"),
            ("delete_link", ""),
        ]),
    noun("queue", "queue", "Queue", "Nothing waits. `trackway queue add --task T` asks for a task to be run.")
        .shown_by("get"),
    noun("agent", "agents", "Agents", "No agent yet. `trackway agent set --handle H` makes one.")
        .shown_by("get")
        .named_by("handle")
        .also(&[("set_scratchpad", "agent"), ("restore_scratchpad", "agent"), ("start_run", "agent")]),
    noun("session", "sessions", "Sessions", "No session yet. `trackway ingest` reads the transcripts you have.")
        .shown_by("show")
        .also(&[("forget_session", "session")]),
    noun(
        "subagent",
        "subagents",
        "Subagents",
        "No subagent yet. They come with sessions: `trackway ingest` reads the transcripts you have.",
    ),
    noun(
        "spawn",
        "spawns",
        "Spawns",
        "No spawn yet. They come with sessions: `trackway ingest` reads the transcripts you have.",
    )
    .shown_by("show"),
    noun(
        "conversation",
        "conversations",
        "Conversations",
        "No conversation yet. `trackway conversation set --title T` begins one.",
    )
    .shown_by("get")
    .also(&[("send_message", "conversation")]),
    noun("message", "messages", "Messages", "No message yet. `trackway message send` sends one.").shown_by("get"),
    noun("experiment", "experiments", "Experiments", "No experiment yet.")
        .shown_by("get")
        .holds(&[("testcase", "experiment"), ("message", "experiment")]),
    noun("route", "routes", "Routes", "No route yet. `trackway route set` sends messages with a tag to a task.")
        .shown_by("get"),
    noun("testcase", "testcases", "Testcases", "No testcase yet. `trackway testcase import junit.xml` reads some.")
        .shown_by("get"),
    noun("note", "notes", "Notes", "No note yet. `trackway note create --studio main --title T` writes one.")
        .shown_by("show"),
    noun(
        "decision",
        "decisions",
        "Decisions",
        "No decision yet. `trackway decision create --studio main --question Q` asks one.",
    )
    .shown_by("show"),
    noun(
        "commitment",
        "commitments",
        "Commitments",
        "No commitment yet. `trackway commitment create --studio main --title T --critical-mass N` proposes one.",
    )
    .shown_by("show"),
    noun("board", "boards", "Boards", "No board yet. `trackway board set --name N` makes one.")
        .shown_by("get")
        .named_by("name")
        .also(&[("set_stickie", "board"), ("relate_stickies", "")]),
    noun("stickie", "stickies", "Stickies", "No stickie yet.")
        .shown_by("get")
        .also(&[("relate_stickies", "from"), ("unrelate_stickies", "from")]),
    noun("report", "reports", "Reports", "No report yet. Agents write one when they stop.").shown_by("get"),
    noun(
        "package",
        "packages",
        "Packages",
        "No version is pinned for a role yet. `trackway package set --role R --task T` pins one.",
    ),
    noun("workflow", "workflows", "Workflows", "No workflow yet. `trackway workflow set --name N` makes one.")
        .shown_by("get")
        .named_by("name")
        .holds(&[("task", "workflow")]),
    noun("workspace", "workspaces", "Workspaces", "No workspace yet.")
        .shown_by("get")
        .named_by("name")
        .holds(&[("session", "workspace")]),
    noun("role", "roles", "Roles", "No role yet. `trackway role set --name N` makes one.")
        .shown_by("get")
        .named_by("name")
        .holds(&[("package", "role"), ("task", "role")]),
    noun("label", "labels", "Labels", "No label yet.").shown_by("get").named_by("key"),
    noun("studio", "studios", "Studios", "No studio yet.")
        .shown_by("get")
        .named_by("name")
        .also(&[("create_note", "studio"), ("create_decision", "studio"), ("create_commitment", "studio")])
        .holds(&[("note", "studio"), ("decision", "studio"), ("commitment", "studio")]),
    noun("person", "people", "People", "Nobody yet.").shown_by("get").named_by("handle"),
    noun("token", "tokens", "Tokens", "No token yet."),
    noun("event", "events", "Events", "Nothing happened yet."),
    noun("link", "links", "Links", "").unlisted(),
    noun("scratchpad", "scratchpads", "Scratchpads", "").unlisted(),
    noun("cleanup", "cleanup", "Clean-ups", "What is no longer wanted is taken away for good, and the log keeps how much.")
        .unlisted(),
    noun("import", "import", "Imports", "Tasks from elsewhere become tasks here.").unlisted(),
];

/// The noun whose pages begin so.
pub fn at(path: &str) -> Option<&'static Noun> {
    NOUNS.iter().find(|noun| noun.path == path)
}

/// The noun of a kind of thing.
pub fn of(noun: &str) -> Option<&'static Noun> {
    let noun = if noun == "queue_item" { "queue" } else { noun };
    NOUNS.iter().find(|candidate| candidate.noun == noun)
}
