use serde::{Deserialize, Serialize};
use trackway_domain::{Ref, Time, kind};
use trackway_store::{
    Reader, Result,
    display::{BoardRow, StickieRelationRow, StickieRow},
    params,
    table::DisplayRow,
};

use crate::{
    page::{Filter, ListPage, Order, Page, shorten_columns},
    view::View,
};

/// Show a board with its stickies and their relations
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetBoard {
    /// The board, by name or id
    pub board: Ref<kind::Board>,
    /// Include archived stickies
    #[arg(long)]
    #[serde(default)]
    pub archived: bool,
}

/// A board with its stickies and their relations.
#[derive(Debug, PartialEq, Serialize)]
pub struct BoardDetails {
    #[serde(flatten)]
    pub board: BoardRow,
    pub stickies: Vec<StickieRow>,
    pub relations: Vec<StickieRelationRow>,
}

impl View for GetBoard {
    const COMMAND: (&'static str, &'static str) = ("board", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = BoardDetails;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<BoardDetails> {
        let id = read.resolve(&self.board)?;
        let and_visible = if self.archived { "" } else { " and s.archived_at is null" };
        Ok(BoardDetails {
            board: read.display_row_by_id("b", id)?,
            stickies: read.display_rows(
                &format!(
                    "where s.tenant_id = ?1 and s.board_id = ?2 and s.deleted_at is null{and_visible} order by s.id"
                ),
                params![id],
            )?,
            relations: read.display_rows(
                "where e.tenant_id = ?1 and f.board_id = ?2 and e.deleted_at is null order by e.id",
                params![id],
            )?,
        })
    }
}

/// List boards, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListBoards {
    /// Only boards of this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Only boards of this project
    #[arg(long)]
    pub project: Option<String>,
    /// Only boards pinned to any version of this task
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    /// Include archived boards
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
    type Output = ListPage<BoardRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let role = read.resolve_optional(self.role.as_ref())?;
        let task = read.resolve_optional(self.task.as_ref())?;
        let mut filter = Filter::default()
            .require("b.deleted_at is null")
            .require_if_some("b.role_id = ?", role.as_ref())
            .require_if_some("b.project = ?", self.project.as_ref())
            .require_if_some(
                "b.task_id in (select v.id from tasks v where v.tenant_id = ?1 and v.lineage_id = (select n.lineage_id from tasks n where n.id = ?))",
                task.as_ref(),
            );
        if !self.archived {
            filter = filter.require("b.archived_at is null");
        }
        let select = shorten_columns(BoardRow::select(), &["b.background", "b.guidelines"]);
        self.page.read(read, &select, "b", filter, Order::NewestFirst, |shown: &BoardRow| shown.board.id.uuid())
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}
