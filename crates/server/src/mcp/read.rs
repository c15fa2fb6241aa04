//! Reads any page by its path, or the page of a thing by its name or id.

use trackway_actions::context::Context;
use trackway_domain::Error as Rule;

use super::answer;
use crate::{
    actions,
    address::{Address, PageRef, Target},
    blocks,
    format::Format,
    input,
    page::Page,
    pages::{self, Interface},
    problem::Problem,
    site::Site,
};

/// One part of a page. The parameter `skip` of the path is the number of characters to skip.
pub fn page(site: &Site, context: &Context, path: &str) -> Result<String, Problem> {
    let (page_path, query) = path.split_once('?').unwrap_or((path, ""));
    let (skip, others): (Vec<_>, Vec<_>) = input::pairs(query).partition(|(name, _)| name == "skip");
    let skip = match skip.first() {
        Some((_, number)) => number.parse().map_err(|_| Rule::usage("skip must be a number of characters"))?,
        None => 0,
    };
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(others).finish();
    let page = find_page(site, context, page_path, &query)?;
    let full_path = if query.is_empty() { page.path.clone() } else { format!("{}?{query}", page.path) };
    Ok(answer::part(&answer::page(&page), skip, Some(&full_path)))
}

/// A whole page, however long.
pub fn whole(site: &Site, context: &Context, path: &str) -> Result<String, Problem> {
    let (page_path, query) = path.split_once('?').unwrap_or((path, ""));
    Ok(answer::page(&find_page(site, context, page_path, query)?))
}

fn find_page(site: &Site, context: &Context, page_path: &str, query: &str) -> Result<Page, Problem> {
    let address = match Address::parse(page_path) {
        Some(address) => address,
        None => find_thing(site, context, page_path)?,
    };
    load_page(site, context, &address, query)
}

fn load_page(site: &Site, context: &Context, address: &Address, query: &str) -> Result<Page, Problem> {
    match (&address.target, &address.page) {
        (Target::Actions, page) => actions::list_page(site, context, page),
        (Target::Action(name), page) => actions::action_page(site, context, page, name),
        (Target::Page, PageRef::Whoami) => {
            input::reject_unknown(query, &[])?;
            pages::whoami_page(&mut site.core.reader(context)?, context, Interface::Mcp, site.core.now())
        }
        (Target::Page, page) => pages::page(site, context, page, query, Format::Markdown),
    }
}

/// The address of a thing, by a variant, the end of an id, or `last`.
fn find_thing(site: &Site, context: &Context, name: &str) -> Result<Address, Problem> {
    let entry = site.core.reader(context)?.find_entry(name)?;
    let path = entry.and_then(|entry| blocks::page_path(entry.kind.as_str(), &entry.id.to_string()));
    path.and_then(|path| Address::parse(&path)).ok_or_else(|| {
        Rule::not_found(format!("no page or thing {name:?} found"))
            .hint("give the path of a page, such as /tasks/VARIANT, /runs/ID or /, or a variant, the end of an id, or `last`")
            .into()
    })
}
