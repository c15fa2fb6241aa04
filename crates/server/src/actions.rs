//! Lists, describes and executes the actions of pages.

use axum::http::{StatusCode, header};
use serde_json::{Map, Value, json};
use trackway_actions::{
    context::Context,
    registry::{self, ActionEntry, Mode},
};
use trackway_domain::Error as Rule;

use crate::{
    address::PageRef,
    input::{self, EmptyText},
    login, markdown, nouns,
    offers::{self, Caller},
    page::{Block, Cell, Offer, Page, Table},
    pages,
    problem::Problem,
    schemas,
    site::{Reply, Site, SiteRequest},
};

/// The page that lists the actions of another page.
pub fn list_page(site: &Site, context: &Context, page_ref: &PageRef) -> Result<Page, Problem> {
    let offers = offers_for_caller(site, context, page_ref)?;
    let path = page_ref.path();
    let data = offers.iter().map(markdown::offer_json).collect();
    let mut page = Page::new(format!("{}/actions", path.trim_end_matches('/')), format!("Actions of {path}"), data);
    let rows = offers
        .iter()
        .map(|offer| vec![Cell::link(&offer.path, offer.action.name), Cell::Text(markdown::description(offer))])
        .collect();
    page.blocks.push(Block::Paragraph(
        "Each action's page describes its parameters. To execute the action, `POST` JSON to that page.".to_owned(),
    ));
    page.blocks.push(Block::Table(Table {
        columns: vec!["action".to_owned(), "description".to_owned()],
        rows,
        empty_text: "No actions are available to you.".to_owned(),
    }));
    Ok(page)
}

/// The page that describes one action of another page.
pub fn action_page(site: &Site, context: &Context, page_ref: &PageRef, name: &str) -> Result<Page, Problem> {
    let offer = find_offer(site, context, page_ref, name)?;
    let schema = serde_json::to_value(schemas::of_action(offer.action)).unwrap_or_default();
    let data = json!({ "name": offer.action.name, "path": offer.path, "description": markdown::description(&offer), "input": schema, "given": offer.preset });
    let mut page = Page::new(offer.path.clone(), format!("Action {name}"), data);
    page.blocks.push(Block::Paragraph(format!("{}.", markdown::description(&offer))));
    let required = schema.get("required").cloned().unwrap_or_default();
    let fields = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let rows = fields
        .iter()
        .filter(|(field, _)| !offer.preset.contains_key(*field))
        .map(|(field, field_schema)| {
            let is_required = required.as_array().is_some_and(|names| names.iter().any(|name| name == field));
            let description = field_schema.get("description").and_then(Value::as_str).unwrap_or_default();
            vec![
                Cell::Code(field.clone()),
                Cell::Text(if is_required { "required".to_owned() } else { String::new() }),
                Cell::Text(description.to_owned()),
            ]
        })
        .collect();
    page.blocks.push(Block::Table(Table {
        columns: vec!["parameter".to_owned(), "required".to_owned(), "description".to_owned()],
        rows,
        empty_text: "This action takes no parameters.".to_owned(),
    }));
    page.blocks.push(Block::Paragraph(format!(
        "To execute it, send `POST {}` with the parameters as a JSON object.",
        offer.path
    )));
    page.actions.push(offer);
    Ok(page)
}

/// Executes an action on a page. The page itself fills in some of the fields.
pub fn perform(
    site: &Site,
    context: &Context,
    page_ref: &PageRef,
    name: &str,
    request: &SiteRequest,
) -> Result<Reply, Problem> {
    let offer = find_offer(site, context, page_ref, name)?;
    let mut input = parse_input(request, offer.action, EmptyText::ClearsCurrent(&offer.current))?;
    // The input may identify the thing as the path does, for example by name, although the preset is the id.
    let is_same_thing =
        |other: &Value| matches!(page_ref, PageRef::Detail(_, reference) if other == reference.as_str());
    for (field, value) in &offer.preset {
        match input.get(field) {
            Some(other) if other != value && !is_same_thing(other) => {
                return Err(Rule::usage(format!("{field} must be {value} on this page"))
                    .hint(format!("omit {field}, or post to /api/v1/actions/{name}"))
                    .into());
            }
            _ => {
                input.insert(field.clone(), value.clone());
            }
        }
    }
    let data = execute(site, context, offer.action, input, &request.query)?;
    let redirect_to =
        requested_redirect(&request.query).unwrap_or_else(|| default_redirect(page_ref, offer.action, &data));
    let mut page = Page::new(offer.path.clone(), format!("Done: {name}"), data);
    let tokens = rows_with_token(&page.data);
    let shows_token = !tokens.is_empty();
    page.blocks = if shows_token {
        let mut out = vec![Block::Paragraph("The token is shown only once. Copy it now.".to_owned())];
        out.extend(tokens.into_iter().flat_map(|row| pages::blocks_of(row, None, &[])));
        out.push(Block::Facts(vec![("continue".to_owned(), Cell::link(&redirect_to, &redirect_to))]));
        out
    } else {
        pages::blocks_of(&page.data, None, &[])
    };
    Ok(Reply::Done { page: Box::new(page), redirect_to: (!shows_token).then_some(redirect_to) })
}

/// The result rows that contain a token. A redirected browser would never show it.
fn rows_with_token(data: &Value) -> Vec<&Value> {
    let rows = match data {
        Value::Array(rows) => rows.as_slice(),
        data => std::slice::from_ref(data),
    };
    rows.iter().filter(|row| row.get("token").is_some_and(Value::is_string)).collect()
}

/// The page to which a browser is redirected after an action without `?then=`.
fn default_redirect(page_ref: &PageRef, action: &ActionEntry, data: &Value) -> String {
    let noun = nouns::by_name(action.command.0);
    match (page_ref, noun) {
        (PageRef::Detail(noun, _), _) if action.command == (noun.noun, "delete") => format!("/{}", noun.path),
        (PageRef::Detail(noun, _), _) if action.name == "forget_session" => format!("/{}", noun.path),
        (PageRef::List(_), Some(noun)) if noun.show_verb.is_some() => match data.get("id").and_then(Value::as_str) {
            Some(id) => format!("/{}/{id}", noun.path),
            None => page_ref.path(),
        },
        _ => page_ref.path(),
    }
}

/// Executes an action. With `?dry_run=true`, rolls the action back after computing the result.
pub fn execute(
    site: &Site,
    context: &Context,
    action: &'static ActionEntry,
    input: Map<String, Value>,
    query: &str,
) -> Result<Value, Problem> {
    let is_dry_run = is_dry_run(query)?;
    let mode = if is_dry_run { Mode::DryRun } else { Mode::Execute };
    let mut data = (action.with_json)(&site.core, context, Value::Object(input), mode)?;
    if is_dry_run && let Some(token) = data.get_mut("token") {
        // The dry run rolled the token back, so it would not work.
        *token = Value::Null;
    }
    Ok(data)
}

/// The page to which `?then=` redirects a browser. None if it is not on this server.
fn requested_redirect(query: &str) -> Option<String> {
    let (_, path) = input::pairs(query).find(|(name, _)| name == "then")?;
    login::is_local_path(&path).then_some(path)
}

/// Reads `dry_run` from the query. Rejects all parameters except `dry_run` and `then`.
fn is_dry_run(query: &str) -> Result<bool, Problem> {
    let mut is_dry_run = false;
    for (name, value) in input::pairs(query) {
        is_dry_run = match (name.as_str(), value.as_str()) {
            ("dry_run", "true") => true,
            ("dry_run", "false") => false,
            ("then", _) => is_dry_run,
            ("dry_run", _) => return Err(Rule::usage(format!("dry_run must be true or false, not {value:?}")).into()),
            _ => {
                let error = Rule::usage(format!("unknown query parameter {name:?} of an action"));
                return Err(error.hint("send the parameters of the action as a JSON object in the body").into());
            }
        };
    }
    Ok(is_dry_run)
}

/// Parses the input of an action from a JSON or form body.
pub fn parse_input(
    request: &SiteRequest,
    action: &ActionEntry,
    empty_text: EmptyText<'_>,
) -> Result<Map<String, Value>, Problem> {
    let kind = request.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if request.body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    // `curl -d` sends JSON with the content type of a form.
    let looks_like_json = request.body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    match kind.as_str() {
        "application/x-www-form-urlencoded" if !looks_like_json => {
            let text = std::str::from_utf8(&request.body).map_err(|_| Problem::malformed("the form is not UTF-8"))?;
            Ok(input::parse_pairs(schemas::of_action(action), input::pairs(text), empty_text)?)
        }
        "" | "application/json" | "text/json" | "application/x-www-form-urlencoded" => {
            match serde_json::from_slice(&request.body) {
                Ok(Value::Object(mut fields)) => {
                    input::normalize_integers(schemas::of_action(action), &mut fields);
                    Ok(fields)
                }
                Ok(_) => Err(Problem::malformed("the body must be a JSON object")),
                Err(error) => Err(Problem::malformed(format!("the body is not JSON: {error}"))),
            }
        }
        other => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "media_type",
            format!("unsupported content type {other:?}"),
        )
        .hint("send application/json")),
    }
}

/// The error for an action that the page does not have.
pub fn unknown_action(name: &str, valid: impl Iterator<Item = &'static ActionEntry>) -> Problem {
    let names: Vec<&str> = valid.map(|action| action.name).collect();
    let hint = if names.is_empty() {
        "this page has no actions".to_owned()
    } else {
        format!("valid actions: {}", names.join(", "))
    };
    Problem::new(StatusCode::NOT_FOUND, "not_found", format!("unknown action {name:?}")).hint(hint)
}

/// Finds an action of a page by its name. If the caller may not execute the action, answers with 403, not 404.
fn find_offer(site: &Site, context: &Context, page_ref: &PageRef, name: &str) -> Result<Offer, Problem> {
    let (data, caller) = load_page_subject(site, context, page_ref)?;
    let mut offers = offers::on_page(page_ref, &data, context.run);
    match offers.iter().position(|offer| offer.action.name == name) {
        Some(index) if caller.may(offers[index].action) => Ok(offers.swap_remove(index)),
        Some(_) if caller.is_read_only => {
            Err(Problem::new(StatusCode::FORBIDDEN, "denied", "the token only allows reading"))
        }
        Some(_) if registry::find_action(name).is_some() => {
            let audience = if caller.is_person() { "people" } else { "this agent" };
            Err(Problem::new(StatusCode::FORBIDDEN, "denied", format!("{name} is not available to {audience}")).hint(match name {
                "update_scratchpad" => {
                    "only an agent in a run can update its own scratchpad; a person can use set_scratchpad on the agent's page"
                }
                _ => "a person can grant it with set_agent and its field capabilities, on the agent's page",
            }))
        }
        _ => {
            Err(unknown_action(name, offers.iter().filter(|offer| caller.may(offer.action)).map(|offer| offer.action)))
        }
    }
}

fn offers_for_caller(site: &Site, context: &Context, page_ref: &PageRef) -> Result<Vec<Offer>, Problem> {
    let (data, caller) = load_page_subject(site, context, page_ref)?;
    Ok(offers::for_caller(page_ref, &data, &caller))
}

/// Loads the thing that a page describes, and the caller.
fn load_page_subject(site: &Site, context: &Context, page_ref: &PageRef) -> Result<(Value, Caller), Problem> {
    let mut read = site.core.reader(context)?;
    let caller = Caller::load(&mut read, context)?;
    let mut data = match page_ref {
        PageRef::Detail(noun, reference) => pages::load_thing(&mut read, noun, reference)?,
        _ => Value::Null,
    };
    if matches!(page_ref, PageRef::Detail(noun, _) if noun.noun == "agent") {
        data["scratchpad"] = match pages::query_view(&mut read, ("scratchpad", "get"), json!({ "agent": data["id"] })) {
            // Another agent may not read the scratchpad, so its form is not prefilled.
            Err(problem) if problem.status == StatusCode::FORBIDDEN => Value::Null,
            scratchpad => scratchpad?.data,
        };
    }
    Ok((data, caller))
}
