//! Why a thing is there: the chain from it to the person who answers for it, drawn.

use serde_json::Value;
use trackway_domain::Time;
use trackway_store::Reader;
use trackway_views::{
    View,
    why::{Place, Why},
};

use crate::{
    blocks, input,
    page::{Block, Hop, Page, TextKind},
    problem::Problem,
};

/// Lays the chain out; without a thing, says how to ask.
pub fn page(read: &mut Reader<'_>, query: &str, now: Time) -> Result<Page, Problem> {
    let of = input::pairs(query).find(|(name, value)| name == "of" && !value.is_empty()).map(|(_, of)| of);
    let ask = Block::Ask {
        to: "/why",
        field: "of",
        label: "A file, a line, a commit, a note, a run, a task",
        said: of.clone().unwrap_or_default(),
        within: None,
    };
    let known = input::none_but(query, &["of"]).map_err(Problem::from);
    let Some(of) = of else {
        known?;
        let mut page = Page::new("/why", "Why is this here?", Value::Null);
        page.blocks.push(ask);
        page.blocks.push(Block::Say(
            "For example a file of your project, a line of it as `PATH:12`, a commit, or the id of anything."
                .to_owned(),
        ));
        return Ok(page);
    };
    let chain = known.and_then(|()| Ok(Why { thing: of.clone() }.answer(read, now)?));
    let chain = chain.map_err(|problem| problem.asking(ask))?;
    let mut hops = Vec::with_capacity(chain.places.len());
    for place in &chain.places {
        hops.push(match place {
            Place::Missing(kind) => Hop { kind: (*kind).to_owned(), label: String::new(), to: None, is_missing: true },
            Place::Recorded(hop) => {
                let kind = match hop.kind {
                    "resource" => read.entry(hop.id)?.map_or_else(String::new, |entry| entry.kind.to_string()),
                    kind => kind.to_owned(),
                };
                let id = hop.id.to_string();
                let label = match hop.kind {
                    // How it went does not say which it was.
                    "run" => format!("{} {}", blocks::short(&id), hop.label),
                    _ => hop.label.clone(),
                };
                Hop { kind: hop.kind.to_owned(), label, to: Some(blocks::place_of(&kind, &id)), is_missing: false }
            }
        });
    }
    let title = hops.first().filter(|hop| !hop.label.is_empty()).map_or_else(|| of.clone(), |hop| hop.label.clone());
    let data = serde_json::to_value(&chain).unwrap_or_default();
    let mut page = Page::new("/why", format!("Why {title}"), data);
    page.blocks.push(Block::Chain(hops));
    if chain.deleted {
        page.blocks.push(Block::Say("It has been deleted since.".to_owned()));
    }
    if chain.changed_since == Some(true) {
        page.blocks.push(Block::Say("The file has changed since its last recorded change.".to_owned()));
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
        page.blocks.push(Block::Heading("Every run that touched it".to_owned()));
        let columns = ["run_id", "action_type", "times", "first_at", "last_at"];
        page.blocks.push(blocks::table(&touched, &columns, None, ""));
    }
    Ok(page)
}
