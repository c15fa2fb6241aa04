//! Boards with all their contents, for the comparison with a board folder.

use std::collections::HashMap;

use serde_json::Value;
use trackway_domain::{
    Error as DomainError, Id,
    board::{BoardContent, StickieContent},
    board_folder::Folder,
    board_relations::{ComparedRelation, Edge, KnownRelation, StickieNames, compare_relations, resolve_lines},
    board_sync::{ComparedStickie, EarlierContents, KnownStickie, stickie_id},
    kind,
};
use uuid::Uuid;

use crate::{
    display::BoardRow,
    error::{Error, Result},
    params,
    store::Reader,
    tables::{Stickie, StickieRelation},
};

/// A board with its stickies and relations, including deleted ones.
#[derive(Debug, Clone, PartialEq)]
pub struct BoardContents {
    pub row: BoardRow,
    pub stickies: Vec<KnownStickie>,
    pub relations: Vec<KnownRelation>,
}

impl BoardRow {
    /// The editable content of the board, with names instead of ids.
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
    /// Reads a board with its stickies and relations.
    pub fn board_contents(&mut self, id: Id<kind::Board>) -> Result<BoardContents> {
        let row = self.display_row_by_id::<BoardRow>("b", id)?;
        let known_stickie = |stickie: Stickie| KnownStickie {
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
        Ok(BoardContents {
            row,
            stickies: stickies.into_iter().map(known_stickie).collect(),
            relations: relations.into_iter().map(known_relation).collect(),
        })
    }

    /// Returns the content of a board at one of its edits.
    pub fn board_content_at_edit(&mut self, board: Id<kind::Board>, number: i64) -> Result<Option<BoardContent>> {
        self.content_at_edit(board.uuid(), number)
    }

    /// Returns the earlier contents of the stickies whose files are based on an earlier edit.
    pub fn stickie_contents_at_edits(
        &mut self,
        board: &BoardContents,
        folder: &Folder,
    ) -> Result<EarlierContents<StickieContent>> {
        let mut earlier = HashMap::new();
        for file in &folder.stickies {
            let (Some(id), Some(number)) = (stickie_id(file)?, file.edit_count) else {
                continue;
            };
            if board.stickies.iter().any(|known| known.id == id && known.edit_count != number)
                && let Some(content) = self.content_at_edit(id, number)?
            {
                earlier.insert((id, number), content);
            }
        }
        Ok(earlier)
    }

    /// Compares the relations of a board with those of a folder. Also returns the names that the folder may use for
    /// stickies.
    pub fn compare_relations<'a>(
        &mut self,
        board: &'a BoardContents,
        folder: &'a Folder,
        stickies: &[ComparedStickie<'_>],
        earlier: &EarlierContents<StickieContent>,
    ) -> Result<(Vec<ComparedRelation<'a>>, StickieNames)> {
        let mut names = StickieNames::new(&board.stickies, stickies, earlier)?;
        if !names.can_resolve_all(folder)? {
            names.add_former_names(self.former_names(board.row.board.id)?);
        }
        let lines = resolve_lines(folder, &names)?;
        let mut labels = HashMap::new();
        for (edge, line) in &lines {
            let of_edge: Vec<&KnownRelation> = board.relations.iter().filter(|one| one.edge == *edge).collect();
            let is_last = |number| of_edge.iter().all(|relation| relation.edit_count <= number);
            let Some(number) = line.edit_count.filter(|number| !is_last(*number)) else { continue };
            for relation in of_edge {
                labels.extend(self.content_at_edit(relation.id, number)?.map(|labels| ((*edge, number), labels)));
            }
        }
        Ok((compare_relations(&board.relations, folder, &lines, &labels, stickies)?, names))
    }

    /// Returns all names that stickies of a board ever had. Reads the whole history of the board, so it is only called
    /// for a name that no stickie has now.
    fn former_names(&mut self, board: Id<kind::Board>) -> Result<Vec<(Uuid, String)>> {
        self.query::<(Uuid, String)>(
            "select distinct v.subject_id, v.content ->> 'name' from board_revisions v \
             join stickies s on s.tenant_id = v.tenant_id and s.id = v.subject_id \
             where v.tenant_id = ?1 and s.board_id = ?2 and v.content ->> 'name' is not null",
            params![board],
        )
    }

    fn content_at_edit<C: serde::de::DeserializeOwned>(&mut self, subject: Uuid, number: i64) -> Result<Option<C>> {
        let found = self.one::<(Value,)>(
            "select content from board_revisions where tenant_id = ?1 and subject_id = ?2 and number = ?3",
            params![subject, number],
        )?;
        let read = |(content,)| serde_json::from_value(content).map_err(|error| Error::Value(error.to_string()));
        found.map(read).transpose()
    }

    /// Fails if the folder contains ids of another board or of other resources.
    pub fn reject_foreign_ids(&mut self, board: &BoardContents, folder: &Folder) -> Result<()> {
        if let Some(folder_board) = folder.board.as_ref().and_then(|file| file.id.as_deref())
            && folder_board != board.row.board.id.to_string()
        {
            return Err(DomainError::conflict(format!("the folder belongs to another board, {folder_board}"))
                .hint("use the folder of this board or an empty one; nothing was changed")
                .into());
        }
        for file in &folder.stickies {
            let Some(id) = stickie_id(file)?.filter(|id| !board.stickies.iter().any(|known| known.id == *id)) else {
                continue;
            };
            // Ids are unique across tenants, so search all of them.
            if !self.query_unscoped::<(Uuid,)>("select id from registry where id = ?1", params![id])?.is_empty() {
                return Err(DomainError::conflict(format!("{}: {id} is not a stickie of this board", file.file))
                    .hint("remove the id to create a new stickie; nothing was changed")
                    .into());
            }
        }
        Ok(())
    }
}
