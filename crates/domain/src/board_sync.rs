//! A board and its folder side by side: what is the same, what differs, and which side moved since they last met.
//!
//! A file keeps the number of the edit that was written to it, the folder the time of the newest change it has seen. With
//! what the board said at that edit, both sides can be edited and nothing is taken for a change that is only old.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use uuid::Uuid;

use crate::{
    Error, Result, Time,
    board::StickieContent,
    board_folder::{Folder, StickieFile},
};

/// Where something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Same,
    Changed,
    OnlyInDatabase,
    OnlyInFolder,
}

impl Place {
    /// The mark in a diff.
    pub fn mark(self) -> char {
        match self {
            Self::Same => '=',
            Self::Changed => '~',
            Self::OnlyInDatabase => '+',
            Self::OnlyInFolder => '-',
        }
    }
}

/// Which side was edited since they last met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    Neither,
    Folder,
    Database,
    Both,
}

/// Which side is brought up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Towards {
    Database,
    Folder,
}

/// How many stickies came, changed, stayed and went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    pub created: i64,
    pub updated: i64,
    pub unchanged: i64,
    pub removed: i64,
}

/// A stickie of the board, deleted ones included.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    pub id: Uuid,
    pub content: StickieContent,
    pub edit_count: i64,
    pub created_at: Time,
    pub updated_at: Time,
    pub is_deleted: bool,
}

/// A stickie on both sides, or on one.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared<'a> {
    /// Its id; a new one for a file that has none.
    pub id: Uuid,
    pub known: Option<&'a Known>,
    pub file: Option<&'a StickieFile>,
    pub place: Place,
    pub moved: Moved,
}

impl Compared<'_> {
    /// The content it has on the folder's side.
    pub fn said(&self) -> Result<Option<StickieContent>> {
        let before = self.known.map(|known| known.content.clone()).unwrap_or_default();
        self.file.map(|file| file.applied_to(&before)).transpose()
    }

    /// Whether it stands on the board once the folder's word is taken where it moved so.
    pub fn stands(&self, is_taken: impl Fn(Moved) -> bool) -> bool {
        match self.place {
            Place::Same | Place::Changed => true,
            Place::OnlyInDatabase => !is_taken(self.moved),
            Place::OnlyInFolder => is_taken(self.moved),
        }
    }

    /// What people call it.
    pub fn called(&self) -> String {
        let name = self.known.and_then(|known| known.content.name.as_deref());
        match self.file {
            Some(file) if !file.file.is_empty() => file.file.clone(),
            _ => crate::board_folder::called(self.id, name),
        }
    }
}

/// Contents at earlier edits, by stickie and number.
pub type Earlier<C> = HashMap<(Uuid, i64), C>;

/// Who edited, of two that differ: the file says which edit it was written from.
pub fn who_moved<C: PartialEq>(
    written_from: Option<i64>,
    edit_count: i64,
    base: Option<&C>,
    applied: impl FnOnce(&C) -> Result<C>,
) -> Result<Moved> {
    match (written_from, base) {
        // Written by hand: what it says is meant.
        (None, _) => Ok(Moved::Folder),
        (Some(number), _) if number == edit_count => Ok(Moved::Folder),
        (Some(_), Some(base)) if applied(base)? == *base => Ok(Moved::Database),
        (Some(_), _) => Ok(Moved::Both),
    }
}

/// Compares stickies and files. A file is of the stickie whose id it has; without one, of the stickie of its name, else of
/// one that says the same and has no other file: a sync that was cut off before it wrote the id down makes no second one.
pub fn compare_stickies<'a>(
    known: &'a [Known],
    folder: &'a Folder,
    earlier: &Earlier<StickieContent>,
    mut new_id: impl FnMut() -> Uuid,
) -> Result<Vec<Compared<'a>>> {
    let mut taken: HashMap<Uuid, &StickieFile> = HashMap::new();
    let mut claim = |id: Uuid, file: &'a StickieFile| match taken.insert(id, file) {
        Some(other) => Err(Error::conflict(format!("{} and {} are of one stickie", other.file, file.file))
            .hint("remove the id from the one that is to be new")),
        None => Ok(id),
    };
    let mut owners: Vec<(Uuid, &StickieFile)> = Vec::new();
    let mut without = Vec::new();
    for file in &folder.stickies {
        match stickie_id(file)? {
            Some(id) => owners.push((claim(id, file)?, file)),
            None => without.push(file),
        }
    }
    for file in without {
        let said = file.applied_to(&StickieContent::default())?;
        let is_free = |stickie: &&Known| !stickie.is_deleted && !owners.iter().any(|(id, _)| *id == stickie.id);
        let same = known.iter().filter(is_free).find(|stickie| match &said.name {
            Some(_) => stickie.content.name == said.name,
            None => stickie.content == said,
        });
        let id = same.map_or_else(&mut new_id, |stickie| stickie.id);
        owners.push((claim(id, file)?, file));
    }
    let seen = folder.seen();
    let mut compared = Vec::new();
    for (id, file) in owners {
        let stickie = known.iter().find(|stickie| stickie.id == id);
        let (place, moved) = match stickie {
            None => (Place::OnlyInFolder, Moved::Folder),
            Some(stickie) => beside(stickie, file, earlier, seen)?,
        };
        compared.push(Compared { id, known: stickie, file: Some(file), place, moved });
    }
    let filed: HashSet<Uuid> = compared.iter().map(|one| one.id).collect();
    for stickie in known.iter().filter(|stickie| !stickie.is_deleted && !filed.contains(&stickie.id)) {
        let moved = who_took_away(seen, stickie.created_at, stickie.updated_at);
        compared.push(Compared {
            id: stickie.id,
            known: Some(stickie),
            file: None,
            place: Place::OnlyInDatabase,
            moved,
        });
    }
    Ok(compared)
}

/// Who moved, of what is on the board only.
pub(crate) fn who_took_away(seen: Option<Time>, created_at: Time, updated_at: Time) -> Moved {
    match seen {
        Some(seen) if created_at <= seen && updated_at <= seen => Moved::Folder,
        Some(seen) if created_at <= seen => Moved::Both,
        _ => Moved::Database,
    }
}

/// A stickie and its file.
fn beside(
    stickie: &Known,
    file: &StickieFile,
    earlier: &Earlier<StickieContent>,
    seen: Option<Time>,
) -> Result<(Place, Moved)> {
    let is_same = file.applied_to(&stickie.content)? == stickie.content;
    if stickie.is_deleted {
        let is_old = is_same && file.edit_count.is_some();
        return Ok((Place::OnlyInFolder, if is_old { Moved::Database } else { Moved::Both }));
    }
    if is_same {
        return Ok((Place::Same, Moved::Neither));
    }
    // Found by its name, and this folder never had what the board says of it.
    if stickie_id(file)?.is_none() && seen.is_some_and(|seen| stickie.updated_at > seen) {
        return Ok((Place::Changed, Moved::Both));
    }
    let base = file.edit_count.and_then(|number| earlier.get(&(stickie.id, number)));
    Ok((Place::Changed, who_moved(file.edit_count, stickie.edit_count, base, |base| file.applied_to(base))?))
}

/// The id in a file.
pub fn stickie_id(file: &StickieFile) -> Result<Option<Uuid>> {
    let parse = |id: &String| {
        Uuid::parse_str(id).map_err(|_| {
            Error::usage(format!("{}: {id:?} is no id", file.file)).hint("leave the id out for a new stickie")
        })
    };
    file.id.as_ref().filter(|id| !id.is_empty()).map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Patch, board_folder::BoardFile};

    fn known(number: u128, note: &str, edit_count: i64, at: i64) -> Known {
        Known {
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

    fn folder(stickies: Vec<StickieFile>, seen: Option<i64>) -> Folder {
        let board = BoardFile { synced_at: seen.map(Time::from_micros), ..BoardFile::default() };
        Folder { board: Some(board), stickies, relations: None }
    }

    fn compared(known: &[Known], folder: &Folder) -> Vec<(Place, Moved)> {
        let old = StickieContent { note: Some("old".into()), ..StickieContent::default() };
        let earlier = known.iter().map(|known| ((known.id, 1), old.clone())).collect();
        let found = compare_stickies(known, folder, &earlier, || Uuid::from_u128(99)).unwrap();
        found.into_iter().map(|one| (one.place, one.moved)).collect()
    }

    #[test]
    fn who_edited_what_is_known_of_each_stickie() {
        let board = [known(1, "new", 2, 5)];
        for (file, expected) in [
            (file(1, "new", Some(1)), (Place::Same, Moved::Neither)),
            (file(1, "old", Some(1)), (Place::Changed, Moved::Database)),
            (file(1, "mine", Some(2)), (Place::Changed, Moved::Folder)),
            (file(1, "mine", Some(1)), (Place::Changed, Moved::Both)),
            (file(1, "mine", None), (Place::Changed, Moved::Folder)),
            (file(1, "mine", Some(7)), (Place::Changed, Moved::Both)),
        ] {
            assert_eq!(compared(&board, &folder(vec![file.clone()], Some(9))), [expected], "{file:?}");
        }
    }

    #[test]
    fn who_took_away_or_added_is_told_by_what_the_folder_has_seen() {
        let board = [known(1, "a", 1, 5)];
        assert_eq!(compared(&board, &folder(vec![], Some(5))), [(Place::OnlyInDatabase, Moved::Folder)]);
        assert_eq!(compared(&board, &folder(vec![], Some(4))), [(Place::OnlyInDatabase, Moved::Database)]);
        assert_eq!(compared(&board, &folder(vec![], None)), [(Place::OnlyInDatabase, Moved::Database)]);
        let edited = [Known { updated_at: Time::from_micros(8), ..known(1, "a", 2, 5) }];
        assert_eq!(compared(&edited, &folder(vec![], Some(6))), [(Place::OnlyInDatabase, Moved::Both)]);
        let deleted = [Known { is_deleted: true, ..known(1, "a", 1, 5) }];
        assert_eq!(
            compared(&deleted, &folder(vec![file(1, "a", Some(1))], None)),
            [(Place::OnlyInFolder, Moved::Database)]
        );
        assert_eq!(
            compared(&deleted, &folder(vec![file(1, "b", Some(1))], None)),
            [(Place::OnlyInFolder, Moved::Both)]
        );
        assert_eq!(compared(&deleted, &folder(vec![], Some(1))), []);
    }

    #[test]
    fn a_file_without_an_id_finds_its_stickie_by_name_or_by_all_it_says() {
        let mut named = known(1, "a", 1, 5);
        named.content.name = Some("plan".into());
        let board = [named, known(2, "b", 1, 5)];
        let by_name = StickieFile { id: None, file: "plan.stickie.yaml".into(), ..file(0, "a", None) };
        let by_content = StickieFile { id: None, name: Patch::Clear, ..file(0, "b", None) };
        let folder = folder(vec![by_name, by_content.clone(), by_content], Some(9));
        assert_eq!(
            compared(&board, &folder),
            [(Place::Same, Moved::Neither), (Place::Same, Moved::Neither), (Place::OnlyInFolder, Moved::Folder)]
        );
    }

    #[test]
    fn a_file_without_an_id_says_nothing_of_what_the_folder_never_had() {
        let mut named = known(1, "of the board", 1, 5);
        named.content.name = Some("plan".into());
        let by_name = StickieFile { id: None, file: "plan.stickie.yaml".into(), ..file(0, "of the folder", None) };
        for (seen, expected) in [(Some(4), Moved::Both), (Some(5), Moved::Folder), (None, Moved::Folder)] {
            let folder = folder(vec![by_name.clone()], seen);
            assert_eq!(compared(std::slice::from_ref(&named), &folder), [(Place::Changed, expected)]);
        }
    }

    #[test]
    fn two_files_of_one_stickie_are_refused() {
        let folder = folder(vec![file(1, "a", None), file(1, "b", None)], None);
        let error = compare_stickies(&[], &folder, &HashMap::new(), Uuid::nil).unwrap_err();
        assert_eq!(error.to_string(), "1.stickie.yaml and 1.stickie.yaml are of one stickie");
    }
}
