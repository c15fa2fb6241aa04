use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Patch, Ref, enums::Lifecycle, kind, patch::UNSET, text};
use trackway_store::{Writer, display::BoardRow, params, tables::Board};

use super::{board_resource, insert_revision, locked_board, locked_board_by_id};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    touched::{Touch, action_type},
};

/// Create or update a board
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetBoard {
    /// Board to update [default: the board named by --name, else a new one]
    pub board: Option<Ref<kind::Board>>,
    /// Name
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX), regex(pattern = text::NAME_OR_EMPTY_PATTERN))]
    pub name: Patch<String>,
    /// Role that the board is for
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub role: Patch<Ref<kind::Role>>,
    /// Conversation that the board belongs to
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub conversation: Patch<Ref<kind::Conversation>>,
    /// Project that the board belongs to
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::LINE_MAX))]
    pub project: Patch<String>,
    /// Task that the board belongs to
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub task: Patch<Ref<kind::Task>>,
    /// Background that readers need to understand the board
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub background: Patch<String>,
    /// Guidelines for using the board
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub guidelines: Patch<String>,
    /// How long the board stays in use [default: permanent]
    #[arg(long)]
    pub lifecycle: Option<Lifecycle>,
}

/// The board after the action, and whether the action created it.
#[derive(Debug, Serialize)]
pub struct SetBoardResult {
    #[serde(flatten)]
    pub board: BoardRow,
    pub new: bool,
}

impl Action for SetBoard {
    const NAME: &'static str = "set_board";
    const COMMAND: (&'static str, &'static str) = ("board", "set");
    const ALIAS: Option<&'static str> = Some("create");
    type Touched = (Touch<kind::Board, action_type::Create>, Touch<kind::Board, action_type::Update>);
    type Output = SetBoardResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { board, name, role, conversation, project, task, background, guidelines, lifecycle } = self;
        let name = name.line("board name", text::LINE_MAX)?.try_map(|name| text::check_name("board name", &name))?;
        let before = match (board, &name) {
            (Some(board), _) => Some(locked_board(write, board)?),
            (None, Patch::Set(name)) => write
                .one::<(_,)>(
                    "select id from boards where tenant_id = ?1 and name = ?2 and deleted_at is null",
                    params![name],
                )?
                .map(|(id,)| locked_board_by_id(write, id))
                .transpose()?,
            (None, _) => None,
        };
        let new = before.is_none();
        let board = before.clone().unwrap_or_else(|| blank_board(context, write));
        let board = Board {
            id: board.id,
            tenant_id: board.tenant_id,
            name: name.apply(board.name),
            role_id: role.clone().try_map(|role| write.resolve(&role))?.apply(board.role_id),
            conversation_id: conversation.clone().try_map(|one| write.resolve(&one))?.apply(board.conversation_id),
            project: project.line("project", text::LINE_MAX)?.apply(board.project),
            task_id: task.clone().try_map(|task| write.resolve(&task))?.apply(board.task_id),
            background: background.body("background", text::TEXT_MAX)?.apply(board.background),
            guidelines: guidelines.body("guidelines", text::TEXT_MAX)?.apply(board.guidelines),
            lifecycle: lifecycle.unwrap_or(board.lifecycle),
            edit_count: board.edit_count,
            created_at: board.created_at,
            updated_at: board.updated_at,
            changed_at: board.changed_at,
            archived_at: board.archived_at,
            deleted_at: board.deleted_at,
        };
        if before.as_ref() == Some(&board) {
            let shown = write.display_row_by_id::<BoardRow>("b", board.id)?;
            return Ok(ActionOutcome::unchanged(SetBoardResult { board: shown, new }));
        }
        let shown = save(context, write, board, new)?;
        let resource = board_resource(&shown.board);
        let touched = if new {
            (Touch::one(resource.clone()), Touch::none())
        } else {
            (Touch::none(), Touch::one(resource.clone()))
        };
        Ok(ActionOutcome::changed(SetBoardResult { board: shown, new }, &resource, touched))
    }
}

pub(super) fn blank_board(context: &Context, write: &Writer<'_>) -> Board {
    Board {
        id: write.new_id(),
        tenant_id: context.tenant,
        name: None,
        role_id: None,
        conversation_id: None,
        project: None,
        task_id: None,
        background: None,
        guidelines: None,
        lifecycle: Lifecycle::default(),
        edit_count: 0,
        created_at: write.now,
        updated_at: write.now,
        changed_at: write.now,
        archived_at: None,
        deleted_at: None,
    }
}

/// Writes a board with the next edit number, and a revision with its content.
pub(super) fn save(context: &Context, write: &mut Writer<'_>, mut board: Board, new: bool) -> Result<BoardRow> {
    if let Some(name) = &board.name {
        let taken = write.count(
            "select count(*) from boards where tenant_id = ?1 and name = ?2 and id <> ?3 and deleted_at is null",
            params![name, board.id],
        )?;
        if taken > 0 {
            return Err(Rule::conflict(format!("there is already a board called {name:?}")).into());
        }
    }
    board.edit_count += 1;
    board.updated_at = write.now;
    board.changed_at = write.now;
    let resource = board_resource(&board);
    if new {
        write.insert(&board)?;
        resource.register(context, write)?;
    } else {
        write.update(&board)?;
        write.update_display_path(board.id, &resource.path)?;
    }
    let shown = write.display_row_by_id::<BoardRow>("b", board.id)?;
    insert_revision(context, write, board.id.uuid(), board.edit_count, &shown.content())?;
    Ok(shown)
}
