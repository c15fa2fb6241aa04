//! A conversation: what was said, oldest first, and a box to answer in.

use serde_json::{Value, json};
use trackway_store::Reader;

use super::{ask, blocks_of, rows};
use crate::{
    blocks::{self, cell},
    nouns,
    page::{Block, Page, Said},
    problem::Problem,
};

/// Messages on the page: the last ones.
const SHOWN: i64 = 50;

/// Lays a conversation out.
pub fn page(read: &mut Reader<'_>, reference: &str) -> Result<Page, Problem> {
    let mut data = ask(read, ("conversation", "get"), json!({ "conversation": reference }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let title = data["title"].as_str().filter(|title| !title.is_empty());
    let title = title.map_or_else(|| format!("Conversation {}", blocks::short(&id)), ToOwned::to_owned);
    let messages = ask(read, ("message", "list"), json!({ "conversation": id, "limit": SHOWN }))?;
    let experiments = ask(read, ("experiment", "list"), json!({ "conversation": id, "limit": 20 }))?.data;
    let path = format!("/conversations/{id}");
    let mut out = blocks_of(&data, nouns::of("conversation"), &["id", "title", "messages", "experiments"]);
    out.push(Block::Ask {
        to: "/search",
        field: "words",
        label: "Search what was said here",
        said: String::new(),
        within: Some(("conversation", id.clone())),
    });
    out.push(Block::Heading("Messages".to_owned()));
    if messages.more.is_some() {
        let links = vec![("all of them".to_owned(), format!("/messages?conversation={id}"))];
        out.push(Block::Along { said: format!("The last {SHOWN}."), links });
    }
    let mut said: Vec<Said> = rows(&messages.data).iter().map(said).collect();
    said.reverse();
    out.push(if said.is_empty() {
        Block::Say("Nothing was said yet: the box below says the first thing.".to_owned())
    } else {
        Block::Thread(said)
    });
    out.push(Block::Reply { to: format!("{path}/actions/send_message") });
    if !rows(&experiments).is_empty() {
        let columns = ["id", "title", "status", "outcome", "messages", "testcases", "created_at", "ended_at"];
        out.push(Block::Heading("Experiments".to_owned()));
        out.push(blocks::table(&rows(&experiments), &columns, nouns::of("experiment"), ""));
    }
    data["messages"] = messages.data;
    data["experiments"] = experiments;
    let mut page = Page::new(path, title, data);
    page.blocks = out;
    page.live = vec![id, "message".to_owned(), "experiment".to_owned()];
    Ok(page)
}

fn said(message: &Value) -> Said {
    let text = |field: &str| message[field].as_str().filter(|text| !text.is_empty()).map(ToOwned::to_owned);
    let notes = ["to", "role", "task", "tags", "status"].iter().filter(|key| message[**key] != "ingested");
    Said {
        to: text("id").and_then(|id| blocks::path_of("message", &id)).unwrap_or_default(),
        from: text("from").unwrap_or_else(|| "somebody".to_owned()),
        run: text("from_run_id").map(|_| cell("from_run_id", &message["from_run_id"], None)),
        at: text("created_at").unwrap_or_default(),
        title: text("title"),
        body: text("body").unwrap_or_default(),
        notes: notes.map(|key| cell(key, &message[*key], None)).collect(),
    }
}
