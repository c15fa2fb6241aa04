//! Taking over what a folder says of a board: all of it in one transaction, or nothing.

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Error as Rule, Id, Ref, Time,
    board::{BoardContent, StickieContent},
    board_folder::{BoardFile, Folder},
    board_sync::{Compared, Counts, Moved, Place, compare_relations, compare_stickies, names, who_moved},
    kind, text,
};
use trackway_store::{
    Writer,
    boards::WholeBoard,
    params,
    tables::{Board, Stickie, StickieRelation},
};
use uuid::Uuid;

use super::{
    Came,
    archive::remove_stickie,
    blank, board_resource, edited, held, held_board, keep, mark_changed,
    relation::{between, relation},
    set, stickie_resource,
};
use crate::{
    action::{About, Action, Done, Resource},
    context::Context,
    error::Result,
    touched::{Touch, did},
};

/// Bring the changes of a folder into its board, or those of a board into its folder
///
/// What was edited on one side is taken over by the other; what was edited on both is a conflict, and then nothing is
/// changed.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SyncBoard {
    /// The board (the one that the folder names, else a new one, when left out)
    pub board: Option<Ref<kind::Board>>,
    /// What the folder says, as JSON
    #[arg(long, value_name = "JSON", value_parser = parse_folder)]
    pub folder: Folder,
    /// Take the folder's word where both sides were edited
    #[arg(long)]
    #[serde(default)]
    pub force: bool,
}

fn parse_folder(given: &str) -> std::result::Result<Folder, String> {
    serde_json::from_str(given).map_err(|error| error.to_string())
}

/// What a sync did.
#[derive(Debug, Serialize)]
pub struct Synced {
    pub id: Id<kind::Board>,
    #[serde(flatten)]
    pub counts: Counts,
    /// Whether what is said of the board itself was new, or changed.
    pub board: &'static str,
    pub relations: Counts,
    /// Changes of the board that the folder does not have yet.
    pub left: i64,
    /// The files that are to be written anew.
    pub files: Vec<SyncedFile>,
    pub content: BoardContent,
    pub edit_count: i64,
    /// The newest change of the board, when the folder has all of them.
    pub synced_at: Option<Time>,
}

/// A file that does not say yet which stickie and which edit it is of.
#[derive(Debug, Serialize)]
pub struct SyncedFile {
    pub file: String,
    pub id: Id<kind::Stickie>,
    pub edit_count: i64,
    pub content: StickieContent,
}

type Boards = (Touch<kind::Board, did::Create>, Touch<kind::Board, did::Update>);
type Stickies =
    (Touch<kind::Stickie, did::Create>, (Touch<kind::Stickie, did::Update>, Touch<kind::Stickie, did::Delete>));

impl Action for SyncBoard {
    const NAME: &'static str = "sync_board";
    const CAPABILITY: &'static str = "set_board";
    const COMMAND: (&'static str, &'static str) = ("board", "sync");
    type Touched = (Boards, Stickies);
    type Output = Synced;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let (board, new) = self.board(context, write)?;
        let whole = write.whole_board(board.id)?;
        write.refuse_foreign(&whole, &self.folder)?;
        let earlier = write.earlier_stickies(&whole, &self.folder)?;
        let compared =
            compare_stickies(&whole.stickies, &self.folder, &earlier, || write.new_id::<kind::Stickie>().uuid())?;
        let said = self.said_of_board(write, &whole)?;
        if !self.force {
            refuse_conflicts(&compared, said.as_ref().is_some_and(|(_, moved)| *moved == Moved::Both))?;
        }
        let taken = |moved: Moved| moved == Moved::Folder || moved == Moved::Both;
        let mut sync = Sync { context, write, board, did: Did::default() };
        let of_board = match said {
            Some((content, moved)) if taken(moved) => sync.set_board(&whole, &content)?,
            Some(_) => {
                sync.did.left += 1;
                "same"
            }
            None => "same",
        };
        let of_board = if new { "new" } else { of_board };
        sync.take_stickies(&compared, taken)?;
        sync.take_relations(&whole, &self.folder, &compared)?;
        sync.finish(of_board)
    }
}

impl SyncBoard {
    /// The board that is meant, held; a new one when there is none, and whether it is.
    fn board(&self, context: &Context, write: &mut Writer<'_>) -> Result<(Board, bool)> {
        if let Some(reference) = &self.board {
            return Ok((held_board(write, reference)?, false));
        }
        let file = self.folder.board.as_ref();
        let mut board = set::blank(context, write);
        if let Some(said) = file.and_then(|file| file.id.as_deref()) {
            let id = Uuid::parse_str(said).map_err(|_| Rule::usage(format!("{said:?} is no id of a board")))?;
            let there = write.query_unscoped::<(Uuid,)>("select id from registry where id = ?1", params![id])?;
            if !there.is_empty() {
                return Ok((held(write, id.into())?, false));
            }
            board.id = id.into();
        } else if let Some(name) = file.and_then(|file| file.applied_to(&BoardContent::default()).ok()?.name) {
            let found = write.one::<(Id<kind::Board>,)>(
                "select id from boards where tenant_id = ?1 and name = ?2 and deleted_at is null",
                params![name],
            )?;
            if let Some((id,)) = found {
                return Ok((held(write, id)?, false));
            }
        }
        Ok((set::save(context, write, board, true)?.board, true))
    }

    /// What the folder makes of the board itself, when that is something else, and who moved.
    fn said_of_board(&self, write: &mut Writer<'_>, whole: &WholeBoard) -> Result<Option<(BoardContent, Moved)>> {
        let Some(file) = &self.folder.board else {
            return Ok(None);
        };
        let present = whole.shown.content();
        let said = file.applied_to(&present)?;
        if said == present {
            return Ok(None);
        }
        Ok(Some((said, moved_board(write, whole, file)?)))
    }
}

/// Who edited what is said of the board itself.
fn moved_board(write: &mut Writer<'_>, whole: &WholeBoard, file: &BoardFile) -> Result<Moved> {
    let board = &whole.shown.board;
    let base = file.edit_count.map(|number| write.earlier_board(board.id, number)).transpose()?.flatten();
    Ok(who_moved(file.edit_count, board.edit_count, base.as_ref(), |base| file.applied_to(base))?)
}

fn refuse_conflicts(compared: &[Compared<'_>], of_board: bool) -> Result<()> {
    let both = compared.iter().filter(|one| one.moved == Moved::Both).map(Compared::called);
    let both: Vec<String> = of_board.then(|| "blackboard.yaml".to_owned()).into_iter().chain(both).collect();
    if both.is_empty() {
        return Ok(());
    }
    Err(Rule::conflict(format!("edited on both sides: {}", both.join(", ")))
        .hint("see board diff; --force takes the word of the side that is read. Nothing was changed")
        .into())
}

/// What was done so far.
#[derive(Debug, Default)]
struct Did {
    counts: Counts,
    relations: Counts,
    left: i64,
    changed: bool,
    about: Vec<About>,
    boards: (Vec<Resource<kind::Board>>, Vec<Resource<kind::Board>>),
    created: Vec<Resource<kind::Stickie>>,
    updated: Vec<Resource<kind::Stickie>>,
    deleted: Vec<Resource<kind::Stickie>>,
    files: Vec<SyncedFile>,
}

/// A sync under way.
struct Sync<'a, 'b> {
    context: &'a Context,
    write: &'a mut Writer<'b>,
    board: Board,
    did: Did,
}

impl Sync<'_, '_> {
    fn set_board(&mut self, whole: &WholeBoard, said: &BoardContent) -> Result<&'static str> {
        let present = whole.shown.content();
        let mut board = self.board.clone();
        board.name = said.name.as_deref().map(|name| text::name("board name", name)).transpose()?;
        board.project.clone_from(&said.project);
        board.background.clone_from(&said.background);
        board.guidelines.clone_from(&said.guidelines);
        board.lifecycle = said.lifecycle;
        // Only what differs is looked up: what a name stood for may be deleted by now.
        if said.role != present.role {
            board.role_id = said.role.as_ref().map(|role| self.write.resolve(&Ref::new(role))).transpose()?;
        }
        if said.conversation != present.conversation {
            let found = said.conversation.as_ref().map(|conversation| self.write.resolve(&Ref::new(conversation)));
            board.conversation_id = found.transpose()?;
        }
        if said.task != present.task {
            board.task_id = said.task.as_ref().map(|task| self.write.resolve(&Ref::new(task))).transpose()?;
        }
        self.board = set::save(self.context, self.write, board, false)?.board;
        self.did.changed = true;
        self.did.boards.1.push(board_resource(&self.board));
        Ok("changed")
    }

    fn take_stickies(&mut self, compared: &[Compared<'_>], taken: impl Fn(Moved) -> bool) -> Result<()> {
        let mut rows: Vec<(Stickie, &Compared<'_>)> = Vec::new();
        for one in compared {
            if let (Some(known), Some(file), Place::Same) = (one.known, one.file, one.place)
                && (file.id.is_none() || file.edit_count != Some(known.edit_count))
            {
                let content = known.content.clone();
                let (id, edit_count) = (one.id.into(), known.edit_count);
                self.did.files.push(SyncedFile { file: file.file.clone(), id, edit_count, content });
            }
            if !taken(one.moved) {
                self.did.counts.unchanged += i64::from(one.place != Place::OnlyInFolder);
                self.did.left += i64::from(one.moved == Moved::Database);
                continue;
            }
            let row = self.write.row::<Stickie>("where tenant_id = ?1 and id = ?2", params![one.id])?;
            match (one.place, row) {
                (Place::OnlyInDatabase, Some(row)) => {
                    remove_stickie(self.write, &self.board, row.id)?;
                    self.did.counts.removed += 1;
                    self.did.deleted.push(stickie_resource(&self.board, &row));
                }
                (_, Some(row)) => {
                    // Names may change places: all of them are free before any is taken.
                    self.write
                        .post("update stickies set name = null where tenant_id = ?1 and id = ?2", params![row.id])?;
                    rows.push((row, one));
                }
                (_, None) => rows.push((blank(self.context, self.write, &self.board, one.id.into())?, one)),
            }
        }
        for (row, one) in rows {
            self.take_stickie(&row, one)?;
        }
        self.did.changed |= self.did.counts != Counts { unchanged: self.did.counts.unchanged, ..Counts::default() };
        Ok(())
    }

    fn take_stickie(&mut self, row: &Stickie, one: &Compared<'_>) -> Result<()> {
        let Some(content) = one.said()? else {
            return Ok(());
        };
        let stickie = edited(self.write, row, content.clone());
        let came = if one.known.is_some() { Came::Before } else { Came::New };
        let resource = keep(self.context, self.write, &self.board, &stickie, came)?;
        if row.deleted_at.is_some() {
            self.write
                .post("update registry set deleted_at = null where tenant_id = ?1 and id = ?2", params![row.id])?;
        }
        if one.place == Place::Changed {
            self.did.counts.updated += 1;
            self.did.updated.push(resource);
        } else {
            self.did.counts.created += 1;
            self.did.created.push(resource);
        }
        let file = one.file.map(|file| file.file.clone()).unwrap_or_default();
        self.did.files.push(SyncedFile { file, id: stickie.id, edit_count: stickie.edit_count, content });
        Ok(())
    }

    fn take_relations(&mut self, whole: &WholeBoard, folder: &Folder, compared: &[Compared<'_>]) -> Result<()> {
        let names = names(compared)?;
        let relations = compare_relations(&whole.relations, folder, |name| names.get(name).copied())?;
        for one in relations {
            let (from, to) = (one.edge.from.into(), one.edge.to.into());
            let counts = &mut self.did.relations;
            if one.moved != Moved::Folder {
                counts.unchanged += i64::from(one.place != Place::OnlyInFolder);
                self.did.left += i64::from(one.moved == Moved::Database && folder.relations.is_some());
                continue;
            }
            let now = self.write.now;
            match (one.place, between(self.write, from, to, one.edge.relation_type)?) {
                (Place::OnlyInFolder, None) => {
                    self.require_standing(&[from, to])?;
                    let new = relation(self.context, self.write, from, to, one.edge.relation_type, one.labels);
                    self.write.insert(&new)?;
                    self.did.relations.created += 1;
                }
                (Place::OnlyInDatabase, Some(row)) => {
                    self.write.update(&StickieRelation { deleted_at: Some(now), ..row })?;
                    self.did.relations.removed += 1;
                }
                (_, Some(row)) => {
                    self.write.update(&StickieRelation { labels: one.labels, updated_at: now, ..row })?;
                    self.did.relations.updated += 1;
                }
                // Gone with its stickie.
                (_, None) => continue,
            }
            self.did.changed = true;
            let row = self.write.row::<Stickie>("where tenant_id = ?1 and id = ?2", params![from])?;
            let known = |list: &[Resource<_>]| list.iter().any(|resource| resource.id == from);
            if let Some(row) = row.filter(|_| !known(&self.did.updated) && !known(&self.did.created)) {
                self.did.updated.push(stickie_resource(&self.board, &row));
            }
        }
        Ok(())
    }

    fn require_standing(&mut self, stickies: &[Id<kind::Stickie>; 2]) -> Result<()> {
        for id in stickies {
            let found =
                self.write.row::<Stickie>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![*id])?;
            if found.is_none() {
                return Err(Rule::not_found(format!("relations.yaml: there is no stickie {id} on this board")).into());
            }
        }
        Ok(())
    }

    fn finish(self, of_board: &'static str) -> Result<Done<SyncBoard>> {
        let Self { write, mut board, mut did, .. } = self;
        if did.changed {
            mark_changed(write, board.id)?;
            board.changed_at = write.now;
        }
        let shown = write.shown_by_id::<trackway_store::shown::BoardShown>("b", board.id)?;
        if of_board == "new" {
            did.boards = (vec![board_resource(&shown.board)], Vec::new());
        }
        let synced = Synced {
            id: board.id,
            counts: did.counts,
            board: of_board,
            relations: did.relations,
            left: did.left,
            files: did.files,
            content: shown.content(),
            edit_count: shown.board.edit_count,
            synced_at: (did.left == 0).then_some(board.changed_at),
        };
        if !did.changed && of_board != "new" {
            return Ok(Done::unchanged(synced));
        }
        did.about.extend(did.boards.0.iter().chain(&did.boards.1).map(About::from));
        did.about.extend(did.created.iter().chain(&did.updated).chain(&did.deleted).map(About::from));
        let touched = (
            (Touch::many(did.boards.0), Touch::many(did.boards.1)),
            (Touch::many(did.created), (Touch::many(did.updated), Touch::many(did.deleted))),
        );
        Ok(Done::changed_several(synced, did.about, touched))
    }
}
