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
    board_folder::{Folder, RELATIONS_FILE, RelationFile, StickieFile},
    patch,
    words::RelationType,
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
    let mut compared = Vec::new();
    for (id, file) in owners {
        let stickie = known.iter().find(|stickie| stickie.id == id);
        let (place, moved) = match stickie {
            None => (Place::OnlyInFolder, Moved::Folder),
            Some(stickie) => beside(stickie, file, earlier)?,
        };
        compared.push(Compared { id, known: stickie, file: Some(file), place, moved });
    }
    let seen = folder.board.as_ref().and_then(|board| board.synced_at);
    let filed: HashSet<Uuid> = compared.iter().map(|one| one.id).collect();
    for stickie in known.iter().filter(|stickie| !stickie.is_deleted && !filed.contains(&stickie.id)) {
        let moved = match seen {
            Some(seen) if stickie.created_at <= seen && stickie.updated_at <= seen => Moved::Folder,
            Some(seen) if stickie.created_at <= seen => Moved::Both,
            _ => Moved::Database,
        };
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

/// A stickie and its file.
fn beside(stickie: &Known, file: &StickieFile, earlier: &Earlier<StickieContent>) -> Result<(Place, Moved)> {
    let is_same = file.applied_to(&stickie.content)? == stickie.content;
    if stickie.is_deleted {
        let is_old = is_same && file.edit_count.is_some();
        return Ok((Place::OnlyInFolder, if is_old { Moved::Database } else { Moved::Both }));
    }
    if is_same {
        return Ok((Place::Same, Moved::Neither));
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

/// A relation of the board, deleted ones included.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownRelation {
    pub edge: Edge,
    pub labels: Vec<String>,
    pub created_at: Time,
    pub updated_at: Time,
    pub deleted_at: Option<Time>,
}

/// What makes a relation one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    pub from: Uuid,
    pub to: Uuid,
    pub relation_type: RelationType,
}

/// A relation on both sides, or on one; the labels are the folder's where it has them.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedRelation {
    pub edge: Edge,
    pub labels: Vec<String>,
    pub place: Place,
    pub moved: Moved,
}

/// Compares relations. `named` finds a stickie by what `relations.yaml` calls it. Without such a file none was moved there.
pub fn compare_relations(
    known: &[KnownRelation],
    folder: &Folder,
    named: impl Fn(&str) -> Option<Uuid>,
) -> Result<Vec<ComparedRelation>> {
    let seen = folder.board.as_ref().and_then(|board| board.synced_at);
    let Some(files) = &folder.relations else {
        let kept = known.iter().filter(|relation| relation.deleted_at.is_none());
        let only_here = |relation: &KnownRelation| ComparedRelation {
            edge: relation.edge,
            labels: relation.labels.clone(),
            place: Place::OnlyInDatabase,
            moved: Moved::Database,
        };
        return Ok(kept.map(only_here).collect());
    };
    let mut compared: Vec<ComparedRelation> = Vec::new();
    for file in files {
        let edge = edge(file, &named)?;
        if compared.iter().any(|other| other.edge == edge) {
            return Err(Error::conflict(format!(
                "{RELATIONS_FILE} says twice that {} {} {}",
                file.from, file.relation_type, file.to
            )));
        }
        let labels = patch::list("label", Some(&file.labels))?.unwrap_or_default();
        let of_edge = |relation: &&KnownRelation| relation.edge == edge;
        let is_new = |at: Time| seen.is_some_and(|seen| at > seen);
        let (place, moved) = match known.iter().filter(of_edge).find(|relation| relation.deleted_at.is_none()) {
            Some(relation) if relation.labels == labels => (Place::Same, Moved::Neither),
            Some(relation) if is_new(relation.updated_at) => (Place::Changed, Moved::Database),
            Some(_) => (Place::Changed, Moved::Folder),
            None if known.iter().filter(of_edge).any(|relation| relation.deleted_at.is_some_and(is_new)) => {
                (Place::OnlyInFolder, Moved::Database)
            }
            None => (Place::OnlyInFolder, Moved::Folder),
        };
        compared.push(ComparedRelation { edge, labels, place, moved });
    }
    for relation in known.iter().filter(|relation| relation.deleted_at.is_none()) {
        if compared.iter().any(|other| other.edge == relation.edge) {
            continue;
        }
        let moved = if seen.is_some_and(|seen| relation.created_at <= seen) { Moved::Folder } else { Moved::Database };
        let labels = relation.labels.clone();
        compared.push(ComparedRelation { edge: relation.edge, labels, place: Place::OnlyInDatabase, moved });
    }
    Ok(compared)
}

fn edge(file: &RelationFile, named: impl Fn(&str) -> Option<Uuid>) -> Result<Edge> {
    let find = |name: &str| {
        named(name)
            .ok_or_else(|| Error::not_found(format!("{RELATIONS_FILE}: there is no stickie {name:?} on this board")))
    };
    let (from, to) = (find(&file.from)?, find(&file.to)?);
    if from == to {
        return Err(Error::conflict(format!("{RELATIONS_FILE}: {:?} cannot be related to itself", file.from)));
    }
    Ok(Edge { from, to, relation_type: file.relation_type })
}

/// Finds stickies by what relations call them: the name they have once the folder's word is taken, else the id.
pub fn names(compared: &[Compared<'_>]) -> Result<HashMap<String, Uuid>> {
    let mut names: HashMap<String, Uuid> = compared.iter().map(|one| (one.id.to_string(), one.id)).collect();
    for one in compared {
        let known = || one.known.map(|known| known.content.clone());
        if let Some(name) = one.said()?.or_else(known).and_then(|content| content.name) {
            names.insert(name, one.id);
        }
    }
    Ok(names)
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
    fn two_files_of_one_stickie_are_refused() {
        let folder = folder(vec![file(1, "a", None), file(1, "b", None)], None);
        let error = compare_stickies(&[], &folder, &HashMap::new(), Uuid::nil).unwrap_err();
        assert_eq!(error.message, "1.stickie.yaml and 1.stickie.yaml are of one stickie");
    }
}
