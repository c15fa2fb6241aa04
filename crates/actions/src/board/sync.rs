//! Taking over what a folder says of a board: all of it in one transaction, or nothing.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Error as Rule, Id, Patch, Ref, Time,
    board::{BoardContent, StickieContent},
    board_folder::{BOARD_FILE, BoardFile, Folder, RelationFile, STICKIE_SUFFIX, StickieFile},
    board_relations::{ComparedRelation, Names, line},
    board_sync::{Compared, Counts, Moved, Place, compare_stickies, who_moved},
    field, kind, sentence, text,
};
use trackway_store::{
    Writer,
    boards::WholeBoard,
    params,
    tables::{Board, Stickie, StickieRelation},
};
use uuid::Uuid;

use super::{
    Came, blank, board_resource, edited, grow_time, held, held_board, keep, mark_changed, set, stickie_resource,
};
use crate::{
    action::{About, Action, Done, Resource},
    context::Context,
    error::Result,
    stickie::{
        relate::{between, keep_labels, relation},
        remove_stickie,
    },
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
    /// What `relations.yaml` is to say, where there is one.
    pub lines: Option<Vec<RelationFile>>,
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
        if self.folder.board.is_none() && self.folder.stickies.is_empty() {
            return Err(Rule::usage(format!("the folder has no {BOARD_FILE} and no stickie"))
                .hint(format!("a stickie is a file NAME{STICKIE_SUFFIX}; board export writes a folder"))
                .into());
        }
        let (board, came) = self.board(context, write)?;
        let whole = write.whole_board(board.id)?;
        write.refuse_foreign(&whole, &self.folder)?;
        let earlier = write.earlier_stickies(&whole, &self.folder)?;
        let compared =
            compare_stickies(&whole.stickies, &self.folder, &earlier, || write.new_id::<kind::Stickie>().uuid())?;
        let (relations, names) = write.compare_relations(&whole, &self.folder, &compared, &earlier)?;
        let said = self.said_of_board(write, &whole)?;
        if !self.force && came != BoardCame::Back {
            refuse_conflicts(
                &compared,
                &relations,
                &names,
                said.as_ref().is_some_and(|(_, moved)| *moved == Moved::Both),
            )?;
        }
        // Nobody moved anything on a board that was away: it comes back as its folder says.
        let taken = |moved: Moved| {
            matches!(moved, Moved::Folder | Moved::Both) || (moved == Moved::Database && came == BoardCame::Back)
        };
        refuse_same_names(&compared, taken)?;
        let mut sync = Sync { context, write, board, did: Did::default() };
        let of_board = match said {
            Some((content, moved)) if taken(moved) => sync.set_board(&whole, &content)?,
            Some(_) => {
                sync.did.left += 1;
                "same"
            }
            None => "same",
        };
        let of_board = if came == BoardCame::Before { of_board } else { "new" };
        sync.take_stickies(&compared, taken)?;
        let lines = sync.take_relations(&relations, &names, &compared, taken)?;
        sync.finish(of_board, self.folder.relations.is_some().then_some(lines))
    }
}

/// How a board came to be there for a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BoardCame {
    New,
    Before,
    /// It was deleted.
    Back,
}

impl SyncBoard {
    /// The board that is meant, held; a new one when there is none.
    fn board(&self, context: &Context, write: &mut Writer<'_>) -> Result<(Board, BoardCame)> {
        if let Some(reference) = &self.board {
            return Ok((held_board(write, reference)?, BoardCame::Before));
        }
        let file = self.folder.board.as_ref();
        let mut board = set::blank(context, write);
        if let Some((said, name)) = file.and_then(|file| Some((file.id.as_deref()?, &file.name))) {
            let id = Uuid::parse_str(said).map_err(|_| Rule::usage(format!("{said:?} is no id of a board")))?;
            let there = write.query_unscoped::<(Uuid,)>("select id from registry where id = ?1", params![id])?;
            if !there.is_empty() {
                return stands_or_is_back(context, write, id.into(), name);
            }
            board.id = id.into();
        } else if let Some(name) = file.and_then(|file| file.applied_to(&BoardContent::default()).ok()?.name) {
            let found = write.one::<(Id<kind::Board>,)>(
                "select id from boards where tenant_id = ?1 and name = ?2 and deleted_at is null",
                params![name],
            )?;
            if let Some((id,)) = found {
                return Ok((held(write, id)?, BoardCame::Before));
            }
        }
        Ok((set::save(context, write, board, true)?.board, BoardCame::New))
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

/// The board of an id that is known, held. One that was deleted stands again.
fn stands_or_is_back(
    context: &Context,
    write: &mut Writer<'_>,
    id: Id<kind::Board>,
    name: &Patch<String>,
) -> Result<(Board, BoardCame)> {
    let mut board = write.row_locked::<Board>("where tenant_id = ?1 and id = ?2", params![id])?.ok_or_else(|| {
        Rule::conflict(format!("{BOARD_FILE}: {id} is not a board")).hint("remove the id to make a new board of it")
    })?;
    if board.deleted_at.take().is_none() {
        return Ok((held(write, id)?, BoardCame::Before));
    }
    grow_time(write, &board);
    // Its name may be another board's by now.
    let name = name.line("board name", text::LINE_MAX)?.try_map(|name| text::name("board name", &name))?;
    board.name = name.apply(board.name);
    let board = set::save(context, write, board, false)?.board;
    write.post("update registry set deleted_at = null where tenant_id = ?1 and id = ?2", params![id])?;
    Ok((board, BoardCame::Back))
}

fn refuse_conflicts(
    compared: &[Compared<'_>],
    relations: &[ComparedRelation<'_>],
    names: &Names,
    of_board: bool,
) -> Result<()> {
    let stickies = compared.iter().filter(|one| one.moved == Moved::Both).map(Compared::called);
    let relations = relations.iter().filter(|one| one.moved == Moved::Both).map(|one| one.called(names));
    let of_board = of_board.then(|| BOARD_FILE.to_owned()).into_iter();
    let both: Vec<String> = of_board.chain(stickies).chain(relations).collect();
    if both.is_empty() {
        return Ok(());
    }
    Err(Rule::conflict(format!("edited on both sides: {}", both.join(", ")))
        .hint(sentence![
            "see board diff; ",
            field!(force),
            " takes the word of the side that is read. Nothing was changed",
        ])
        .into())
}

/// Two files may not give one name.
fn refuse_same_names(compared: &[Compared<'_>], taken: impl Fn(Moved) -> bool) -> Result<()> {
    let mut bearers: HashMap<String, &StickieFile> = HashMap::new();
    for one in compared {
        let Some(file) = one.file else { continue };
        let content = if taken(one.moved) { one.said()? } else { one.known.map(|known| known.content.clone()) };
        if let Some(name) = content.filter(|_| one.stands(&taken)).and_then(|content| content.name)
            && let Some(other) = bearers.insert(name.clone(), file)
        {
            return Err(Rule::conflict(format!("{} and {} are both called {name:?}", other.file, file.file))
                .hint("give one of them another name; nothing was changed")
                .into());
        }
    }
    Ok(())
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
        let BoardContent { name, role, conversation, project, task, background, guidelines, lifecycle } = said;
        let board = self.board.clone();
        // An unchanged reference is not resolved again, because the row that it names may be deleted by now.
        let board = Board {
            id: board.id,
            tenant_id: board.tenant_id,
            name: name.as_deref().map(|name| text::name("board name", name)).transpose()?,
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

    /// Takes relations over, and says what the lines of the folder are then.
    fn take_relations(
        &mut self,
        relations: &[ComparedRelation<'_>],
        names: &Names,
        stickies: &[Compared<'_>],
        taken: impl Fn(Moved) -> bool,
    ) -> Result<Vec<RelationFile>> {
        let stickie = |id: Uuid| stickies.iter().find(|stickie| stickie.id == id);
        let mut lines = Vec::new();
        for one in relations {
            let ends = [stickie(one.edge.from), stickie(one.edge.to)];
            let edit_count = if !ends.iter().all(|end| end.is_some_and(|end| end.stands(&taken))) {
                // It went with a stickie; so does its line, with the file.
                self.did.relations.removed += i64::from(one.place != Place::OnlyInFolder);
                let is_filed = ends.iter().all(|end| end.is_some_and(|end| end.file.is_some()));
                one.line.filter(|_| is_filed).map(|line| line.edit_count)
            } else if taken(one.moved) {
                self.take_relation(one)?.map(Some)
            } else {
                self.did.relations.unchanged += i64::from(one.place != Place::OnlyInFolder);
                self.did.left += i64::from(one.moved == Moved::Database);
                match (one.place, one.known) {
                    (Place::Same, Some(known)) => Some(Some(known.edit_count)),
                    _ => one.line.map(|line| line.edit_count),
                }
            };
            lines.extend(edit_count.map(|number| line(one.edge, &one.labels, number, |id| names.called(id))));
        }
        Ok(lines)
    }

    /// Takes one over: the number of its edit, unless it is removed.
    fn take_relation(&mut self, one: &ComparedRelation<'_>) -> Result<Option<i64>> {
        let (from, to) = (one.edge.from.into(), one.edge.to.into());
        let before = between(self.write, from, to, one.edge.relation_type)?;
        let (now, labels) = (self.write.now, one.labels.clone());
        let counts = &mut self.did.relations;
        let kept = match (one.place, before) {
            (Place::OnlyInDatabase, before) => {
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
                let row = relation(self.context, self.write, from, to, one.edge.relation_type, labels);
                self.write.insert(&row)?;
                Some(row)
            }
        };
        self.did.changed = true;
        let row = self.write.row::<Stickie>("where tenant_id = ?1 and id = ?2", params![from])?;
        let known = |list: &[Resource<_>]| list.iter().any(|resource| resource.id == from);
        if let Some(row) = row.filter(|_| !known(&self.did.updated) && !known(&self.did.created)) {
            self.did.updated.push(stickie_resource(&self.board, &row));
        }
        kept.map(|row| keep_labels(self.context, self.write, &row)).transpose()
    }

    fn finish(self, of_board: &'static str, lines: Option<Vec<RelationFile>>) -> Result<Done<SyncBoard>> {
        let Self { write, mut board, mut did, .. } = self;
        if did.changed {
            mark_changed(write, board.id)?;
            board.changed_at = write.now;
        }
        let shown = write.shown_by_id::<trackway_store::display::BoardShown>("b", board.id)?;
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
            lines,
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
