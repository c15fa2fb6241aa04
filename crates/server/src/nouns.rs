//! The kinds of things that have pages. Most kinds have a list, and a page for each thing.

#[derive(Debug, PartialEq)]
pub struct Noun {
    /// The name of the kind, as on the command line.
    pub noun: &'static str,
    /// The first segment of its paths.
    pub path: &'static str,
    /// The title of the list.
    pub title: &'static str,
    /// The verb of the view that shows one thing. None: there are no pages for single things.
    pub show_verb: Option<&'static str>,
    /// The verb of the view that lists the things. None: there is no list.
    pub list_verb: Option<&'static str>,
    /// Actions of other nouns that the page of one thing offers. The second text is the parameter that the page sets to
    /// this thing. Empty: the page sets none.
    pub related_actions: &'static [(&'static str, &'static str)],
    /// Nouns whose lists are shown on the page of one thing, with the list parameter that filters by this thing.
    pub nested_lists: &'static [(&'static str, &'static str)],
    /// The field that identifies a thing in its path, if that is not its id.
    pub name_field: Option<&'static str>,
    /// The text of an empty list. Without a list: the text of the page that only offers actions.
    pub empty_text: &'static str,
}

const fn noun(noun: &'static str, path: &'static str, title: &'static str, empty_text: &'static str) -> Noun {
    Noun {
        noun,
        path,
        title,
        show_verb: None,
        list_verb: Some("list"),
        related_actions: &[],
        nested_lists: &[],
        name_field: None,
        empty_text,
    }
}

impl Noun {
    const fn shown_by(mut self, verb: &'static str) -> Self {
        self.show_verb = Some(verb);
        self
    }

    const fn related_actions(mut self, actions: &'static [(&'static str, &'static str)]) -> Self {
        self.related_actions = actions;
        self
    }

    const fn nested_lists(mut self, nouns: &'static [(&'static str, &'static str)]) -> Self {
        self.nested_lists = nouns;
        self
    }

    const fn name_field(mut self, field: &'static str) -> Self {
        self.name_field = Some(field);
        self
    }

    const fn unlisted(mut self) -> Self {
        self.list_verb = None;
        self
    }
}

/// All kinds of things that have pages.
pub const NOUNS: &[Noun] = &[
    noun(
        "run",
        "runs",
        "Runs",
        "No runs yet. Record agent clients from now on with `trackway connect`, import their earlier sessions with `trackway ingest`, or start a run with `trackway run start --agent A`.",
    )
    .shown_by("show"),
    noun("task", "tasks", "Tasks", "No tasks yet. Create one with `trackway task set --workflow W --command C`.")
        .shown_by("get")
        .related_actions(&[
            ("queue_add", "task"),
            ("add_link", "from"),
            ("set_package", "task"),
            ("update_report", "task"),
            ("claim", "task"),
            ("delete_link", ""),
        ]),
    noun("queue", "queue", "Queue", "The queue is empty. Add a task with `trackway queue add --task T`.")
        .shown_by("get"),
    noun("agent", "agents", "Agents", "No agents yet. Create one with `trackway agent set --handle H`.")
        .shown_by("get")
        .name_field("handle")
        .related_actions(&[("set_scratchpad", "agent"), ("restore_scratchpad", "agent"), ("start_run", "agent")]),
    noun("session", "sessions", "Sessions", "No sessions yet. Import your transcripts with `trackway ingest`.")
        .shown_by("show")
        .related_actions(&[("forget_session", "session")]),
    noun(
        "subagent",
        "subagents",
        "Subagents",
        "No subagents yet. They are recorded with sessions. Import your transcripts with `trackway ingest`.",
    ),
    noun(
        "spawn",
        "spawns",
        "Spawns",
        "No spawns yet. They are recorded with sessions. Import your transcripts with `trackway ingest`.",
    )
    .shown_by("show"),
    noun(
        "conversation",
        "conversations",
        "Conversations",
        "No conversations yet. Start one with `trackway conversation set --title T`.",
    )
    .shown_by("get")
    .related_actions(&[("send_message", "conversation")]),
    noun("message", "messages", "Messages", "No messages yet. Send one with `trackway message send`.").shown_by("get"),
    noun("experiment", "experiments", "Experiments", "No experiments yet.")
        .shown_by("get")
        .nested_lists(&[("testcase", "experiment"), ("message", "experiment")]),
    noun("route", "routes", "Routes", "No routes yet. Send messages with a tag to a task with `trackway route set`.")
        .shown_by("get"),
    noun("testcase", "testcases", "Testcases", "No testcases yet. Import some with `trackway testcase import junit.xml`.")
        .shown_by("get"),
    noun("note", "notes", "Notes", "No notes yet. Create one with `trackway note create --studio main --title T`.")
        .shown_by("show"),
    noun(
        "decision",
        "decisions",
        "Decisions",
        "No decisions yet. Create one with `trackway decision create --studio main --question Q`.",
    )
    .shown_by("show"),
    noun(
        "commitment",
        "commitments",
        "Commitments",
        "No commitments yet. Create one with `trackway commitment create --studio main --title T --critical-mass N`.",
    )
    .shown_by("show"),
    noun("board", "boards", "Boards", "No boards yet. Create one with `trackway board set --name N`.")
        .shown_by("get")
        .name_field("name")
        .related_actions(&[("set_stickie", "board"), ("relate_stickies", "")]),
    noun("stickie", "stickies", "Stickies", "No stickies yet.")
        .shown_by("get")
        .related_actions(&[("relate_stickies", "from"), ("unrelate_stickies", "from")]),
    noun("report", "reports", "Reports", "No reports yet. Agents write one when they stop.").shown_by("get"),
    noun(
        "package",
        "packages",
        "Packages",
        "No packages yet. Pin a task version for a role with `trackway package set --role R --task T`.",
    ),
    noun("workflow", "workflows", "Workflows", "No workflows yet. Create one with `trackway workflow set --name N`.")
        .shown_by("get")
        .name_field("name")
        .nested_lists(&[("task", "workflow")]),
    noun("workspace", "workspaces", "Workspaces", "No workspaces yet.")
        .shown_by("get")
        .name_field("name")
        .nested_lists(&[("session", "workspace")]),
    noun("role", "roles", "Roles", "No roles yet. Create one with `trackway role set --name N`.")
        .shown_by("get")
        .name_field("name")
        .nested_lists(&[("package", "role"), ("task", "role")]),
    noun("label", "labels", "Labels", "No labels yet.").shown_by("get").name_field("key"),
    noun("studio", "studios", "Studios", "No studios yet.")
        .shown_by("get")
        .name_field("name")
        .related_actions(&[("create_note", "studio"), ("create_decision", "studio"), ("create_commitment", "studio")])
        .nested_lists(&[("note", "studio"), ("decision", "studio"), ("commitment", "studio")]),
    noun("person", "people", "People", "No people yet.").shown_by("get").name_field("handle"),
    noun("token", "tokens", "Tokens", "No tokens yet."),
    noun("event", "events", "Events", "No events yet."),
    noun("link", "links", "Links", "").unlisted(),
    noun("scratchpad", "scratchpads", "Scratchpads", "").unlisted(),
    noun("cleanup", "cleanup", "Clean-ups", "These actions delete old data permanently. The event log records how many rows they deleted.")
        .unlisted(),
    noun("import", "import", "Imports", "These actions import tasks from other systems.").unlisted(),
];

/// The noun with this first path segment.
pub fn by_path(path: &str) -> Option<&'static Noun> {
    NOUNS.iter().find(|noun| noun.path == path)
}

/// The noun with this name. Queue items are the noun `queue`.
pub fn by_name(noun: &str) -> Option<&'static Noun> {
    let noun = if noun == "queue_item" { "queue" } else { noun };
    NOUNS.iter().find(|candidate| candidate.noun == noun)
}
