//! What every `set` does: find by name, change what was said, keep the rest, tell whether it is new.

use serde::Serialize;
use serde_json::{Value, json};
use trackway_domain::{
    Id, Time,
    kind::{Marker, Touchable},
    text,
};
use trackway_store::{Table, Writer};

use crate::{
    action::{About, Action, Done, Resource},
    context::Context,
    error::Result,
    touched::CreatedOrUpdated,
};

/// A row that has a name and is upserted by it.
pub trait Definition: Table + PartialEq + Serialize {
    type Kind: Marker;
    fn id(&self) -> Id<Self::Kind>;
    fn path(&self) -> String;
    fn set_updated(&mut self, now: Time);
}

/// Declares which field is the name of a definition.
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

/// What a `set` did.
#[derive(Debug, Clone, PartialEq)]
pub enum Saved {
    New,
    /// The fields that differ, each with its old and new value.
    Changed(Value),
    Unchanged,
}

/// A definition as it now stands, and whether this made it.
#[derive(Debug, Serialize)]
pub struct Stands<T> {
    #[serde(flatten)]
    pub row: T,
    pub new: bool,
}

/// Writes a definition when it is new or differs from what was there.
pub(crate) fn save<T: Definition>(
    context: &Context,
    write: &mut Writer<'_>,
    before: Option<&T>,
    mut after: T,
) -> Result<(T, Saved)> {
    let saved = match before {
        None => {
            write.insert(&after)?;
            resource(&after).register(context, write)?;
            Saved::New
        }
        Some(before) if *before != after => {
            after.set_updated(write.now);
            write.update(&after)?;
            if before.path() != after.path() {
                write.rename(after.id(), &after.path())?;
            }
            Saved::Changed(differences(before, &after))
        }
        Some(_) => Saved::Unchanged,
    };
    Ok((after, saved))
}

/// Characters of a value that the log keeps.
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
    Resource::outside(row.id(), row.path())
}

pub(crate) fn about<T: Definition>(row: &T) -> About {
    About::from(&resource(row))
}

/// The outcome of a `set` whose row is a resource that runs touch.
pub(crate) fn touched<A, T>(row: T, saved: Saved) -> Done<A>
where
    T: Definition<Kind: Touchable>,
    A: Action<Output = Stands<T>, Touched = CreatedOrUpdated<T::Kind>>,
{
    let (subject, resource) = (about(&row), resource(&row));
    let output = Stands { row, new: saved == Saved::New };
    match saved {
        Saved::Unchanged => Done::unchanged(output),
        Saved::New => Done::changed(output, subject, CreatedOrUpdated::created(resource)),
        Saved::Changed(detail) => {
            Done::changed(output, subject, CreatedOrUpdated::updated(resource)).with_detail(detail)
        }
    }
}

/// The outcome of a `set` that touches nothing.
macro_rules! stands {
    ($row:expr, $saved:expr, $about:expr) => {{
        let saved = $saved;
        let output = $crate::definition::Stands { row: $row, new: saved == $crate::definition::Saved::New };
        Ok(match saved {
            $crate::definition::Saved::Unchanged => $crate::action::Done::unchanged(output),
            $crate::definition::Saved::New => $crate::action::Done::changed(output, $about, $crate::touched::Nothing),
            $crate::definition::Saved::Changed(detail) => {
                $crate::action::Done::changed(output, $about, $crate::touched::Nothing).with_detail(detail)
            }
        })
    }};
}
pub(crate) use stands;
