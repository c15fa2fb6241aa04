//! Actions below pages: what there is, what one needs, and doing it.

use axum::http::{StatusCode, header};
use serde_json::{Map, Value, json};
use trackway_actions::{
    context::Context,
    registry::{self, Entry, Mode},
};
use trackway_domain::Error as Rule;

use crate::{
    address::Place,
    input::{self, Empty},
    login, markdown, nouns,
    offers::{self, Caller},
    page::{Block, Cell, Offer, Page, Table},
    pages,
    problem::Problem,
    schemas,
    site::{Question, Reply, Site},
};

/// The page that lists what can be done at a place.
pub fn list(site: &Site, context: &Context, place: &Place) -> Result<Page, Problem> {
    let offers = offers_at(site, context, place)?;
    let path = place.path();
    let data = offers.iter().map(markdown::offered).collect();
    let mut page =
        Page::new(format!("{}/actions", path.trim_end_matches('/')), format!("What can be done at {path}"), data);
    let rows = offers
        .iter()
        .map(|offer| vec![Cell::link(&offer.path, offer.action.name), Cell::Text(markdown::description(offer))])
        .collect();
    page.blocks
        .push(Block::Say("Read an action's page for its parameters; `POST` there with JSON does it.".to_owned()));
    page.blocks.push(Block::Table(Table {
        columns: vec!["action".to_owned(), "what it does".to_owned()],
        rows,
        empty: "Nothing that you may do.".to_owned(),
    }));
    Ok(page)
}

/// The page that describes one action.
pub fn describe(site: &Site, context: &Context, place: &Place, name: &str) -> Result<Page, Problem> {
    let offer = offer(site, context, place, name)?;
    let schema = serde_json::to_value(schemas::of_action(offer.action)).unwrap_or_default();
    let data = json!({ "name": offer.action.name, "path": offer.path, "description": markdown::description(&offer), "input": schema, "given": offer.preset });
    let mut page = Page::new(offer.path.clone(), format!("Action {name}"), data);
    page.blocks.push(Block::Say(format!("{}.", markdown::description(&offer))));
    let needed = schema.get("required").cloned().unwrap_or_default();
    let fields = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let rows = fields
        .iter()
        .filter(|(field, _)| !offer.preset.contains_key(*field))
        .map(|(field, described)| {
            let is_needed = needed.as_array().is_some_and(|needed| needed.iter().any(|name| name == field));
            let said = described.get("description").and_then(Value::as_str).unwrap_or_default();
            vec![
                Cell::Code(field.clone()),
                Cell::Text(if is_needed { "needed".to_owned() } else { String::new() }),
                Cell::Text(said.to_owned()),
            ]
        })
        .collect();
    page.blocks.push(Block::Table(Table {
        columns: vec!["parameter".to_owned(), "needed".to_owned(), "what it is".to_owned()],
        rows,
        empty: "It takes no parameters.".to_owned(),
    }));
    page.blocks.push(Block::Say(format!("Do it with `POST {}` and the parameters as a JSON object.", offer.path)));
    page.actions.push(offer);
    Ok(page)
}

/// Does an action at a place.
pub fn perform(
    site: &Site,
    context: &Context,
    place: &Place,
    name: &str,
    question: &Question,
) -> Result<Reply, Problem> {
    let offer = offer(site, context, place, name)?;
    let mut given = body(question, offer.action, Empty::Clears(&offer.present))?;
    // By the name in the path it is the same thing.
    let is_named = |other: &Value| matches!(place, Place::One(_, reference) if other == reference.as_str());
    for (field, value) in &offer.preset {
        match given.get(field) {
            Some(other) if other != value && !is_named(other) => {
                return Err(Rule::usage(format!("{field} is {value} on this page"))
                    .hint(format!("leave {field} out, or post to /api/v1/actions/{name}"))
                    .into());
            }
            _ => {
                given.insert(field.clone(), value.clone());
            }
        }
    }
    let data = execute(site, context, offer.action, given, &question.query)?;
    let then = then(&question.query).unwrap_or_else(|| after(place, offer.action, &data));
    let mut page = Page::new(offer.path.clone(), format!("Done: {name}"), data);
    let tokens = tokens(&page.data);
    let is_told = !tokens.is_empty();
    page.blocks = if is_told {
        let mut out = vec![Block::Say("A token is shown once: keep it now.".to_owned())];
        out.extend(tokens.into_iter().flat_map(|row| pages::blocks_of(row, None, &[])));
        out.push(Block::Facts(vec![("go on".to_owned(), Cell::link(&then, &then))]));
        out
    } else {
        pages::blocks_of(&page.data, None, &[])
    };
    Ok(Reply::Done { page: Box::new(page), then: (!is_told).then_some(then) })
}

/// What holds a token in what came out: a browser that is led on never sees it.
fn tokens(data: &Value) -> Vec<&Value> {
    let rows = match data {
        Value::Array(rows) => rows.as_slice(),
        data => std::slice::from_ref(data),
    };
    rows.iter().filter(|row| row.get("token").is_some_and(Value::is_string)).collect()
}

/// Where a browser goes once something is done.
fn after(place: &Place, action: &Entry, data: &Value) -> String {
    let noun = nouns::of(action.command.0);
    match (place, noun) {
        (Place::One(noun, _), _) if action.command == (noun.noun, "delete") => format!("/{}", noun.path),
        (Place::One(noun, _), _) if action.name == "forget_session" => format!("/{}", noun.path),
        (Place::List(_), Some(noun)) if noun.one.is_some() => match data.get("id").and_then(Value::as_str) {
            Some(id) => format!("/{}/{id}", noun.path),
            None => place.path(),
        },
        _ => place.path(),
    }
}

/// Executes an action; `?dry_run=true` only shows what would come out.
pub fn execute(
    site: &Site,
    context: &Context,
    action: &'static Entry,
    input: Map<String, Value>,
    query: &str,
) -> Result<Value, Problem> {
    let is_dry = is_dry(query)?;
    let mode = if is_dry { Mode::Rehearse } else { Mode::Execute };
    let mut data = (action.with_json)(&site.core, context, Value::Object(input), mode)?;
    if is_dry && let Some(token) = data.get_mut("token") {
        // It opens nothing.
        *token = Value::Null;
    }
    Ok(data)
}

/// Where a browser wants to go once it is done: a page of ours.
fn then(query: &str) -> Option<String> {
    let (_, to) = input::pairs(query).find(|(name, _)| name == "then")?;
    login::is_ours(&to).then_some(to)
}

/// Whether nothing is really to be done. A query says nothing else here, but where to go then.
fn is_dry(query: &str) -> Result<bool, Problem> {
    let mut is_dry = false;
    for (name, value) in input::pairs(query) {
        is_dry = match (name.as_str(), value.as_str()) {
            ("dry_run", "true") => true,
            ("dry_run", "false") => false,
            ("then", _) => is_dry,
            ("dry_run", _) => return Err(Rule::usage(format!("dry_run is true or false, not {value:?}")).into()),
            _ => {
                let error = Rule::usage(format!("there is no parameter {name:?} in the query of an action"));
                return Err(error.hint("its parameters are the JSON object in the body").into());
            }
        };
    }
    Ok(is_dry)
}

/// The parameters of an action, from JSON or from a form.
pub fn body(question: &Question, action: &Entry, empty: Empty<'_>) -> Result<Map<String, Value>, Problem> {
    let kind = question.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if question.body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    // `curl -d` says that JSON is a form.
    let looks_like_json = question.body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    match kind.as_str() {
        "application/x-www-form-urlencoded" if !looks_like_json => {
            let text = std::str::from_utf8(&question.body).map_err(|_| Problem::malformed("the form is not UTF-8"))?;
            Ok(input::from_pairs(schemas::of_action(action), input::pairs(text), empty)?)
        }
        "" | "application/json" | "text/json" | "application/x-www-form-urlencoded" => {
            match serde_json::from_slice(&question.body) {
                Ok(Value::Object(mut fields)) => {
                    input::settle_numbers(schemas::of_action(action), &mut fields);
                    Ok(fields)
                }
                Ok(_) => Err(Problem::malformed("the body has to be a JSON object of parameters")),
                Err(error) => Err(Problem::malformed(format!("the body is not JSON: {error}"))),
            }
        }
        other => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "media_type",
            format!("{other:?} cannot be read here"),
        )
        .hint("send application/json")),
    }
}

/// An action of a name that is not offered here.
pub fn unknown(name: &str, valid: impl Iterator<Item = &'static Entry>) -> Problem {
    let names: Vec<&str> = valid.map(|action| action.name).collect();
    let hint = if names.is_empty() {
        "nothing can be done here".to_owned()
    } else {
        format!("valid actions: {}", names.join(", "))
    };
    Problem::new(StatusCode::NOT_FOUND, "not_found", format!("there is no action {name:?} here")).hint(hint)
}

/// The offer of a name. One that exists and is not for the caller is refused, not hidden.
fn offer(site: &Site, context: &Context, place: &Place, name: &str) -> Result<Offer, Problem> {
    let (data, caller) = standing(site, context, place)?;
    let mut there = offers::everywhere(place, &data, context.run);
    match there.iter().position(|offer| offer.action.name == name) {
        Some(index) if caller.may(there[index].action) => Ok(there.swap_remove(index)),
        Some(_) if caller.only_reads => {
            Err(Problem::new(StatusCode::FORBIDDEN, "denied", "the token is for reading only"))
        }
        Some(_) if registry::named(name).is_some() => {
            let whom = if caller.is_person() { "people" } else { "this agent" };
            Err(Problem::new(StatusCode::FORBIDDEN, "denied", format!("{name} is not for {whom}")).hint(match name {
                "update_scratchpad" => {
                    "an agent writes its own, in a run; its owner corrects it with set_scratchpad on the agent's page"
                }
                _ => "a person can grant it on the agent's page: set_agent with capabilities",
            }))
        }
        _ => Err(unknown(name, there.iter().filter(|offer| caller.may(offer.action)).map(|offer| offer.action))),
    }
}

fn offers_at(site: &Site, context: &Context, place: &Place) -> Result<Vec<Offer>, Problem> {
    let (data, caller) = standing(site, context, place)?;
    Ok(offers::at(place, &data, &caller))
}

/// The thing a place is about, as it stands, and who asks.
fn standing(site: &Site, context: &Context, place: &Place) -> Result<(Value, Caller), Problem> {
    let mut read = site.core.reader(context)?;
    let caller = Caller::of(&mut read, context)?;
    let mut data = match place {
        Place::One(noun, reference) => pages::one(&mut read, noun, reference)?,
        _ => Value::Null,
    };
    if matches!(place, Place::One(noun, _) if noun.noun == "agent") {
        data["scratchpad"] = match pages::ask(&mut read, ("scratchpad", "get"), json!({ "agent": data["id"] })) {
            // Another agent may not read it; no form begins with it.
            Err(problem) if problem.status == StatusCode::FORBIDDEN => Value::Null,
            pad => pad?.data,
        };
    }
    Ok((data, caller))
}
