//! A macro for the list views of notes, decisions and commitments, the resources that belong to a studio.

/// Declares a list view with filters for studio and archived rows. The list shows only the beginning of the texts in
/// `$long_columns`. `$update` updates time-dependent fields of each row.
macro_rules! studio_list_view {
    ($(#[$meta:meta])* $list:ident, $noun:literal, $shown:ty, $row:ident, $alias:literal, $long_columns:expr, $columns:expr, $update:expr) => {
        $(#[$meta])*
        #[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
        pub struct $list {
            /// Only from this studio
            #[arg(long)]
            pub studio: Option<Ref<kind::Studio>>,
            /// Include archived ones
            #[arg(long)]
            #[serde(default)]
            pub archived: bool,
            #[command(flatten)]
            #[serde(flatten)]
            pub page: Page,
        }

        impl View for $list {
            const COMMAND: (&'static str, &'static str) = ($noun, "list");
            const COLUMNS: &'static [&'static str] = $columns;
            type Output = ListPage<$shown>;

            fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Self::Output> {
                let studio = read.resolve_optional(self.studio.as_ref())?;
                let mut filter = Filter::default()
                    .require(concat!($alias, ".deleted_at is null"))
                    .require_if_some(concat!($alias, ".studio_id = ?"), studio.as_ref());
                if !self.archived {
                    filter = filter.require(concat!($alias, ".archived_at is null"));
                }
                let select = shorten_columns(<$shown>::select(), $long_columns);
                let mut listed =
                    self.page.read(read, &select, $alias, filter, Order::NewestFirst, |shown: &$shown| shown.$row.id.uuid())?;
                let update: fn(&mut $shown, Time) = $update;
                listed.rows.iter_mut().for_each(|shown| update(shown, now));
                Ok(listed)
            }

            fn next_page(output: &Self::Output) -> Option<String> {
                output.next_page.clone()
            }
        }
    };
}

pub(crate) use studio_list_view;
