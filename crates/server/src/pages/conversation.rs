//! The page of a conversation: its newest messages, oldest first, and a reply form.

use serde_json::{Value, json};
use trackway_store::Reader;

use super::{blocks_of, query_view, rows};
use crate::{
    blocks::{self, cell},
    nouns,
    page::{Block, Page, ThreadMessage},
    problem::Problem,
};

/// Number of messages on the page.
const MESSAGES_MAX: i64 = 50;

pub fn page(read: &mut Reader<'_>, reference: &str) -> Result<Page, Problem> {
    let mut data = query_view(read, ("conversation", "get"), json!({ "conversation": reference }))?.data;
    let id = data["id"].as_str().unwrap_or(reference).to_owned();
    let title = data["title"].as_str().filter(|title| !title.is_empty());
    let title = title.map_or_else(|| format!("Conversation {}", blocks::short_id(&id)), ToOwned::to_owned);
    let messages = query_view(read, ("message", "list"), json!({ "conversation": id, "limit": MESSAGES_MAX }))?;
    let experiments = query_view(read, ("experiment", "list"), json!({ "conversation": id, "limit": 20 }))?.data;
    let path = format!("/conversations/{id}");
    let mut out = blocks_of(&data, nouns::by_name("conversation"), &["id", "title", "messages", "experiments"]);
    out.push(Block::SearchForm {
        path: "/search",
        field: "words",
        label: "Search this conversation",
        value: String::new(),
        scope: Some(("conversation", id.clone())),
    });
    out.push(Block::Heading("Messages".to_owned()));
    if messages.next_page.is_some() {
        let links = vec![("all messages".to_owned(), format!("/messages?conversation={id}"))];
        out.push(Block::Pagination { text: format!("The newest {MESSAGES_MAX} messages."), links });
    }
    let mut thread: Vec<ThreadMessage> = rows(&messages.data).iter().map(thread_message).collect();
    thread.reverse();
    out.push(if thread.is_empty() {
        Block::Paragraph("No messages yet. Write the first one below.".to_owned())
    } else {
        Block::Thread(thread)
    });
    out.push(Block::ReplyForm { path: format!("{path}/actions/send_message") });
    if !rows(&experiments).is_empty() {
        let columns = ["id", "title", "status", "outcome", "messages", "testcases", "created_at", "ended_at"];
        out.push(Block::Heading("Experiments".to_owned()));
        out.push(blocks::table(&rows(&experiments), &columns, nouns::by_name("experiment"), ""));
    }
    data["messages"] = messages.data;
    data["experiments"] = experiments;
    let mut page = Page::new(path, title, data);
    page.blocks = out;
    page.live = vec![id, "message".to_owned(), "experiment".to_owned()];
    Ok(page)
}

fn thread_message(message: &Value) -> ThreadMessage {
    let text = |field: &str| message[field].as_str().filter(|text| !text.is_empty()).map(ToOwned::to_owned);
    let notes = ["to", "role", "task", "tags", "status"].iter().filter(|key| message[**key] != "ingested");
    ThreadMessage {
        href: text("id").and_then(|id| blocks::page_path("message", &id)).unwrap_or_default(),
        from: text("from").unwrap_or_else(|| "unknown sender".to_owned()),
        run: text("from_run_id").map(|_| cell("from_run_id", &message["from_run_id"], None)),
        at: text("created_at").unwrap_or_default(),
        title: text("title"),
        body: text("body").unwrap_or_default(),
        notes: notes.map(|key| cell(key, &message[*key], None)).collect(),
    }
}
