//! The JSON API: every view and every action by name, and the `OpenAPI` document. Both are generated from the
//! registries of views and actions.

use std::sync::LazyLock;

use axum::{http::StatusCode, response::Response};
use serde_json::{Map, Value, json};
use trackway_actions::context::Context;
use trackway_views::registry::{self, VIEWS};

use crate::{
    input::{self, EmptyText},
    offers, pages,
    problem::Problem,
    schemas,
    site::{Site, json_response},
};

/// Answers `GET /api/v1/<noun>/<verb>`, or `GET /api/v1/<verb>`.
pub fn answer_view(site: &Site, context: &Context, path: &str, query: &str) -> Result<Response, Problem> {
    let command = path.split_once('/').unwrap_or(("", path));
    let entry = registry::find_view(command).ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, "not_found", format!("unknown view {path:?}"))
            .hint("/api/openapi.json lists all views")
    })?;
    let input = input::parse_pairs(schemas::of_view(entry), input::pairs(query), EmptyText::Literal)?;
    let answer = (entry.with_json)(&mut site.core.reader(context)?, Value::Object(input), site.core.now())?;
    let data = match &answer.document {
        Some(document) => serde_json::from_str(document).unwrap_or_else(|_| Value::String(document.clone())),
        None => answer.data,
    };
    let mut document = json!({ "schema_version": 1, "data": data });
    if let Some(next) = pages::next(&format!("/api/v1/{path}"), query, answer.next_page.as_deref()) {
        document["next"] = json!(next);
    }
    if !answer.remarks.is_empty() {
        document["remarks"] = json!(answer.remarks);
    }
    Ok(json_response(&document))
}

/// The serialised `OpenAPI` document. It is generated once, because generating it is slow.
pub static OPENAPI: LazyLock<String> = LazyLock::new(|| openapi().to_string());

/// Generates the `OpenAPI` 3.1 document.
pub fn openapi() -> Value {
    let mut paths = Map::new();
    for view in VIEWS {
        let (noun, verb) = view.command;
        let path = if noun.is_empty() { format!("/api/v1/{verb}") } else { format!("/api/v1/{noun}/{verb}") };
        let schema = schemas::of_view(view);
        let required = input::required(schema);
        let definitions = schema.get("$defs").cloned();
        let parameters: Vec<Value> = input::fields(schema)
            .into_iter()
            .flatten()
            .map(|(name, field)| {
                json!({
                    "name": name,
                    "in": "query",
                    "required": required.contains(&name.as_str()),
                    "description": field.get("description"),
                    "schema": inline_references(field, definitions.as_ref()),
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
    for action in offers::http_actions() {
        let schema = schemas::of_action(action);
        let definitions = schema.get("$defs").cloned();
        let mut body = inline_references(&Value::from(schema.clone()), definitions.as_ref());
        if let Some(body) = body.as_object_mut() {
            body.remove("$defs");
            body.remove("$schema");
        }
        let operation = json!({
            "operationId": action.name,
            "tags": [if action.command.0.is_empty() { "actions" } else { action.command.0 }],
            "summary": schema.get("description"),
            "parameters": [{ "name": "dry_run", "in": "query", "required": false, "description": "Show the result without changing anything", "schema": { "type": "boolean" } }],
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
            "description": "The system of record for agent work. Each view is a GET; each change is one action, a POST.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer", "description": "The token of a person or of a run" } },
            "schemas": {
                "Answer": {
                    "type": "object",
                    "required": ["schema_version", "data"],
                    "properties": {
                        "schema_version": { "const": 1 },
                        "data": {},
                        "next": { "type": "string", "description": "Path of the next page of the list" },
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

/// The responses that every operation can have.
fn responses() -> Value {
    let body =
        |name: &str| json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{name}") } } });
    let mut all = Map::new();
    all.insert("200".to_owned(), json!({ "description": "Success", "content": body("Answer") }));
    for (status, description) in [
        ("400", "Malformed request"),
        ("401", "Missing or invalid credentials"),
        ("403", "Not allowed for this caller"),
        ("404", "Not found"),
        ("409", "Conflict with the current state"),
        ("413", "Request body too large"),
        ("415", "Unsupported content type"),
        ("422", "Invalid parameter"),
        ("429", "Too many requests"),
        ("503", "The database is unavailable or the server is overloaded"),
    ] {
        all.insert(status.to_owned(), json!({ "description": description, "content": body("Problem") }));
    }
    Value::Object(all)
}

/// Replaces the references of a schema by their definitions.
pub(crate) fn inline_references(schema: &Value, definitions: Option<&Value>) -> Value {
    match schema {
        Value::Object(fields) => {
            let definition_name =
                fields.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix("#/$defs/"));
            if let Some(definition) = definition_name.and_then(|name| definitions?.get(name)) {
                let mut schema = inline_references(definition, definitions);
                // Keywords beside the reference, such as the description, belong to this field and override the
                // definition.
                if let Some(schema) = schema.as_object_mut() {
                    schema.extend(
                        fields
                            .iter()
                            .filter(|(name, _)| *name != "$ref")
                            .map(|(name, value)| (name.clone(), value.clone())),
                    );
                }
                return schema;
            }
            fields
                .iter()
                .map(|(name, value)| (name.clone(), inline_references(value, definitions)))
                .collect::<Map<_, _>>()
                .into()
        }
        Value::Array(values) => values.iter().map(|value| inline_references(value, definitions)).collect(),
        other => other.clone(),
    }
}
