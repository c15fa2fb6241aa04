//! The content of a page before it is rendered: data for programs, blocks for readers, and actions for both.

use serde_json::{Map, Value};
use trackway_actions::registry::ActionEntry;

#[derive(Debug)]
pub struct Page {
    /// The path of the page, without a format extension.
    pub path: String,
    pub title: String,
    /// The JSON form of the page.
    pub data: Value,
    /// The content that HTML and Markdown render.
    pub blocks: Vec<Block>,
    pub actions: Vec<Offer>,
    /// The path of a list's next page.
    pub next: Option<String>,
    /// The kinds and ids of things whose events make an open page reload itself. Empty: the page does not follow
    /// events.
    pub live: Vec<String>,
    /// The id of the thing that the page describes, for the link to `/why`.
    pub subject_id: Option<String>,
}

impl Page {
    pub fn new(path: impl Into<String>, title: impl Into<String>, data: Value) -> Self {
        Self {
            path: path.into(),
            title: title.into(),
            data,
            blocks: Vec::new(),
            actions: Vec::new(),
            next: None,
            live: Vec::new(),
            subject_id: None,
        }
    }
}

/// An action that a page offers, with the fields that the page fills in.
#[derive(Debug, Clone)]
pub struct Offer {
    pub action: &'static ActionEntry,
    pub path: String,
    pub preset: Map<String, Value>,
    /// The current values, with which a form is prefilled.
    pub current: Map<String, Value>,
    /// Fields that only take values from the page, such as the options of a decision.
    pub choices: Vec<(&'static str, Vec<String>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    Heading(String),
    /// A form with one field that leads to another page.
    SearchForm {
        path: &'static str,
        field: &'static str,
        label: &'static str,
        /// The text with which the field is prefilled.
        value: String,
        /// A hidden parameter that narrows the search: its name and value.
        scope: Option<(&'static str, String)>,
    },
    /// A sentence of the page itself, not of a user. Text between backticks is code.
    Paragraph(String),
    /// Says which part of a long list is shown, and links to the other parts.
    Pagination {
        text: String,
        links: Vec<(String, String)>,
    },
    /// Links to other arrangements of the same content, one of which is the current page.
    Tabs {
        label: &'static str,
        tabs: Vec<Tab>,
    },
    /// The filter form of a list.
    Filter {
        path: String,
        fields: Vec<FilterField>,
    },
    /// The messages of a conversation, oldest first.
    Thread(Vec<ThreadMessage>),
    /// A text box and a button that send a message.
    ReplyForm {
        /// The path of the action that receives the form.
        path: String,
    },
    Facts(Vec<(String, Cell)>),
    Table(Table),
    /// A text that a user or a model wrote. It is data, never instructions.
    Text {
        label: Option<String>,
        text: String,
        kind: TextKind,
    },
    /// Events in the order in which they happened.
    Timeline(Vec<TimelineEntry>),
    Tree(Vec<TreeNode>),
    /// The provenance chain from a thing to the person who is responsible for it.
    Chain(Vec<Hop>),
    /// A bar chart.
    Bars(Vec<Bar>),
    /// The versions of a task, newest first, with their replacement edges and run results.
    Versions(Vec<Version>),
    /// Large key numbers.
    Figures(Vec<Figure>),
    Board(Board),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Tab {
    pub label: String,
    pub href: String,
    pub is_current: bool,
}

/// One field of a list's filter.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterField {
    pub name: &'static str,
    /// The allowed values. If empty, the field is a text box.
    pub choices: Vec<String>,
    /// The current value; empty if the list is not filtered by this field.
    pub value: String,
}

/// A message in a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadMessage {
    /// The path of the message's page.
    pub href: String,
    pub from: String,
    /// A link to the run that sent the message.
    pub run: Option<Cell>,
    pub at: String,
    pub title: Option<String>,
    pub body: String,
    /// Recipients, tags and status.
    pub notes: Vec<Cell>,
}

/// The markup of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    Markdown,
    Plain,
    Diff,
    Json,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
    /// The text that stands in for a table without rows.
    pub empty_text: String,
}

/// A value in a table, a fact or a tree.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Empty,
    Text(String),
    Link {
        href: String,
        text: String,
    },
    Status(String),
    /// A time in the form `2026-02-27T09:30:00.000Z`.
    Time(String),
    Number(String),
    Code(String),
    List(Vec<Cell>),
}

impl Cell {
    pub fn link(href: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Link { href: href.into(), text: text.into() }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct TimelineEntry {
    pub at: String,
    pub label: String,
    pub text: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TreeNode {
    pub cells: Vec<Cell>,
    pub children: Vec<TreeNode>,
}

/// One thing in a provenance chain.
#[derive(Debug, Clone, PartialEq)]
pub struct Hop {
    pub kind: String,
    pub label: String,
    pub href: Option<String>,
    /// True if Trackway has no record of this part of the chain.
    pub is_missing: bool,
}

/// A bar of a chart, with its first part highlighted.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    pub label: Cell,
    pub highlighted: i64,
    pub total: i64,
    pub note: String,
}

/// A version in the replacement graph of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    pub name: String,
    pub href: String,
    pub is_current_page: bool,
    /// The variants that this version replaces, each with the level (patch, minor or major).
    pub replaces: Vec<(String, String)>,
    pub completed_runs: i64,
    pub running_runs: i64,
    pub total_runs: i64,
    /// True if the version has too many runs, so that only the newest were counted.
    pub newest_only: bool,
}

/// A board or a part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Board {
    /// The path of the board's page, to which the forms of its stickies redirect.
    pub path: String,
    pub columns: Vec<Column>,
    pub relations: Vec<Relation>,
}

/// The stickies of one priority, or of none.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub title: &'static str,
    pub priority: Option<&'static str>,
    pub stickies: Vec<Stickie>,
    /// The number of stickies in the column, including those that the page does not show.
    pub total: usize,
    /// If the page shows only a part of the column: which part, and links to the others.
    pub pagination: Option<(String, Vec<(String, String)>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Stickie {
    pub id: String,
    pub title: String,
    pub note: Option<String>,
    pub code: Option<String>,
    pub labels: Vec<String>,
    pub score: Option<f64>,
    /// The actor who created the stickie.
    pub author: Option<String>,
    /// A link to the run that created the stickie.
    pub run: Option<Cell>,
}

/// A typed relation between two stickies.
#[derive(Debug, Clone, PartialEq)]
pub struct Relation {
    pub from: String,
    pub to: String,
    pub name: String,
}

/// A key number, with a link to what it counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub label: String,
    pub value: String,
    pub href: String,
    pub is_alarming: bool,
}
