//! What a page holds, before it is JSON, Markdown or HTML: data for programs, blocks for readers, actions for both.

use serde_json::{Map, Value};
use trackway_actions::registry::Entry;

/// A page.
#[derive(Debug)]
pub struct Page {
    /// Where it is, without ending.
    pub path: String,
    pub title: String,
    /// What programs get.
    pub data: Value,
    /// What people and agents read.
    pub blocks: Vec<Block>,
    pub actions: Vec<Offer>,
    /// Where a list goes on.
    pub next: Option<String>,
    /// What changes it while one looks at it: kinds of things and ids. Without any it stays as it is.
    pub live: Vec<String>,
    /// The id of the one thing it is about.
    pub about: Option<String>,
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
            about: None,
        }
    }
}

/// An action that can be done here, with the fields that the page itself fills in.
#[derive(Debug, Clone)]
pub struct Offer {
    pub action: &'static Entry,
    pub path: String,
    pub preset: Map<String, Value>,
    /// What stands there now, for a form to begin with.
    pub present: Map<String, Value>,
    /// What a field can be, where the page knows: one of these is picked.
    pub choices: Vec<(&'static str, Vec<String>)>,
}

/// A part of a page.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    Heading(String),
    /// A question to fill in.
    Ask {
        to: &'static str,
        field: &'static str,
        label: &'static str,
        /// What was asked already.
        said: String,
        /// What the question is kept to: a field and its value.
        within: Option<(&'static str, String)>,
    },
    /// A sentence of ours.
    Say(String),
    /// How much of something long is here, and where the rest is.
    Along {
        said: String,
        links: Vec<(String, String)>,
    },
    /// Ways to look at the same, one of which is chosen.
    Ways {
        label: &'static str,
        ways: Vec<Way>,
    },
    /// What a list can be kept to.
    Filter {
        path: String,
        fields: Vec<FilterField>,
    },
    /// What was said, oldest first.
    Thread(Vec<Said>),
    /// A box to say something in.
    Reply {
        /// Where it is posted to.
        to: String,
    },
    Facts(Vec<(String, Cell)>),
    Table(Table),
    /// Somebody's text: data, never instructions.
    Text {
        label: Option<String>,
        text: String,
        kind: TextKind,
    },
    /// What happened, in order.
    Timeline(Vec<Moment>),
    /// Things below things.
    Tree(Vec<Branch>),
    /// From a thing to the person who answers for it.
    Chain(Vec<Hop>),
    /// How things compare.
    Bars(Vec<Bar>),
    /// Versions, newest first, what each replaces, and how they went.
    Versions(Vec<Version>),
    /// Numbers to see at once.
    Figures(Vec<Figure>),
    /// Stickies in columns, and how they relate.
    Board(Board),
}

/// A way to look at something.
#[derive(Debug, Clone, PartialEq)]
pub struct Way {
    pub label: String,
    pub to: String,
    pub is_chosen: bool,
}

/// A field that a list can be kept to.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterField {
    pub name: &'static str,
    /// What it can be, when that is few; otherwise it is typed.
    pub choices: Vec<String>,
    /// What it is now.
    pub value: String,
}

/// Something somebody said.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// Where it is.
    pub to: String,
    pub from: String,
    /// The run that sent it.
    pub run: Option<Cell>,
    pub at: String,
    pub title: Option<String>,
    pub body: String,
    /// What is to be known besides: whom it is for, what came of it.
    pub notes: Vec<Cell>,
}

/// How a text is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    Markdown,
    Plain,
    Diff,
    Json,
}

/// Rows under columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
    /// What is said when there are no rows.
    pub empty: String,
}

/// A value in its place.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Nothing,
    Text(String),
    Link {
        to: String,
        text: String,
    },
    Status(String),
    /// A moment, as `2026-02-27T09:30:00.000Z`.
    Time(String),
    Number(String),
    Code(String),
    Many(Vec<Cell>),
}

impl Cell {
    pub fn link(to: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Link { to: to.into(), text: text.into() }
    }
}

/// A step of a timeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    pub at: String,
    pub label: String,
    pub text: Option<String>,
}

/// A place in a tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Branch {
    pub cells: Vec<Cell>,
    pub children: Vec<Branch>,
}

/// A place in a chain; one without a target was not recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Hop {
    pub kind: String,
    pub label: String,
    pub to: Option<String>,
    pub is_missing: bool,
}

/// A bar of a chart: how much of the whole is good.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    pub label: Cell,
    pub good: i64,
    pub all: i64,
    pub note: String,
}

/// A version in the graph of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    pub name: String,
    pub to: String,
    pub is_here: bool,
    /// The names of what it replaces, with the level.
    pub replaces: Vec<(String, String)>,
    pub good: i64,
    pub running: i64,
    pub all: i64,
    /// Whether these are the newest of more.
    pub newest_only: bool,
}

/// A board as it hangs on the wall.
#[derive(Debug, Clone, PartialEq)]
pub struct Board {
    /// Where it is.
    pub path: String,
    pub columns: Vec<Column>,
    pub relations: Vec<Relation>,
}

/// The stickies of one priority.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub title: &'static str,
    /// The priority that it stands for.
    pub priority: Option<&'static str>,
    pub stickies: Vec<Stickie>,
    /// How many there are, shown or not.
    pub all: usize,
    /// How many of them are here, and where the others are, when some are not.
    pub along: Option<(String, Vec<(String, String)>)>,
}

/// A stickie on a board.
#[derive(Debug, Clone, PartialEq)]
pub struct Stickie {
    pub id: String,
    pub title: String,
    pub note: Option<String>,
    pub code: Option<String>,
    pub labels: Vec<String>,
    pub score: Option<f64>,
    /// Who put it there.
    pub author: Option<String>,
    /// The run that put it there.
    pub run: Option<Cell>,
}

/// How one stickie relates to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Relation {
    pub from: String,
    pub to: String,
    pub name: String,
}

/// A number to see at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub label: String,
    pub value: String,
    pub to: String,
    pub is_alarming: bool,
}
