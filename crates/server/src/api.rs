//! Every question and every action by name, in JSON, and the document that describes them: made from the registries.

use std::sync::LazyLock;

use axum::{http::StatusCode, response::Response};
use serde_json::{Map, Value, json};
use trackway_actions::context::Context;
use trackway_views::registry::{self, VIEWS};

use crate::{
    input::{self, Empty},
    offers, pages,
    problem::Problem,
    schemas,
    site::{Site, json_response},
};

/// Answers `GET /api/v1/<noun>/<verb>`, or `GET /api/v1/<verb>`.
pub fn ask(site: &Site, context: &Context, path: &str, query: &str) -> Result<Response, Problem> {
    let command = path.split_once('/').unwrap_or(("", path));
    let entry = registry::of(command).ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, "not_found", format!("there is no question {path:?}"))
            .hint("/api/openapi.json lists them")
    })?;
    let input = input::from_pairs(schemas::of_question(entry), input::pairs(query), Empty::Said)?;
    let answer = (entry.with_json)(&mut site.core.reader(context)?, Value::Object(input), site.core.now())?;
    let data = match &answer.document {
        Some(document) => serde_json::from_str(document).unwrap_or_else(|_| Value::String(document.clone())),
        None => answer.data,
    };
    let mut whole = json!({ "schema_version": 1, "data": data });
    if let Some(next) = pages::next(&format!("/api/v1/{path}"), query, answer.more.as_deref()) {
        whole["next"] = json!(next);
    }
    if !answer.remarks.is_empty() {
        whole["remarks"] = json!(answer.remarks);
    }
    Ok(json_response(&whole))
}

/// The document as it is sent. Making it takes a while, and it does not change.
pub static OPENAPI: LazyLock<String> = LazyLock::new(|| openapi().to_string());

/// The whole interface as `OpenAPI` 3.1.
pub fn openapi() -> Value {
    let mut paths = Map::new();
    for view in VIEWS {
        let (noun, verb) = view.command;
        let path = if noun.is_empty() { format!("/api/v1/{verb}") } else { format!("/api/v1/{noun}/{verb}") };
        let schema = schemas::of_question(view);
        let needed = input::required(schema);
        let definitions = schema.get("$defs").cloned();
        let parameters: Vec<Value> = input::fields(schema)
            .into_iter()
            .flatten()
            .map(|(name, field)| {
                json!({
                    "name": name,
                    "in": "query",
                    "required": needed.contains(&name.as_str()),
                    "description": field.get("description"),
                    "schema": inlined(field, definitions.as_ref()),
                    "explode": true,
                })
            })
            .collect();
        let operation = json!({
            "operationId": if noun.is_empty() { verb.to_owned() } else { format!("{noun}_{verb}").replace('-', "_") },
            "tags": [if noun.is_empty() { "questions" } else { noun }],
            "summary": schema.get("description"),
            "parameters": parameters,
            "responses": responses(),
        });
        paths.insert(path, json!({ "get": operation }));
    }
    for action in offers::all() {
        let schema = schemas::of_action(action);
        let definitions = schema.get("$defs").cloned();
        let mut body = inlined(&Value::from(schema.clone()), definitions.as_ref());
        if let Some(body) = body.as_object_mut() {
            body.remove("$defs");
            body.remove("$schema");
        }
        let operation = json!({
            "operationId": action.name,
            "tags": [if action.command.0.is_empty() { "actions" } else { action.command.0 }],
            "summary": schema.get("description"),
            "parameters": [{ "name": "dry_run", "in": "query", "required": false, "description": "Show what would come out, and change nothing", "schema": { "type": "boolean" } }],
            "requestBody": { "required": !input::required(schema).is_empty(), "content": { "application/json": { "schema": body } } },
            "responses": responses(),
        });
        paths.insert(format!("/api/v1/actions/{}", action.name), json!({ "post": operation }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Trackway",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The system of record for agent work. Every question is a GET, every change is one action, a POST.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer", "description": "A person's token, or a run's" } },
            "schemas": {
                "Answer": {
                    "type": "object",
                    "required": ["schema_version", "data"],
                    "properties": {
                        "schema_version": { "const": 1 },
                        "data": {},
                        "next": { "type": "string", "description": "Where a list goes on" },
                        "remarks": { "type": "array", "items": { "type": "string" } },
                    },
                },
                "Problem": {
                    "type": "object",
                    "required": ["schema_version", "error"],
                    "properties": {
                        "schema_version": { "const": 1 },
                        "error": {
                            "type": "object",
                            "required": ["code", "message"],
                            "properties": {
                                "code": { "type": "string" },
                                "message": { "type": "string" },
                                "hint": { "type": ["string", "null"] },
                            },
                        },
                    },
                },
            },
        },
    })
}

/// What every operation can answer.
fn responses() -> Value {
    let body =
        |name: &str| json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{name}") } } });
    let mut all = Map::new();
    all.insert("200".to_owned(), json!({ "description": "The answer", "content": body("Answer") }));
    for (status, said) in [
        ("400", "The request cannot be read"),
        ("401", "Who is calling was not said, or the token opens nothing"),
        ("403", "Not for this caller"),
        ("404", "There is no such thing"),
        ("409", "It stands differently"),
        ("413", "Too large"),
        ("415", "Not JSON"),
        ("422", "A parameter is not as it should be"),
        ("429", "Too many requests"),
        ("503", "The database is busy"),
    ] {
        all.insert(status.to_owned(), json!({ "description": said, "content": body("Problem") }));
    }
    Value::Object(all)
}

/// A schema whose references have been put in place.
pub(crate) fn inlined(schema: &Value, definitions: Option<&Value>) -> Value {
    match schema {
        Value::Object(fields) => {
            let named =
                fields.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix("#/$defs/"));
            if let Some(found) = named.and_then(|name| definitions?.get(name)) {
                let mut whole = inlined(found, definitions);
                // What stands beside the reference is said of this field.
                if let Some(whole) = whole.as_object_mut() {
                    whole.extend(
                        fields
                            .iter()
                            .filter(|(name, _)| *name != "$ref")
                            .map(|(name, value)| (name.clone(), value.clone())),
                    );
                }
                return whole;
            }
            fields.iter().map(|(name, value)| (name.clone(), inlined(value, definitions))).collect::<Map<_, _>>().into()
        }
        Value::Array(values) => values.iter().map(|value| inlined(value, definitions)).collect(),
        other => other.clone(),
    }
}
