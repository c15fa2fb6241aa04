//! Boards and their stickies. Every change on a board locks the board's row, so that changes of one board are
//! serialised.

mod archive;
mod delete;
pub(crate) mod set;
mod sync;

pub use archive::ArchiveBoard;
pub use delete::DeleteBoard;
pub use set::SetBoard;
pub use sync::{SyncBoard, SyncResult};

use serde::Serialize;
use trackway_domain::{Error as Rule, Id, Ref, Time, board::StickieContent, kind, text};
use trackway_store::{
    Writer, params,
    tables::{Board, BoardRevision, Stickie},
};
use uuid::Uuid;

use crate::{action::Resource, context::Context, error::Result};

/// Maximum length of a note in a display path, in characters.
const PATH_NOTE_MAX: usize = 60;

/// Locks the board until the end of the transaction.
pub(crate) fn locked_board(write: &mut Writer<'_>, reference: &Ref<kind::Board>) -> Result<Board> {
    let id = write.resolve(reference)?;
    locked_board_by_id(write, id)
}

pub(crate) fn locked_board_by_id(write: &mut Writer<'_>, id: Id<kind::Board>) -> Result<Board> {
    let board = write
        .row_locked::<Board>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no board {id}")))?;
    advance_past_last_change(write, &board);
    Ok(board)
}

/// Sets the transaction's time to a later time than the board's last change. A synced folder finds newer changes by
/// their time, but the clocks of different machines differ.
pub(crate) fn advance_past_last_change(write: &mut Writer<'_>, board: &Board) {
    write.now = write.now.max(Time::from_micros(board.changed_at.micros() + 1));
}

/// Locks a stickie and its board.
pub(crate) fn locked_stickie(write: &mut Writer<'_>, reference: &Ref<kind::Stickie>) -> Result<(Board, Stickie)> {
    let not_found = || Rule::not_found(format!("there is no stickie {reference:?}"));
    let id = write.resolve(reference)?;
    let found = write.row::<Stickie>("where tenant_id = ?1 and id = ?2", params![id])?.ok_or_else(not_found)?;
    let board = locked_board_by_id(write, found.board_id)?;
    let stickie = write
        .row_locked::<Stickie>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(not_found)?;
    Ok((board, stickie))
}

pub(crate) fn mark_changed(write: &mut Writer<'_>, board: Id<kind::Board>) -> Result<()> {
    let now = write.now;
    Ok(write.post("update boards set changed_at = ?3 where tenant_id = ?1 and id = ?2", params![board, now])?)
}

pub(crate) fn board_path(board: &Board) -> String {
    board.name.clone().unwrap_or_else(|| board.id.short())
}

pub(crate) fn board_resource(board: &Board) -> Resource<kind::Board> {
    Resource::new(board.id, board_path(board))
}

/// The resource of a stickie. Its path ends with its name, else with the beginning of its note, else with its id.
pub(crate) fn stickie_resource(board: &Board, stickie: &Stickie) -> Resource<kind::Stickie> {
    let note = stickie.note.as_deref().map(|note| text::cut(&text::clean_line(note), PATH_NOTE_MAX));
    let called = stickie.name.clone().or(note).unwrap_or_else(|| stickie.id.short());
    Resource::new(stickie.id, format!("{}/{called}", board_path(board)))
}

/// A new, empty stickie.
pub(crate) fn blank_stickie(
    context: &Context,
    write: &mut Writer<'_>,
    board: &Board,
    id: Id<kind::Stickie>,
) -> Result<Stickie> {
    let task = match context.run {
        Some(run) => write.one::<(Option<Id<kind::Task>>,)>(
            "select task_id from runs where tenant_id = ?1 and id = ?2",
            params![run],
        )?,
        None => None,
    };
    Ok(Stickie {
        id,
        tenant_id: context.tenant,
        board_id: board.id,
        name: None,
        note: None,
        code: None,
        labels: Vec::new(),
        priority: None,
        score: None,
        structured: None,
        created_by_task_id: task.and_then(|(task,)| task),
        created_by_run_id: context.run,
        edit_count: 0,
        created_at: write.now,
        updated_at: write.now,
        archived_at: None,
        deleted_at: None,
    })
}

/// The stickie with new content and the next edit number.
pub(crate) fn next_edit(write: &Writer<'_>, before: &Stickie, content: StickieContent) -> Stickie {
    let StickieContent { name, note, code, labels, priority, score, structured, archived } = content;
    Stickie {
        id: before.id,
        tenant_id: before.tenant_id,
        board_id: before.board_id,
        name,
        note,
        code,
        labels,
        priority,
        score,
        structured,
        created_by_task_id: before.created_by_task_id,
        created_by_run_id: before.created_by_run_id,
        edit_count: before.edit_count + 1,
        created_at: before.created_at,
        updated_at: write.now,
        archived_at: archived.then(|| before.archived_at.unwrap_or(write.now)),
        deleted_at: None,
    }
}

/// Whether to insert a new stickie or update an existing one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteKind {
    Insert,
    Update,
}

/// Writes a stickie with its path, a revision with its content, and the time of the board's last change.
pub(crate) fn write_stickie(
    context: &Context,
    write: &mut Writer<'_>,
    board: &Board,
    stickie: &Stickie,
    kind: WriteKind,
) -> Result<Resource<kind::Stickie>> {
    refuse_taken_name(write, stickie)?;
    let resource = stickie_resource(board, stickie);
    match kind {
        WriteKind::Insert => {
            write.insert(stickie)?;
            resource.register(context, write)?;
        }
        WriteKind::Update => {
            write.update(stickie)?;
            write.update_display_path(stickie.id, &resource.path)?;
        }
    }
    insert_revision(context, write, stickie.id.uuid(), stickie.edit_count, &stickie.content())?;
    mark_changed(write, board.id)?;
    Ok(resource)
}

/// Rejects a name that another stickie of the board has. The board is locked, so no concurrent transaction can take
/// the name.
pub(crate) fn refuse_taken_name(write: &mut Writer<'_>, stickie: &Stickie) -> Result<()> {
    let Some(name) = &stickie.name else {
        return Ok(());
    };
    let taken = write.count(
        "select count(*) from stickies where tenant_id = ?1 and board_id = ?2 and name = ?3 and id <> ?4 and deleted_at is null",
        params![stickie.board_id, name, stickie.id],
    )?;
    if taken > 0 {
        return Err(Rule::conflict(format!("the board already has a stickie called {name:?}")).into());
    }
    Ok(())
}

/// Stores the content of a board or a stickie at this edit.
pub(crate) fn insert_revision<C: Serialize>(
    context: &Context,
    write: &mut Writer<'_>,
    subject_id: Uuid,
    number: i64,
    content: &C,
) -> Result<()> {
    let revision = BoardRevision {
        subject_id,
        tenant_id: context.tenant,
        number,
        content: serde_json::to_value(content).map_err(|error| Rule::usage(error.to_string()))?,
        actor_kind: context.actor.kind(),
        actor_id: context.actor.id(),
        run_id: context.run,
        created_at: write.now,
    };
    Ok(write.insert(&revision)?)
}
