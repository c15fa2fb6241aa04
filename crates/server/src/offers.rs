//! What can be done at a place: actions of the thing there, that the caller may do, with what the page fills in.

use serde_json::{Map, Value, json};
use trackway_actions::{
    context::{Actor, Context},
    registry::{ACTIONS, Entry, named},
};
use trackway_domain::{
    Id,
    capability::{self, Allowance},
    kind,
    words::{RunStatus, Switch, TokenScope},
};
use trackway_store::Reader;
use trackway_views::rights;

use crate::{address::Place, input, nouns::Noun, page::Offer, problem::Problem, schemas};

/// Verbs that make something new: done at the list.
const MAKING: &[&str] = &["create", "add", "send", "start", "take", "upgrade", "import", "claim"];
/// Fields that name the thing a page is about, the likeliest first.
const NAMING: &[&str] = &["id", "handle", "key", "name"];
/// They read files of whoever runs them, so they are for the command line.
const LOCAL: &[&str] = &["import_nagger"];

/// Who asks, and what they may.
#[derive(Debug)]
pub struct Caller {
    pub context: Context,
    handle: String,
    capabilities: Option<Vec<String>>,
    /// Whether their token is for reading.
    pub only_reads: bool,
}

impl Caller {
    /// Says that it will be asked who they are.
    pub fn expect(read: &mut Reader<'_>, context: &Context) -> Result<(), Problem> {
        if let Some(token) = context.token {
            rights::expect_scope(read, token)?;
        }
        match context.actor {
            Actor::Person(_) => Ok(()),
            Actor::Agent(agent) => Ok(rights::expect_capabilities(read, agent)?),
        }
    }

    pub fn of(read: &mut Reader<'_>, context: &Context) -> Result<Self, Problem> {
        let scope = match context.token {
            Some(token) => rights::scope(read, token)?,
            None => None,
        };
        let only_reads = scope == Some(TokenScope::Read);
        let (handle, capabilities) = match context.actor {
            Actor::Person(_) => (String::new(), None),
            Actor::Agent(agent) => rights::capabilities(read, agent)?.unwrap_or_default(),
        };
        Ok(Self { context: context.clone(), handle, capabilities, only_reads })
    }

    pub fn is_person(&self) -> bool {
        matches!(self.context.actor, Actor::Person(_))
    }

    /// Whether the one table of who may do what allows it.
    pub fn may(&self, action: &Entry) -> bool {
        if self.only_reads {
            return false;
        }
        match self.context.actor {
            // An agent's own, and nobody else's.
            Actor::Person(_) if action.name == "update_scratchpad" || action.name == "update_report" => false,
            Actor::Person(_) => capability::check_person(action.capability).is_ok(),
            Actor::Agent(_) => {
                capability::check_agent(&self.handle, self.capabilities.as_deref(), action.capability).is_ok()
            }
        }
    }
}

/// Every action that can be done over HTTP.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    ACTIONS.iter().filter(|action| !LOCAL.contains(&action.name))
}

/// The actions of a place that the caller may do.
pub fn at(place: &Place, data: &Value, caller: &Caller) -> Vec<Offer> {
    let mut offers = everywhere(place, data, caller.context.run);
    offers.retain(|offer| caller.may(offer.action));
    offers
}

/// The actions of a place, whoever asks.
pub fn everywhere(place: &Place, data: &Value, run: Option<Id<kind::Run>>) -> Vec<Offer> {
    // Another run may be the last by the time somebody does it.
    let last = match (place, data["id"].as_str()) {
        (Place::One(noun, reference), Some(id)) if noun.noun == "run" && reference == "last" => Some(id),
        _ => None,
    };
    let base = last.map_or_else(|| place.path(), |id| format!("/runs/{id}"));
    let offer = |action: &'static Entry, preset: Map<String, Value>| Offer {
        action,
        path: format!("{}/actions/{}", base.trim_end_matches('/'), action.name),
        preset,
        present: Map::new(),
        choices: Vec::new(),
    };
    match place {
        Place::Whoami => all().map(|action| offer(action, of_run(action, run))).collect(),
        Place::List(noun) => all()
            .filter(|action| {
                // What has no page of its own is worked on at the list.
                action.command.0 == noun.noun
                    && (noun.one.is_none()
                        || is_making(action)
                        || action.command.1 == "set"
                        || subject(noun, action).is_none())
            })
            .map(|action| offer(action, Map::new()))
            .collect(),
        Place::One(noun, reference) => {
            let own = all()
                .filter(|action| action.command.0 == noun.noun && !is_making(action))
                .filter_map(|action| Some((action, subject(noun, action)?)));
            let also = noun.also.iter().filter_map(|(name, field)| Some((named(name)?, *field)));
            own.chain(also)
                .filter(|(action, _)| !(action.command.0 == "run" && has_ended(data)))
                .map(|(action, field)| Offer {
                    present: present(noun, action, data),
                    choices: choices(data),
                    ..offer(action, preset(action, field, last.unwrap_or(reference), data))
                })
                .collect()
        }
        Place::Ready => named("claim").map(|claim| offer(claim, Map::new())).into_iter().collect(),
        Place::Overview
        | Place::Why
        | Place::Search
        | Place::Usage
        | Place::Wake
        | Place::Made
        | Place::Latest
        | Place::Next
        | Place::Api => Vec::new(),
    }
}

/// Whether the page is about a run that is over: nothing can be done with it any more.
fn has_ended(run: &Value) -> bool {
    run.get("status").and_then(Value::as_str).is_some_and(|status| status != RunStatus::Running.word())
}

fn is_making(action: &Entry) -> bool {
    MAKING.contains(&action.command.1)
}

/// The field that names the thing the page is about.
fn subject(noun: &Noun, action: &Entry) -> Option<&'static str> {
    let schema = schemas::of_action(action);
    let fields = input::fields(schema)?;
    if fields.contains_key(noun.noun) {
        return Some(noun.noun);
    }
    // A task is set by its variant, below a workflow; a newer one replaces an older one.
    let candidates = NAMING.iter().chain(&["variant", "new"]);
    candidates.copied().find(|field| fields.contains_key(*field))
}

/// What the page fills in: the thing itself, and what has to be given and stands on the page.
fn preset(action: &Entry, field: &str, reference: &str, data: &Value) -> Map<String, Value> {
    let of_page = |field: &str| data.get(field).filter(|value| value.is_string()).cloned();
    let mut preset = Map::new();
    if field.is_empty() {
        return preset;
    }
    let itself = match field {
        "handle" | "key" | "variant" => of_page(field),
        "name" if action.command.1 == "set" => of_page(field),
        _ => of_page("id"),
    };
    preset.insert(field.to_owned(), itself.unwrap_or_else(|| Value::String(reference.to_owned())));
    if action.command.1 == "set" {
        let schema = schemas::of_action(action);
        for needed in input::required(schema) {
            if !preset.contains_key(needed)
                && let Some(value) = of_page(needed)
            {
                preset.insert(needed.to_owned(), value);
            }
        }
    }
    preset
}

/// What stands there now of what an action changes. A scratchpad is written on top of what was seen.
fn present(noun: &Noun, action: &Entry, data: &Value) -> Map<String, Value> {
    if action.name == "set_scratchpad" {
        let pad = &data["scratchpad"];
        return Map::from_iter([
            ("content".to_owned(), pad["content"].clone()),
            ("if_revision".to_owned(), pad["revision"].clone()),
        ]);
    }
    let is_change = action.command.0 == noun.noun && matches!(action.command.1, "set" | "update");
    let mut stands = data.as_object().filter(|_| is_change).cloned().unwrap_or_default();
    if let Some(revision) = stands.get("revision").cloned() {
        stands.insert("if_revision".to_owned(), revision);
    }
    // Its field is a choice, not a box to tick: empty, it leaves the choice to the task or the agent.
    if let Some(asks) = stands.get_mut("end_of_run")
        && let Some(is_on) = asks.as_bool()
    {
        *asks = json!(if is_on { Switch::On } else { Switch::Off });
    }
    stands
}

/// The options of a decision.
fn choices(data: &Value) -> Vec<(&'static str, Vec<String>)> {
    let options = data["results"].as_array().into_iter().flatten();
    let options: Vec<String> = options.filter_map(|result| result["option"].as_str()).map(ToOwned::to_owned).collect();
    if options.is_empty() { Vec::new() } else { vec![("option", options)] }
}

/// What a run is about, where an action asks for the run.
fn of_run(action: &Entry, run: Option<Id<kind::Run>>) -> Map<String, Value> {
    let is_about_itself = capability::allowance(action.capability) == Some(Allowance::OwnRun);
    match run {
        Some(run)
            if is_about_itself
                && input::fields(schemas::of_action(action)).is_some_and(|fields| fields.contains_key("run")) =>
        {
            Map::from_iter([("run".to_owned(), Value::String(run.to_string()))])
        }
        _ => Map::new(),
    }
}
