//! From what came over the wire to an object of fields. Forms and queries are all text: the schema says what is meant.

use serde_json::{Map, Value};
use trackway_domain::{Error as Rule, Result, close_matches};

/// Up to here every whole number can be written as a fraction without loss.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// The fields of a schema.
pub fn fields(schema: &schemars::Schema) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object)
}

/// The fields of a schema that have to be given.
pub fn required(schema: &schemars::Schema) -> Vec<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What a field is, where that is not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    Text,
    Whole,
    Number,
    Flag,
    List,
    /// Anything: written as JSON.
    Any,
}

/// What a field is.
pub fn field_type(field: &Value) -> FieldType {
    let is = |wanted: &str| match field.get("type") {
        Some(Value::String(name)) => name == wanted,
        Some(Value::Array(names)) => names.iter().any(|name| name == wanted),
        _ => false,
    };
    if is("boolean") {
        FieldType::Flag
    } else if is("array") {
        FieldType::List
    } else if is("integer") {
        FieldType::Whole
    } else if is("number") {
        FieldType::Number
    } else if field.as_bool().is_some()
        || field.as_object().is_some_and(|field| {
            !field.contains_key("type") && !field.contains_key("$ref") && !field.contains_key("anyOf")
        })
    {
        FieldType::Any
    } else {
        FieldType::Text
    }
}

/// What a field without a text means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Empty<'a> {
    /// It was left out: a form sends every field it has.
    LeftOut,
    /// The same, but what stands there now is cleared: the form began with it, and somebody took it out.
    Clears(&'a Map<String, Value>),
    /// An empty text was said, which has to be allowed.
    Said,
}

/// Reads pairs of a query or a form. A list is given by naming it again.
pub fn from_pairs(
    schema: &schemars::Schema,
    pairs: impl Iterator<Item = (String, String)>,
    empty_means: Empty<'_>,
) -> Result<Map<String, Value>> {
    let empty = Map::new();
    let known = fields(schema).unwrap_or(&empty);
    let needed = required(schema);
    let mut input = Map::new();
    for (name, text) in pairs {
        let Some(field) = known.get(&name) else {
            return Err(unknown(&name, known.keys().map(String::as_str)));
        };
        // An empty text is one where a text has to be given: it clears what was there.
        let is_text = needed.contains(&name.as_str()) && field_type(field) == FieldType::Text;
        if text.is_empty() && !is_text {
            match empty_means {
                Empty::Clears(present) if present.get(&name).is_some_and(is_something) && allows_null(field) => {
                    input.entry(name).or_insert(Value::Null);
                    continue;
                }
                Empty::LeftOut | Empty::Clears(_) => continue,
                Empty::Said if allows_empty(field) => {}
                Empty::Said => return Err(Rule::usage(format!("{name} is empty")).hint("leave it out")),
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
            FieldType::Flag => match text.as_str() {
                "true" | "on" | "1" | "yes" => Value::Bool(true),
                "false" | "off" | "0" | "no" => Value::Bool(false),
                _ => return Err(Rule::usage(format!("{name} is true or false, not {text:?}"))),
            },
            FieldType::Whole => whole(&name, &text)?.into(),
            FieldType::Number => match text.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
                Some(number) => Value::Number(number),
                None => return Err(Rule::usage(format!("{name} is a number, not {text:?}"))),
            },
            FieldType::Any => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            FieldType::Text => Value::String(text),
        };
        input.insert(name, value);
    }
    Ok(input)
}

/// A whole number.
pub fn whole(name: &str, text: &str) -> Result<i64> {
    text.parse().map_err(|_| Rule::usage(format!("{name} is a whole number, not {text:?}")))
}

/// Whether a form began with it.
fn is_something(present: &Value) -> bool {
    match present {
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        present => present.is_number(),
    }
}

/// Whether null can be said of a field, which clears it.
fn allows_null(field: &Value) -> bool {
    let is_null = |name: &Value| name == "null";
    let types = field.get("type").and_then(Value::as_array);
    let ways = field.get("anyOf").and_then(Value::as_array);
    types.is_some_and(|types| types.iter().any(is_null))
        || ways.into_iter().flatten().filter_map(|way| way.get("type")).any(is_null)
}

/// Whether a field takes an empty text: one that has to hold nothing in particular.
fn allows_empty(field: &Value) -> bool {
    let rules = ["minLength", "pattern", "enum", "format", "$ref", "anyOf"];
    field_type(field) == FieldType::Text && rules.iter().all(|rule| field.get(rule).is_none())
}

/// Makes whole numbers of those that are written as `5.0`: JSON knows one kind of number.
pub fn settle_numbers(schema: &schemars::Schema, input: &mut Map<String, Value>) {
    let Some(known) = fields(schema) else { return };
    for (name, value) in input {
        let is_whole = known.get(name).is_some_and(|field| field_type(field) == FieldType::Whole);
        if let (true, Some(number)) = (is_whole && value.is_f64(), value.as_f64())
            && number.fract() == 0.0
            && number.abs() < WHOLE_MAX
        {
            #[expect(clippy::cast_possible_truncation, reason = "the range was looked at")]
            let number = number as i64;
            *value = number.into();
        }
    }
}

/// Refuses what a page does not know.
pub fn none_but(query: &str, known: &[&str]) -> Result<()> {
    match pairs(query).find(|(name, _)| !known.contains(&name.as_str())) {
        Some((name, _)) => Err(unknown(&name, known.iter().copied())),
        None => Ok(()),
    }
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Rule {
    let names: Vec<&str> = known.collect();
    let error = Rule::usage(format!("there is no parameter {name:?} here"));
    match close_matches::close_matches(name, names.iter().copied()).first() {
        Some(close) => error.hint(format!("did you mean {close:?}?")),
        None if names.is_empty() => error.hint("there are none"),
        None => error.hint(format!("there are: {}", names.join(", "))),
    }
}

/// The pairs of a query or a form.
pub fn pairs(text: &str) -> impl Iterator<Item = (String, String)> + '_ {
    form_urlencoded::parse(text.as_bytes()).map(|(name, value)| (name.into_owned(), value.into_owned()))
}

/// The words a field can be, when they are few.
pub fn choices(field: &Value, schema: &schemars::Schema) -> Option<Vec<String>> {
    let reference = field.get("$ref").or_else(|| field.get("anyOf")?.get(0)?.get("$ref")).and_then(Value::as_str);
    let defined = match reference {
        Some(reference) => schema.get("$defs")?.get(reference.strip_prefix("#/$defs/")?)?,
        None => field,
    };
    // Words that are explained stand one by one, the others together.
    let parts = match defined.get("oneOf").and_then(Value::as_array) {
        Some(parts) => parts.iter().collect(),
        None => vec![defined],
    };
    let words = parts.into_iter().flat_map(|part| {
        let together = part.get("enum").and_then(Value::as_array).into_iter().flatten();
        part.get("const").into_iter().chain(together)
    });
    let words: Vec<String> = words.filter_map(Value::as_str).map(ToOwned::to_owned).collect();
    (!words.is_empty()).then_some(words)
}
