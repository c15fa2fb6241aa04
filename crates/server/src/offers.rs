//! Determines the actions that a page offers to a caller, and the fields that the page fills in.

use serde_json::{Map, Value, json};
use trackway_actions::{
    context::{Actor, Context},
    registry::{ACTIONS, ActionEntry, find_action},
};
use trackway_domain::{
    Id,
    capability::{self, CapabilityClass},
    enums::{RunStatus, Switch, TokenScope},
    kind,
};
use trackway_store::Reader;
use trackway_views::rights;

use crate::{address::PageRef, input, nouns::Noun, page::Offer, problem::Problem, schemas};

/// Verbs that create something. Their actions belong to the list, not to the page of one thing.
const CREATING_VERBS: &[&str] = &["create", "add", "send", "start", "take", "upgrade", "import", "claim"];
/// Fields that may identify the thing of a page, the likeliest first.
const IDENTIFYING_FIELDS: &[&str] = &["id", "handle", "key", "name"];
/// Actions that read local files, so they are only available on the command line.
const COMMAND_LINE_ONLY: &[&str] = &["import_nagger"];

/// The caller of a page or an action, with its permissions.
#[derive(Debug)]
pub struct Caller {
    pub context: Context,
    handle: String,
    capabilities: Option<Vec<String>>,
    /// True if the caller's token only allows reading.
    pub is_read_only: bool,
}

impl Caller {
    /// Tells the reader to fetch the caller's permissions together with its next query. [`Self::load`] then needs no
    /// round trip.
    pub fn prefetch(read: &mut Reader<'_>, context: &Context) -> Result<(), Problem> {
        if let Some(token) = context.token {
            rights::prefetch_token_scope(read, token)?;
        }
        match context.actor {
            Actor::Person(_) => Ok(()),
            Actor::Agent(agent) => Ok(rights::prefetch_agent_capabilities(read, agent)?),
        }
    }

    pub fn load(read: &mut Reader<'_>, context: &Context) -> Result<Self, Problem> {
        let scope = match context.token {
            Some(token) => rights::token_scope(read, token)?,
            None => None,
        };
        let is_read_only = scope == Some(TokenScope::Read);
        let (handle, capabilities) = match context.actor {
            Actor::Person(_) => (String::new(), None),
            Actor::Agent(agent) => rights::agent_capabilities(read, agent)?.unwrap_or_default(),
        };
        Ok(Self { context: context.clone(), handle, capabilities, is_read_only })
    }

    pub fn is_person(&self) -> bool {
        matches!(self.context.actor, Actor::Person(_))
    }

    /// True if the capability table allows the action for this caller.
    pub fn may(&self, action: &ActionEntry) -> bool {
        if self.is_read_only {
            return false;
        }
        match self.context.actor {
            // Only the agent itself updates its scratchpad and its report.
            Actor::Person(_) if action.name == "update_scratchpad" || action.name == "update_report" => false,
            Actor::Person(_) => capability::check_person(action.capability).is_ok(),
            Actor::Agent(_) => {
                capability::check_agent(&self.handle, self.capabilities.as_deref(), action.capability).is_ok()
            }
        }
    }
}

/// All actions that are available over HTTP and MCP.
pub fn http_actions() -> impl Iterator<Item = &'static ActionEntry> {
    ACTIONS.iter().filter(|action| !COMMAND_LINE_ONLY.contains(&action.name))
}

/// The actions of a page that the caller may execute.
pub fn for_caller(page_ref: &PageRef, data: &Value, caller: &Caller) -> Vec<Offer> {
    let mut offers = on_page(page_ref, data, caller.context.run);
    offers.retain(|offer| caller.may(offer.action));
    offers
}

/// All actions of a page, independent of the caller.
pub fn on_page(page_ref: &PageRef, data: &Value, run: Option<Id<kind::Run>>) -> Vec<Offer> {
    // The page of the last run addresses its actions by id: another run may be the last one when the form is sent.
    let last_run = match (page_ref, data["id"].as_str()) {
        (PageRef::Detail(noun, reference), Some(id)) if noun.noun == "run" && reference == "last" => Some(id),
        _ => None,
    };
    let base = last_run.map_or_else(|| page_ref.path(), |id| format!("/runs/{id}"));
    let offer = |action: &'static ActionEntry, preset: Map<String, Value>| Offer {
        action,
        path: format!("{}/actions/{}", base.trim_end_matches('/'), action.name),
        preset,
        current: Map::new(),
        choices: Vec::new(),
    };
    match page_ref {
        PageRef::Whoami => http_actions().map(|action| offer(action, preset_run(action, run))).collect(),
        PageRef::List(noun) => http_actions()
            .filter(|action| {
                // Things without pages of their own have all their actions on the list.
                action.command.0 == noun.noun
                    && (noun.show_verb.is_none()
                        || is_creating(action)
                        || action.command.1 == "set"
                        || identifying_field(noun, action).is_none())
            })
            .map(|action| offer(action, Map::new()))
            .collect(),
        PageRef::Detail(noun, reference) => {
            let own = http_actions()
                .filter(|action| action.command.0 == noun.noun && !is_creating(action))
                .filter_map(|action| Some((action, identifying_field(noun, action)?)));
            let related = noun.related_actions.iter().filter_map(|(name, field)| Some((find_action(name)?, *field)));
            own.chain(related)
                .filter(|(action, _)| !(action.command.0 == "run" && has_ended(data)))
                .map(|(action, field)| Offer {
                    current: current_values(noun, action, data),
                    choices: decision_options(data),
                    ..offer(action, preset(action, field, last_run.unwrap_or(reference), data))
                })
                .collect()
        }
        PageRef::Ready => find_action("claim").map(|claim| offer(claim, Map::new())).into_iter().collect(),
        PageRef::Overview
        | PageRef::Why
        | PageRef::Search
        | PageRef::Usage
        | PageRef::Wake
        | PageRef::Made
        | PageRef::Latest
        | PageRef::Next
        | PageRef::Api => Vec::new(),
    }
}

/// True if the page describes a run that has ended. Such a run has no actions any more.
fn has_ended(run: &Value) -> bool {
    run.get("status").and_then(Value::as_str).is_some_and(|status| status != RunStatus::Running.as_str())
}

fn is_creating(action: &ActionEntry) -> bool {
    CREATING_VERBS.contains(&action.command.1)
}

/// The field of an action that identifies the thing of the page.
fn identifying_field(noun: &Noun, action: &ActionEntry) -> Option<&'static str> {
    let schema = schemas::of_action(action);
    let fields = input::fields(schema)?;
    if fields.contains_key(noun.noun) {
        return Some(noun.noun);
    }
    // `set_task` identifies a task by `variant`. Actions on a replacement identify it by `new`, the newer task.
    let candidates = IDENTIFYING_FIELDS.iter().chain(&["variant", "new"]);
    candidates.copied().find(|field| fields.contains_key(*field))
}

/// The fields that the page fills in: the thing itself, and required fields whose value the page knows.
fn preset(action: &ActionEntry, field: &str, reference: &str, data: &Value) -> Map<String, Value> {
    let page_value = |field: &str| data.get(field).filter(|value| value.is_string()).cloned();
    let mut preset = Map::new();
    if field.is_empty() {
        return preset;
    }
    let value = match field {
        "handle" | "key" | "variant" => page_value(field),
        "name" if action.command.1 == "set" => page_value(field),
        _ => page_value("id"),
    };
    preset.insert(field.to_owned(), value.unwrap_or_else(|| Value::String(reference.to_owned())));
    if action.command.1 == "set" {
        let schema = schemas::of_action(action);
        for required in input::required(schema) {
            if !preset.contains_key(required)
                && let Some(value) = page_value(required)
            {
                preset.insert(required.to_owned(), value);
            }
        }
    }
    preset
}

/// The stored values that an action would change. They include the revision, so that a form never overwrites a newer
/// change.
fn current_values(noun: &Noun, action: &ActionEntry, data: &Value) -> Map<String, Value> {
    if action.name == "set_scratchpad" {
        let scratchpad = &data["scratchpad"];
        return Map::from_iter([
            ("content".to_owned(), scratchpad["content"].clone()),
            ("if_revision".to_owned(), scratchpad["revision"].clone()),
        ]);
    }
    let is_change = action.command.0 == noun.noun && matches!(action.command.1, "set" | "update");
    let mut values = data.as_object().filter(|_| is_change).cloned().unwrap_or_default();
    if let Some(revision) = values.get("revision").cloned() {
        values.insert("if_revision".to_owned(), revision);
    }
    // The field of the form is a choice of on, off and empty. Empty leaves the decision to the task or the agent.
    if let Some(end_of_run) = values.get_mut("end_of_run")
        && let Some(is_on) = end_of_run.as_bool()
    {
        *end_of_run = json!(if is_on { Switch::On } else { Switch::Off });
    }
    values
}

/// The options of the decision on the page, from which its actions choose.
fn decision_options(data: &Value) -> Vec<(&'static str, Vec<String>)> {
    let options = data["results"].as_array().into_iter().flatten();
    let options: Vec<String> = options.filter_map(|result| result["option"].as_str()).map(ToOwned::to_owned).collect();
    if options.is_empty() { Vec::new() } else { vec![("option", options)] }
}

/// Fills in the caller's run in actions that a run executes about itself.
fn preset_run(action: &ActionEntry, run: Option<Id<kind::Run>>) -> Map<String, Value> {
    let is_about_own_run = capability::class_of(action.capability) == Some(CapabilityClass::OwnRun);
    match run {
        Some(run)
            if is_about_own_run
                && input::fields(schemas::of_action(action)).is_some_and(|fields| fields.contains_key("run")) =>
        {
            Map::from_iter([("run".to_owned(), Value::String(run.to_string()))])
        }
        _ => Map::new(),
    }
}
