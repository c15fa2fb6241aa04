//! The provenance page: the chain from a thing to the person who is responsible for it.

use serde_json::Value;
use trackway_domain::Time;
use trackway_store::Reader;
use trackway_views::{
    View,
    why::{ChainLink, Why},
};

use crate::{
    blocks, input,
    page::{Block, Hop, Page, TextKind},
    problem::Problem,
};

/// Builds the page. Without a thing, it is a form that asks for one.
pub fn page(read: &mut Reader<'_>, query: &str, now: Time) -> Result<Page, Problem> {
    let of = input::pairs(query).find(|(name, value)| name == "of" && !value.is_empty()).map(|(_, of)| of);
    let form = Block::SearchForm {
        path: "/why",
        field: "of",
        label: "A file, a line, a commit, a note, a run, a task",
        value: of.clone().unwrap_or_default(),
        scope: None,
    };
    let is_valid = input::reject_unknown(query, &["of"]).map_err(Problem::from);
    let Some(of) = of else {
        is_valid?;
        let mut page = Page::new("/why", "Why is this here?", Value::Null);
        page.blocks.push(form);
        page.blocks.push(Block::Paragraph(
            "For example a file of your project, a line of it as `PATH:12`, a commit, or the id of anything."
                .to_owned(),
        ));
        return Ok(page);
    };
    let chain = is_valid.and_then(|()| Ok(Why { thing: of.clone() }.answer(read, now)?));
    let chain = chain.map_err(|problem| problem.with_form(form))?;
    let mut hops = Vec::with_capacity(chain.links.len());
    for link in &chain.links {
        hops.push(match link {
            ChainLink::Missing(kind) => {
                Hop { kind: (*kind).to_owned(), label: String::new(), href: None, is_missing: true }
            }
            ChainLink::Recorded(hop) => {
                let kind = match hop.kind {
                    "resource" => read.entry_by_id(hop.id)?.map_or_else(String::new, |entry| entry.kind.to_string()),
                    kind => kind.to_owned(),
                };
                let id = hop.id.to_string();
                let label = match hop.kind {
                    // The label of a run is only its status, so the id is added.
                    "run" => format!("{} {}", blocks::short_id(&id), hop.label),
                    _ => hop.label.clone(),
                };
                Hop {
                    kind: hop.kind.to_owned(),
                    label,
                    href: Some(blocks::page_or_why_path(&kind, &id)),
                    is_missing: false,
                }
            }
        });
    }
    let title = hops.first().filter(|hop| !hop.label.is_empty()).map_or_else(|| of.clone(), |hop| hop.label.clone());
    let data = serde_json::to_value(&chain).unwrap_or_default();
    let mut page = Page::new("/why", format!("Why {title}"), data);
    page.blocks.push(Block::Chain(hops));
    if chain.deleted {
        page.blocks.push(Block::Paragraph("The thing has been deleted.".to_owned()));
    }
    if chain.changed_since == Some(true) {
        page.blocks.push(Block::Paragraph("The file has changed since its last recorded change.".to_owned()));
    }
    if let Some(line) = &chain.line {
        page.blocks.push(Block::Text {
            label: Some(format!("Line {}: {}", line.number, line.fit)),
            text: line.text.clone(),
            kind: TextKind::Plain,
        });
    }
    let touched = page.data["touched_by"].as_array().cloned().unwrap_or_default();
    if !touched.is_empty() {
        page.blocks.push(Block::Heading("All runs that touched it".to_owned()));
        let columns = ["run_id", "action_type", "times", "first_at", "last_at"];
        page.blocks.push(blocks::table(&touched, &columns, None, ""));
    }
    Ok(page)
}
