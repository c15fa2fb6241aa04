//! Notes: written, changed with their history kept, read and confirmed.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Ref, command, kind, sentence, text};
use trackway_store::{
    Writer, params,
    tables::{Confirmation, Note, NoteRevision},
};
use uuid::Uuid;

use crate::{
    action::{Action, Done, Resource},
    context::Context,
    error::Result,
    studio::{in_studio, locked, resource, studio},
    touched::{Touch, did},
};

/// Write a note
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CreateNote {
    /// The studio it is written in
    #[arg(long)]
    pub studio: Ref<kind::Studio>,
    /// Its title
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::SAYS_SOMETHING))]
    pub title: String,
    /// Its text, to 1,000,000 characters
    #[arg(long, default_value = "", hide_default_value = true)]
    #[serde(default)]
    pub body: String,
    /// What it is about: the id of any resource, to make the note a comment
    #[arg(long, value_name = "ID")]
    pub about: Option<String>,
}

/// A note that was written.
#[derive(Debug, Serialize)]
pub struct NoteWritten {
    pub id: Id<kind::Note>,
    pub studio: String,
    pub title: String,
    pub revision: i64,
}

impl Action for CreateNote {
    const NAME: &'static str = "create_note";
    const COMMAND: (&'static str, &'static str) = ("note", "create");
    type Touched = Touch<kind::Note, did::Create>;
    type Output = NoteWritten;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let title = text::required_line("title", &self.title, text::LINE_MAX)?;
        let body = text::body("body", &self.body, text::BODY_MAX)?;
        let studio = studio(write, &self.studio)?;
        let about_id = self.about.as_deref().map(|about| subject(write, about)).transpose()?;
        let note = Note {
            id: write.new_id(),
            tenant_id: context.tenant,
            studio_id: studio.id,
            title,
            body,
            revision: 1,
            pinned: false,
            about_id,
            created_at: write.now,
            updated_at: write.now,
            archived_at: None,
            deleted_at: None,
        };
        write.insert(&note)?;
        write.insert(&revision(context, write, &note))?;
        let resource = in_studio(&note, &studio.name);
        resource.register(context, write)?;
        let written = NoteWritten { id: note.id, studio: studio.name, title: note.title, revision: 1 };
        Ok(Done::changed(written, &resource, Touch::one(resource.clone())))
    }
}

/// What a comment is about: anything that has an id, or a task's variant.
fn subject(write: &mut Writer<'_>, text: &str) -> Result<Uuid> {
    match write.anything(text)? {
        Some(entry) if entry.deleted_at.is_some() => {
            Err(Rule::not_found(format!("{} {:?} was deleted", entry.kind, entry.display_path)).into())
        }
        Some(entry) => Ok(entry.id),
        None => Err(Rule::not_found(format!("there is nothing called {text:?} to comment on"))
            .hint("give the id of a resource, or a variant")
            .into()),
    }
}

fn revision(context: &Context, write: &Writer<'_>, note: &Note) -> NoteRevision {
    NoteRevision {
        note_id: note.id,
        tenant_id: context.tenant,
        number: note.revision,
        title: note.title.clone(),
        body: note.body.clone(),
        actor_kind: context.actor.kind(),
        actor_id: context.actor.id(),
        run_id: context.run,
        created_at: write.now,
    }
}

/// Change a note; its old text is kept as a revision
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct UpdateNote {
    /// The note
    pub note: Ref<kind::Note>,
    /// A new title
    #[arg(long)]
    pub title: Option<String>,
    /// A new text (empty clears it)
    #[arg(long)]
    pub body: Option<String>,
    /// Only when the note is at this revision
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<i64>,
}

impl Action for UpdateNote {
    const NAME: &'static str = "update_note";
    const COMMAND: (&'static str, &'static str) = ("note", "update");
    type Touched = Touch<kind::Note, did::Update>;
    type Output = NoteWritten;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let Self { note, title, body, if_revision } = self;
        let before = locked::<Note>(write, note)?;
        if let Some(expected) = *if_revision
            && expected != before.revision
        {
            return Err(Rule::conflict(format!("the note is at revision {}, not {expected}", before.revision))
                .hint(sentence!["read it again: ", command!("note show", [before.id.short()])])
                .into());
        }
        let note = before.clone();
        let mut note = Note {
            id: note.id,
            tenant_id: note.tenant_id,
            studio_id: note.studio_id,
            title: title
                .as_ref()
                .map_or(Ok(note.title), |title| text::required_line("title", title, text::LINE_MAX))?,
            body: body.as_ref().map_or(Ok(note.body), |body| text::body("body", body, text::BODY_MAX))?,
            revision: note.revision,
            pinned: note.pinned,
            about_id: note.about_id,
            created_at: note.created_at,
            updated_at: note.updated_at,
            archived_at: note.archived_at,
            deleted_at: note.deleted_at,
        };
        let changed = note != before;
        if changed {
            note.revision += 1;
            note.updated_at = write.now;
            write.update(&note)?;
            write.insert(&revision(context, write, &note))?;
        }
        let resource = resource(write, &note)?;
        let studio = resource.path.split('/').next().unwrap_or_default().to_owned();
        let written = NoteWritten { id: note.id, studio, title: note.title, revision: note.revision };
        if !changed {
            return Ok(Done::unchanged(written));
        }
        write.rename(note.id, &resource.path)?;
        Ok(Done::changed(written, &resource, Touch::one(resource.clone())))
    }
}

/// Say that you have read a note
///
/// Reading again changes nothing until the note changes.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ConfirmRead {
    /// The note
    pub note: Ref<kind::Note>,
}

impl Action for ConfirmRead {
    const NAME: &'static str = "confirm_read";
    const COMMAND: (&'static str, &'static str) = ("note", "confirm");
    type Touched = Touch<kind::Confirmation, did::Confirm>;
    type Output = Confirmation;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let note = locked::<Note>(write, &self.note)?;
        let earlier = write.row::<Confirmation>(
            "where tenant_id = ?1 and note_id = ?2 and actor_id = ?3",
            params![note.id, context.actor.id()],
        )?;
        let path = resource(write, &note)?.path;
        let confirmation = match earlier {
            Some(earlier) if earlier.note_revision >= note.revision => return Ok(Done::unchanged(earlier)),
            Some(earlier) => {
                let confirmation = Confirmation { note_revision: note.revision, read_at: write.now, ..earlier };
                write.update(&confirmation)?;
                confirmation
            }
            None => {
                let confirmation = Confirmation {
                    id: write.new_id(),
                    tenant_id: context.tenant,
                    note_id: note.id,
                    actor_kind: context.actor.kind(),
                    actor_id: context.actor.id(),
                    note_revision: note.revision,
                    read_at: write.now,
                };
                write.insert(&confirmation)?;
                Resource::inside(confirmation.id, note.studio_id, path.as_str()).register(context, write)?;
                confirmation
            }
        };
        let resource = Resource::inside(confirmation.id, note.studio_id, path);
        Ok(Done::changed(confirmation, &resource, Touch::one(resource.clone())))
    }
}

/// Mark a note as pinned
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct PinNote {
    /// The note
    pub note: Ref<kind::Note>,
    /// Take it down again
    #[arg(long)]
    #[serde(default)]
    pub off: bool,
}

/// A note's pin as it now stands.
#[derive(Debug, Serialize)]
pub struct NotePinned {
    pub id: Id<kind::Note>,
    pub pinned: bool,
}

impl Action for PinNote {
    const NAME: &'static str = "pin_note";
    const CAPABILITY: &'static str = "pin";
    const COMMAND: (&'static str, &'static str) = ("note", "pin");
    type Touched = Touch<kind::Note, did::Pin>;
    type Output = NotePinned;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let note = locked::<Note>(write, &self.note)?;
        let pinned = NotePinned { id: note.id, pinned: !self.off };
        if note.pinned == pinned.pinned {
            return Ok(Done::unchanged(pinned));
        }
        write.post("update notes set pinned = ?3 where tenant_id = ?1 and id = ?2", params![note.id, pinned.pinned])?;
        let resource = resource(write, &note)?;
        Ok(Done::changed(pinned, &resource, Touch::one(resource.clone())))
    }
}
