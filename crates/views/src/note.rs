//! Notes.

use serde::{Deserialize, Serialize};
use trackway_domain::{Id, Ref, Time, kind, words::ActorKind};
use trackway_store::{Reader, Result, display::NoteShown, params, row, table::Shown};

use crate::{
    page::{Filter, Listed, Order, Page, cut_texts},
    studio::in_studios,
    view::View,
};

row! {
    /// Who read which revision.
    pub struct ReadBy {
        actor: Option<String>,
        actor_kind: ActorKind,
        note_revision: i64,
        read_at: Time,
    }
}

row! {
    /// An earlier text of a note.
    pub struct NoteRevisionShown {
        number: i64,
        title: String,
        body: String,
        by: Option<String>,
        run_id: Option<Id<kind::Run>>,
        created_at: Time,
    }
}

/// Show a note with who read it and what was said about it
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowNote {
    /// The note
    pub note: Ref<kind::Note>,
}

/// A note in full.
#[derive(Debug, PartialEq, Serialize)]
pub struct NoteInFull {
    #[serde(flatten)]
    pub note: NoteShown,
    pub read_by: Vec<ReadBy>,
    pub comments: Vec<NoteShown>,
}

impl View for ShowNote {
    const COMMAND: (&'static str, &'static str) = ("note", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = NoteInFull;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<NoteInFull> {
        let id = read.resolve(&self.note)?;
        Ok(NoteInFull {
            note: read.shown_by_id("n", id)?,
            read_by: read.query(
                "select g.display_path, c.actor_kind, c.note_revision, c.read_at from confirmations c
                 left join registry g on g.id = c.actor_id where c.tenant_id = ?1 and c.note_id = ?2 order by c.read_at, c.id",
                params![id],
            )?,
            comments: read.shown("where n.tenant_id = ?1 and n.about_id = ?2 and n.deleted_at is null order by n.id", params![id])?,
        })
    }
}

/// Show every text a note has had, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct NoteHistory {
    /// The note
    pub note: Ref<kind::Note>,
}

impl View for NoteHistory {
    const COMMAND: (&'static str, &'static str) = ("note", "history");
    const COLUMNS: &'static [&'static str] = &["number", "title", "by", "run_id", "created_at"];
    type Output = Vec<NoteRevisionShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let id = read.resolve_even_deleted(&self.note)?;
        read.query(
            "select r.number, r.title, r.body, g.display_path, r.run_id, r.created_at from note_revisions r
             left join registry g on g.id = r.actor_id where r.tenant_id = ?1 and r.note_id = ?2 order by r.number desc",
            params![id],
        )
    }
}

in_studios!(
    /// List notes, newest first
    ListNotes, "note", NoteShown, note, "n", &["n.body"], &["id", "studio", "title", "revision", "pinned", "about", "author", "run_id", "updated_at"], |_, _| {}
);
