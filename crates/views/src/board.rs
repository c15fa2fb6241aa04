//! Boards, with the stickies on them and how they relate.

use serde::{Deserialize, Serialize};
use trackway_domain::{Ref, Time, kind};
use trackway_store::{
    Reader, Result,
    display::{BoardShown, RelationShown, StickieShown},
    params,
    table::Shown,
};

use crate::{
    page::{Filter, Listed, Order, Page, cut_texts},
    view::View,
};

/// Show a board with its stickies and how they relate
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetBoard {
    /// The board, by name or id
    pub board: Ref<kind::Board>,
    /// Archived stickies too
    #[arg(long)]
    #[serde(default)]
    pub archived: bool,
}

/// A board in full.
#[derive(Debug, PartialEq, Serialize)]
pub struct BoardInFull {
    #[serde(flatten)]
    pub board: BoardShown,
    pub stickies: Vec<StickieShown>,
    pub relations: Vec<RelationShown>,
}

impl View for GetBoard {
    const COMMAND: (&'static str, &'static str) = ("board", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = BoardInFull;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<BoardInFull> {
        let id = read.resolve(&self.board)?;
        let seen = if self.archived { "" } else { " and s.archived_at is null" };
        Ok(BoardInFull {
            board: read.shown_by_id("b", id)?,
            stickies: read.shown(
                &format!("where s.tenant_id = ?1 and s.board_id = ?2 and s.deleted_at is null{seen} order by s.id"),
                params![id],
            )?,
            relations: read.shown(
                "where e.tenant_id = ?1 and f.board_id = ?2 and e.deleted_at is null order by e.id",
                params![id],
            )?,
        })
    }
}

/// List boards, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListBoards {
    /// Only of this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Only of this project
    #[arg(long)]
    pub project: Option<String>,
    /// Only pinned to this task, any version
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// Archived ones too
    #[arg(long)]
    #[serde(default)]
    pub archived: bool,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListBoards {
    const COMMAND: (&'static str, &'static str) = ("board", "list");
    const COLUMNS: &'static [&'static str] =
        &["id", "name", "role", "project", "task", "lifecycle", "stickie_count", "updated_at"];
    type Output = Listed<BoardShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let role = read.resolve_optional(self.role.as_ref())?;
        let task = read.resolve_optional(self.task.as_ref())?;
        let mut filter = Filter::default()
            .always("b.deleted_at is null")
            .and("b.role_id = ?", role.as_ref())
            .and("b.project = ?", self.project.as_ref())
            .and(
                "b.task_id in (select v.id from tasks v where v.tenant_id = ?1 and v.lineage_id = (select n.lineage_id from tasks n where n.id = ?))",
                task.as_ref(),
            );
        if !self.archived {
            filter = filter.always("b.archived_at is null");
        }
        let select = cut_texts(BoardShown::select(), &["b.background", "b.guidelines"]);
        self.page.read(read, &select, "b", filter, Order::NewestFirst, |shown: &BoardShown| shown.board.id.uuid())
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}
