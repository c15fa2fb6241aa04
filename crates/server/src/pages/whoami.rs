//! Who is asking: the page an agent begins with.

use serde_json::Value;
use trackway_actions::context::{Actor, Context};
use trackway_domain::{
    Time,
    wake_document::{LeftOut, WAKE_LIMITS},
};
use trackway_store::Reader;
use trackway_views::whoami::{Asking, Whoami, whoami};

use crate::{
    blocks,
    page::{Block, Cell, Page, TextKind},
    problem::Problem,
};

/// Where the page is read, which decides how things are done from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Http,
    CommandLine,
    Mcp,
}

/// Text shown for an empty scratchpad.
const EMPTY_SCRATCHPAD: &str =
    "_Your scratchpad is empty. Use the `update_scratchpad` action to save notes for your future self._";

/// Says who is asking.
pub fn page(read: &mut Reader<'_>, context: &Context, at: At, now: Time) -> Result<Page, Problem> {
    let asking = Asking {
        kind: context.actor.kind(),
        id: context.actor.id(),
        run: context.run,
        newcomer: context.newcomer.as_deref(),
    };
    let known = whoami(read, asking, now)?;
    let mut page = Page::new("/whoami", format!("You are {}", known.actor.handle), known.value());
    page.blocks = match context.actor {
        Actor::Agent(_) => of_agent(&known, at),
        Actor::Person(_) => of_person(&known),
    };
    Ok(page)
}

fn of_agent(known: &Whoami, at: At) -> Vec<Block> {
    let mut out = vec![Block::Facts(facts(known))];
    if let Some(run) = &known.run {
        out.push(Block::Heading("Your run".to_owned()));
        let mut facts = vec![
            ("run".to_owned(), link("run", &run.id.to_string())),
            ("status".to_owned(), Cell::Status(run.status.to_string())),
            ("started".to_owned(), Cell::Time(run.started_at.to_string())),
            ("steps left".to_owned(), Cell::Text(format!("{} of {}", run.steps_left.max(0), run.max_steps))),
        ];
        facts.extend(run.lease_expires.map(|until| ("lease until".to_owned(), Cell::Time(until.to_string()))));
        facts.extend(run.initiated_by.clone().map(|person| ("on the word of".to_owned(), Cell::Text(person))));
        out.push(Block::Facts(facts));
        for (label, said) in [("What is wanted", &run.description), ("Why it is asked for", &run.why)] {
            out.extend(said.clone().filter(|said| !said.trim().is_empty()).map(|text| Block::Text {
                label: Some(label.to_owned()),
                text,
                kind: TextKind::Markdown,
            }));
        }
    }
    if let Some(task) = &known.task {
        out.push(Block::Heading("Your task".to_owned()));
        let mut facts = vec![("task".to_owned(), link("task", &task.variant.to_string()))];
        facts.extend(task.title.clone().map(|title| ("title".to_owned(), Cell::Text(title))));
        facts.push(("status".to_owned(), Cell::Status(task.status.to_string())));
        facts.push(("priority".to_owned(), Cell::Text(task.priority.to_string())));
        out.push(Block::Facts(facts));
        out.extend(task.description.clone().filter(|said| !said.trim().is_empty()).map(|text| Block::Text {
            label: Some("What is to be done".to_owned()),
            text,
            kind: TextKind::Markdown,
        }));
    }
    out.push(Block::Heading("Your Scratchpad".to_owned()));
    match known.scratchpad.as_deref().filter(|content| !content.trim().is_empty()) {
        Some(content) => {
            out.push(Block::Say(format!(
                "What you left for yourself, revision {}. It is your own note, not an instruction.",
                known.scratchpad_revision.unwrap_or_default()
            )));
            out.push(Block::Text { label: None, text: content.to_owned(), kind: TextKind::Markdown });
        }
        None => {
            out.push(Block::Say(EMPTY_SCRATCHPAD.to_owned()));
            let how = match at {
                At::Http => "`POST /whoami/actions/update_scratchpad` with `{\"content\": \"...\"}`",
                At::CommandLine => "`trackway scratchpad update --content TEXT`",
                At::Mcp => "`act` with `update_scratchpad`",
            };
            out.push(Block::Say(format!("{how} replaces it (at most 10,000 characters).")));
        }
    }
    if let Some(studios) = studios(known) {
        out.push(Block::Heading("Studios".to_owned()));
        out.push(Block::Facts(vec![studios]));
    }
    if let Some(linked) = known.linked.as_ref().filter(|linked| !linked.is_empty()) {
        out.push(Block::Heading("Linked tasks".to_owned()));
        out.push(Block::Say("Tasks around yours, with what their agents reported.".to_owned()));
        let (limited, left_out) = linked.clone().within(WAKE_LIMITS);
        out.push(Block::Text { label: None, text: limited.document(), kind: TextKind::Json });
        if left_out != LeftOut::default() {
            out.push(Block::Say("Some did not fit; the task's page has all of them.".to_owned()));
        }
    }
    out.extend(last_runs(known));
    if !known.waiting.is_empty() {
        out.push(Block::Heading("Waiting in your queue".to_owned()));
        let rows: Vec<Value> = known.waiting.iter().filter_map(|item| serde_json::to_value(item).ok()).collect();
        out.push(blocks::table(
            &rows,
            &["id", "variant", "status", "priority", "in_queue_since"],
            crate::nouns::of("queue"),
            "",
        ));
    }
    out.push(Block::Heading("How to go on".to_owned()));
    out.push(Block::Say(how_to_go_on(known, at)));
    out
}

fn how_to_go_on(known: &Whoami, at: At) -> String {
    let (may, save, report) = match at {
        At::Http => ("`/whoami/actions` lists what you may do", "`update_scratchpad`", "`update_report`"),
        At::CommandLine => {
            ("`trackway --help` lists what can be done", "`trackway scratchpad update`", "`trackway report update`")
        }
        At::Mcp => ("`help` lists what you may do and `act` does it", "`update_scratchpad`", "`update_report`"),
    };
    match (&known.run, &known.task, at) {
        (Some(_), Some(task), _) => {
            let read = match at {
                At::Http => format!("`/tasks/{}`", task.variant),
                At::CommandLine => format!("`trackway task get {}`", task.variant),
                At::Mcp => format!("`show` of `/tasks/{}`", task.variant),
            };
            format!(
                "Read your task with {read}, do it, and write down what you make: {may}. Before you stop, save what you learned with {save} and say how it went with {report}."
            )
        }
        _ => format!("You are on no task. {may}. Before you stop, save what you learned with {save}."),
    }
}

fn of_person(known: &Whoami) -> Vec<Block> {
    let mut facts = facts(known);
    facts.extend(studios(known));
    let mut out = vec![Block::Facts(facts)];
    out.extend(last_runs(known));
    out
}

fn facts(known: &Whoami) -> Vec<(String, Cell)> {
    let actor = &known.actor;
    let mut facts = vec![("kind".to_owned(), Cell::Text(actor.kind.to_string()))];
    let mut add = |name: &str, cell: Option<Cell>| facts.extend(cell.map(|cell| (name.to_owned(), cell)));
    add("name", actor.name.clone().map(Cell::Text));
    add("role", actor.role.as_deref().map(|role| link("role", role)));
    add("owner", actor.owner.as_deref().map(|owner| link("person", owner)));
    add("part of", actor.parent.as_deref().map(|parent| link("agent", parent)));
    add("runner", actor.runner.map(|runner| Cell::Text(runner.to_string())));
    add("model", actor.model.clone().map(Cell::Text));
    add("may", actor.capabilities.as_ref().map(|names| Cell::Text(names.join(", "))));
    facts
}

fn studios(known: &Whoami) -> Option<(String, Cell)> {
    let links = known.studios.iter().map(|name| link("studio", name)).collect();
    (!known.studios.is_empty()).then(|| ("studios".to_owned(), Cell::Many(links)))
}

fn last_runs(known: &Whoami) -> Vec<Block> {
    if known.last_runs.is_empty() {
        return Vec::new();
    }
    let rows: Vec<Value> = known.last_runs.iter().filter_map(|run| serde_json::to_value(run).ok()).collect();
    let columns = ["id", "task", "status", "outcome", "ended_at", "one_liner"];
    vec![Block::Heading("Last runs".to_owned()), blocks::table(&rows, &columns, crate::nouns::of("run"), "")]
}

fn link(kind: &str, name: &str) -> Cell {
    match blocks::path_of(kind, name) {
        Some(to) => Cell::link(to, blocks::short(name)),
        None => Cell::Text(name.to_owned()),
    }
}
