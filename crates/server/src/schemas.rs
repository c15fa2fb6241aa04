//! The schemas of actions and questions, made once: making one takes longer than most answers.

use std::{collections::HashMap, sync::LazyLock};

use schemars::Schema;
use trackway_actions::registry::{ACTIONS, Entry as Action};
use trackway_views::registry::{Entry as Question, VIEWS};

static OF_ACTIONS: LazyLock<HashMap<&'static str, Schema>> =
    LazyLock::new(|| ACTIONS.iter().map(|action| (action.name, (action.schema)())).collect());
static OF_QUESTIONS: LazyLock<HashMap<(&'static str, &'static str), Schema>> =
    LazyLock::new(|| VIEWS.iter().map(|view| (view.command, (view.schema)())).collect());
static NOTHING: LazyLock<Schema> = LazyLock::new(Schema::default);

/// What an action takes.
pub fn of_action(action: &Action) -> &'static Schema {
    OF_ACTIONS.get(action.name).unwrap_or(&NOTHING)
}

/// What a question takes.
pub fn of_question(question: &Question) -> &'static Schema {
    OF_QUESTIONS.get(&question.command).unwrap_or(&NOTHING)
}
