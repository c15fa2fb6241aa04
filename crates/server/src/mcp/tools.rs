//! The tools: few, since every one of them is read by every agent at every start. What they take is described by the
//! actions and questions themselves.

use axum::http::StatusCode;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use trackway_actions::{
    context::Context,
    registry::{self as actions, Entry},
};
use trackway_domain::{Error as Rule, close_matches::close_matches};
use trackway_views::registry as views;

use super::{Entered, answer, read};
use crate::{
    act,
    address::Place,
    api, blocks, caller, nouns,
    offers::{self, Caller},
    page::{Block, Page},
    pages,
    problem::Problem,
    schemas,
    site::Site,
};

/// Rows of `ready` when it is not said how many.
const ROWS: i64 = 20;
/// The argument with which a run that was claimed here acts here.
const RUN_TOKEN: &str = "run_token";

/// A tool.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    pub name: &'static str,
    schema: fn() -> Schema,
    writes: bool,
    /// Whether a run can act through it with its token.
    for_runs: bool,
    call: fn(&Site, &Context, JsonObject) -> Result<String, Problem>,
}

/// See who you are here: your run, your task, your scratchpad, what waits for you, and how to go on
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Whoami {}

/// Read a page, or a thing by its name
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Show {
    /// A path as in links (`/`, `/tasks/VARIANT`, `/runs/ID`, `/reports/TASK`, `/latest?variant=V`), or a variant, the end of an id, or `last` for the newest run
    page: String,
}

/// Do any action by its name; `help` lists and describes them
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Act {
    /// Its name, such as `create_note` or `queue_add`
    action: String,
    /// Its parameters
    #[serde(default)]
    input: Map<String, Value>,
    /// Show what would come out, and change nothing
    #[serde(default)]
    dry_run: bool,
}

/// List the actions you may do, or describe one with the schema of its parameters
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Help {
    /// The action to describe
    action: Option<String>,
}

/// Every tool.
pub const TOOLS: &[Known] = &[
    reading("whoami", own::<Whoami>, whoami).for_runs(),
    reading("ready", ready_schema, ready),
    writing("claim", || action("claim"), |site, context, input| perform(site, context, "claim", input, false)),
    reading("show", own::<Show>, show),
    reading("search", || question("search"), search),
    reading("why", || question("why"), why),
    writing("act", own::<Act>, any_action),
    writing(
        "update_scratchpad",
        || action("update_scratchpad"),
        |site, context, input| perform(site, context, "update_scratchpad", input, false),
    ),
    writing(
        "update_report",
        || action("update_report"),
        |site, context, input| perform(site, context, "update_report", input, false),
    ),
    reading("help", own::<Help>, help).for_runs(),
];

type Call = fn(&Site, &Context, JsonObject) -> Result<String, Problem>;

const fn reading(name: &'static str, schema: fn() -> Schema, call: Call) -> Known {
    Known { name, schema, writes: false, for_runs: false, call }
}

const fn writing(name: &'static str, schema: fn() -> Schema, call: Call) -> Known {
    Known { name, schema, writes: true, for_runs: true, call }
}

/// The tool of a name.
pub fn named(name: &str) -> Option<&'static Known> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// Every tool, as clients are told.
pub fn all() -> Vec<Tool> {
    TOOLS.iter().map(Known::tool).collect()
}

impl Known {
    const fn for_runs(mut self) -> Self {
        self.for_runs = true;
        self
    }

    /// As clients are told.
    pub fn tool(&self) -> Tool {
        let schema = (self.schema)();
        let said = schema.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut input = parameters(&schema);
        if self.for_runs
            && let Some(fields) = input.entry("properties").or_insert_with(|| json!({})).as_object_mut()
        {
            let said = "A run's token, as `claim` gives it: that run's agent acts";
            fields.insert(RUN_TOKEN.to_owned(), json!({ "type": "string", "description": said }));
        }
        let mut hints = ToolAnnotations::new().read_only(!self.writes).open_world(false);
        if self.writes {
            // Only among all actions are some that delete.
            hints = hints.destructive(self.name == "act");
        }
        Tool::new(self.name, said, input).annotate(hints)
    }

    /// Calls it.
    pub fn call(&self, entered: &Entered, mut arguments: JsonObject) -> Result<String, Problem> {
        let Entered { site, context, remark } = entered;
        let run = match arguments.remove(RUN_TOKEN).filter(|_| self.for_runs) {
            None => {
                let mut said = (self.call)(site, context, arguments)?;
                // Who acts matters where something is done, and where it is asked.
                if let Some(remark) = remark.as_ref().filter(|_| self.writes || self.name == "whoami") {
                    said += &format!("\n{remark}\n");
                }
                return Ok(said);
            }
            Some(Value::String(token)) => caller::enter(&site.core, token).map_err(|problem| {
                const HINT: &str =
                    "`run_token` is the token that `claim` gave; it ends with its run. Leave it out to act as yourself";
                // No header of a request was wrong.
                if problem.status == StatusCode::UNAUTHORIZED { problem.hint(HINT) } else { problem }
            })?,
            Some(_) => return Err(Rule::usage("run_token is a text").into()),
        };
        (self.call)(site, &run, arguments)
    }
}

/// The schema of what a tool or an action takes, with nothing but what a caller needs.
fn parameters(schema: &Schema) -> JsonObject {
    let whole = schema.as_value();
    let Value::Object(mut input) = api::inlined(whole, whole.get("$defs")) else { return JsonObject::new() };
    for about_itself in ["$schema", "$defs", "title", "description"] {
        input.remove(about_itself);
    }
    input.entry("properties").or_insert_with(|| json!({}));
    input
}

fn own<T: JsonSchema>() -> Schema {
    schemars::SchemaGenerator::default().into_root_schema_for::<T>()
}

fn question(verb: &str) -> Schema {
    views::of(("", verb)).map_or_else(Schema::default, |view| schemas::of_question(view).clone())
}

/// What `ready` takes: every agent reads it at every start, and the page `/ready` goes on with `after`.
fn ready_schema() -> Schema {
    let mut schema = question("ready");
    if let Some(fields) = schema.ensure_object().get_mut("properties").and_then(Value::as_object_mut) {
        fields.remove("after");
    }
    schema
}

fn action(name: &str) -> Schema {
    actions::named(name).map_or_else(Schema::default, |action| schemas::of_action(action).clone())
}

fn given<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, Problem> {
    Ok(serde_json::from_value(Value::Object(arguments)).map_err(|error| Rule::usage(error.to_string()))?)
}

fn whoami(site: &Site, context: &Context, arguments: JsonObject) -> Result<String, Problem> {
    let Whoami {} = given(arguments)?;
    read::page(site, context, "/whoami")
}

fn show(site: &Site, context: &Context, arguments: JsonObject) -> Result<String, Problem> {
    let Show { page } = given(arguments)?;
    read::page(site, context, page.trim())
}

fn search(site: &Site, context: &Context, arguments: JsonObject) -> Result<String, Problem> {
    if arguments.get("words").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Err(Rule::usage("words is a list of words to look for").into());
    }
    read::page(site, context, &format!("/search?{}", query(arguments)))
}

fn why(site: &Site, context: &Context, arguments: JsonObject) -> Result<String, Problem> {
    match arguments.get("thing").and_then(Value::as_str).filter(|thing| !thing.is_empty()) {
        Some(thing) if arguments.len() == 1 => {
            let query = form_urlencoded::Serializer::new(String::new()).append_pair("of", thing).finish();
            read::page(site, context, &format!("/why?{query}"))
        }
        _ => Err(Rule::usage("why takes `thing`, a text, and nothing else").into()),
    }
}

/// Arguments as the query of a page, which checks them.
fn query(arguments: JsonObject) -> String {
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut out = form_urlencoded::Serializer::new(String::new());
    for (name, value) in arguments {
        match value {
            Value::Null => {}
            Value::Array(values) => {
                out.extend_pairs(values.into_iter().map(|value| (name.clone(), text(value))));
            }
            value => {
                out.append_pair(&name, &text(value));
            }
        }
    }
    out.finish()
}

fn ready(site: &Site, context: &Context, mut arguments: JsonObject) -> Result<String, Problem> {
    arguments.entry("limit").or_insert_with(|| json!(ROWS));
    let mut read = site.core.reader(context)?;
    let answer = pages::ask(&mut read, ("", "ready"), Value::Object(arguments))?;
    let columns = ["variant", "title", "role", "status", "priority", "estimate", "unblocked_by"];
    let rows = answer.data.as_array().cloned().unwrap_or_default();
    let mut page = Page::new("/ready", "Ready to be started", answer.data);
    page.blocks.push(blocks::table(&rows, &columns, nouns::of("task"), "Nothing is ready."));
    page.next = pages::next("/ready", "", answer.more.as_deref());
    if !rows.is_empty() {
        page.blocks.push(Block::Say("The most urgent comes first. `claim` gives you one, with a run.".to_owned()));
    }
    Ok(answer::part(&answer::page(&page), 0, None))
}

fn any_action(site: &Site, context: &Context, arguments: JsonObject) -> Result<String, Problem> {
    let Act { action, input, dry_run } = given(arguments)?;
    perform(site, context, &action, input, dry_run)
}

fn perform(
    site: &Site,
    context: &Context,
    name: &str,
    input: Map<String, Value>,
    is_dry: bool,
) -> Result<String, Problem> {
    let action = known(name)?;
    let data = act::execute(site, context, action, input, if is_dry { "dry_run=true" } else { "" })?;
    Ok(answer::done(name, data, is_dry))
}

fn known(name: &str) -> Result<&'static Entry, Problem> {
    offers::all().find(|action| action.name == name).ok_or_else(|| {
        let error = Rule::not_found(format!("there is no action {name:?}"));
        let hint = match close_matches(name, offers::all().map(|action| action.name)).first() {
            Some(close) => format!("did you mean {close:?}? `help` lists them"),
            None => "`help` lists them".to_owned(),
        };
        error.hint(hint).into()
    })
}

fn help(site: &Site, context: &Context, arguments: JsonObject) -> Result<String, Problem> {
    let Help { action } = given(arguments)?;
    let first_line = |schema: &Schema| {
        let said = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        said.lines().next().unwrap_or_default().to_owned()
    };
    if let Some(name) = action {
        let schema = schemas::of_action(known(&name)?);
        let described = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let input = serde_json::to_string_pretty(&parameters(schema)).unwrap_or_default();
        let said = format!("# {name}\n\n{described}\n\nThe schema of `input`:\n\n```json\n{input}\n```\n");
        return Ok(answer::part(&said, 0, Some(&format!("/whoami/actions/{name}"))));
    }
    let caller = Caller::of(&mut site.core.reader(context)?, context)?;
    let mut out =
        "# What you may do\n\n`act` does it; `help` with an action's name describes its input.\n\n".to_owned();
    for offer in offers::at(&Place::Whoami, &Value::Null, &caller) {
        out += &format!("- `{}` {}\n", offer.action.name, first_line(schemas::of_action(offer.action)));
    }
    Ok(answer::part(&out, 0, Some("/whoami/actions")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_are_few_small_and_described_by_valid_schemas() {
        let all = all();
        assert!(all.len() <= 10, "{}", all.len());
        let size = serde_json::to_string(&all).unwrap().len();
        assert!(size < 7_200, "tools/list has {size} bytes; every agent reads them at every start");
        for tool in all {
            let schema = tool.schema_as_json_value();
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert!(schema["properties"].is_object(), "{}", tool.name);
            assert!(tool.description.is_some_and(|said| said.len() > 20), "{}", tool.name);
            let text = schema.to_string();
            assert!(!text.contains("$ref") && !text.contains("standard input"), "{text}");
            if let Err(error) = jsonschema_shape(&schema) {
                panic!("{}: {error}", tool.name);
            }
        }
    }

    /// As much of the meta-schema as ours could break.
    fn jsonschema_shape(schema: &Value) -> Result<(), String> {
        const TYPES: &[&str] = &["object", "array", "string", "integer", "number", "boolean", "null"];
        let Value::Object(fields) = schema else {
            return if schema.is_boolean() { Ok(()) } else { Err(format!("not a schema: {schema}")) };
        };
        for (name, value) in fields {
            let whole = || format!("{name} is {value}");
            match name.as_str() {
                "type" => {
                    let names: Vec<_> = value.as_array().map_or_else(|| vec![value], |names| names.iter().collect());
                    let is_type = |name: &&Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
                    if !names.iter().all(is_type) {
                        return Err(whole());
                    }
                }
                "properties" => value.as_object().ok_or_else(whole)?.values().try_for_each(jsonschema_shape)?,
                "items" | "additionalProperties" => jsonschema_shape(value)?,
                "anyOf" | "oneOf" | "allOf" => {
                    value.as_array().ok_or_else(whole)?.iter().try_for_each(jsonschema_shape)?;
                }
                "required" | "enum" => drop(value.as_array().filter(|all| !all.is_empty()).ok_or_else(whole)?),
                "description" | "format" | "pattern" | "title" => drop(value.as_str().ok_or_else(whole)?),
                _ => {}
            }
        }
        Ok(())
    }
}
