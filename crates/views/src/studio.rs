//! Lists of what stands in studios.

/// Declares the list of something that stands in studios.
macro_rules! in_studios {
    ($(#[$meta:meta])* $list:ident, $noun:literal, $shown:ty, $row:ident, $alias:literal, $long:expr, $columns:expr, $settle:expr) => {
        $(#[$meta])*
        #[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
        pub struct $list {
            /// Only in this studio
            #[arg(long)]
            pub studio: Option<Ref<kind::Studio>>,
            /// Archived ones too
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
            type Output = Listed<$shown>;

            fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Self::Output> {
                let studio = read.resolve_optional(self.studio.as_ref())?;
                let mut filter = Filter::default()
                    .always(concat!($alias, ".deleted_at is null"))
                    .and(concat!($alias, ".studio_id = ?"), studio.as_ref());
                if !self.archived {
                    filter = filter.always(concat!($alias, ".archived_at is null"));
                }
                let select = cut_texts(<$shown>::select(), $long);
                let mut listed =
                    self.page.read(read, &select, $alias, filter, Order::NewestFirst, |shown: &$shown| shown.$row.id.uuid())?;
                let settle: fn(&mut $shown, Time) = $settle;
                listed.rows.iter_mut().for_each(|shown| settle(shown, now));
                Ok(listed)
            }

            fn more(output: &Self::Output) -> Option<String> {
                output.more.clone()
            }
        }
    };
}

pub(crate) use in_studios;
