use serde::Deserialize;
use trackway_domain::{Id, Patch, kind, patch::UNSET, text};
use trackway_store::{Writer, params, tables::Person};

use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    definition::{UpsertResult, definition, outcome_without_touch, save, subject},
    error::Result,
    touched::NoTouches,
};

definition!(Person, kind::Person, handle);

/// Create or update a person
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetPerson {
    /// Handle of the person
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NAME_PATTERN))]
    pub handle: String,
    /// Name for people to read
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub name: Patch<String>,
    #[arg(skip)]
    #[serde(skip)]
    chosen_id: Option<Id<kind::Person>>,
}

impl SetPerson {
    /// Registers the calling person. The context already carries their id, so a new row must use it.
    pub(crate) fn self_registering(id: Id<kind::Person>, handle: &str) -> Self {
        Self { handle: handle.to_owned(), name: Patch::Unset, chosen_id: Some(id) }
    }
}

impl Action for SetPerson {
    const NAME: &'static str = "set_person";
    const COMMAND: (&'static str, &'static str) = ("person", "set");
    type Touched = NoTouches;
    type Output = UpsertResult<Person>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { handle, name, chosen_id } = self;
        let handle = text::check_name("handle", handle)?;
        let before = write
            .row_locked::<Person>("where tenant_id = ?1 and handle = ?2 and deleted_at is null", params![handle])?;
        let id = chosen_id.unwrap_or_else(|| write.new_id());
        let person = before.clone().unwrap_or_else(|| new(context, write, id, handle));
        let person = Person {
            id: person.id,
            tenant_id: person.tenant_id,
            handle: person.handle,
            name: name.line("name", text::LINE_MAX)?.apply(person.name),
            created_at: person.created_at,
            updated_at: person.updated_at,
            deleted_at: person.deleted_at,
        };
        let (person, saved) = save(context, write, before.as_ref(), person)?;
        let subject = subject(&person);
        outcome_without_touch!(person, saved, subject)
    }
}

pub(crate) fn new(context: &Context, write: &Writer<'_>, id: Id<kind::Person>, handle: String) -> Person {
    Person {
        id,
        tenant_id: context.tenant,
        handle,
        name: None,
        created_at: write.now,
        updated_at: write.now,
        deleted_at: None,
    }
}
