//! Compares the stickies of a board with the files of its folder: which ones differ, and which side was edited since
//! the last sync.
//!
//! Each file has the edit number that its stickie had when the file was written. The folder has the time of the newest
//! board change that it contains. The comparison also knows the content of each stickie at the edit in its file. So it
//! can distinguish an edited file from an outdated one, and it detects if both sides were edited between two syncs.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use uuid::Uuid;

use crate::{
    Error, Result, Time,
    board::StickieContent,
    board_folder::{Folder, StickieFile},
};

/// The difference between an entry of the board and its counterpart in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    Same,
    Changed,
    OnlyInDatabase,
    OnlyInFolder,
}

impl Difference {
    /// The mark of this difference in a printed diff.
    pub fn mark(self) -> char {
        match self {
            Self::Same => '=',
            Self::Changed => '~',
            Self::OnlyInDatabase => '+',
            Self::OnlyInFolder => '-',
        }
    }
}

/// The side that was edited since the last sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditedSide {
    Neither,
    Folder,
    Database,
    Both,
}

/// The number of stickies that a sync creates, updates, leaves unchanged and removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    pub created: i64,
    pub updated: i64,
    pub unchanged: i64,
    pub removed: i64,
}

/// A stickie in the database. It may be deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownStickie {
    pub id: Uuid,
    pub content: StickieContent,
    pub edit_count: i64,
    pub created_at: Time,
    pub updated_at: Time,
    pub is_deleted: bool,
}

/// A stickie with its file. One of the two may be missing.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedStickie<'a> {
    /// The id of the stickie, or a new id if the file belongs to no existing stickie.
    pub id: Uuid,
    pub known: Option<&'a KnownStickie>,
    pub file: Option<&'a StickieFile>,
    pub difference: Difference,
    pub edited_side: EditedSide,
}

impl ComparedStickie<'_> {
    /// The content of the stickie according to its file.
    pub fn folder_content(&self) -> Result<Option<StickieContent>> {
        let before = self.known.map(|known| known.content.clone()).unwrap_or_default();
        self.file.map(|file| file.applied_to(&before)).transpose()
    }

    /// Whether the stickie exists on the board after a sync. `is_taken` returns, for an edited side, whether the sync
    /// adopts the state in the folder.
    pub fn exists_after_sync(&self, is_taken: impl Fn(EditedSide) -> bool) -> bool {
        match self.difference {
            Difference::Same | Difference::Changed => true,
            Difference::OnlyInDatabase => !is_taken(self.edited_side),
            Difference::OnlyInFolder => is_taken(self.edited_side),
        }
    }

    /// The file name, or the name of the stickie if it has no file.
    pub fn display_name(&self) -> String {
        let name = self.known.and_then(|known| known.content.name.as_deref());
        match self.file {
            Some(file) if !file.file.is_empty() => file.file.clone(),
            _ => crate::board_folder::stickie_display_name(self.id, name),
        }
    }
}

/// Contents at earlier edits, by the id of the stickie and the number of the edit.
pub type EarlierContents<C> = HashMap<(Uuid, i64), C>;

/// Finds the edited side of an entry that differs. `written_from` is the edit number of the entry when the file was
/// written. `base` is the content at that edit. `applied` applies the file's changes to a content.
pub fn find_edited_side<C: PartialEq>(
    written_from: Option<i64>,
    edit_count: i64,
    base: Option<&C>,
    applied: impl FnOnce(&C) -> Result<C>,
) -> Result<EditedSide> {
    match (written_from, base) {
        // A person wrote this entry by hand.
        (None, _) => Ok(EditedSide::Folder),
        (Some(number), _) if number == edit_count => Ok(EditedSide::Folder),
        (Some(_), Some(base)) if applied(base)? == *base => Ok(EditedSide::Database),
        (Some(_), _) => Ok(EditedSide::Both),
    }
}

/// Compares stickies with files. A file with an id belongs to the stickie with that id. A file without an id belongs to
/// the stickie with the same name. If the file has no name either, it belongs to a stickie with the same content and no
/// other file. So a sync that was interrupted before it wrote the id into the file does not create the stickie again.
pub fn compare_stickies<'a>(
    known: &'a [KnownStickie],
    folder: &'a Folder,
    earlier: &EarlierContents<StickieContent>,
    mut new_id: impl FnMut() -> Uuid,
) -> Result<Vec<ComparedStickie<'a>>> {
    let mut file_by_id: HashMap<Uuid, &StickieFile> = HashMap::new();
    let mut claim = |id: Uuid, file: &'a StickieFile| match file_by_id.insert(id, file) {
        Some(other) => Err(Error::conflict(format!("{} and {} belong to the same stickie", other.file, file.file))
            .hint("remove the id from the file that should become a new stickie")),
        None => Ok(id),
    };
    let mut owners: Vec<(Uuid, &StickieFile)> = Vec::new();
    let mut without_id = Vec::new();
    for file in &folder.stickies {
        match stickie_id(file)? {
            Some(id) => owners.push((claim(id, file)?, file)),
            None => without_id.push(file),
        }
    }
    for file in without_id {
        let content = file.applied_to(&StickieContent::default())?;
        let is_free = |stickie: &&KnownStickie| !stickie.is_deleted && !owners.iter().any(|(id, _)| *id == stickie.id);
        let same = known.iter().filter(is_free).find(|stickie| match &content.name {
            Some(_) => stickie.content.name == content.name,
            None => stickie.content == content,
        });
        let id = same.map_or_else(&mut new_id, |stickie| stickie.id);
        owners.push((claim(id, file)?, file));
    }
    let synced_at = folder.synced_at();
    let mut compared = Vec::new();
    for (id, file) in owners {
        let stickie = known.iter().find(|stickie| stickie.id == id);
        let (difference, edited_side) = match stickie {
            None => (Difference::OnlyInFolder, EditedSide::Folder),
            Some(stickie) => compare_with_file(stickie, file, earlier, synced_at)?,
        };
        compared.push(ComparedStickie { id, known: stickie, file: Some(file), difference, edited_side });
    }
    let with_file: HashSet<Uuid> = compared.iter().map(|one| one.id).collect();
    for stickie in known.iter().filter(|stickie| !stickie.is_deleted && !with_file.contains(&stickie.id)) {
        let edited_side = edited_side_if_only_on_board(synced_at, stickie.created_at, stickie.updated_at);
        compared.push(ComparedStickie {
            id: stickie.id,
            known: Some(stickie),
            file: None,
            difference: Difference::OnlyInDatabase,
            edited_side,
        });
    }
    Ok(compared)
}

/// The edited side of an entry that is only on the board. If the folder once contained the entry, someone removed it
/// there.
pub(crate) fn edited_side_if_only_on_board(synced_at: Option<Time>, created_at: Time, updated_at: Time) -> EditedSide {
    match synced_at {
        Some(synced_at) if created_at <= synced_at && updated_at <= synced_at => EditedSide::Folder,
        Some(synced_at) if created_at <= synced_at => EditedSide::Both,
        _ => EditedSide::Database,
    }
}

fn compare_with_file(
    stickie: &KnownStickie,
    file: &StickieFile,
    earlier: &EarlierContents<StickieContent>,
    synced_at: Option<Time>,
) -> Result<(Difference, EditedSide)> {
    let is_same = file.applied_to(&stickie.content)? == stickie.content;
    if stickie.is_deleted {
        let is_outdated = is_same && file.edit_count.is_some();
        return Ok((Difference::OnlyInFolder, if is_outdated { EditedSide::Database } else { EditedSide::Both }));
    }
    if is_same {
        return Ok((Difference::Same, EditedSide::Neither));
    }
    // The file has no id and matches by name, and the folder never contained the stickie's present content.
    if stickie_id(file)?.is_none() && synced_at.is_some_and(|synced_at| stickie.updated_at > synced_at) {
        return Ok((Difference::Changed, EditedSide::Both));
    }
    let base = file.edit_count.and_then(|number| earlier.get(&(stickie.id, number)));
    Ok((
        Difference::Changed,
        find_edited_side(file.edit_count, stickie.edit_count, base, |base| file.applied_to(base))?,
    ))
}

/// The id in a file.
pub fn stickie_id(file: &StickieFile) -> Result<Option<Uuid>> {
    let parse = |id: &String| {
        Uuid::parse_str(id).map_err(|_| {
            Error::usage(format!("{}: {id:?} is not an id", file.file)).hint("omit the id to create a new stickie")
        })
    };
    file.id.as_ref().filter(|id| !id.is_empty()).map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Patch, board_folder::BoardFile};

    fn known(number: u128, note: &str, edit_count: i64, at: i64) -> KnownStickie {
        KnownStickie {
            id: Uuid::from_u128(number),
            content: StickieContent { note: Some(note.into()), ..StickieContent::default() },
            edit_count,
            created_at: Time::from_micros(at),
            updated_at: Time::from_micros(at),
            is_deleted: false,
        }
    }

    fn file(number: u128, note: &str, edit_count: Option<i64>) -> StickieFile {
        StickieFile {
            file: format!("{number}.stickie.yaml"),
            id: Some(Uuid::from_u128(number).to_string()),
            note: Patch::Set(note.into()),
            edit_count,
            ..StickieFile::default()
        }
    }

    fn folder(stickies: Vec<StickieFile>, synced_at: Option<i64>) -> Folder {
        let board = BoardFile { synced_at: synced_at.map(Time::from_micros), ..BoardFile::default() };
        Folder { board: Some(board), stickies, relations: None }
    }

    fn compared(known: &[KnownStickie], folder: &Folder) -> Vec<(Difference, EditedSide)> {
        let old = StickieContent { note: Some("old".into()), ..StickieContent::default() };
        let earlier = known.iter().map(|known| ((known.id, 1), old.clone())).collect();
        let found = compare_stickies(known, folder, &earlier, || Uuid::from_u128(99)).unwrap();
        found.into_iter().map(|one| (one.difference, one.edited_side)).collect()
    }

    #[test]
    fn edit_number_and_earlier_content_determine_the_edited_side() {
        let board = [known(1, "new", 2, 5)];
        for (file, expected) in [
            (file(1, "new", Some(1)), (Difference::Same, EditedSide::Neither)),
            (file(1, "old", Some(1)), (Difference::Changed, EditedSide::Database)),
            (file(1, "mine", Some(2)), (Difference::Changed, EditedSide::Folder)),
            (file(1, "mine", Some(1)), (Difference::Changed, EditedSide::Both)),
            (file(1, "mine", None), (Difference::Changed, EditedSide::Folder)),
            (file(1, "mine", Some(7)), (Difference::Changed, EditedSide::Both)),
        ] {
            assert_eq!(compared(&board, &folder(vec![file.clone()], Some(9))), [expected], "{file:?}");
        }
    }

    #[test]
    fn sync_time_distinguishes_removed_from_added_stickies() {
        let board = [known(1, "a", 1, 5)];
        assert_eq!(compared(&board, &folder(vec![], Some(5))), [(Difference::OnlyInDatabase, EditedSide::Folder)]);
        assert_eq!(compared(&board, &folder(vec![], Some(4))), [(Difference::OnlyInDatabase, EditedSide::Database)]);
        assert_eq!(compared(&board, &folder(vec![], None)), [(Difference::OnlyInDatabase, EditedSide::Database)]);
        let edited = [KnownStickie { updated_at: Time::from_micros(8), ..known(1, "a", 2, 5) }];
        assert_eq!(compared(&edited, &folder(vec![], Some(6))), [(Difference::OnlyInDatabase, EditedSide::Both)]);
        let deleted = [KnownStickie { is_deleted: true, ..known(1, "a", 1, 5) }];
        assert_eq!(
            compared(&deleted, &folder(vec![file(1, "a", Some(1))], None)),
            [(Difference::OnlyInFolder, EditedSide::Database)]
        );
        assert_eq!(
            compared(&deleted, &folder(vec![file(1, "b", Some(1))], None)),
            [(Difference::OnlyInFolder, EditedSide::Both)]
        );
        assert_eq!(compared(&deleted, &folder(vec![], Some(1))), []);
    }

    #[test]
    fn file_without_id_matches_stickie_by_name_or_by_content() {
        let mut named = known(1, "a", 1, 5);
        named.content.name = Some("plan".into());
        let board = [named, known(2, "b", 1, 5)];
        let by_name = StickieFile { id: None, file: "plan.stickie.yaml".into(), ..file(0, "a", None) };
        let by_content = StickieFile { id: None, name: Patch::Clear, ..file(0, "b", None) };
        let folder = folder(vec![by_name, by_content.clone(), by_content], Some(9));
        assert_eq!(
            compared(&board, &folder),
            [
                (Difference::Same, EditedSide::Neither),
                (Difference::Same, EditedSide::Neither),
                (Difference::OnlyInFolder, EditedSide::Folder)
            ]
        );
    }

    #[test]
    fn file_without_id_conflicts_with_content_that_the_folder_never_had() {
        let mut named = known(1, "of the board", 1, 5);
        named.content.name = Some("plan".into());
        let by_name = StickieFile { id: None, file: "plan.stickie.yaml".into(), ..file(0, "of the folder", None) };
        let cases = [(Some(4), EditedSide::Both), (Some(5), EditedSide::Folder), (None, EditedSide::Folder)];
        for (synced_at, expected) in cases {
            let folder = folder(vec![by_name.clone()], synced_at);
            assert_eq!(compared(std::slice::from_ref(&named), &folder), [(Difference::Changed, expected)]);
        }
    }

    #[test]
    fn rejects_two_files_of_the_same_stickie() {
        let folder = folder(vec![file(1, "a", None), file(1, "b", None)], None);
        let error = compare_stickies(&[], &folder, &HashMap::new(), Uuid::nil).unwrap_err();
        assert_eq!(error.to_string(), "1.stickie.yaml and 1.stickie.yaml belong to the same stickie");
    }
}
