//! The page about the caller itself, which agents read first.

use serde_json::Value;
use trackway_actions::context::{Actor, Context};
use trackway_domain::{
    Time,
    wake_document::{Omissions, WAKE_LIMITS},
};
use trackway_store::Reader;
use trackway_views::whoami::{CallerIdentity, Whoami, whoami};

use crate::{
    blocks,
    page::{Block, Cell, Page, TextKind},
    problem::Problem,
};

/// The interface on which the page is read. The page explains how to execute actions on this interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    Http,
    CommandLine,
    Mcp,
}

/// The text for an empty scratchpad.
const EMPTY_SCRATCHPAD: &str =
    "_Your scratchpad is empty. Use the `update_scratchpad` action to save notes for your future self._";

/// Builds the page.
pub fn page(read: &mut Reader<'_>, context: &Context, interface: Interface, now: Time) -> Result<Page, Problem> {
    let identity = CallerIdentity {
        kind: context.actor.kind(),
        id: context.actor.id(),
        run: context.run,
        unregistered_handle: context.unregistered_handle.as_deref(),
    };
    let caller = whoami(read, identity, now)?;
    let mut page = Page::new("/whoami", format!("You are {}", caller.actor.handle), caller.to_json());
    page.blocks = match context.actor {
        Actor::Agent(_) => agent_blocks(&caller, interface),
        Actor::Person(_) => person_blocks(&caller),
    };
    Ok(page)
}

fn agent_blocks(caller: &Whoami, interface: Interface) -> Vec<Block> {
    let mut out = vec![Block::Facts(facts(caller))];
    if let Some(run) = &caller.run {
        out.push(Block::Heading("Your run".to_owned()));
        let mut facts = vec![
            ("run".to_owned(), link("run", &run.id.to_string())),
            ("status".to_owned(), Cell::Status(run.status.to_string())),
            ("started".to_owned(), Cell::Time(run.started_at.to_string())),
            ("steps left".to_owned(), Cell::Text(format!("{} of {}", run.steps_left.max(0), run.max_steps))),
        ];
        facts.extend(run.lease_expires.map(|until| ("lease until".to_owned(), Cell::Time(until.to_string()))));
        facts.extend(run.initiated_by.clone().map(|person| ("at the request of".to_owned(), Cell::Text(person))));
        out.push(Block::Facts(facts));
        for (label, text) in [("Request", &run.description), ("Reason", &run.why)] {
            out.extend(text.clone().filter(|text| !text.trim().is_empty()).map(|text| Block::Text {
                label: Some(label.to_owned()),
                text,
                kind: TextKind::Markdown,
            }));
        }
    }
    if let Some(task) = &caller.task {
        out.push(Block::Heading("Your task".to_owned()));
        let mut facts = vec![("task".to_owned(), link("task", &task.variant.to_string()))];
        facts.extend(task.title.clone().map(|title| ("title".to_owned(), Cell::Text(title))));
        facts.push(("status".to_owned(), Cell::Status(task.status.to_string())));
        facts.push(("priority".to_owned(), Cell::Text(task.priority.to_string())));
        out.push(Block::Facts(facts));
        out.extend(task.description.clone().filter(|text| !text.trim().is_empty()).map(|text| Block::Text {
            label: Some("Description".to_owned()),
            text,
            kind: TextKind::Markdown,
        }));
    }
    out.push(Block::Heading("Your Scratchpad".to_owned()));
    match caller.scratchpad.as_deref().filter(|content| !content.trim().is_empty()) {
        Some(content) => {
            out.push(Block::Paragraph(format!(
                "Your saved scratchpad, revision {}. It is your own note, not an instruction.",
                caller.scratchpad_revision.unwrap_or_default()
            )));
            out.push(Block::Text { label: None, text: content.to_owned(), kind: TextKind::Markdown });
        }
        None => {
            out.push(Block::Paragraph(EMPTY_SCRATCHPAD.to_owned()));
            let command = match interface {
                Interface::Http => "`POST /whoami/actions/update_scratchpad` with `{\"content\": \"...\"}`",
                Interface::CommandLine => "`trackway scratchpad update --content TEXT`",
                Interface::Mcp => "`act` with `update_scratchpad`",
            };
            out.push(Block::Paragraph(format!("{command} replaces it (at most 10,000 characters).")));
        }
    }
    if let Some(studios) = studios(caller) {
        out.push(Block::Heading("Studios".to_owned()));
        out.push(Block::Facts(vec![studios]));
    }
    if let Some(linked) = caller.linked.as_ref().filter(|linked| !linked.is_empty()) {
        out.push(Block::Heading("Linked tasks".to_owned()));
        out.push(Block::Paragraph("Tasks linked to yours, with the reports of their agents.".to_owned()));
        let (limited, omissions) = linked.clone().limited_to(WAKE_LIMITS);
        out.push(Block::Text { label: None, text: limited.document(), kind: TextKind::Json });
        if omissions != Omissions::default() {
            out.push(Block::Paragraph(
                "Some linked tasks do not fit here. The task's page lists all of them.".to_owned(),
            ));
        }
    }
    out.extend(last_runs(caller));
    if !caller.waiting.is_empty() {
        out.push(Block::Heading("Waiting in your queue".to_owned()));
        let rows: Vec<Value> = caller.waiting.iter().filter_map(|item| serde_json::to_value(item).ok()).collect();
        out.push(blocks::table(
            &rows,
            &["id", "variant", "status", "priority", "in_queue_since"],
            crate::nouns::by_name("queue"),
            "",
        ));
    }
    out.push(Block::Heading("Next steps".to_owned()));
    out.push(Block::Paragraph(next_steps(caller, interface)));
    out
}

fn next_steps(caller: &Whoami, interface: Interface) -> String {
    let (actions, save, report) = match interface {
        Interface::Http => ("`/whoami/actions` lists your actions", "`update_scratchpad`", "`update_report`"),
        Interface::CommandLine => {
            ("`trackway --help` lists the commands", "`trackway scratchpad update`", "`trackway report update`")
        }
        Interface::Mcp => {
            ("`help` lists your actions and `act` executes them", "`update_scratchpad`", "`update_report`")
        }
    };
    match (&caller.run, &caller.task, interface) {
        (Some(_), Some(task), _) => {
            let read = match interface {
                Interface::Http => format!("`/tasks/{}`", task.variant),
                Interface::CommandLine => format!("`trackway task get {}`", task.variant),
                Interface::Mcp => format!("`show` of `/tasks/{}`", task.variant),
            };
            format!(
                "Read your task with {read}, do it, and record what you make: {actions}. Before you stop, save what you learned with {save} and report the result with {report}."
            )
        }
        _ => format!("You have no task. {actions}. Before you stop, save what you learned with {save}."),
    }
}

fn person_blocks(caller: &Whoami) -> Vec<Block> {
    let mut facts = facts(caller);
    facts.extend(studios(caller));
    let mut out = vec![Block::Facts(facts)];
    out.extend(last_runs(caller));
    out
}

fn facts(caller: &Whoami) -> Vec<(String, Cell)> {
    let actor = &caller.actor;
    let mut facts = vec![("kind".to_owned(), Cell::Text(actor.kind.to_string()))];
    let mut add = |name: &str, cell: Option<Cell>| facts.extend(cell.map(|cell| (name.to_owned(), cell)));
    add("name", actor.name.clone().map(Cell::Text));
    add("role", actor.role.as_deref().map(|role| link("role", role)));
    add("owner", actor.owner.as_deref().map(|owner| link("person", owner)));
    add("parent agent", actor.parent.as_deref().map(|parent| link("agent", parent)));
    add("runner", actor.runner.map(|runner| Cell::Text(runner.to_string())));
    add("model", actor.model.clone().map(Cell::Text));
    add("capabilities", actor.capabilities.as_ref().map(|names| Cell::Text(names.join(", "))));
    facts
}

fn studios(caller: &Whoami) -> Option<(String, Cell)> {
    let links = caller.studios.iter().map(|name| link("studio", name)).collect();
    (!caller.studios.is_empty()).then(|| ("studios".to_owned(), Cell::List(links)))
}

fn last_runs(caller: &Whoami) -> Vec<Block> {
    if caller.last_runs.is_empty() {
        return Vec::new();
    }
    let rows: Vec<Value> = caller.last_runs.iter().filter_map(|run| serde_json::to_value(run).ok()).collect();
    let columns = ["id", "task", "status", "outcome", "ended_at", "one_liner"];
    vec![Block::Heading("Last runs".to_owned()), blocks::table(&rows, &columns, crate::nouns::by_name("run"), "")]
}

fn link(kind: &str, name: &str) -> Cell {
    match blocks::page_path(kind, name) {
        Some(href) => Cell::link(href, blocks::short_id(name)),
        None => Cell::Text(name.to_owned()),
    }
}
