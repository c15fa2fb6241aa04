//! All rows of a tenant, for tests that assert that nothing has changed.

use std::collections::BTreeSet;

use trackway_actions::{Context, Core};
use trackway_store::{Engine, schema::TableInfo};

/// The rows of a tenant as text, read in one transaction.
#[derive(Debug, Clone)]
pub struct Snapshot {
    context: Context,
    rows: BTreeSet<String>,
}

impl Snapshot {
    pub fn take(core: &Core, context: &Context) -> Self {
        let rows = core
            .read(context, |reader| {
                let engine = reader.engine();
                let mut rows = BTreeSet::new();
                for table in reader.schema()?.tables.iter().filter(|table| has_tenant_column(table)) {
                    let found = reader.query::<(String,)>(&select_all_rows(engine, table), &[])?;
                    rows.extend(found.into_iter().map(|(row,)| format!("{}: {row}", table.name)));
                }
                Ok(rows)
            })
            .unwrap();
        Self { context: context.clone(), rows }
    }

    /// The rows that were added, removed or changed since the snapshot.
    pub fn changes(&self, core: &Core) -> Vec<String> {
        let now = Self::take(core, &self.context);
        let removed = self.rows.difference(&now.rows).map(|row| format!("- {row}"));
        let added = now.rows.difference(&self.rows).map(|row| format!("+ {row}"));
        removed.chain(added).collect()
    }

    #[track_caller]
    pub fn assert_unchanged(&self, core: &Core) {
        let changes = self.changes(core);
        assert!(changes.is_empty(), "these rows changed:\n{}", changes.join("\n"));
    }
}

fn has_tenant_column(table: &TableInfo) -> bool {
    table.columns.iter().any(|column| column.name == "tenant_id")
}

fn select_all_rows(engine: Engine, table: &TableInfo) -> String {
    let row = match engine {
        Engine::Sqlite => {
            let columns: Vec<_> = table.columns.iter().map(|column| format!("quote({})", column.name)).collect();
            columns.join(" || ', ' || ")
        }
        Engine::Postgres => "cast(t as text)".to_owned(),
    };
    format!("select {row} from {} t where t.tenant_id = ?1", table.name)
}
