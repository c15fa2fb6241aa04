//! Syncing a board with a folder of files, in one transaction.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Error as Rule, Id, Patch, Ref, Time,
    board::{BoardContent, StickieContent},
    board_folder::{BOARD_FILE, BoardFile, Folder, RelationFile, STICKIE_SUFFIX, StickieFile},
    board_relations::{ComparedRelation, StickieNames, relation_line},
    board_sync::{ComparedStickie, Counts, Difference, EditedSide, compare_stickies, find_edited_side},
    field, kind, sentence, text,
};
use trackway_store::{
    Writer,
    boards::BoardContents,
    params,
    tables::{Board, Stickie, StickieRelation},
};
use uuid::Uuid;

use super::{
    WriteKind, advance_past_last_change, blank_stickie, board_resource, locked_board, locked_board_by_id, mark_changed,
    next_edit, set, stickie_resource, write_stickie,
};
use crate::{
    action::{Action, ActionOutcome, Resource, Subject},
    context::Context,
    error::Result,
    stickie::{
        relate::{find_relation, new_relation, save_label_revision},
        remove_stickie,
    },
    touched::{Touch, action_type},
};

/// Sync a board with a folder, in both directions
///
/// Each side receives the edits of the other. If both sides edited the same stickie, the same relation or the board's
/// own fields, the sync fails and changes nothing.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SyncBoard {
    /// Board to sync [default: the board that the folder names, else a new one]
    pub board: Option<Ref<kind::Board>>,
    /// Content of the folder, as JSON
    #[arg(long, value_name = "JSON", value_parser = parse_folder)]
    pub folder: Folder,
    /// Keep the folder's version where both sides were edited
    #[arg(long)]
    #[serde(default)]
    pub force: bool,
}

fn parse_folder(given: &str) -> std::result::Result<Folder, String> {
    serde_json::from_str(given).map_err(|error| error.to_string())
}

/// The changes that a sync made to the board, and those that the folder still needs.
#[derive(Debug, Serialize)]
pub struct SyncResult {
    pub id: Id<kind::Board>,
    #[serde(flatten)]
    pub counts: Counts,
    /// The effect on the board's own fields: `new`, `changed` or `same`.
    pub board: &'static str,
    pub relations: Counts,
    /// Changes of the board that the folder does not have yet.
    pub left: i64,
    /// The files that the caller has to rewrite.
    pub files: Vec<SyncedFile>,
    /// The new content of `relations.yaml`, if the folder has this file.
    pub lines: Option<Vec<RelationFile>>,
    pub content: BoardContent,
    pub edit_count: i64,
    /// The time of the board's last change, if the folder has all changes.
    pub synced_at: Option<Time>,
}

/// A stickie file that has to be rewritten, because its stickie id or edit number is missing or outdated.
#[derive(Debug, Serialize)]
pub struct SyncedFile {
    pub file: String,
    pub id: Id<kind::Stickie>,
    pub edit_count: i64,
    pub content: StickieContent,
}

type BoardTouches = (Touch<kind::Board, action_type::Create>, Touch<kind::Board, action_type::Update>);
type StickieTouches = (
    Touch<kind::Stickie, action_type::Create>,
    (Touch<kind::Stickie, action_type::Update>, Touch<kind::Stickie, action_type::Delete>),
);

impl Action for SyncBoard {
    const NAME: &'static str = "sync_board";
    const CAPABILITY: &'static str = "set_board";
    const COMMAND: (&'static str, &'static str) = ("board", "sync");
    type Touched = (BoardTouches, StickieTouches);
    type Output = SyncResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        if self.folder.board.is_none() && self.folder.stickies.is_empty() {
            return Err(Rule::usage(format!("the folder has neither {BOARD_FILE} nor a stickie file"))
                .hint(format!("stickie files are called NAME{STICKIE_SUFFIX}; board export writes such a folder"))
                .into());
        }
        let (board, origin) = self.board(context, write)?;
        let whole = write.board_contents(board.id)?;
        write.reject_foreign_ids(&whole, &self.folder)?;
        let earlier = write.stickie_contents_at_edits(&whole, &self.folder)?;
        let compared =
            compare_stickies(&whole.stickies, &self.folder, &earlier, || write.new_id::<kind::Stickie>().uuid())?;
        let (relations, names) = write.compare_relations(&whole, &self.folder, &compared, &earlier)?;
        let folder_content = self.folder_board_content(write, &whole)?;
        if !self.force && origin != BoardOrigin::Restored {
            refuse_conflicts(
                &compared,
                &relations,
                &names,
                folder_content.as_ref().is_some_and(|(_, side)| *side == EditedSide::Both),
            )?;
        }
        // Nobody can have edited a deleted board, so a restored board takes all its content from the folder.
        let applies = |side: EditedSide| {
            matches!(side, EditedSide::Folder | EditedSide::Both)
                || (side == EditedSide::Database && origin == BoardOrigin::Restored)
        };
        require_distinct_names(&compared, applies)?;
        let mut sync = Sync { context, write, board, changes: SyncChanges::default() };
        let board_effect = match folder_content {
            Some((content, side)) if applies(side) => sync.set_board(&whole, &content)?,
            Some(_) => {
                sync.changes.pending += 1;
                "same"
            }
            None => "same",
        };
        let board_effect = if origin == BoardOrigin::Existing { board_effect } else { "new" };
        sync.apply_stickies(&compared, applies)?;
        let lines = sync.apply_relations(&relations, &names, &compared, applies)?;
        sync.finish(board_effect, self.folder.relations.is_some().then_some(lines))
    }
}

/// The origin of the board of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BoardOrigin {
    New,
    Existing,
    /// The board was deleted, and the sync restores it.
    Restored,
}

impl SyncBoard {
    /// Finds and locks the board to sync, or creates it.
    fn board(&self, context: &Context, write: &mut Writer<'_>) -> Result<(Board, BoardOrigin)> {
        if let Some(reference) = &self.board {
            return Ok((locked_board(write, reference)?, BoardOrigin::Existing));
        }
        let file = self.folder.board.as_ref();
        let mut board = set::blank_board(context, write);
        if let Some((given_id, name)) = file.and_then(|file| Some((file.id.as_deref()?, &file.name))) {
            let id = Uuid::parse_str(given_id)
                .map_err(|_| Rule::usage(format!("{BOARD_FILE}: {given_id:?} is not the id of a board")))?;
            let registered = write.query_unscoped::<(Uuid,)>("select id from registry where id = ?1", params![id])?;
            if !registered.is_empty() {
                return find_or_restore_board(context, write, id.into(), name);
            }
            board.id = id.into();
        } else if let Some(name) = file.and_then(|file| file.applied_to(&BoardContent::default()).ok()?.name) {
            let found = write.one::<(Id<kind::Board>,)>(
                "select id from boards where tenant_id = ?1 and name = ?2 and deleted_at is null",
                params![name],
            )?;
            if let Some((id,)) = found {
                return Ok((locked_board_by_id(write, id)?, BoardOrigin::Existing));
            }
        }
        Ok((set::save(context, write, board, true)?.board, BoardOrigin::New))
    }

    /// The board content that the folder describes, with the side that edited it. `None` if it equals the content of
    /// the board.
    fn folder_board_content(
        &self,
        write: &mut Writer<'_>,
        whole: &BoardContents,
    ) -> Result<Option<(BoardContent, EditedSide)>> {
        let Some(file) = &self.folder.board else {
            return Ok(None);
        };
        let present = whole.row.content();
        let content = file.applied_to(&present)?;
        if content == present {
            return Ok(None);
        }
        Ok(Some((content, board_edited_side(write, whole, file)?)))
    }
}

/// Returns the side that edited the board's own fields since the last sync.
fn board_edited_side(write: &mut Writer<'_>, whole: &BoardContents, file: &BoardFile) -> Result<EditedSide> {
    let board = &whole.row.board;
    let base = file.edit_count.map(|number| write.board_content_at_edit(board.id, number)).transpose()?.flatten();
    Ok(find_edited_side(file.edit_count, board.edit_count, base.as_ref(), |base| file.applied_to(base))?)
}

/// Locks the board with a registered id, and restores it if it was deleted.
fn find_or_restore_board(
    context: &Context,
    write: &mut Writer<'_>,
    id: Id<kind::Board>,
    name: &Patch<String>,
) -> Result<(Board, BoardOrigin)> {
    let mut board = write.row_locked::<Board>("where tenant_id = ?1 and id = ?2", params![id])?.ok_or_else(|| {
        Rule::conflict(format!("{BOARD_FILE}: {id} is not a board")).hint("remove the id to create a new board")
    })?;
    if board.deleted_at.take().is_none() {
        return Ok((locked_board_by_id(write, id)?, BoardOrigin::Existing));
    }
    advance_past_last_change(write, &board);
    // Another board may have taken its name meanwhile, so the name comes from the folder.
    let name = name.line("board name", text::LINE_MAX)?.try_map(|name| text::check_name("board name", &name))?;
    board.name = name.apply(board.name);
    let board = set::save(context, write, board, false)?.board;
    write.post("update registry set deleted_at = null where tenant_id = ?1 and id = ?2", params![id])?;
    Ok((board, BoardOrigin::Restored))
}

fn refuse_conflicts(
    compared: &[ComparedStickie<'_>],
    relations: &[ComparedRelation<'_>],
    names: &StickieNames,
    is_board_conflict: bool,
) -> Result<()> {
    let stickies = compared.iter().filter(|one| one.edited_side == EditedSide::Both).map(ComparedStickie::display_name);
    let relations =
        relations.iter().filter(|one| one.edited_side == EditedSide::Both).map(|one| one.display_name(names));
    let board = is_board_conflict.then(|| BOARD_FILE.to_owned()).into_iter();
    let both: Vec<String> = board.chain(stickies).chain(relations).collect();
    if both.is_empty() {
        return Ok(());
    }
    Err(Rule::conflict(format!("edited on both sides: {}", both.join(", ")))
        .hint(sentence![
            "nothing was changed. See the conflicts with board diff, or keep the folder's version with ",
            field!(force),
        ])
        .into())
}

/// Rejects a folder in which two stickies would have the same name.
fn require_distinct_names(compared: &[ComparedStickie<'_>], applies: impl Fn(EditedSide) -> bool) -> Result<()> {
    let mut file_of_name: HashMap<String, &StickieFile> = HashMap::new();
    for one in compared {
        let Some(file) = one.file else { continue };
        let content =
            if applies(one.edited_side) { one.folder_content()? } else { one.known.map(|known| known.content.clone()) };
        if let Some(name) = content.filter(|_| one.exists_after_sync(&applies)).and_then(|content| content.name)
            && let Some(other) = file_of_name.insert(name.clone(), file)
        {
            return Err(Rule::conflict(format!("{} and {} are both called {name:?}", other.file, file.file))
                .hint("give one of them another name; nothing was changed")
                .into());
        }
    }
    Ok(())
}

/// The changes that the sync has made so far.
#[derive(Debug, Default)]
struct SyncChanges {
    counts: Counts,
    relations: Counts,
    pending: i64,
    has_changes: bool,
    subjects: Vec<Subject>,
    boards: (Vec<Resource<kind::Board>>, Vec<Resource<kind::Board>>),
    created: Vec<Resource<kind::Stickie>>,
    updated: Vec<Resource<kind::Stickie>>,
    deleted: Vec<Resource<kind::Stickie>>,
    files: Vec<SyncedFile>,
}

/// A sync in progress.
struct Sync<'a, 'b> {
    context: &'a Context,
    write: &'a mut Writer<'b>,
    board: Board,
    changes: SyncChanges,
}

impl Sync<'_, '_> {
    fn set_board(&mut self, whole: &BoardContents, content: &BoardContent) -> Result<&'static str> {
        let present = whole.row.content();
        let BoardContent { name, role, conversation, project, task, background, guidelines, lifecycle } = content;
        let board = self.board.clone();
        // An unchanged reference is not resolved again, because the row that it names may be deleted by now.
        let board = Board {
            id: board.id,
            tenant_id: board.tenant_id,
            name: name.as_deref().map(|name| text::check_name("board name", name)).transpose()?,
            role_id: if *role == present.role {
                board.role_id
            } else {
                role.as_ref().map(|role| self.write.resolve(&Ref::new(role))).transpose()?
            },
            conversation_id: if *conversation == present.conversation {
                board.conversation_id
            } else {
                conversation.as_ref().map(|one| self.write.resolve(&Ref::new(one))).transpose()?
            },
            project: project.clone(),
            task_id: if *task == present.task {
                board.task_id
            } else {
                task.as_ref().map(|task| self.write.resolve(&Ref::new(task))).transpose()?
            },
            background: background.clone(),
            guidelines: guidelines.clone(),
            lifecycle: *lifecycle,
            edit_count: board.edit_count,
            created_at: board.created_at,
            updated_at: board.updated_at,
            changed_at: board.changed_at,
            archived_at: board.archived_at,
            deleted_at: board.deleted_at,
        };
        self.board = set::save(self.context, self.write, board, false)?.board;
        self.changes.has_changes = true;
        self.changes.boards.1.push(board_resource(&self.board));
        Ok("changed")
    }

    fn apply_stickies(&mut self, compared: &[ComparedStickie<'_>], applies: impl Fn(EditedSide) -> bool) -> Result<()> {
        let mut rows: Vec<(Stickie, &ComparedStickie<'_>)> = Vec::new();
        for one in compared {
            if let (Some(known), Some(file), Difference::Same) = (one.known, one.file, one.difference)
                && (file.id.is_none() || file.edit_count != Some(known.edit_count))
            {
                let content = known.content.clone();
                let (id, edit_count) = (one.id.into(), known.edit_count);
                self.changes.files.push(SyncedFile { file: file.file.clone(), id, edit_count, content });
            }
            if !applies(one.edited_side) {
                self.changes.counts.unchanged += i64::from(one.difference != Difference::OnlyInFolder);
                self.changes.pending += i64::from(one.edited_side == EditedSide::Database);
                continue;
            }
            let row = self.write.row::<Stickie>("where tenant_id = ?1 and id = ?2", params![one.id])?;
            match (one.difference, row) {
                (Difference::OnlyInDatabase, Some(row)) => {
                    remove_stickie(self.write, &self.board, row.id)?;
                    self.changes.counts.removed += 1;
                    self.changes.deleted.push(stickie_resource(&self.board, &row));
                }
                (_, Some(row)) => {
                    // Two stickies may swap their names, so clear all names before setting any.
                    self.write
                        .post("update stickies set name = null where tenant_id = ?1 and id = ?2", params![row.id])?;
                    rows.push((row, one));
                }
                (_, None) => rows.push((blank_stickie(self.context, self.write, &self.board, one.id.into())?, one)),
            }
        }
        for (row, one) in rows {
            self.apply_stickie(&row, one)?;
        }
        self.changes.has_changes |=
            self.changes.counts != Counts { unchanged: self.changes.counts.unchanged, ..Counts::default() };
        Ok(())
    }

    fn apply_stickie(&mut self, row: &Stickie, one: &ComparedStickie<'_>) -> Result<()> {
        let Some(content) = one.folder_content()? else {
            return Ok(());
        };
        let stickie = next_edit(self.write, row, content.clone());
        let kind = if one.known.is_some() { WriteKind::Update } else { WriteKind::Insert };
        let resource = write_stickie(self.context, self.write, &self.board, &stickie, kind)?;
        if row.deleted_at.is_some() {
            self.write
                .post("update registry set deleted_at = null where tenant_id = ?1 and id = ?2", params![row.id])?;
        }
        if one.difference == Difference::Changed {
            self.changes.counts.updated += 1;
            self.changes.updated.push(resource);
        } else {
            self.changes.counts.created += 1;
            self.changes.created.push(resource);
        }
        let file = one.file.map(|file| file.file.clone()).unwrap_or_default();
        self.changes.files.push(SyncedFile { file, id: stickie.id, edit_count: stickie.edit_count, content });
        Ok(())
    }

    /// Applies the relations of the folder, and returns the new lines of its relations file.
    fn apply_relations(
        &mut self,
        relations: &[ComparedRelation<'_>],
        names: &StickieNames,
        stickies: &[ComparedStickie<'_>],
        applies: impl Fn(EditedSide) -> bool,
    ) -> Result<Vec<RelationFile>> {
        let stickie = |id: Uuid| stickies.iter().find(|stickie| stickie.id == id);
        let mut lines = Vec::new();
        for one in relations {
            let ends = [stickie(one.edge.from), stickie(one.edge.to)];
            let edit_count = if !ends.iter().all(|end| end.is_some_and(|end| end.exists_after_sync(&applies))) {
                // The relation was removed together with a stickie. Its line stays only while both stickie files exist.
                self.changes.relations.removed += i64::from(one.difference != Difference::OnlyInFolder);
                let is_filed = ends.iter().all(|end| end.is_some_and(|end| end.file.is_some()));
                one.line.filter(|_| is_filed).map(|line| line.edit_count)
            } else if applies(one.edited_side) {
                self.apply_relation(one)?.map(Some)
            } else {
                self.changes.relations.unchanged += i64::from(one.difference != Difference::OnlyInFolder);
                self.changes.pending += i64::from(one.edited_side == EditedSide::Database);
                match (one.difference, one.known) {
                    (Difference::Same, Some(known)) => Some(Some(known.edit_count)),
                    _ => one.line.map(|line| line.edit_count),
                }
            };
            lines.extend(
                edit_count.map(|number| relation_line(one.edge, &one.labels, number, |id| names.display_name(id))),
            );
        }
        Ok(lines)
    }

    /// Applies one relation. Returns its edit number, or `None` if it was removed.
    fn apply_relation(&mut self, one: &ComparedRelation<'_>) -> Result<Option<i64>> {
        let (from, to) = (one.edge.from.into(), one.edge.to.into());
        let before = find_relation(self.write, from, to, one.edge.relation_type)?;
        let (now, labels) = (self.write.now, one.labels.clone());
        let counts = &mut self.changes.relations;
        let written = match (one.difference, before) {
            (Difference::OnlyInDatabase, before) => {
                if let Some(row) = before {
                    self.write.update(&StickieRelation { deleted_at: Some(now), ..row })?;
                }
                counts.removed += 1;
                None
            }
            (_, Some(row)) => {
                counts.updated += 1;
                let row = StickieRelation { labels, updated_at: now, ..row };
                self.write.update(&row)?;
                Some(row)
            }
            (_, None) => {
                counts.created += 1;
                let row = new_relation(self.context, self.write, from, to, one.edge.relation_type, labels);
                self.write.insert(&row)?;
                Some(row)
            }
        };
        self.changes.has_changes = true;
        let row = self.write.row::<Stickie>("where tenant_id = ?1 and id = ?2", params![from])?;
        let known = |list: &[Resource<_>]| list.iter().any(|resource| resource.id == from);
        if let Some(row) = row.filter(|_| !known(&self.changes.updated) && !known(&self.changes.created)) {
            self.changes.updated.push(stickie_resource(&self.board, &row));
        }
        written.map(|row| save_label_revision(self.context, self.write, &row)).transpose()
    }

    fn finish(self, board_effect: &'static str, lines: Option<Vec<RelationFile>>) -> Result<ActionOutcome<SyncBoard>> {
        let Self { write, mut board, mut changes, .. } = self;
        if changes.has_changes {
            mark_changed(write, board.id)?;
            board.changed_at = write.now;
        }
        let shown = write.display_row_by_id::<trackway_store::display::BoardRow>("b", board.id)?;
        if board_effect == "new" {
            changes.boards = (vec![board_resource(&shown.board)], Vec::new());
        }
        let synced = SyncResult {
            id: board.id,
            counts: changes.counts,
            board: board_effect,
            relations: changes.relations,
            left: changes.pending,
            files: changes.files,
            lines,
            content: shown.content(),
            edit_count: shown.board.edit_count,
            synced_at: (changes.pending == 0).then_some(board.changed_at),
        };
        if !changes.has_changes && board_effect != "new" {
            return Ok(ActionOutcome::unchanged(synced));
        }
        changes.subjects.extend(changes.boards.0.iter().chain(&changes.boards.1).map(Subject::from));
        changes
            .subjects
            .extend(changes.created.iter().chain(&changes.updated).chain(&changes.deleted).map(Subject::from));
        let touched = (
            (Touch::many(changes.boards.0), Touch::many(changes.boards.1)),
            (Touch::many(changes.created), (Touch::many(changes.updated), Touch::many(changes.deleted))),
        );
        Ok(ActionOutcome::changed_several(synced, changes.subjects, touched))
    }
}
