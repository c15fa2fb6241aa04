//! Recording of touches. A repeated touch increments the counter of the existing row.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::LazyLock,
};

use crate::{
    connection::Engine,
    error::Result,
    store::Writer,
    table::{Table as _, insert_unnested},
    tables::Touch,
};

const COUNT_REPEATED: &str = "on conflict (run_id, resource_type, resource_id, action_type) do update set
    first_at = case when excluded.first_at < run_resources.first_at then excluded.first_at else run_resources.first_at end,
    last_at = case when excluded.last_at > run_resources.last_at then excluded.last_at else run_resources.last_at end,
    display_path = excluded.display_path, times = run_resources.times + excluded.times";

static RECORD_ONE: LazyLock<String> = LazyLock::new(|| format!("{} {COUNT_REPEATED}", Touch::insert_sql()));

impl Writer<'_> {
    /// Records touches; on PostgreSQL with one statement.
    pub fn record_touches(&mut self, touches: Vec<Touch>) -> Result<()> {
        if self.engine() == Engine::Sqlite || touches.len() < 2 {
            return touches.iter().try_for_each(|touch| self.post_row(&RECORD_ONE, &touch.params()));
        }
        // One statement cannot update a row twice, so merge repeated touches first.
        let touches = merge_repeated(touches);
        let (insert, lists) = insert_unnested(&touches);
        self.post_row(&format!("{insert} {COUNT_REPEATED}"), &lists)
    }
}

/// Merges touches of the same kind on the same resource.
fn merge_repeated(touches: Vec<Touch>) -> Vec<Touch> {
    let mut indexes = HashMap::new();
    let mut merged: Vec<Touch> = Vec::with_capacity(touches.len());
    for touch in touches {
        match indexes.entry((touch.run_id, touch.resource_type, touch.resource_id, touch.action_type)) {
            Entry::Vacant(entry) => {
                entry.insert(merged.len());
                merged.push(touch);
            }
            Entry::Occupied(entry) => {
                if let Some(known) = merged.get_mut(*entry.get()) {
                    known.times += touch.times;
                    known.first_at = known.first_at.min(touch.first_at);
                    known.last_at = known.last_at.max(touch.last_at);
                    known.display_path = touch.display_path;
                }
            }
        }
    }
    merged
}
