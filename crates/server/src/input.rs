//! Converts query strings and form bodies into the JSON object that an action or a view takes. Queries and forms hold
//! only text; the schema gives the type of each field.

use serde_json::{Map, Value};
use trackway_domain::{Error as Rule, Result, close_matches};

/// Below 2^53, every integer is exact as an `f64`.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// The fields of a schema, by name.
pub fn fields(schema: &schemars::Schema) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object)
}

/// The names of the required fields of a schema.
pub fn required(schema: &schemars::Schema) -> Vec<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The type of a field, as a form or a query has to parse it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    Text,
    Integer,
    Number,
    Boolean,
    List,
    /// Any JSON value. Text that is not valid JSON becomes a JSON string.
    Json,
}

pub fn field_type(field: &Value) -> FieldType {
    let is = |wanted: &str| match field.get("type") {
        Some(Value::String(name)) => name == wanted,
        Some(Value::Array(names)) => names.iter().any(|name| name == wanted),
        _ => false,
    };
    if is("boolean") {
        FieldType::Boolean
    } else if is("array") {
        FieldType::List
    } else if is("integer") {
        FieldType::Integer
    } else if is("number") {
        FieldType::Number
    } else if field.as_bool().is_some()
        || field.as_object().is_some_and(|field| {
            !field.contains_key("type") && !field.contains_key("$ref") && !field.contains_key("anyOf")
        })
    {
        FieldType::Json
    } else {
        FieldType::Text
    }
}

/// How to treat a field with an empty text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EmptyText<'a> {
    /// Like a missing field, because a form also sends the fields that nobody filled in.
    Omitted,
    /// Clears the stored value if the form was prefilled with one. Otherwise like a missing field.
    ClearsCurrent(&'a Map<String, Value>),
    /// The empty string itself. An error if the field does not allow it.
    Literal,
}

/// Parses the pairs of a query or a form. A repeated name makes a list.
pub fn parse_pairs(
    schema: &schemars::Schema,
    pairs: impl Iterator<Item = (String, String)>,
    empty_text: EmptyText<'_>,
) -> Result<Map<String, Value>> {
    let empty = Map::new();
    let schema_fields = fields(schema).unwrap_or(&empty);
    let required_names = required(schema);
    let mut input = Map::new();
    for (name, text) in pairs {
        let Some(field) = schema_fields.get(&name) else {
            return Err(unknown_parameter(&name, schema_fields.keys().map(String::as_str)));
        };
        // In a required text field, an empty text is a value: it clears the stored text.
        let is_text = required_names.contains(&name.as_str()) && field_type(field) == FieldType::Text;
        if text.is_empty() && !is_text {
            match empty_text {
                EmptyText::ClearsCurrent(current)
                    if current.get(&name).is_some_and(is_filled) && allows_null(field) =>
                {
                    input.entry(name).or_insert(Value::Null);
                    continue;
                }
                EmptyText::Omitted | EmptyText::ClearsCurrent(_) => continue,
                EmptyText::Literal if allows_empty(field) => {}
                EmptyText::Literal => {
                    return Err(Rule::usage(format!("{name} is empty")).hint(format!("omit {name} or give it a value")));
                }
            }
        }
        let value = match field_type(field) {
            FieldType::List => {
                match input.entry(name).or_insert(Value::Null) {
                    Value::Array(values) => values.push(Value::String(text)),
                    first => *first = Value::Array(vec![Value::String(text)]),
                }
                continue;
            }
            FieldType::Boolean => match text.as_str() {
                "true" | "on" | "1" | "yes" => Value::Bool(true),
                "false" | "off" | "0" | "no" => Value::Bool(false),
                _ => return Err(Rule::usage(format!("{name} must be true or false, not {text:?}"))),
            },
            FieldType::Integer => parse_integer(&name, &text)?.into(),
            FieldType::Number => match text.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
                Some(number) => Value::Number(number),
                None => return Err(Rule::usage(format!("{name} must be a number, not {text:?}"))),
            },
            FieldType::Json => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            FieldType::Text => Value::String(text),
        };
        input.insert(name, value);
    }
    Ok(input)
}

pub fn parse_integer(name: &str, text: &str) -> Result<i64> {
    text.parse().map_err(|_| Rule::usage(format!("{name} must be an integer, not {text:?}")))
}

/// True if a form shows this stored value, so that a person can remove it.
fn is_filled(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        value => value.is_number(),
    }
}

/// True if the field may be null, which clears it.
fn allows_null(field: &Value) -> bool {
    let is_null = |name: &Value| name == "null";
    let types = field.get("type").and_then(Value::as_array);
    let alternatives = field.get("anyOf").and_then(Value::as_array);
    types.is_some_and(|types| types.iter().any(is_null))
        || alternatives.into_iter().flatten().filter_map(|schema| schema.get("type")).any(is_null)
}

/// True if the field is a text without any constraint.
fn allows_empty(field: &Value) -> bool {
    let constraints = ["minLength", "pattern", "enum", "format", "$ref", "anyOf"];
    field_type(field) == FieldType::Text && constraints.iter().all(|constraint| field.get(constraint).is_none())
}

/// Converts numbers such as `5.0` to integers in integer fields. JSON has only one number type, so some clients send
/// integers this way.
pub fn normalize_integers(schema: &schemars::Schema, input: &mut Map<String, Value>) {
    let Some(schema_fields) = fields(schema) else { return };
    for (name, value) in input {
        let is_integer = schema_fields.get(name).is_some_and(|field| field_type(field) == FieldType::Integer);
        if let (true, Some(number)) = (is_integer && value.is_f64(), value.as_f64())
            && number.fract() == 0.0
            && number.abs() < EXACT_INTEGER_MAX
        {
            #[expect(clippy::cast_possible_truncation, reason = "the range is checked above")]
            let number = number as i64;
            *value = number.into();
        }
    }
}

/// Rejects query parameters that a page does not have.
pub fn reject_unknown(query: &str, known: &[&str]) -> Result<()> {
    match pairs(query).find(|(name, _)| !known.contains(&name.as_str())) {
        Some((name, _)) => Err(unknown_parameter(&name, known.iter().copied())),
        None => Ok(()),
    }
}

fn unknown_parameter<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Rule {
    let names: Vec<&str> = known.collect();
    let error = Rule::usage(format!("unknown parameter {name:?}"));
    match close_matches::close_matches(name, names.iter().copied()).first() {
        Some(close) => error.hint(format!("did you mean {close:?}?")),
        None if names.is_empty() => error.hint("this page takes no parameters"),
        None => error.hint(format!("valid parameters: {}", names.join(", "))),
    }
}

/// Decodes the pairs of a query or a form.
pub fn pairs(text: &str) -> impl Iterator<Item = (String, String)> + '_ {
    form_urlencoded::parse(text.as_bytes()).map(|(name, value)| (name.into_owned(), value.into_owned()))
}

/// The allowed values of a field that is an enumeration.
pub fn allowed_values(field: &Value, schema: &schemars::Schema) -> Option<Vec<String>> {
    let reference = field.get("$ref").or_else(|| field.get("anyOf")?.get(0)?.get("$ref")).and_then(Value::as_str);
    let defined = match reference {
        Some(reference) => schema.get("$defs")?.get(reference.strip_prefix("#/$defs/")?)?,
        None => field,
    };
    // Schemars puts each documented enum value into an entry of `oneOf`, and all undocumented values into one `enum`.
    let parts = match defined.get("oneOf").and_then(Value::as_array) {
        Some(parts) => parts.iter().collect(),
        None => vec![defined],
    };
    let values = parts.into_iter().flat_map(|part| {
        let undocumented = part.get("enum").and_then(Value::as_array).into_iter().flatten();
        part.get("const").into_iter().chain(undocumented)
    });
    let values: Vec<String> = values.filter_map(Value::as_str).map(ToOwned::to_owned).collect();
    (!values.is_empty()).then_some(values)
}
