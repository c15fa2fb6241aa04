//! Pages without a server: what views answer, fenced, and actions straight from the registry.

use serde_json::{Value, json};
use trackway_actions::{
    Actor, Context, Core, Credential, Result,
    context::Secret,
    registry::{self, Mode},
};
use trackway_domain::{
    Error as Rule, Time,
    capability::{self, Allowance},
    wake_context::fenced,
};
use trackway_store::{Store, Url, params};
use trackway_views::registry::VIEWS;

use crate::pages::{PageAnswer, Pages};

/// Pages of a database, by whoever holds a token.
#[derive(Debug)]
pub struct PlainPages {
    core: Core,
}

impl PlainPages {
    pub fn at(url: Url) -> Result<Self> {
        Ok(Self { core: Core::new(Store::open(url)?) })
    }

    fn enter(&self, token: &str) -> Result<Context> {
        self.core.enter(&Credential::Token(Secret(token.to_owned())))
    }

    fn page(&self, token: &str, path: &str) -> Result<String> {
        let context = self.enter(token)?;
        let (place, query) = path.split_once('?').unwrap_or((path, ""));
        let asked = |name: &str| {
            let found = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            decoded(found.unwrap_or_default())
        };
        let place = decoded(place.trim_matches('/'));
        let (noun, rest) = place.split_once('/').unwrap_or((&place, ""));
        match noun {
            "whoami" => self.whoami(&context),
            "tasks" => self.view(&context, ("task", "get"), &[rest]),
            "runs" => self.view(&context, ("run", "show"), &[rest]),
            "notes" => self.view(&context, ("note", "show"), &[rest]),
            "decisions" => self.view(&context, ("decision", "show"), &[rest]),
            "queue" => self.view(&context, ("queue", "peek"), &[]),
            "why" => self.view(&context, ("", "why"), &[&asked("of")]),
            "search" => self.view(&context, ("", "search"), &[&asked("words")]),
            _ => Err(Rule::not_found(format!("there is no page {path:?}")).hint("begin at /whoami").into()),
        }
    }

    fn view(&self, context: &Context, command: (&str, &str), arguments: &[&str]) -> Result<String> {
        let view = VIEWS.iter().find(|view| view.command == command).ok_or_else(|| Rule::not_found("no such page"))?;
        let line = std::iter::once("page").chain(arguments.iter().copied());
        let matches = (view.arguments)(clap::Command::new("page"))
            .try_get_matches_from(line)
            .map_err(|error| Rule::usage(error.to_string()))?;
        let answer = self.core.read(context, |reader| Ok((view.with_matches)(reader, &matches, Time::now())?))?;
        Ok(fenced("json", &format!("{:#}", answer.data)))
    }

    fn whoami(&self, context: &Context) -> Result<String> {
        let Actor::Agent(agent) = context.actor else {
            return Ok("# You are a person\n".to_owned());
        };
        let found = self.core.read(context, |reader| {
            Ok(reader.one::<(String, Option<String>)>(
                "select a.handle, p.content from agents a left join scratchpads p on p.agent_id = a.id where a.tenant_id = ?1 and a.id = ?2",
                params![agent],
            )?)
        })?;
        let (handle, scratchpad) = found.ok_or_else(|| Rule::not_found("there is no such agent"))?;
        let scratchpad = scratchpad.filter(|content| !content.trim().is_empty());
        let scratchpad = scratchpad.map_or_else(
            || "It is empty. To save one, execute update_scratchpad.".to_owned(),
            |content| fenced("text", &content),
        );
        let offered = registry::ACTIONS
            .iter()
            .filter(|action| capability::allowance(action.capability) == Some(Allowance::Default))
            .map(|action| format!("- {}: {}", action.name, parameters(&(action.schema)())));
        let offered: Vec<String> = offered.collect();
        Ok(format!("# {handle}\n\n## Your Scratchpad\n\n{scratchpad}\n\n## Actions\n\n{}\n", offered.join("\n")))
    }
}

/// The parameters of an action, in a line.
fn parameters(schema: &schemars::Schema) -> String {
    let fields = schema.get("properties").and_then(Value::as_object);
    fields.map(|fields| fields.keys().cloned().collect::<Vec<_>>().join(", ")).unwrap_or_default()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = after.get(..2).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Pages for PlainPages {
    fn get(&self, token: &str, path: &str) -> PageAnswer {
        match self.page(token, path) {
            Ok(body) => PageAnswer { status: 200, body },
            Err(error) => refused(&error),
        }
    }

    fn post(&self, token: &str, path: &str, input: &Value) -> PageAnswer {
        let done = self.enter(token).and_then(|context| {
            let name = path.rsplit('/').next().unwrap_or_default();
            let action = registry::named(name).ok_or_else(|| {
                let known: Vec<&str> = registry::ACTIONS.iter().map(|action| action.name).collect();
                Rule::not_found(format!("there is no action {name:?}")).hint(format!("one of: {}", known.join(", ")))
            })?;
            (action.with_json)(&self.core, &context, input.clone(), Mode::Execute)
        });
        match done {
            Ok(answer) => PageAnswer { status: 200, body: format!("{answer:#}") },
            Err(error) => refused(&error),
        }
    }
}

fn refused(error: &trackway_actions::Error) -> PageAnswer {
    let status = error.kind().http_status();
    PageAnswer { status, body: json!({ "error": error.to_string(), "hint": error.hint() }).to_string() }
}
