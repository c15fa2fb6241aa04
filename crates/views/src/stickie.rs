use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Ref, Time,
    enums::{RelationType, StickiePriority},
    kind,
};
use trackway_store::{
    Reader, Result,
    display::{StickieRelationRow, StickieRow},
    params,
    table::DisplayRow,
};

use crate::{
    page::{Filter, ListPage, Order, Page, shorten_columns},
    view::View,
};

/// Show a stickie with its relations
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetStickie {
    /// The stickie, by id or name
    pub stickie: Ref<kind::Stickie>,
}

/// A stickie with its relations to other stickies.
#[derive(Debug, PartialEq, Serialize)]
pub struct StickieDetails {
    #[serde(flatten)]
    pub stickie: StickieRow,
    pub relations: Vec<StickieRelationRow>,
}

impl View for GetStickie {
    const COMMAND: (&'static str, &'static str) = ("stickie", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = StickieDetails;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<StickieDetails> {
        let id: Id<kind::Stickie> = read.resolve(&self.stickie)?;
        Ok(StickieDetails {
            stickie: read.display_row_by_id("s", id)?,
            relations: read.display_rows(
                "where e.tenant_id = ?1 and (e.from_id = ?2 or e.to_id = ?2) and e.deleted_at is null order by e.id",
                params![id],
            )?,
        })
    }
}

/// List stickies, oldest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListStickies {
    /// Only stickies on this board
    #[arg(long)]
    pub board: Option<Ref<kind::Board>>,
    /// Only stickies with this priority
    #[arg(long)]
    pub priority: Option<StickiePriority>,
    /// Only stickies with a relation of this type, in either direction
    #[arg(long, value_name = "TYPE")]
    pub relation: Option<RelationType>,
    /// Include archived stickies
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
    type Output = ListPage<StickieRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let board = read.resolve_optional(self.board.as_ref())?;
        let mut filter = Filter::default()
            .require("s.deleted_at is null")
            .require_if_some("s.board_id = ?", board.as_ref())
            .require_if_some("s.priority = ?", self.priority.as_ref())
            .require_if_some(
                "exists (select 1 from stickie_relations e where e.tenant_id = s.tenant_id and s.id in (e.from_id, e.to_id) and e.deleted_at is null and e.relation_type = ?)",
                self.relation.as_ref(),
            );
        if !self.archived {
            filter = filter.require("s.archived_at is null");
        }
        let select = shorten_columns(StickieRow::select(), &["s.note", "s.code"]);
        self.page.read(read, &select, "s", filter, Order::OldestFirst, |shown: &StickieRow| shown.stickie.id.uuid())
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}
