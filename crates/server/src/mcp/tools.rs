//! The MCP tools. They are few, because every agent reads all of them at every start. Their schemas come from the
//! actions and views.

use axum::http::StatusCode;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use trackway_actions::{
    context::Context,
    registry::{self as action_registry, ActionEntry},
};
use trackway_domain::{Error as Rule, close_matches::close_matches};
use trackway_views::registry as view_registry;

use super::{McpCaller, answer, read};
use crate::{
    actions,
    address::PageRef,
    api, blocks, caller, nouns,
    offers::{self, Caller},
    page::{Block, Page},
    pages,
    problem::Problem,
    schemas,
    site::Site,
};

/// Default number of rows of `ready`.
const ROWS: i64 = 20;
/// The argument that makes a tool act as the agent of a claimed run.
const RUN_TOKEN: &str = "run_token";

#[derive(Debug, Clone, Copy)]
pub struct ToolEntry {
    pub name: &'static str,
    schema: fn() -> Schema,
    writes: bool,
    /// True if the tool accepts the token of a run.
    accepts_run_token: bool,
    call: fn(&Site, &Context, JsonObject) -> Result<String, Problem>,
}

/// See who you are: your run, task, scratchpad, queue items, and how to continue
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Whoami {}

/// Read a page, or a thing by its name or id
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Show {
    /// A path (`/`, `/tasks/VARIANT`, `/runs/ID`, `/reports/TASK`, `/latest?variant=V`), a variant, the end of an id, or `last` for the newest run
    page: String,
}

/// Execute any action by its name; `help` lists and describes the actions
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Act {
    /// The action's name, such as `create_note` or `queue_add`
    action: String,
    /// The action's parameters
    #[serde(default)]
    input: Map<String, Value>,
    /// Show the result without changing anything
    #[serde(default)]
    dry_run: bool,
}

/// List the actions available to you, or describe one with the schema of its parameters
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Help {
    /// The action to describe
    action: Option<String>,
}

/// All tools.
pub const TOOLS: &[ToolEntry] = &[
    read_tool("whoami", schema_of::<Whoami>, whoami).accepts_run_token(),
    read_tool("ready", ready_schema, ready),
    write_tool(
        "claim",
        || action_schema("claim"),
        |site, context, input| perform(site, context, "claim", input, false),
    ),
    read_tool("show", schema_of::<Show>, show),
    read_tool("search", || view_schema("search"), search),
    read_tool("why", || view_schema("why"), why),
    write_tool("act", schema_of::<Act>, act),
    write_tool(
        "update_scratchpad",
        || action_schema("update_scratchpad"),
        |site, context, input| perform(site, context, "update_scratchpad", input, false),
    ),
    write_tool(
        "update_report",
        || action_schema("update_report"),
        |site, context, input| perform(site, context, "update_report", input, false),
    ),
    read_tool("help", schema_of::<Help>, help).accepts_run_token(),
];

type Call = fn(&Site, &Context, JsonObject) -> Result<String, Problem>;

const fn read_tool(name: &'static str, schema: fn() -> Schema, call: Call) -> ToolEntry {
    ToolEntry { name, schema, writes: false, accepts_run_token: false, call }
}

const fn write_tool(name: &'static str, schema: fn() -> Schema, call: Call) -> ToolEntry {
    ToolEntry { name, schema, writes: true, accepts_run_token: true, call }
}

pub fn by_name(name: &str) -> Option<&'static ToolEntry> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// The descriptions of all tools, for clients.
pub fn all() -> Vec<Tool> {
    TOOLS.iter().map(ToolEntry::describe).collect()
}

impl ToolEntry {
    const fn accepts_run_token(mut self) -> Self {
        self.accepts_run_token = true;
        self
    }

    /// The description of the tool, for clients.
    pub fn describe(&self) -> Tool {
        let schema = (self.schema)();
        let description = schema.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut input = parameters(&schema);
        if self.accepts_run_token
            && let Some(fields) = input.entry("properties").or_insert_with(|| json!({})).as_object_mut()
        {
            let run_token = "A run's token from `claim`: act as its agent";
            fields.insert(RUN_TOKEN.to_owned(), json!({ "type": "string", "description": run_token }));
        }
        let mut hints = ToolAnnotations::new().read_only(!self.writes).open_world(false);
        if self.writes {
            // Only `act` can execute actions that delete.
            hints = hints.destructive(self.name == "act");
        }
        Tool::new(self.name, description, input).annotate(hints)
    }

    /// Calls the tool.
    pub fn call(&self, caller: &McpCaller, mut arguments: JsonObject) -> Result<String, Problem> {
        let McpCaller { site, context, remark } = caller;
        let run = match arguments.remove(RUN_TOKEN).filter(|_| self.accepts_run_token) {
            None => {
                let mut text = (self.call)(site, context, arguments)?;
                // The caller matters only for writes and for `whoami`.
                if let Some(remark) = remark.as_ref().filter(|_| self.writes || self.name == "whoami") {
                    text += &format!("\n{remark}\n");
                }
                return Ok(text);
            }
            Some(Value::String(token)) => caller::authenticate(&site.core, token).map_err(|problem| {
                const HINT: &str =
                    "`run_token` is the token that `claim` returned, and expires with its run; omit it to act as yourself";
                // The default hint is about HTTP headers, which are not at fault here.
                if problem.status == StatusCode::UNAUTHORIZED { problem.hint(HINT) } else { problem }
            })?,
            Some(_) => return Err(Rule::usage("run_token must be a string").into()),
        };
        (self.call)(site, &run, arguments)
    }
}

/// The input schema of a tool or an action, without the parts that callers do not need.
fn parameters(schema: &Schema) -> JsonObject {
    let schema = schema.as_value();
    let Value::Object(mut input) = api::inline_references(schema, schema.get("$defs")) else {
        return JsonObject::new();
    };
    for keyword in ["$schema", "$defs", "title", "description"] {
        input.remove(keyword);
    }
    input.entry("properties").or_insert_with(|| json!({}));
    input
}

fn schema_of<T: JsonSchema>() -> Schema {
    schemars::SchemaGenerator::default().into_root_schema_for::<T>()
}

fn view_schema(verb: &str) -> Schema {
    view_registry::find_view(("", verb)).map_or_else(Schema::default, |view| schemas::of_view(view).clone())
}

/// The schema of `ready`, without `after`, to keep the tool list small. Agents can read further pages with `show`.
fn ready_schema() -> Schema {
    let mut schema = view_schema("ready");
    if let Some(fields) = schema.ensure_object().get_mut("properties").and_then(Value::as_object_mut) {
        fields.remove("after");
    }
    schema
}

fn action_schema(name: &str) -> Schema {
    action_registry::find_action(name).map_or_else(Schema::default, |action| schemas::of_action(action).clone())
}

fn parse_arguments<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, Problem> {
    Ok(serde_json::from_value(Value::Object(arguments)).map_err(|error| Rule::usage(error.to_string()))?)
}

fn whoami(site: &Site, context: &Context, arguments: JsonObject) -> Result<String, Problem> {
    let Whoami {} = parse_arguments(arguments)?;
    read::page(site, context, "/whoami")
}

fn show(site: &Site, context: &Context, arguments: JsonObject) -> Result<String, Problem> {
    let Show { page } = parse_arguments(arguments)?;
    read::page(site, context, page.trim())
}

fn search(site: &Site, context: &Context, arguments: JsonObject) -> Result<String, Problem> {
    if arguments.get("words").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Err(Rule::usage("words must be a list of words to search for").into());
    }
    read::page(site, context, &format!("/search?{}", encode_query(arguments)))
}

fn why(site: &Site, context: &Context, arguments: JsonObject) -> Result<String, Problem> {
    match arguments.get("thing").and_then(Value::as_str).filter(|thing| !thing.is_empty()) {
        Some(thing) if arguments.len() == 1 => {
            let query = form_urlencoded::Serializer::new(String::new()).append_pair("of", thing).finish();
            read::page(site, context, &format!("/why?{query}"))
        }
        _ => Err(Rule::usage("why takes only `thing`, a string").into()),
    }
}

/// Encodes arguments as the query of a page. The page checks them.
fn encode_query(arguments: JsonObject) -> String {
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
    let answer = pages::query_view(&mut read, ("", "ready"), Value::Object(arguments))?;
    let columns = ["variant", "title", "role", "status", "priority", "estimate", "unblocked_by"];
    let rows = answer.data.as_array().cloned().unwrap_or_default();
    let mut page = Page::new("/ready", "Ready tasks", answer.data);
    page.blocks.push(blocks::table(&rows, &columns, nouns::by_name("task"), "No task is ready."));
    page.next = pages::next("/ready", "", answer.next_page.as_deref());
    if !rows.is_empty() {
        page.blocks.push(Block::Paragraph(
            "The most urgent task comes first. `claim` claims one and starts a run for it.".to_owned(),
        ));
    }
    Ok(answer::part(&answer::page(&page), 0, None))
}

fn act(site: &Site, context: &Context, arguments: JsonObject) -> Result<String, Problem> {
    let Act { action, input, dry_run } = parse_arguments(arguments)?;
    perform(site, context, &action, input, dry_run)
}

fn perform(
    site: &Site,
    context: &Context,
    name: &str,
    input: Map<String, Value>,
    is_dry_run: bool,
) -> Result<String, Problem> {
    let action = find_action(name)?;
    let data = actions::execute(site, context, action, input, if is_dry_run { "dry_run=true" } else { "" })?;
    Ok(answer::action_result(name, data, is_dry_run))
}

fn find_action(name: &str) -> Result<&'static ActionEntry, Problem> {
    offers::http_actions().find(|action| action.name == name).ok_or_else(|| {
        let error = Rule::not_found(format!("unknown action {name:?}"));
        let hint = match close_matches(name, offers::http_actions().map(|action| action.name)).first() {
            Some(close) => format!("did you mean {close:?}? `help` lists all actions"),
            None => "`help` lists all actions".to_owned(),
        };
        error.hint(hint).into()
    })
}

fn help(site: &Site, context: &Context, arguments: JsonObject) -> Result<String, Problem> {
    let Help { action } = parse_arguments(arguments)?;
    let first_line = |schema: &Schema| {
        let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        description.lines().next().unwrap_or_default().to_owned()
    };
    if let Some(name) = action {
        let schema = schemas::of_action(find_action(&name)?);
        let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let input = serde_json::to_string_pretty(&parameters(schema)).unwrap_or_default();
        let text = format!("# {name}\n\n{description}\n\nThe schema of `input`:\n\n```json\n{input}\n```\n");
        return Ok(answer::part(&text, 0, Some(&format!("/whoami/actions/{name}"))));
    }
    let caller = Caller::load(&mut site.core.reader(context)?, context)?;
    let mut out =
        "# Available actions\n\n`act` executes an action; `help` with an action's name describes its input.\n\n"
            .to_owned();
    for offer in offers::for_caller(&PageRef::Whoami, &Value::Null, &caller) {
        out += &format!("- `{}` {}\n", offer.action.name, first_line(schemas::of_action(offer.action)));
    }
    Ok(answer::part(&out, 0, Some("/whoami/actions")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_list_is_small_and_has_valid_schemas() {
        let all = all();
        assert!(all.len() <= 10, "{}", all.len());
        let size = serde_json::to_string(&all).unwrap().len();
        assert!(size < 7_200, "tools/list has {size} bytes; every agent reads them at every start");
        for tool in all {
            let schema = tool.schema_as_json_value();
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert!(schema["properties"].is_object(), "{}", tool.name);
            assert!(tool.description.is_some_and(|text| text.len() > 20), "{}", tool.name);
            let text = schema.to_string();
            assert!(!text.contains("$ref") && !text.contains("standard input"), "{text}");
            if let Err(error) = check_schema(&schema) {
                panic!("{}: {error}", tool.name);
            }
        }
    }

    /// Checks the rules of the JSON meta-schema that a generated schema could violate.
    fn check_schema(schema: &Value) -> Result<(), String> {
        const TYPES: &[&str] = &["object", "array", "string", "integer", "number", "boolean", "null"];
        let Value::Object(fields) = schema else {
            return if schema.is_boolean() { Ok(()) } else { Err(format!("not a schema: {schema}")) };
        };
        for (name, value) in fields {
            let violation = || format!("{name} is {value}");
            match name.as_str() {
                "type" => {
                    let names: Vec<_> = value.as_array().map_or_else(|| vec![value], |names| names.iter().collect());
                    let is_type = |name: &&Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
                    if !names.iter().all(is_type) {
                        return Err(violation());
                    }
                }
                "properties" => value.as_object().ok_or_else(violation)?.values().try_for_each(check_schema)?,
                "items" | "additionalProperties" => check_schema(value)?,
                "anyOf" | "oneOf" | "allOf" => {
                    value.as_array().ok_or_else(violation)?.iter().try_for_each(check_schema)?;
                }
                "required" | "enum" => drop(value.as_array().filter(|all| !all.is_empty()).ok_or_else(violation)?),
                "description" | "format" | "pattern" | "title" => drop(value.as_str().ok_or_else(violation)?),
                _ => {}
            }
        }
        Ok(())
    }
}
