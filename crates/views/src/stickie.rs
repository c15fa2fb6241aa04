//! Stickies, and how they relate to others.

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time, kind,
    words::{RelationType, StickiePriority},
};
use trackway_store::{
    Reader, Result,
    display::{RelationShown, StickieShown},
    params,
    table::Shown,
};

use crate::{
    page::{Filter, Listed, Order, Page, cut_texts},
    view::View,
};

/// Show a stickie and how it relates to others
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetStickie {
    /// The stickie, by id or name
    pub stickie: Ref<kind::Stickie>,
}

/// A stickie in full.
#[derive(Debug, PartialEq, Serialize)]
pub struct StickieInFull {
    #[serde(flatten)]
    pub stickie: StickieShown,
    pub relations: Vec<RelationShown>,
}

impl View for GetStickie {
    const COMMAND: (&'static str, &'static str) = ("stickie", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = StickieInFull;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<StickieInFull> {
        let id: Id<kind::Stickie> = read.resolve(&self.stickie)?;
        Ok(StickieInFull {
            stickie: read.shown_by_id("s", id)?,
            relations: read.shown(
                "where e.tenant_id = ?1 and (e.from_id = ?2 or e.to_id = ?2) and e.deleted_at is null order by e.id",
                params![id],
            )?,
        })
    }
}

/// List stickies, oldest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListStickies {
    /// Only on this board
    #[arg(long)]
    pub board: Option<Ref<kind::Board>>,
    /// Only of this priority
    #[arg(long)]
    pub priority: Option<StickiePriority>,
    /// Only those that relate so to another one, or another one to them
    #[arg(long, value_name = "TYPE")]
    pub relation: Option<RelationType>,
    /// Archived ones too
    #[arg(long)]
    #[serde(default)]
    pub archived: bool,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListStickies {
    const COMMAND: (&'static str, &'static str) = ("stickie", "list");
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "board",
        "name",
        "priority",
        "score",
        "labels",
        "note",
        "author",
        "created_by_run_id",
        "edit_count",
        "updated_at",
    ];
    type Output = Listed<StickieShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let board = read.resolve_optional(self.board.as_ref())?;
        let mut filter = Filter::default()
            .always("s.deleted_at is null")
            .and("s.board_id = ?", board.as_ref())
            .and("s.priority = ?", self.priority.as_ref())
            .and(
                "exists (select 1 from stickie_relations e where e.tenant_id = s.tenant_id and s.id in (e.from_id, e.to_id) and e.deleted_at is null and e.relation_type = ?)",
                self.relation.as_ref(),
            );
        if !self.archived {
            filter = filter.always("s.archived_at is null");
        }
        let select = cut_texts(StickieShown::select(), &["s.note", "s.code"]);
        self.page.read(read, &select, "s", filter, Order::OldestFirst, |shown: &StickieShown| shown.stickie.id.uuid())
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}
