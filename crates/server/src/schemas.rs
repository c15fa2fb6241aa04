//! Caches the JSON schemas of actions and views. Generating one takes longer than answering most requests.

use std::{collections::HashMap, sync::LazyLock};

use schemars::Schema;
use trackway_actions::registry::{ACTIONS, ActionEntry as Action};
use trackway_views::registry::{VIEWS, ViewEntry as View};

static OF_ACTIONS: LazyLock<HashMap<&'static str, Schema>> =
    LazyLock::new(|| ACTIONS.iter().map(|action| (action.name, (action.schema)())).collect());
static OF_VIEWS: LazyLock<HashMap<(&'static str, &'static str), Schema>> =
    LazyLock::new(|| VIEWS.iter().map(|view| (view.command, (view.schema)())).collect());
static EMPTY_SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::default);

/// The schema of an action's input.
pub fn of_action(action: &Action) -> &'static Schema {
    OF_ACTIONS.get(action.name).unwrap_or(&EMPTY_SCHEMA)
}

/// The schema of a view's parameters.
pub fn of_view(view: &View) -> &'static Schema {
    OF_VIEWS.get(&view.command).unwrap_or(&EMPTY_SCHEMA)
}
