//! Compares the relations of a board with `relations.yaml` in its folder.
//!
//! A line of `relations.yaml` has the names of its stickies and also their ids. So the relation stays with its stickies
//! even if, on the board or in the folder, one of the names is given to another stickie.

use std::collections::HashMap;

use uuid::Uuid;

use crate::{
    Error, Result, Time,
    board::StickieContent,
    board_folder::{Folder, RELATIONS_FILE, RelationFile, stickie_display_name},
    board_sync::{
        ComparedStickie, Difference, EarlierContents, EditedSide, KnownStickie, edited_side_if_only_on_board,
        find_edited_side,
    },
    command,
    enums::RelationType,
    patch, sentence,
};

/// The identity of a relation: its two stickies and its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    pub from: Uuid,
    pub to: Uuid,
    pub relation_type: RelationType,
}

/// A relation in the database. It may be deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownRelation {
    pub id: Uuid,
    pub edge: Edge,
    pub labels: Vec<String>,
    /// If a deleted relation is created again with the same edge, the count continues.
    pub edit_count: i64,
    pub created_at: Time,
    pub updated_at: Time,
    pub deleted_at: Option<Time>,
}

/// Labels at earlier edits, by edge and the number of the edit.
pub type EarlierLabels = HashMap<(Edge, i64), Vec<String>>;

/// A relation with its line in `relations.yaml`. One of the two may be missing.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedRelation<'a> {
    pub edge: Edge,
    /// The relation on the board, if it is not deleted.
    pub known: Option<&'a KnownRelation>,
    pub line: Option<&'a RelationFile>,
    /// The labels in the line, or those on the board if there is no line.
    pub labels: Vec<String>,
    pub difference: Difference,
    pub edited_side: EditedSide,
}

impl ComparedRelation<'_> {
    /// The relation as messages name it.
    pub fn display_name(&self, names: &StickieNames) -> String {
        let Edge { from, to, relation_type } = self.edge;
        format!("{RELATIONS_FILE}: {} {relation_type} {}", names.display_name(from), names.display_name(to))
    }
}

/// The names of stickies, to resolve the names in `relations.yaml`.
#[derive(Debug, Default)]
pub struct StickieNames {
    /// The names of a stickie on the board, in its file, and at the edit from which the file was written.
    names_by_id: HashMap<Uuid, Vec<String>>,
    in_folder: HashMap<String, Uuid>,
    on_board: HashMap<String, Uuid>,
    former: HashMap<String, Vec<Uuid>>,
    /// The name in the stickie's file, or the name on the board if the stickie has no file.
    display_names: HashMap<Uuid, String>,
}

impl StickieNames {
    pub fn new(
        known: &[KnownStickie],
        compared: &[ComparedStickie<'_>],
        earlier: &EarlierContents<StickieContent>,
    ) -> Result<Self> {
        let mut names = Self::default();
        for stickie in known {
            let own = names.names_by_id.entry(stickie.id).or_default();
            let Some(name) = &stickie.content.name else { continue };
            own.push(name.clone());
            if stickie.is_deleted {
                names.former.entry(name.clone()).or_default().push(stickie.id);
            } else {
                names.on_board.insert(name.clone(), stickie.id);
            }
        }
        for ((id, _), content) in earlier {
            names.names_by_id.entry(*id).or_default().extend(content.name.clone());
        }
        for one in compared {
            let own = names.names_by_id.entry(one.id).or_default();
            let name_in_file = one.folder_content()?.and_then(|content| content.name);
            if let Some(name) = &name_in_file {
                own.push(name.clone());
                names.in_folder.insert(name.clone(), one.id);
            }
            let present = || one.known.filter(|_| one.file.is_none()).and_then(|known| known.content.name.clone());
            names.display_names.extend(name_in_file.or_else(present).map(|name| (one.id, name)));
        }
        Ok(names)
    }

    /// Adds names that stickies had in the past.
    pub fn add_former_names(&mut self, former: impl IntoIterator<Item = (Uuid, String)>) {
        for (id, name) in former {
            self.former.entry(name).or_default().push(id);
        }
    }

    /// Whether every line of `relations.yaml` names two known stickies.
    pub fn can_resolve_all(&self, folder: &Folder) -> Result<bool> {
        let ends = folder.relations.iter().flatten().map(|line| self.ends(line));
        ends.into_iter().try_fold(true, |all, ends| Ok(all && matches!(ends?, (Some(_), Some(_)))))
    }

    /// The name of a stickie as a line of `relations.yaml` has it.
    pub fn display_name(&self, id: Uuid) -> String {
        stickie_display_name(id, self.display_names.get(&id).map(String::as_str))
    }

    fn ends(&self, line: &RelationFile) -> Result<(Option<Uuid>, Option<Uuid>)> {
        Ok((self.find(&line.from, line.from_id.as_deref())?, self.find(&line.to, line.to_id.as_deref())?))
    }

    /// Resolves a name with the id next to it. If the name is one of the known names of the stickie with this id, the
    /// id decides. Otherwise somebody has changed the name in the line. Then the name decides: it is looked up in the
    /// folder, then on the board, then among former names.
    fn find(&self, name: &str, id: Option<&str>) -> Result<Option<Uuid>> {
        let parse = |id: &str| {
            Uuid::parse_str(id).map_err(|_| {
                Error::usage(format!("{RELATIONS_FILE}: {id:?} is not an id"))
                    .hint("omit from_id and to_id if from and to are names")
            })
        };
        let id = id.filter(|id| !id.is_empty()).map(parse).transpose()?;
        let is_known = |id: &Uuid| self.names_by_id.contains_key(id);
        if let Some(named) = Uuid::parse_str(name).ok().filter(is_known) {
            return Ok(Some(named));
        }
        let own = id.filter(|id| self.names_by_id.get(id).is_some_and(|names| names.iter().any(|own| own == name)));
        let former = || {
            let ids = self.former.get(name)?;
            id.filter(|id| ids.contains(id)).or_else(|| ids.iter().max().copied())
        };
        let present = own.or_else(|| self.in_folder.get(name).or_else(|| self.on_board.get(name)).copied());
        Ok(present.or_else(former))
    }

    fn edge(&self, line: &RelationFile) -> Result<Edge> {
        let (from, to) = self.ends(line)?;
        let (from, to) = (from.ok_or_else(|| unknown(&line.from))?, to.ok_or_else(|| unknown(&line.to))?);
        if from == to {
            return Err(Error::conflict(format!("{RELATIONS_FILE}: {:?} cannot be related to itself", line.from)));
        }
        Ok(Edge { from, to, relation_type: line.relation_type })
    }
}

fn unknown(name: &str) -> Error {
    Error::not_found(format!("{RELATIONS_FILE}: there is no stickie {name:?} on this board")).hint(sentence![
        "add the file of the stickie, or remove the line; to rewrite relations.yaml from the board: ",
        command!("board export", ["BOARD DIR"]; force),
    ])
}

/// The lines of `relations.yaml`, with the edge of each.
pub fn resolve_lines<'a>(folder: &'a Folder, names: &StickieNames) -> Result<Vec<(Edge, &'a RelationFile)>> {
    let mut lines: Vec<(Edge, &RelationFile)> = Vec::new();
    for line in folder.relations.iter().flatten() {
        let edge = names.edge(line)?;
        if lines.iter().any(|(other, _)| *other == edge) {
            return Err(Error::conflict(format!(
                "{RELATIONS_FILE} has the relation {} {} {} twice",
                line.from, line.relation_type, line.to
            )));
        }
        lines.push((edge, line));
    }
    Ok(lines)
}

/// Compares the relations of a board with the lines of its folder. Without a `relations.yaml`, no relation counts as
/// edited in the folder.
pub fn compare_relations<'a>(
    known: &'a [KnownRelation],
    folder: &Folder,
    lines: &[(Edge, &'a RelationFile)],
    earlier: &EarlierLabels,
    stickies: &[ComparedStickie<'_>],
) -> Result<Vec<ComparedRelation<'a>>> {
    let synced_at = folder.synced_at();
    let existing = || known.iter().filter(|relation| relation.deleted_at.is_none());
    let mut compared = Vec::new();
    for (edge, line) in lines {
        let labels = patch::clean_list("label", Some(&line.labels))?.unwrap_or_default();
        let on_board = existing().find(|relation| relation.edge == *edge);
        let (difference, edited_side) = match on_board {
            Some(relation) if relation.labels == labels => (Difference::Same, EditedSide::Neither),
            Some(relation) => {
                let base = line.edit_count.and_then(|number| earlier.get(&(*edge, number)));
                let edited_side = match line.edit_count {
                    None if synced_at.is_some_and(|synced_at| relation.updated_at > synced_at) => EditedSide::Both,
                    number => find_edited_side(number, relation.edit_count, base, |_| Ok(labels.clone()))?,
                };
                (Difference::Changed, edited_side)
            }
            None => {
                let deleted = known.iter().filter(|relation| relation.edge == *edge).max_by_key(|one| one.edit_count);
                let ends = [edge.from, edge.to].map(|id| stickies.iter().find(|stickie| stickie.id == id));
                (Difference::OnlyInFolder, edited_side_if_only_in_folder(deleted, line, &labels, synced_at, ends)?)
            }
        };
        compared.push(ComparedRelation {
            edge: *edge,
            known: on_board,
            line: Some(line),
            labels,
            difference,
            edited_side,
        });
    }
    for relation in existing().filter(|relation| !lines.iter().any(|(edge, _)| *edge == relation.edge)) {
        let edited_side = match folder.relations {
            Some(_) => edited_side_if_only_on_board(synced_at, relation.created_at, relation.updated_at),
            None => EditedSide::Neither,
        };
        compared.push(ComparedRelation {
            edge: relation.edge,
            known: Some(relation),
            line: None,
            labels: relation.labels.clone(),
            difference: Difference::OnlyInDatabase,
            edited_side,
        });
    }
    Ok(compared)
}

/// The edited side of a line without a relation on the board. `deleted` is the deleted relation with this edge, if
/// there is one.
fn edited_side_if_only_in_folder(
    deleted: Option<&KnownRelation>,
    line: &RelationFile,
    labels: &[String],
    synced_at: Option<Time>,
    ends: [Option<&ComparedStickie<'_>>; 2],
) -> Result<EditedSide> {
    let exists = |end: &ComparedStickie<'_>| end.known.is_none_or(|known| !known.is_deleted);
    let both_ends_exist = ends.iter().all(|end| end.is_some_and(exists));
    let is_after_sync = |at: Time| synced_at.is_none_or(|synced_at| at > synced_at);
    match deleted {
        // The board deleted the relation after the folder was written, or together with one of its stickies.
        Some(deleted)
            if !both_ends_exist || line.edit_count.is_some() && deleted.deleted_at.is_some_and(is_after_sync) =>
        {
            Ok(if deleted.labels == labels { EditedSide::Database } else { EditedSide::Both })
        }
        None if ends[0].is_none() => Err(unknown(&line.from)),
        None if ends[1].is_none() => Err(unknown(&line.to)),
        // A new line refers to a stickie that the board deleted.
        None if !both_ends_exist => Ok(EditedSide::Both),
        _ => Ok(EditedSide::Folder),
    }
}

/// The line of `relations.yaml` for a relation.
pub fn relation_line(
    edge: Edge,
    labels: &[String],
    edit_count: Option<i64>,
    name: impl Fn(Uuid) -> String,
) -> RelationFile {
    let id_next_to = |id: Uuid, name: &str| (name != id.to_string()).then(|| id.to_string());
    let (from, to) = (name(edge.from), name(edge.to));
    RelationFile {
        from_id: id_next_to(edge.from, &from),
        to_id: id_next_to(edge.to, &to),
        from,
        relation_type: edge.relation_type,
        to,
        labels: labels.to_vec(),
        edit_count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board_folder::BoardFile;

    const A: Uuid = Uuid::from_u128(1);
    const B: Uuid = Uuid::from_u128(2);
    const EDGE: Edge = Edge { from: A, to: B, relation_type: RelationType::Uses };
    /// The time of the newest board change that the folder contains.
    const SYNCED_AT: i64 = 5;

    fn stickie(id: Uuid, name: &str, is_deleted: bool) -> KnownStickie {
        let at = Time::from_micros(1);
        let content = StickieContent { name: Some(name.into()), ..StickieContent::default() };
        KnownStickie { id, content, edit_count: 1, created_at: at, updated_at: at, is_deleted }
    }

    fn relation(label: &str, edit_count: i64, updated_at: i64, deleted_at: Option<i64>) -> KnownRelation {
        KnownRelation {
            id: Uuid::from_u128(9),
            edge: EDGE,
            labels: vec![label.into()],
            edit_count,
            created_at: Time::from_micros(1),
            updated_at: Time::from_micros(updated_at),
            deleted_at: deleted_at.map(Time::from_micros),
        }
    }

    fn file_line(label: &str, edit_count: Option<i64>) -> RelationFile {
        RelationFile { edit_count, ..relation_line(EDGE, &[label.to_owned()], None, |id| id.to_string()) }
    }

    fn folder(relations: Option<Vec<RelationFile>>) -> Folder {
        let board = BoardFile { synced_at: Some(Time::from_micros(SYNCED_AT)), ..BoardFile::default() };
        Folder { board: Some(board), stickies: Vec::new(), relations }
    }

    fn on_board(stickie: &KnownStickie) -> ComparedStickie<'_> {
        ComparedStickie {
            id: stickie.id,
            known: Some(stickie),
            file: None,
            difference: Difference::OnlyInDatabase,
            edited_side: EditedSide::Neither,
        }
    }

    /// Compares relations with lines. At edit 1, the label of the relation was `old`.
    fn compared(known: &[KnownRelation], file_lines: Option<Vec<RelationFile>>) -> Vec<(Difference, EditedSide)> {
        let stickies = [stickie(A, "a", false), stickie(B, "b", false)];
        let stickies: Vec<ComparedStickie<'_>> = stickies.iter().map(on_board).collect();
        let folder = folder(file_lines);
        let names = StickieNames::new(&[], &stickies, &EarlierContents::new()).unwrap();
        let lines = resolve_lines(&folder, &names).unwrap();
        let earlier = EarlierLabels::from([((EDGE, 1), vec!["old".to_owned()])]);
        let found = compare_relations(known, &folder, &lines, &earlier, &stickies).unwrap();
        found.into_iter().map(|one| (one.difference, one.edited_side)).collect()
    }

    #[test]
    fn edit_number_and_times_determine_the_edited_side_of_a_relation() {
        use Difference::{Changed, OnlyInDatabase, OnlyInFolder, Same};
        use EditedSide::{Both, Database, Folder, Neither};
        let existing = relation("new", 2, 7, None);
        let deleted = relation("old", 1, 1, Some(7));
        for (known, line, expected) in [
            (&existing, Some(file_line("new", Some(1))), (Same, Neither)),
            (&existing, Some(file_line("old", Some(1))), (Changed, Database)),
            (&existing, Some(file_line("mine", Some(2))), (Changed, Folder)),
            (&existing, Some(file_line("mine", Some(1))), (Changed, Both)),
            (&existing, Some(file_line("mine", None)), (Changed, Both)),
            (&relation("new", 2, 4, None), Some(file_line("mine", None)), (Changed, Folder)),
            (&existing, None, (OnlyInDatabase, Both)),
            (&relation("old", 1, 1, None), None, (OnlyInDatabase, Folder)),
            (&deleted, Some(file_line("old", Some(1))), (OnlyInFolder, Database)),
            (&deleted, Some(file_line("mine", Some(1))), (OnlyInFolder, Both)),
            // A person wrote the line by hand, or added it again to a folder that contains the deletion.
            (&deleted, Some(file_line("old", None)), (OnlyInFolder, Folder)),
            (&relation("old", 1, 1, Some(4)), Some(file_line("old", Some(1))), (OnlyInFolder, Folder)),
        ] {
            let lines = line.clone().into_iter().collect();
            assert_eq!(compared(std::slice::from_ref(known), Some(lines)), [expected], "{line:?}");
        }
        assert_eq!(compared(&[existing], None), [(OnlyInDatabase, Neither)]);
        assert_eq!(compared(&[], Some(vec![file_line("x", None)])), [(OnlyInFolder, Folder)]);
    }

    #[test]
    fn name_resolves_to_the_id_next_to_it_unless_someone_changed_the_name() {
        let known = [stickie(A, "new", false), stickie(B, "old", false), stickie(Uuid::from_u128(3), "gone", true)];
        let compared: Vec<ComparedStickie<'_>> = known.iter().filter(|known| !known.is_deleted).map(on_board).collect();
        let base = StickieContent { name: Some("old".into()), ..StickieContent::default() };
        let mut names = StickieNames::new(&known, &compared, &EarlierContents::from([((A, 1), base)])).unwrap();
        let (a, b) = (A.to_string(), B.to_string());
        let find = |names: &StickieNames, name: &str, id: Option<&str>| names.find(name, id).unwrap();
        assert_eq!(find(&names, "old", Some(&a)), Some(A), "the name at the edit that the file was written from");
        assert_eq!(find(&names, "new", Some(&a)), Some(A));
        assert_eq!(find(&names, "new", Some(&b)), Some(A), "somebody replaced the name");
        assert_eq!((find(&names, "old", None), find(&names, "old", Some(""))), (Some(B), Some(B)));
        assert_eq!(find(&names, &b, None), Some(B));
        assert_eq!(find(&names, "gone", None), Some(Uuid::from_u128(3)));
        assert_eq!(find(&names, "older", Some(&a)), None);
        names.add_former_names([(B, "older".to_owned()), (A, "older".to_owned())]);
        assert_eq!((find(&names, "older", Some(&a)), find(&names, "older", None)), (Some(A), Some(B)));
        assert_eq!(names.find("x", Some("no id")).unwrap_err().to_string(), "relations.yaml: \"no id\" is not an id");
    }
}
