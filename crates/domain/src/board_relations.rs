//! The relations of a board beside those of its folder.
//!
//! A line of `relations.yaml` names its stickies as people do, and beside the names stand their ids: a name that went to
//! another stickie on one side takes no relation with it.

use std::collections::HashMap;

use uuid::Uuid;

use crate::{
    Error, Result, Time,
    board::StickieContent,
    board_folder::{Folder, RELATIONS_FILE, RelationFile, called},
    board_sync::{Compared, Earlier, Known, Moved, Place, who_moved, who_took_away},
    patch,
    words::RelationType,
};

/// What makes a relation one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    pub from: Uuid,
    pub to: Uuid,
    pub relation_type: RelationType,
}

/// A relation of the board, deleted ones included.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownRelation {
    pub id: Uuid,
    pub edge: Edge,
    pub labels: Vec<String>,
    /// Grows over all relations that an edge had, one after the other.
    pub edit_count: i64,
    pub created_at: Time,
    pub updated_at: Time,
    pub deleted_at: Option<Time>,
}

/// Labels at earlier edits, by relation and number.
pub type EarlierLabels = HashMap<(Edge, i64), Vec<String>>;

/// A relation on both sides, or on one.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedRelation<'a> {
    pub edge: Edge,
    /// The one that stands on the board.
    pub known: Option<&'a KnownRelation>,
    pub line: Option<&'a RelationFile>,
    /// The folder's where it has them.
    pub labels: Vec<String>,
    pub place: Place,
    pub moved: Moved,
}

impl ComparedRelation<'_> {
    /// What people call it.
    pub fn called(&self, names: &Names) -> String {
        let Edge { from, to, relation_type } = self.edge;
        format!("{RELATIONS_FILE}: {} {relation_type} {}", names.called(from), names.called(to))
    }
}

/// Which stickie is meant by what `relations.yaml` calls it.
#[derive(Debug, Default)]
pub struct Names {
    /// Those that a stickie has on either side, or had at the edit its file was written from.
    of: HashMap<Uuid, Vec<String>>,
    in_folder: HashMap<String, Uuid>,
    on_board: HashMap<String, Uuid>,
    former: HashMap<String, Vec<Uuid>>,
    /// In the folder's words where it has a file, else in the board's.
    shown: HashMap<Uuid, String>,
}

impl Names {
    pub fn new(known: &[Known], compared: &[Compared<'_>], earlier: &Earlier<StickieContent>) -> Result<Self> {
        let mut names = Self::default();
        for stickie in known {
            let own = names.of.entry(stickie.id).or_default();
            let Some(name) = &stickie.content.name else { continue };
            own.push(name.clone());
            if stickie.is_deleted {
                names.former.entry(name.clone()).or_default().push(stickie.id);
            } else {
                names.on_board.insert(name.clone(), stickie.id);
            }
        }
        for ((id, _), content) in earlier {
            names.of.entry(*id).or_default().extend(content.name.clone());
        }
        for one in compared {
            let own = names.of.entry(one.id).or_default();
            let said = one.said()?.and_then(|content| content.name);
            if let Some(name) = &said {
                own.push(name.clone());
                names.in_folder.insert(name.clone(), one.id);
            }
            let present = || one.known.filter(|_| one.file.is_none()).and_then(|known| known.content.name.clone());
            names.shown.extend(said.or_else(present).map(|name| (one.id, name)));
        }
        Ok(names)
    }

    /// Adds what stickies were called at some time.
    pub fn remember(&mut self, former: impl IntoIterator<Item = (Uuid, String)>) {
        for (id, name) in former {
            self.former.entry(name).or_default().push(id);
        }
    }

    /// Whether every line names stickies that are known.
    pub fn know(&self, folder: &Folder) -> Result<bool> {
        let ends = folder.relations.iter().flatten().map(|line| self.ends(line));
        ends.into_iter().try_fold(true, |all, ends| Ok(all && matches!(ends?, (Some(_), Some(_)))))
    }

    /// How a stickie is called in a line, in the folder's words.
    pub fn called(&self, id: Uuid) -> String {
        called(id, self.shown.get(&id).map(String::as_str))
    }

    fn ends(&self, line: &RelationFile) -> Result<(Option<Uuid>, Option<Uuid>)> {
        Ok((self.find(&line.from, line.from_id.as_deref())?, self.find(&line.to, line.to_id.as_deref())?))
    }

    /// The id counts while the name is that stickie's. With another name someone meant another stickie: the folder's of
    /// that name, then the board's, then one that was called so once.
    fn find(&self, name: &str, id: Option<&str>) -> Result<Option<Uuid>> {
        let parse = |id: &str| {
            Uuid::parse_str(id).map_err(|_| {
                Error::usage(format!("{RELATIONS_FILE}: {id:?} is no id"))
                    .hint("leave the id out where you give a name")
            })
        };
        let id = id.filter(|id| !id.is_empty()).map(parse).transpose()?;
        let is_known = |id: &Uuid| self.of.contains_key(id);
        if let Some(named) = Uuid::parse_str(name).ok().filter(is_known) {
            return Ok(Some(named));
        }
        let own = id.filter(|id| self.of.get(id).is_some_and(|names| names.iter().any(|own| own == name)));
        let once = || {
            let former = self.former.get(name)?;
            id.filter(|id| former.contains(id)).or_else(|| former.iter().max().copied())
        };
        let present = own.or_else(|| self.in_folder.get(name).or_else(|| self.on_board.get(name)).copied());
        Ok(present.or_else(once))
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
    Error::not_found(format!("{RELATIONS_FILE}: there is no stickie {name:?} on this board"))
        .hint("add its file, or take the line out; board sync --to with --force writes the file anew")
}

/// The lines of a folder, each with what it relates.
pub fn lines<'a>(folder: &'a Folder, names: &Names) -> Result<Vec<(Edge, &'a RelationFile)>> {
    let mut lines: Vec<(Edge, &RelationFile)> = Vec::new();
    for line in folder.relations.iter().flatten() {
        let edge = names.edge(line)?;
        if lines.iter().any(|(other, _)| *other == edge) {
            return Err(Error::conflict(format!(
                "{RELATIONS_FILE} says twice that {} {} {}",
                line.from, line.relation_type, line.to
            )));
        }
        lines.push((edge, line));
    }
    Ok(lines)
}

/// Compares relations. Without a `relations.yaml` none was moved there.
pub fn compare_relations<'a>(
    known: &'a [KnownRelation],
    folder: &Folder,
    lines: &[(Edge, &'a RelationFile)],
    earlier: &EarlierLabels,
    stickies: &[Compared<'_>],
) -> Result<Vec<ComparedRelation<'a>>> {
    let seen = folder.seen();
    let standing = || known.iter().filter(|relation| relation.deleted_at.is_none());
    let mut compared = Vec::new();
    for (edge, line) in lines {
        let labels = patch::list("label", Some(&line.labels))?.unwrap_or_default();
        let stands = standing().find(|relation| relation.edge == *edge);
        let (place, moved) = match stands {
            Some(relation) if relation.labels == labels => (Place::Same, Moved::Neither),
            Some(relation) => {
                let base = line.edit_count.and_then(|number| earlier.get(&(*edge, number)));
                let moved = match line.edit_count {
                    None if seen.is_some_and(|seen| relation.updated_at > seen) => Moved::Both,
                    number => who_moved(number, relation.edit_count, base, |_| Ok(labels.clone()))?,
                };
                (Place::Changed, moved)
            }
            None => {
                let gone = known.iter().filter(|relation| relation.edge == *edge).max_by_key(|gone| gone.edit_count);
                let ends = [edge.from, edge.to].map(|id| stickies.iter().find(|stickie| stickie.id == id));
                (Place::OnlyInFolder, who_added(gone, line, &labels, seen, ends)?)
            }
        };
        compared.push(ComparedRelation { edge: *edge, known: stands, line: Some(line), labels, place, moved });
    }
    for relation in standing().filter(|relation| !lines.iter().any(|(edge, _)| *edge == relation.edge)) {
        let moved = match folder.relations {
            Some(_) => who_took_away(seen, relation.created_at, relation.updated_at),
            None => Moved::Neither,
        };
        compared.push(ComparedRelation {
            edge: relation.edge,
            known: Some(relation),
            line: None,
            labels: relation.labels.clone(),
            place: Place::OnlyInDatabase,
            moved,
        });
    }
    Ok(compared)
}

/// Who moved, of a line that the board does not have, or not any more.
fn who_added(
    gone: Option<&KnownRelation>,
    line: &RelationFile,
    labels: &[String],
    seen: Option<Time>,
    ends: [Option<&Compared<'_>>; 2],
) -> Result<Moved> {
    let stands = |end: &Compared<'_>| end.known.is_none_or(|known| !known.is_deleted);
    let all_stand = ends.iter().all(|end| end.is_some_and(stands));
    match gone {
        // It went alone after the folder was written, or with one of its stickies.
        Some(gone)
            if !all_stand
                || line.edit_count.is_some() && gone.deleted_at.is_some_and(|at| seen.is_none_or(|seen| at > seen)) =>
        {
            Ok(if gone.labels == labels { Moved::Database } else { Moved::Both })
        }
        None if ends[0].is_none() => Err(unknown(&line.from)),
        None if ends[1].is_none() => Err(unknown(&line.to)),
        // A new line about a stickie that the board took away.
        None if !all_stand => Ok(Moved::Both),
        _ => Ok(Moved::Folder),
    }
}

/// The line of a relation.
pub fn line(edge: Edge, labels: &[String], edit_count: Option<i64>, name: impl Fn(Uuid) -> String) -> RelationFile {
    let beside = |id: Uuid, name: &str| (name != id.to_string()).then(|| id.to_string());
    let (from, to) = (name(edge.from), name(edge.to));
    RelationFile {
        from_id: beside(edge.from, &from),
        to_id: beside(edge.to, &to),
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
    /// What the folder has seen.
    const SEEN: i64 = 5;

    fn stickie(id: Uuid, name: &str, is_deleted: bool) -> Known {
        let at = Time::from_micros(1);
        let content = StickieContent { name: Some(name.into()), ..StickieContent::default() };
        Known { id, content, edit_count: 1, created_at: at, updated_at: at, is_deleted }
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

    fn said(label: &str, edit_count: Option<i64>) -> RelationFile {
        RelationFile { edit_count, ..line(EDGE, &[label.to_owned()], None, |id| id.to_string()) }
    }

    fn folder(relations: Option<Vec<RelationFile>>) -> Folder {
        let board = BoardFile { synced_at: Some(Time::from_micros(SEEN)), ..BoardFile::default() };
        Folder { board: Some(board), stickies: Vec::new(), relations }
    }

    fn on_board(stickie: &Known) -> Compared<'_> {
        Compared {
            id: stickie.id,
            known: Some(stickie),
            file: None,
            place: Place::OnlyInDatabase,
            moved: Moved::Neither,
        }
    }

    /// Compares; at edit 1 the label was `old`.
    fn compared(known: &[KnownRelation], lines_said: Option<Vec<RelationFile>>) -> Vec<(Place, Moved)> {
        let stickies = [stickie(A, "a", false), stickie(B, "b", false)];
        let stickies: Vec<Compared<'_>> = stickies.iter().map(on_board).collect();
        let folder = folder(lines_said);
        let names = Names::new(&[], &stickies, &Earlier::new()).unwrap();
        let lines = lines(&folder, &names).unwrap();
        let earlier = EarlierLabels::from([((EDGE, 1), vec!["old".to_owned()])]);
        let found = compare_relations(known, &folder, &lines, &earlier, &stickies).unwrap();
        found.into_iter().map(|one| (one.place, one.moved)).collect()
    }

    #[test]
    fn who_edited_a_relation_is_known() {
        use Moved::{Both, Database, Folder, Neither};
        use Place::{Changed, OnlyInDatabase, OnlyInFolder, Same};
        let stands = relation("new", 2, 7, None);
        let gone = relation("old", 1, 1, Some(7));
        for (known, line, expected) in [
            (&stands, Some(said("new", Some(1))), (Same, Neither)),
            (&stands, Some(said("old", Some(1))), (Changed, Database)),
            (&stands, Some(said("mine", Some(2))), (Changed, Folder)),
            (&stands, Some(said("mine", Some(1))), (Changed, Both)),
            (&stands, Some(said("mine", None)), (Changed, Both)),
            (&relation("new", 2, 4, None), Some(said("mine", None)), (Changed, Folder)),
            (&stands, None, (OnlyInDatabase, Both)),
            (&relation("old", 1, 1, None), None, (OnlyInDatabase, Folder)),
            (&gone, Some(said("old", Some(1))), (OnlyInFolder, Database)),
            (&gone, Some(said("mine", Some(1))), (OnlyInFolder, Both)),
            // Written by hand, or brought back after the folder saw it go.
            (&gone, Some(said("old", None)), (OnlyInFolder, Folder)),
            (&relation("old", 1, 1, Some(4)), Some(said("old", Some(1))), (OnlyInFolder, Folder)),
        ] {
            let lines = line.clone().into_iter().collect();
            assert_eq!(compared(std::slice::from_ref(known), Some(lines)), [expected], "{line:?}");
        }
        assert_eq!(compared(&[stands], None), [(OnlyInDatabase, Neither)]);
        assert_eq!(compared(&[], Some(vec![said("x", None)])), [(OnlyInFolder, Folder)]);
    }

    #[test]
    fn a_name_means_the_stickie_beside_it_until_someone_writes_another() {
        let known = [stickie(A, "new", false), stickie(B, "old", false), stickie(Uuid::from_u128(3), "gone", true)];
        let compared: Vec<Compared<'_>> = known.iter().filter(|known| !known.is_deleted).map(on_board).collect();
        let base = StickieContent { name: Some("old".into()), ..StickieContent::default() };
        let mut names = Names::new(&known, &compared, &Earlier::from([((A, 1), base)])).unwrap();
        let (a, b) = (A.to_string(), B.to_string());
        let find = |names: &Names, name: &str, id: Option<&str>| names.find(name, id).unwrap();
        assert_eq!(find(&names, "old", Some(&a)), Some(A), "as its file was written");
        assert_eq!(find(&names, "new", Some(&a)), Some(A));
        assert_eq!(find(&names, "new", Some(&b)), Some(A), "another name was written over it");
        assert_eq!((find(&names, "old", None), find(&names, "old", Some(""))), (Some(B), Some(B)));
        assert_eq!(find(&names, &b, None), Some(B));
        assert_eq!(find(&names, "gone", None), Some(Uuid::from_u128(3)));
        assert_eq!(find(&names, "older", Some(&a)), None);
        names.remember([(B, "older".to_owned()), (A, "older".to_owned())]);
        assert_eq!((find(&names, "older", Some(&a)), find(&names, "older", None)), (Some(A), Some(B)));
        assert_eq!(names.find("x", Some("no id")).unwrap_err().to_string(), "relations.yaml: \"no id\" is no id");
    }
}
