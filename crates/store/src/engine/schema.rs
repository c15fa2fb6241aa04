//! The schema as the database reports it, including relations that only the write path enforces.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{connection::Engine, error::Result, migrate, row, store::Reader};

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
    /// A foreign key of the live database.
    pub struct ForeignKey {
        from_table: String,
        from_column: String,
        to_table: String,
        to_column: String,
    }
}

/// A column that refers to a column of another table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Relation {
    pub from_table: String,
    pub from_column: String,
    pub to_table: String,
    pub to_column: String,
    pub kept_by: EnforcedBy,
}

/// The mechanism that enforces a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EnforcedBy {
    /// A foreign key of the database.
    Constraint,
    /// The actions, which look up the referenced row before they write the reference.
    WritePath,
}

/// Both ends of a relation: table, column, table, column.
type Ends = (String, String, String, String);

/// Relations that the migrations do not declare. Some lead to a key that is unique only within a tenant or a session,
/// or only among rows that are not deleted. Others belong to columns that a migration added without a reference.
const UNDECLARED: &[(&str, &str, &str, &str)] = &[
    ("task_variants", "variant", "tasks", "variant"),
    ("tasks", "current_id", "tasks", "id"),
    ("queue_items", "run_task_id", "tasks", "id"),
    ("run_wakes", "digest", "wake_contexts", "digest"),
    ("task_spawns", "matched_agent_id", "subagents", "agent_id"),
    ("task_spawns", "parent_agent_id", "subagents", "agent_id"),
    ("spawn_matches", "agent_id", "subagents", "agent_id"),
    ("subagents", "parent_agent_id", "subagents", "agent_id"),
];

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableInfo {
    pub name: String,
    pub columns: Vec<ColumnInfo>,
}

/// A table in which two columns always refer to rows of the same other table. Its rows are the edges of a graph.
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
    /// Reads the tables, relations and graph edges of this database.
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
        let relations = relations_of(&tables, self.query_unscoped::<ForeignKey>(relations, &[])?);
        let version = self.query_unscoped::<(i64,)>("select max(version) from trackway_migrations", &[])?;
        Ok(Schema {
            engine: self.engine().name(),
            version: version.first().map_or(0, |(version,)| *version),
            edges: graph_edges(&tables, &relations),
            tables,
            relations,
        })
    }
}

/// Combines the foreign keys of the database with the relations that the migrations declare but this engine does not
/// check. PostgreSQL has fewer foreign keys than SQLite (decision 14), so the text of the migrations, which both
/// engines share, is the common source.
fn relations_of(tables: &[TableInfo], keys: Vec<ForeignKey>) -> Vec<Relation> {
    let live: BTreeSet<Ends> =
        keys.into_iter().map(|key| (key.from_table, key.from_column, key.to_table, key.to_column)).collect();
    let has = |table: &str, column: &str| {
        let table = tables.iter().find(|known| known.name == table);
        table.is_some_and(|table| table.columns.iter().any(|known| known.name == column))
    };
    let mut relations = declared_relations();
    relations.retain(|(from, column, to, key)| has(from, column) && has(to, key));
    relations.extend(live.iter().cloned());
    relations
        .into_iter()
        .map(|ends| {
            let kept_by = if live.contains(&ends) { EnforcedBy::Constraint } else { EnforcedBy::WritePath };
            let (from_table, from_column, to_table, to_column) = ends;
            Relation { from_table, from_column, to_table, to_column, kept_by }
        })
        .collect()
}

/// All relations of the migrations: declared with `references`; a `uuid` column whose name, such as `run_id`, always
/// refers to one table; and the relations in [`UNDECLARED`].
fn declared_relations() -> BTreeSet<Ends> {
    let columns = migrate::columns();
    let mut by_name: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for column in &columns {
        if let Some((table, key)) = &column.references {
            by_name.entry(&column.name).or_default().insert((table, key));
        }
    }
    // A `to_id` beside a `to_kind` may refer to a row of any kind.
    let refers_to_any_kind = |column: &migrate::DeclaredColumn| {
        let kind = column.name.strip_suffix("_id").map(|name| format!("{name}_kind"));
        kind.is_some_and(|kind| columns.iter().any(|other| other.table == column.table && other.name == kind))
    };
    let target = |column: &migrate::DeclaredColumn| -> Option<(String, String)> {
        if let Some(target) = &column.references {
            return Some(target.clone());
        }
        let targets = by_name.get(column.name.as_str()).filter(|_| column.is_uuid && !refers_to_any_kind(column))?;
        match targets.iter().collect::<Vec<_>>().as_slice() {
            [(table, key)] => Some(((*table).to_owned(), (*key).to_owned())),
            _ => None,
        }
    };
    let mut relations: BTreeSet<Ends> = columns
        .iter()
        .filter_map(|column| {
            let (table, key) = target(column)?;
            Some((column.table.clone(), column.name.clone(), table, key))
        })
        .collect();
    relations.extend(UNDECLARED.iter().map(|(from, column, to, key)| {
        ((*from).to_owned(), (*column).to_owned(), (*to).to_owned(), (*key).to_owned())
    }));
    relations
}

fn graph_edges(tables: &[TableInfo], relations: &[Relation]) -> Vec<GraphEdge> {
    // Both ends of an edge must be present, so only columns that are not nullable count.
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
