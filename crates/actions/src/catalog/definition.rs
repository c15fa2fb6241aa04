//! What every `set` does: find by name, change what was said, keep the rest, tell whether it is new.

use serde::Serialize;
use trackway_domain::{Id, Time, kind::Marker};
use trackway_store::{Table, Writer};

use crate::{
    action::{About, Resource},
    context::Context,
    error::Result,
};

/// A row that has a name and is upserted by it.
pub trait Definition: Table + PartialEq {
    type Kind: Marker;
    fn id(&self) -> Id<Self::Kind>;
    fn path(&self) -> String;
    fn set_updated(&mut self, now: Time);
}

/// Declares which field is the name of a definition.
macro_rules! definition {
    ($row:ty, $kind:ty, $name:ident) => {
        impl $crate::catalog::definition::Definition for $row {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    New,
    Changed,
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
            Saved::Changed
        }
        Some(_) => Saved::Unchanged,
    };
    Ok((after, saved))
}

fn resource<T: Definition>(row: &T) -> Resource<T::Kind> {
    Resource::outside(row.id(), row.path())
}

pub(crate) fn about<T: Definition>(row: &T) -> About {
    About::from(&resource(row))
}

/// The outcome of a `set` that touches nothing.
macro_rules! stands {
    ($row:expr, $saved:expr, $about:expr) => {{
        let saved = $saved;
        let output =
            $crate::catalog::definition::Stands { row: $row, new: saved == $crate::catalog::definition::Saved::New };
        Ok(match saved {
            $crate::catalog::definition::Saved::Unchanged => $crate::action::Done::unchanged(output),
            _ => $crate::action::Done::changed(output, $about, $crate::touched::Nothing),
        })
    }};
}
pub(crate) use stands;
