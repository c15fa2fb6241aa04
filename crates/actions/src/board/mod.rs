//! Boards and what is on them. Whoever changes anything on a board holds its row, so that its changes have an order.

mod archive;
pub(crate) mod set;
mod sync;

pub use archive::{ArchiveBoard, DeleteBoard};
pub use set::SetBoard;
pub use sync::{SyncBoard, Synced};

use serde::Serialize;
use trackway_domain::{Error as Rule, Id, Ref, Time, board::StickieContent, kind, text};
use trackway_store::{
    Writer, params,
    tables::{Board, BoardRevision, Stickie},
};
use uuid::Uuid;

use crate::{action::Resource, context::Context, error::Result};

/// Characters of a note in a display path.
const PATH_NOTE_MAX: usize = 60;

/// The board a reference names, held until the end.
pub(crate) fn held_board(write: &mut Writer<'_>, reference: &Ref<kind::Board>) -> Result<Board> {
    let id = write.resolve(reference)?;
    held(write, id)
}

pub(crate) fn held(write: &mut Writer<'_>, id: Id<kind::Board>) -> Result<Board> {
    let board = write
        .row_locked::<Board>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no board {id}")))?;
    grow_time(write, &board);
    Ok(board)
}

/// Clocks differ between machines; what a folder has seen is told by the time of its board, so it must grow.
pub(crate) fn grow_time(write: &mut Writer<'_>, board: &Board) {
    write.now = write.now.max(Time::from_micros(board.changed_at.micros() + 1));
}

/// The stickie a reference names, and its board, held.
pub(crate) fn held_stickie(write: &mut Writer<'_>, reference: &Ref<kind::Stickie>) -> Result<(Board, Stickie)> {
    let gone = || Rule::not_found(format!("there is no stickie {reference:?}"));
    let id = write.resolve(reference)?;
    let found = write.row::<Stickie>("where tenant_id = ?1 and id = ?2", params![id])?.ok_or_else(gone)?;
    let board = held(write, found.board_id)?;
    let stickie = write
        .row_locked::<Stickie>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(gone)?;
    Ok((board, stickie))
}

/// Says that something on the board changed now.
pub(crate) fn mark_changed(write: &mut Writer<'_>, board: Id<kind::Board>) -> Result<()> {
    let now = write.now;
    Ok(write.post("update boards set changed_at = ?3 where tenant_id = ?1 and id = ?2", params![board, now])?)
}

pub(crate) fn board_path(board: &Board) -> String {
    board.name.clone().unwrap_or_else(|| board.id.short())
}

pub(crate) fn board_resource(board: &Board) -> Resource<kind::Board> {
    Resource::outside(board.id, board_path(board))
}

/// A stickie by its name, else by how its note begins.
pub(crate) fn stickie_resource(board: &Board, stickie: &Stickie) -> Resource<kind::Stickie> {
    let note = stickie.note.as_deref().map(|note| text::cut(&text::clean_line(note), PATH_NOTE_MAX));
    let called = stickie.name.clone().or(note).unwrap_or_else(|| stickie.id.short());
    Resource::outside(stickie.id, format!("{}/{called}", board_path(board)))
}

/// A new stickie, still empty.
pub(crate) fn blank(
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

/// The stickie with another content, one edit later. Whether it is archived is kept unless the content says otherwise.
pub(crate) fn edited(write: &Writer<'_>, before: &Stickie, content: StickieContent) -> Stickie {
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

/// Whether a stickie is new to the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    New,
    Before,
}

/// Writes a stickie down with what it says now, and where it is found.
pub(crate) fn keep(
    context: &Context,
    write: &mut Writer<'_>,
    board: &Board,
    stickie: &Stickie,
    came: Came,
) -> Result<Resource<kind::Stickie>> {
    refuse_taken_name(write, stickie)?;
    let resource = stickie_resource(board, stickie);
    match came {
        Came::New => {
            write.insert(stickie)?;
            resource.register(context, write)?;
        }
        Came::Before => {
            write.update(stickie)?;
            write.rename(stickie.id, &resource.path)?;
        }
    }
    keep_revision(context, write, stickie.id.uuid(), stickie.edit_count, &stickie.content())?;
    mark_changed(write, board.id)?;
    Ok(resource)
}

/// The board is held, so nobody takes the name meanwhile.
pub(crate) fn refuse_taken_name(write: &mut Writer<'_>, stickie: &Stickie) -> Result<()> {
    let Some(name) = &stickie.name else {
        return Ok(());
    };
    let taken = write.count(
        "select count(*) from stickies where tenant_id = ?1 and board_id = ?2 and name = ?3 and id <> ?4 and deleted_at is null",
        params![stickie.board_id, name, stickie.id],
    )?;
    if taken > 0 {
        return Err(Rule::conflict(format!("the board has a stickie called {name:?} already")).into());
    }
    Ok(())
}

/// Keeps what a board or a stickie says at this edit.
pub(crate) fn keep_revision<C: Serialize>(
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
