//! People.

use serde::Deserialize;
use trackway_domain::{Id, Patch, kind, patch::UNSET, text};
use trackway_store::{Writer, params, tables::Person};

use crate::{
    action::{Action, Done},
    context::Context,
    definition::{Stands, about, definition, save, stands},
    error::Result,
    touched::Nothing,
};

definition!(Person, kind::Person, handle);

/// Enter a person, or change what is given of one
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetPerson {
    /// Their handle
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NAME))]
    pub handle: String,
    /// Their name
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub name: Patch<String>,
    #[arg(skip)]
    #[serde(skip)]
    newcomer: Option<Id<kind::Person>>,
}

impl SetPerson {
    /// Someone who enters themselves, so that their id must be known before.
    pub(crate) fn newcomer(id: Id<kind::Person>, handle: &str) -> Self {
        Self { handle: handle.to_owned(), name: Patch::Unset, newcomer: Some(id) }
    }
}

impl Action for SetPerson {
    const NAME: &'static str = "set_person";
    const COMMAND: (&'static str, &'static str) = ("person", "set");
    type Touched = Nothing;
    type Output = Stands<Person>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let Self { handle, name, newcomer } = self;
        let handle = text::name("handle", handle)?;
        let before = write
            .row_locked::<Person>("where tenant_id = ?1 and handle = ?2 and deleted_at is null", params![handle])?;
        let id = newcomer.unwrap_or_else(|| write.new_id());
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
        let subject = about(&person);
        stands!(person, saved, subject)
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
