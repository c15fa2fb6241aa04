//! Reading any page by its path, or a thing by its name.

use trackway_actions::context::Context;
use trackway_domain::Error as Rule;

use super::answer;
use crate::{
    act,
    address::{Address, Place, Wanted},
    blocks,
    format::Format,
    input,
    page::Page,
    pages::{self, At},
    problem::Problem,
    site::Site,
};

/// The part of a page that a path asks for: `skip` says from which character on.
pub fn page(site: &Site, context: &Context, path: &str) -> Result<String, Problem> {
    let (place, query) = path.split_once('?').unwrap_or((path, ""));
    let (skip, others): (Vec<_>, Vec<_>) = input::pairs(query).partition(|(name, _)| name == "skip");
    let skip = match skip.first() {
        Some((_, number)) => number.parse().map_err(|_| Rule::usage("skip is a number of characters"))?,
        None => 0,
    };
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(others).finish();
    let found = found(site, context, place, &query)?;
    let whole = if query.is_empty() { found.path.clone() } else { format!("{}?{query}", found.path) };
    Ok(answer::part(&answer::page(&found), skip, Some(&whole)))
}

/// All of a page.
pub fn whole(site: &Site, context: &Context, path: &str) -> Result<String, Problem> {
    let (place, query) = path.split_once('?').unwrap_or((path, ""));
    Ok(answer::page(&found(site, context, place, query)?))
}

fn found(site: &Site, context: &Context, place: &str, query: &str) -> Result<Page, Problem> {
    let address = match Address::parse(place) {
        Some(address) => address,
        None => named(site, context, place)?,
    };
    at(site, context, &address, query)
}

fn at(site: &Site, context: &Context, address: &Address, query: &str) -> Result<Page, Problem> {
    match (&address.wanted, &address.place) {
        (Wanted::Actions, place) => act::list(site, context, place),
        (Wanted::Action(name), place) => act::describe(site, context, place, name),
        (Wanted::Page, Place::Whoami) => {
            input::none_but(query, &[])?;
            pages::whoami_at(&mut site.core.reader(context)?, context, At::Mcp, site.core.now())
        }
        (Wanted::Page, place) => pages::page(site, context, place, query, Format::Markdown),
    }
}

/// Where the thing of a name is: a variant, the end of an id, `last`.
fn named(site: &Site, context: &Context, name: &str) -> Result<Address, Problem> {
    let found = site.core.reader(context)?.anything(name)?;
    let path = found.and_then(|entry| blocks::path_of(entry.kind.word(), &entry.id.to_string()));
    path.and_then(|path| Address::parse(&path)).ok_or_else(|| {
        Rule::not_found(format!("there is no page and no thing {name:?}"))
            .hint("a page is a path such as /tasks/VARIANT, /runs/ID or /; a thing is a variant, the end of an id, or `last`")
            .into()
    })
}
