//! A board with all that is on it, as its folder is compared with it.

use std::collections::HashMap;

use serde_json::Value;
use trackway_domain::{
    Error as Rule, Id,
    board::{BoardContent, StickieContent},
    board_folder::Folder,
    board_relations::{ComparedRelation, Edge, KnownRelation, Names, compare_relations, lines},
    board_sync::{Compared, Earlier, Known, stickie_id},
    kind,
};
use uuid::Uuid;

use crate::{
    display::BoardShown,
    error::{Error, Result},
    params,
    store::Reader,
    tables::{Stickie, StickieRelation},
};

/// A board at one moment, what was deleted on it included.
#[derive(Debug, Clone, PartialEq)]
pub struct WholeBoard {
    pub shown: BoardShown,
    pub stickies: Vec<Known>,
    pub relations: Vec<KnownRelation>,
}

impl BoardShown {
    /// What it says, with names where the row has ids.
    pub fn content(&self) -> BoardContent {
        BoardContent {
            name: self.board.name.clone(),
            role: self.role.clone(),
            conversation: self.board.conversation_id.map(|id| id.to_string()),
            project: self.board.project.clone(),
            task: self.task.as_ref().map(ToString::to_string),
            background: self.board.background.clone(),
            guidelines: self.board.guidelines.clone(),
            lifecycle: self.board.lifecycle,
        }
    }
}

impl Stickie {
    pub fn content(&self) -> StickieContent {
        StickieContent {
            name: self.name.clone(),
            note: self.note.clone(),
            code: self.code.clone(),
            labels: self.labels.clone(),
            priority: self.priority,
            score: self.score,
            structured: self.structured.clone(),
            archived: self.archived_at.is_some(),
        }
    }
}

impl Reader<'_> {
    /// A board with all that is on it.
    pub fn whole_board(&mut self, id: Id<kind::Board>) -> Result<WholeBoard> {
        let shown = self.shown_by_id::<BoardShown>("b", id)?;
        let known = |stickie: Stickie| Known {
            id: stickie.id.uuid(),
            content: stickie.content(),
            edit_count: stickie.edit_count,
            created_at: stickie.created_at,
            updated_at: stickie.updated_at,
            is_deleted: stickie.deleted_at.is_some(),
        };
        let stickies = self.rows::<Stickie>("where tenant_id = ?1 and board_id = ?2 order by id", params![id])?;
        let relations = self.rows::<StickieRelation>(
            "where tenant_id = ?1 and from_id in (select s.id from stickies s where s.tenant_id = ?1 and s.board_id = ?2) order by id",
            params![id],
        )?;
        let edits: HashMap<Uuid, i64> = self
            .query::<(Uuid, i64)>(
                "select v.subject_id, max(v.number) from board_revisions v \
                 join stickie_relations e on e.tenant_id = v.tenant_id and e.id = v.subject_id \
                 join stickies s on s.tenant_id = e.tenant_id and s.id = e.from_id \
                 where v.tenant_id = ?1 and s.board_id = ?2 group by v.subject_id",
                params![id],
            )?
            .into_iter()
            .collect();
        let known_relation = |relation: StickieRelation| KnownRelation {
            id: relation.id,
            edit_count: edits.get(&relation.id).copied().unwrap_or_default(),
            edge: Edge {
                from: relation.from_id.uuid(),
                to: relation.to_id.uuid(),
                relation_type: relation.relation_type,
            },
            labels: relation.labels,
            created_at: relation.created_at,
            updated_at: relation.updated_at,
            deleted_at: relation.deleted_at,
        };
        Ok(WholeBoard {
            shown,
            stickies: stickies.into_iter().map(known).collect(),
            relations: relations.into_iter().map(known_relation).collect(),
        })
    }

    /// What a board said at one of its edits.
    pub fn earlier_board(&mut self, board: Id<kind::Board>, number: i64) -> Result<Option<BoardContent>> {
        self.earlier(board.uuid(), number)
    }

    /// What stickies said at the edits that the files of a folder were written from.
    pub fn earlier_stickies(&mut self, board: &WholeBoard, folder: &Folder) -> Result<Earlier<StickieContent>> {
        let mut earlier = HashMap::new();
        for file in &folder.stickies {
            let (Some(id), Some(number)) = (stickie_id(file)?, file.edit_count) else {
                continue;
            };
            if board.stickies.iter().any(|known| known.id == id && known.edit_count != number)
                && let Some(content) = self.earlier(id, number)?
            {
                earlier.insert((id, number), content);
            }
        }
        Ok(earlier)
    }

    /// The relations of a board beside those of a folder, and how the folder calls their stickies.
    pub fn compare_relations<'a>(
        &mut self,
        board: &'a WholeBoard,
        folder: &'a Folder,
        stickies: &[Compared<'_>],
        earlier: &Earlier<StickieContent>,
    ) -> Result<(Vec<ComparedRelation<'a>>, Names)> {
        let mut names = Names::new(&board.stickies, stickies, earlier)?;
        if !names.know(folder)? {
            names.remember(self.former_names(board.shown.board.id)?);
        }
        let lines = lines(folder, &names)?;
        let mut labels = HashMap::new();
        for (edge, line) in &lines {
            let of_edge: Vec<&KnownRelation> = board.relations.iter().filter(|one| one.edge == *edge).collect();
            let is_last = |number| of_edge.iter().all(|relation| relation.edit_count <= number);
            let Some(number) = line.edit_count.filter(|number| !is_last(*number)) else { continue };
            for relation in of_edge {
                labels.extend(self.earlier(relation.id, number)?.map(|labels| ((*edge, number), labels)));
            }
        }
        Ok((compare_relations(&board.relations, folder, &lines, &labels, stickies)?, names))
    }

    /// What the stickies of a board were called at some time. Reads all of its history: for names that nothing has now.
    fn former_names(&mut self, board: Id<kind::Board>) -> Result<Vec<(Uuid, String)>> {
        self.query::<(Uuid, String)>(
            "select distinct v.subject_id, v.content ->> 'name' from board_revisions v \
             join stickies s on s.tenant_id = v.tenant_id and s.id = v.subject_id \
             where v.tenant_id = ?1 and s.board_id = ?2 and v.content ->> 'name' is not null",
            params![board],
        )
    }

    fn earlier<C: serde::de::DeserializeOwned>(&mut self, subject: Uuid, number: i64) -> Result<Option<C>> {
        let found = self.one::<(Value,)>(
            "select content from board_revisions where tenant_id = ?1 and subject_id = ?2 and number = ?3",
            params![subject, number],
        )?;
        let read = |(content,)| serde_json::from_value(content).map_err(|error| Error::Value(error.to_string()));
        found.map(read).transpose()
    }

    /// Refuses a folder that names what belongs to another board, or to something else.
    pub fn refuse_foreign(&mut self, board: &WholeBoard, folder: &Folder) -> Result<()> {
        if let Some(said) = folder.board.as_ref().and_then(|file| file.id.as_deref())
            && said != board.shown.board.id.to_string()
        {
            return Err(Rule::conflict(format!("the folder is of another board, {said}"))
                .hint("give the folder of this board, or an empty one; nothing was changed")
                .into());
        }
        for file in &folder.stickies {
            let Some(id) = stickie_id(file)?.filter(|id| !board.stickies.iter().any(|known| known.id == *id)) else {
                continue;
            };
            // Whoever has it, here or elsewhere: an id is of one thing.
            if !self.query_unscoped::<(Uuid,)>("select id from registry where id = ?1", params![id])?.is_empty() {
                return Err(Rule::conflict(format!("{}: {id} is not a stickie of this board", file.file))
                    .hint("remove the id to make a new stickie of it; nothing was changed")
                    .into());
            }
        }
        Ok(())
    }
}
