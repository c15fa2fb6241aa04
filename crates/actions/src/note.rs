//! Notes: create, update (with history), confirm as read, pin.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Ref, command, kind, sentence, text};
use trackway_store::{
    Writer, params,
    tables::{Confirmation, Note, NoteRevision},
};
use uuid::Uuid;

use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    error::Result,
    studio::{in_studio, locked, resource, studio},
    touched::{Touch, action_type},
};

/// Create a note
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CreateNote {
    /// Studio of the note
    #[arg(long)]
    pub studio: Ref<kind::Studio>,
    /// Title
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NOT_BLANK_PATTERN))]
    pub title: String,
    /// Text, at most 1,000,000 characters
    #[arg(long, default_value = "", hide_default_value = true)]
    #[serde(default)]
    pub body: String,
    /// Id of the resource that the note comments on
    #[arg(long, value_name = "ID")]
    pub about: Option<String>,
}

/// A note, without its body.
#[derive(Debug, Serialize)]
pub struct NoteSummary {
    pub id: Id<kind::Note>,
    pub studio: String,
    pub title: String,
    pub revision: i64,
}

impl Action for CreateNote {
    const NAME: &'static str = "create_note";
    const COMMAND: (&'static str, &'static str) = ("note", "create");
    type Touched = Touch<kind::Note, action_type::Create>;
    type Output = NoteSummary;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let title = text::check_required_line("title", &self.title, text::LINE_MAX)?;
        let body = text::check_body("body", &self.body, text::BODY_MAX)?;
        let studio = studio(write, &self.studio)?;
        let about_id = self.about.as_deref().map(|about| commented_resource(write, about)).transpose()?;
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
        let written = NoteSummary { id: note.id, studio: studio.name, title: note.title, revision: 1 };
        Ok(ActionOutcome::changed(written, &resource, Touch::one(resource.clone())))
    }
}

/// Resolves the resource that a note comments on: an id of any kind, or the variant of a task.
fn commented_resource(write: &mut Writer<'_>, text: &str) -> Result<Uuid> {
    match write.find_entry(text)? {
        Some(entry) if entry.deleted_at.is_some() => {
            Err(Rule::not_found(format!("{} {:?} was deleted", entry.kind, entry.display_path)).into())
        }
        Some(entry) => Ok(entry.id),
        None => Err(Rule::not_found(format!("there is no resource {text:?} to comment on"))
            .hint("use the id of a resource or the variant of a task")
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

/// Update a note; the old text stays as a revision
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct UpdateNote {
    /// Note to update
    pub note: Ref<kind::Note>,
    /// New title
    #[arg(long)]
    pub title: Option<String>,
    /// New text (empty clears it)
    #[arg(long)]
    pub body: Option<String>,
    /// Fail unless the note is at this revision
    #[arg(long, value_name = "NUMBER")]
    pub if_revision: Option<i64>,
}

impl Action for UpdateNote {
    const NAME: &'static str = "update_note";
    const COMMAND: (&'static str, &'static str) = ("note", "update");
    type Touched = Touch<kind::Note, action_type::Update>;
    type Output = NoteSummary;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
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
                .map_or(Ok(note.title), |title| text::check_required_line("title", title, text::LINE_MAX))?,
            body: body.as_ref().map_or(Ok(note.body), |body| text::check_body("body", body, text::BODY_MAX))?,
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
        let written = NoteSummary { id: note.id, studio, title: note.title, revision: note.revision };
        if !changed {
            return Ok(ActionOutcome::unchanged(written));
        }
        write.update_display_path(note.id, &resource.path)?;
        Ok(ActionOutcome::changed(written, &resource, Touch::one(resource.clone())))
    }
}

/// Confirm that you have read a note
///
/// Confirming the same revision again changes nothing.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ConfirmRead {
    /// Note that you have read
    pub note: Ref<kind::Note>,
}

impl Action for ConfirmRead {
    const NAME: &'static str = "confirm_read";
    const COMMAND: (&'static str, &'static str) = ("note", "confirm");
    type Touched = Touch<kind::Confirmation, action_type::Confirm>;
    type Output = Confirmation;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let note = locked::<Note>(write, &self.note)?;
        let earlier = write.row::<Confirmation>(
            "where tenant_id = ?1 and note_id = ?2 and actor_id = ?3",
            params![note.id, context.actor.id()],
        )?;
        let path = resource(write, &note)?.path;
        let confirmation = match earlier {
            Some(earlier) if earlier.note_revision >= note.revision => return Ok(ActionOutcome::unchanged(earlier)),
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
                Resource::in_studio(confirmation.id, note.studio_id, path.as_str()).register(context, write)?;
                confirmation
            }
        };
        let resource = Resource::in_studio(confirmation.id, note.studio_id, path);
        Ok(ActionOutcome::changed(confirmation, &resource, Touch::one(resource.clone())))
    }
}

/// Pin or unpin a note
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct PinNote {
    /// Note to pin
    pub note: Ref<kind::Note>,
    /// Unpin the note
    #[arg(long)]
    #[serde(default)]
    pub off: bool,
}

/// Whether a note is pinned now.
#[derive(Debug, Serialize)]
pub struct NotePin {
    pub id: Id<kind::Note>,
    pub pinned: bool,
}

impl Action for PinNote {
    const NAME: &'static str = "pin_note";
    const CAPABILITY: &'static str = "pin";
    const COMMAND: (&'static str, &'static str) = ("note", "pin");
    type Touched = Touch<kind::Note, action_type::Pin>;
    type Output = NotePin;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let note = locked::<Note>(write, &self.note)?;
        let pinned = NotePin { id: note.id, pinned: !self.off };
        if note.pinned == pinned.pinned {
            return Ok(ActionOutcome::unchanged(pinned));
        }
        write.post("update notes set pinned = ?3 where tenant_id = ?1 and id = ?2", params![note.id, pinned.pinned])?;
        let resource = resource(write, &note)?;
        Ok(ActionOutcome::changed(pinned, &resource, Touch::one(resource.clone())))
    }
}
