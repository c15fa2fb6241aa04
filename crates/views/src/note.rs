use serde::{Deserialize, Serialize};
use trackway_domain::{Id, Ref, Time, enums::ActorKind, kind};
use trackway_store::{Reader, Result, display::NoteRow, params, row, table::DisplayRow};

use crate::{
    page::{Filter, ListPage, Order, Page, shorten_columns},
    studio_list::studio_list_view,
    view::View,
};

row! {
    /// A confirmation that an actor read a revision of a note.
    pub struct ReadConfirmation {
        actor: Option<String>,
        actor_kind: ActorKind,
        note_revision: i64,
        read_at: Time,
    }
}

row! {
    /// A revision of a note: its text, author and run.
    pub struct NoteRevisionRow {
        number: i64,
        title: String,
        body: String,
        by: Option<String>,
        run_id: Option<Id<kind::Run>>,
        created_at: Time,
    }
}

/// Show a note with its read confirmations and comments
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ShowNote {
    /// The note
    pub note: Ref<kind::Note>,
}

/// A note with its read confirmations and the notes that comment on it.
#[derive(Debug, PartialEq, Serialize)]
pub struct NoteDetails {
    #[serde(flatten)]
    pub note: NoteRow,
    pub read_by: Vec<ReadConfirmation>,
    pub comments: Vec<NoteRow>,
}

impl View for ShowNote {
    const COMMAND: (&'static str, &'static str) = ("note", "show");
    const ALIAS: Option<&'static str> = Some("get");
    type Output = NoteDetails;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<NoteDetails> {
        let id = read.resolve(&self.note)?;
        Ok(NoteDetails {
            note: read.display_row_by_id("n", id)?,
            read_by: read.query(
                "select g.display_path, c.actor_kind, c.note_revision, c.read_at from confirmations c
                 left join registry g on g.id = c.actor_id where c.tenant_id = ?1 and c.note_id = ?2 order by c.read_at, c.id",
                params![id],
            )?,
            comments: read.display_rows("where n.tenant_id = ?1 and n.about_id = ?2 and n.deleted_at is null order by n.id", params![id])?,
        })
    }
}

/// List the revisions of a note, newest first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct NoteHistory {
    /// The note
    pub note: Ref<kind::Note>,
}

impl View for NoteHistory {
    const COMMAND: (&'static str, &'static str) = ("note", "history");
    const COLUMNS: &'static [&'static str] = &["number", "title", "by", "run_id", "created_at"];
    type Output = Vec<NoteRevisionRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let id = read.resolve_including_deleted(&self.note)?;
        read.query(
            "select r.number, r.title, r.body, g.display_path, r.run_id, r.created_at from note_revisions r
             left join registry g on g.id = r.actor_id where r.tenant_id = ?1 and r.note_id = ?2 order by r.number desc",
            params![id],
        )
    }
}

studio_list_view!(
    /// List notes, newest first
    ListNotes, "note", NoteRow, note, "n", &["n.body"], &["id", "studio", "title", "revision", "pinned", "about", "author", "run_id", "updated_at"], |_, _| {}
);
