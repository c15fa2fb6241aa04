//! The schema as the database itself tells it.

use serde::Serialize;

use crate::{connection::Engine, error::Result, row, store::Reader};

row! {
    /// A column of a table.
    pub struct ColumnInfo {
        #[serde(skip)] table: String,
        name: String,
        r#type: String,
        required: bool,
    }
}

row! {
    /// A foreign key.
    pub struct Relation {
        from_table: String,
        from_column: String,
        to_table: String,
        to_column: String,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableInfo {
    pub name: String,
    pub columns: Vec<ColumnInfo>,
}

/// Two columns of one table that always point at the same table: its rows are the edges of a graph.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GraphEdge {
    pub table: String,
    pub from_column: String,
    pub to_column: String,
    pub between: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Schema {
    pub engine: &'static str,
    pub version: i64,
    pub tables: Vec<TableInfo>,
    pub relations: Vec<Relation>,
    pub edges: Vec<GraphEdge>,
}

impl Reader<'_> {
    /// Tables, foreign keys and graph edges of this database.
    pub fn schema(&mut self) -> Result<Schema> {
        let (columns, relations) = match self.engine() {
            Engine::Sqlite => (
                "select t.name, c.name, c.type, c.\"notnull\" from pragma_table_list t join pragma_table_info(t.name) c
                 where t.schema = 'main' and t.type = 'table' and t.name not like 'sqlite_%' order by t.name, c.cid",
                "select t.name, f.\"from\", f.\"table\", coalesce(f.\"to\", 'id') from pragma_table_list t join pragma_foreign_key_list(t.name) f
                 where t.schema = 'main' and t.type = 'table' order by t.name, f.\"from\"",
            ),
            Engine::Postgres => (
                "select c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull
                 from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                 where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and not c.relispartition order by c.relname::text collate \"C\", a.attnum",
                "select c.conrelid::regclass::text, a.attname::text, c.confrelid::regclass::text, b.attname::text
                 from pg_constraint c
                 join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
                 join pg_attribute b on b.attrelid = c.confrelid and b.attnum = c.confkey[1]
                 join pg_class t on t.oid = c.conrelid and not t.relispartition
                 where c.contype = 'f' and c.connamespace = current_schema()::regnamespace
                 order by c.conrelid::regclass::text collate \"C\", a.attname::text collate \"C\"",
            ),
        };
        let mut tables: Vec<TableInfo> = Vec::new();
        for column in self.query_unscoped::<ColumnInfo>(columns, &[])? {
            match tables.last_mut() {
                Some(table) if table.name == column.table => table.columns.push(column),
                _ => tables.push(TableInfo { name: column.table.clone(), columns: vec![column] }),
            }
        }
        let relations = self.query_unscoped::<Relation>(relations, &[])?;
        let version = self.query_unscoped::<(i64,)>("select max(version) from trackway_migrations", &[])?;
        Ok(Schema {
            engine: self.engine().name(),
            version: version.first().map_or(0, |(version,)| *version),
            edges: edges(&tables, &relations),
            tables,
            relations,
        })
    }
}

fn edges(tables: &[TableInfo], relations: &[Relation]) -> Vec<GraphEdge> {
    // An edge has both its ends: a row that may point at two things, or at none, is none.
    let is_required = |relation: &Relation| {
        let table = tables.iter().find(|table| table.name == relation.from_table);
        let column = table.and_then(|table| table.columns.iter().find(|column| column.name == relation.from_column));
        column.is_some_and(|column| column.required)
    };
    let relations: Vec<&Relation> = relations.iter().filter(|relation| is_required(relation)).collect();
    let mut edges = Vec::new();
    for (index, first) in relations.iter().enumerate() {
        let second = relations[index + 1..]
            .iter()
            .find(|second| (&second.from_table, &second.to_table) == (&first.from_table, &first.to_table));
        if let Some(second) = second {
            edges.push(GraphEdge {
                table: first.from_table.clone(),
                from_column: first.from_column.clone(),
                to_column: second.from_column.clone(),
                between: first.to_table.clone(),
            });
        }
    }
    edges
}
