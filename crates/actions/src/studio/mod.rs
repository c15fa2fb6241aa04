//! Resources that belong to studios: notes, decisions and commitments.

pub(crate) mod set;

pub use set::SetStudio;

use trackway_domain::{Error as Rule, Id, Ref, kind, text};
use trackway_store::{
    Table, Writer, params,
    tables::{Commitment, Decision, Note, Studio},
};

use crate::{action::Resource, error::Result};

/// Maximum characters of a title in a display path.
const PATH_TITLE_MAX: usize = 80;

/// A row that belongs to a studio and can be archived and deleted.
pub trait StudioRow: Table {
    type Kind: kind::Touchable;
    /// The noun of the row's commands.
    const NOUN: &'static str;
    /// The name of the table. Display paths use it as the folder.
    const TABLE: &'static str;
    fn id(&self) -> Id<Self::Kind>;
    fn studio_id(&self) -> Id<kind::Studio>;
    fn title(&self) -> &str;
}

macro_rules! studio_row {
    ($row:ty, $kind:ty, $noun:literal, $table:literal, $title:ident) => {
        impl StudioRow for $row {
            type Kind = $kind;
            const NOUN: &'static str = $noun;
            const TABLE: &'static str = $table;

            fn id(&self) -> Id<$kind> {
                self.id
            }

            fn studio_id(&self) -> Id<kind::Studio> {
                self.studio_id
            }

            fn title(&self) -> &str {
                &self.$title
            }
        }
    };
}

studio_row!(Note, kind::Note, "note", "notes", title);
studio_row!(Decision, kind::Decision, "decision", "decisions", question);
studio_row!(Commitment, kind::Commitment, "commitment", "commitments", title);

/// Finds the studio and locks it against changes.
pub(crate) fn studio(write: &mut Writer<'_>, reference: &Ref<kind::Studio>) -> Result<Studio> {
    let id = write.resolve(reference)?;
    Ok(write
        .row_locked_shared::<Studio>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no studio {reference:?}")))?)
}

/// Finds and locks the row.
pub(crate) fn locked<T: StudioRow>(write: &mut Writer<'_>, reference: &Ref<T::Kind>) -> Result<T> {
    let id = write.resolve(reference)?;
    Ok(write
        .row_locked::<T>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no {} {reference:?}", T::NOUN)))?)
}

/// The row as a resource. Its studio and path come from the row itself.
pub(crate) fn resource<T: StudioRow>(write: &mut Writer<'_>, row: &T) -> Result<Resource<T::Kind>> {
    let name = write
        .one::<(String,)>("select name from studios where tenant_id = ?1 and id = ?2", params![row.studio_id()])?;
    Ok(in_studio(row, &name.map_or_else(String::new, |(name,)| name)))
}

pub(crate) fn in_studio<T: StudioRow>(row: &T, studio: &str) -> Resource<T::Kind> {
    let path = format!("{studio}/{}/{}", T::TABLE, text::cut(row.title(), PATH_TITLE_MAX));
    Resource::in_studio(row.id(), row.studio_id(), path)
}
