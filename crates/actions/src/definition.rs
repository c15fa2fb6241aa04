//! The shared part of all `set` actions: an upsert by name that changes only the given fields.

use serde::Serialize;
use serde_json::{Value, json};
use trackway_domain::{
    Id, Time,
    kind::{Marker, Touchable},
    text,
};
use trackway_store::{Table, Writer};

use crate::{
    action::{Action, ActionOutcome, Resource, Subject},
    context::Context,
    error::Result,
    touched::CreatedOrUpdated,
};

/// A row that is upserted by its name.
pub trait Definition: Table + PartialEq + Serialize {
    type Kind: Marker;
    fn id(&self) -> Id<Self::Kind>;
    fn path(&self) -> String;
    fn set_updated(&mut self, now: Time);
}

/// Implements [`Definition`] for a row type, with the given field as its name.
macro_rules! definition {
    ($row:ty, $kind:ty, $name:ident) => {
        impl $crate::definition::Definition for $row {
            type Kind = $kind;

            fn id(&self) -> trackway_domain::Id<$kind> {
                self.id
            }

            fn path(&self) -> String {
                self.$name.clone()
            }

            fn set_updated(&mut self, now: trackway_domain::Time) {
                self.updated_at = now;
            }
        }
    };
}
pub(crate) use definition;

/// The effect of a `set`.
#[derive(Debug, Clone, PartialEq)]
pub enum SaveEffect {
    New,
    /// The changed fields, each with its old and new value.
    Changed(Value),
    Unchanged,
}

/// The row after a `set`, and whether the action created it.
#[derive(Debug, Serialize)]
pub struct UpsertResult<T> {
    #[serde(flatten)]
    pub row: T,
    pub new: bool,
}

/// Inserts a new row, or updates a row that differs from `before`.
pub(crate) fn save<T: Definition>(
    context: &Context,
    write: &mut Writer<'_>,
    before: Option<&T>,
    mut after: T,
) -> Result<(T, SaveEffect)> {
    let saved = match before {
        None => {
            write.insert(&after)?;
            resource(&after).register(context, write)?;
            SaveEffect::New
        }
        Some(before) if *before != after => {
            after.set_updated(write.now);
            write.update(&after)?;
            if before.path() != after.path() {
                write.update_display_path(after.id(), &after.path())?;
            }
            SaveEffect::Changed(differences(before, &after))
        }
        Some(_) => SaveEffect::Unchanged,
    };
    Ok((after, saved))
}

/// Maximum length of an old or new value in the event log, in characters.
const VALUE_MAX: usize = 200;

fn differences<T: Serialize>(before: &T, after: &T) -> Value {
    let fields = |row: &T| serde_json::to_value(row).ok().and_then(|row| row.as_object().cloned()).unwrap_or_default();
    let short = |value: Value| match value {
        Value::String(text) => Value::String(text::cut(&text, VALUE_MAX)),
        other => other,
    };
    let before = fields(before);
    let changed =
        fields(after).into_iter().filter(|(name, value)| name != "updated_at" && before.get(name) != Some(value));
    changed
        .map(|(name, value)| {
            let old = before.get(&name).cloned().unwrap_or_default();
            (name, json!({ "from": short(old), "to": short(value) }))
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}

pub(crate) fn resource<T: Definition>(row: &T) -> Resource<T::Kind> {
    Resource::new(row.id(), row.path())
}

pub(crate) fn subject<T: Definition>(row: &T) -> Subject {
    Subject::from(&resource(row))
}

/// The outcome of a `set` of a resource, with the touch.
pub(crate) fn outcome_with_touch<A, T>(row: T, saved: SaveEffect) -> ActionOutcome<A>
where
    T: Definition<Kind: Touchable>,
    A: Action<Output = UpsertResult<T>, Touched = CreatedOrUpdated<T::Kind>>,
{
    let (subject, resource) = (subject(&row), resource(&row));
    let output = UpsertResult { row, new: saved == SaveEffect::New };
    match saved {
        SaveEffect::Unchanged => ActionOutcome::unchanged(output),
        SaveEffect::New => ActionOutcome::changed(output, subject, CreatedOrUpdated::created(resource)),
        SaveEffect::Changed(detail) => {
            ActionOutcome::changed(output, subject, CreatedOrUpdated::updated(resource)).with_detail(detail)
        }
    }
}

/// The outcome of a `set` of a row that is no resource, without a touch.
macro_rules! outcome_without_touch {
    ($row:expr, $saved:expr, $subject:expr) => {{
        let saved = $saved;
        let output = $crate::definition::UpsertResult { row: $row, new: saved == $crate::definition::SaveEffect::New };
        Ok(match saved {
            $crate::definition::SaveEffect::Unchanged => $crate::action::ActionOutcome::unchanged(output),
            $crate::definition::SaveEffect::New => {
                $crate::action::ActionOutcome::changed(output, $subject, $crate::touched::NoTouches)
            }
            $crate::definition::SaveEffect::Changed(detail) => {
                $crate::action::ActionOutcome::changed(output, $subject, $crate::touched::NoTouches).with_detail(detail)
            }
        })
    }};
}
pub(crate) use outcome_without_touch;
