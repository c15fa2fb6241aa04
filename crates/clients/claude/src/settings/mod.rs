//! Claude Code's settings: putting our hooks into the text of a settings file, and taking them out again.
//!
//! Text in, text out. Everything else in the text stays as it was, byte for byte, and taking out gives back what was
//! there before putting in.

pub mod hooks;
pub mod json_spans;
pub mod servers;
pub mod splice;

use serde_json::{Map, Value};
use trackway_domain::words::Memory;

pub use self::hooks::{Event, Version, Wanted, is_our_name};
use self::{
    hooks::{is_ours, memory_of},
    json_spans::{Node, parse, refused_at},
    splice::{Edit, Item, Layout, Left, apply, take_out, take_out_document},
};

/// Why a text is left alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct Refused {
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub what: String,
}

pub type Result<T> = std::result::Result<T, Refused>;

/// The text with our hooks in it: one entry per event. An entry of ours that is there already is made what it should
/// be, wherever its binary was.
pub fn connect(text: &str, wanted: &Wanted) -> Result<String> {
    check(text, parse(text)?.as_ref())?;
    let tidied = tidied(text, Some(wanted))?;
    add_missing(&tidied, wanted)
}

/// The text without our hooks.
pub fn disconnect(text: &str) -> Result<String> {
    tidied(text, None)
}

/// Whether anything of ours is in the text, and what the first of it says about memory.
pub fn connected_memory(text: &str) -> Result<Option<Memory>> {
    let root = parse(text)?;
    let hooks = root.as_ref().and_then(|root| root.get("hooks"));
    let groups =
        hooks.and_then(Node::members).into_iter().flatten().filter_map(|event| event.value.elements()).flatten();
    let commands = groups.filter_map(|group| group.get("hooks")).filter_map(Node::elements).flatten();
    let mut ours =
        commands.filter_map(|hook| hook.get("command").and_then(Node::text)).filter(|command| is_ours(command));
    Ok(ours.next().map(memory_of))
}

/// Refuses what the client would refuse, too, at the places that we write to.
fn check(text: &str, root: Option<&Node>) -> Result<()> {
    let Some(root) = root else { return Ok(()) };
    let refuse = |node: &Node, what: String| Err(refused_at(text, node.span.start, &what));
    if root.members().is_none() {
        return refuse(root, format!("settings are an object, and this is {}", root.described()));
    }
    let Some(hooks) = root.get("hooks") else { return Ok(()) };
    let Some(events) = hooks.members() else {
        return refuse(hooks, format!("\"hooks\" should be an object, and is {}", hooks.described()));
    };
    match events.iter().find(|event| event.value.elements().is_none()) {
        Some(event) => refuse(
            &event.value,
            format!("the hooks of {:?} should be an array, and are {}", event.key, event.value.described()),
        ),
        None => Ok(()),
    }
}

/// The text in which every entry of ours is one that is wanted; without wishes, none is.
fn tidied(text: &str, wanted: Option<&Wanted>) -> Result<String> {
    let Some(root) = parse(text)? else { return Ok(text.to_owned()) };
    let tidier = Tidier { text, layout: Layout::of(text, Some(&root)), wanted };
    let mut edits = Vec::new();
    if tidier.root(&root, &mut edits) == Left::Nothing {
        edits = vec![take_out_document(text, &root)];
    }
    Ok(apply(text, edits))
}

/// Walks down to our entries. Each step says what is left of what it was given.
struct Tidier<'a> {
    text: &'a str,
    layout: Layout,
    wanted: Option<&'a Wanted>,
}

impl Tidier<'_> {
    fn root(&self, root: &Node, edits: &mut Vec<Edit>) -> Left {
        let members = root.members().unwrap_or_default();
        let gone: Vec<bool> = members
            .iter()
            .map(|member| {
                let counts = root.get("hooks").is_some_and(|hooks| hooks.span == member.value.span);
                member.key == "hooks" && self.hooks(&member.value, counts, edits) == Left::Nothing
            })
            .collect();
        take_out(self.text, root, &gone, edits)
    }

    fn hooks(&self, hooks: &Node, counts: bool, edits: &mut Vec<Edit>) -> Left {
        let events = hooks.members().unwrap_or_default();
        let gone: Vec<bool> = events
            .iter()
            .map(|event| {
                let counts = counts && hooks.get(&event.key).is_some_and(|last| last.span == event.value.span);
                let wanted = self.wanted.filter(|_| counts).and_then(|wanted| {
                    wanted.events().find(|known| known.name == event.key).map(|known| wanted.group(known))
                });
                self.groups(&event.value, wanted, edits) == Left::Nothing
            })
            .collect();
        take_out(self.text, hooks, &gone, edits)
    }

    /// The first group that is all ours becomes the wanted one; the rest of ours goes.
    fn groups(&self, groups: &Node, mut wanted: Option<Value>, edits: &mut Vec<Edit>) -> Left {
        let gone: Vec<bool> = groups
            .elements()
            .unwrap_or_default()
            .iter()
            .map(|group| match wanted.take_if(|_| is_all_ours(group)) {
                Some(wanted) => {
                    let is_so =
                        serde_json::from_str(&self.text[group.span.clone()]).is_ok_and(|now: Value| now == wanted);
                    if !is_so {
                        edits.push(self.layout.replace(self.text, group, &wanted));
                    }
                    false
                }
                None => self.group(group, edits) == Left::Nothing,
            })
            .collect();
        take_out(self.text, groups, &gone, edits)
    }

    /// A group may hold commands of others beside ours.
    fn group(&self, group: &Node, edits: &mut Vec<Edit>) -> Left {
        let Some(commands) = group.get("hooks") else { return Left::Something };
        if is_all_ours(group) {
            return Left::Nothing;
        }
        let gone: Vec<bool> = commands.elements().unwrap_or_default().iter().map(is_our_command).collect();
        take_out(self.text, commands, &gone, edits)
    }
}

fn is_our_command(hook: &Node) -> bool {
    hook.get("command").and_then(Node::text).is_some_and(is_ours)
}

fn is_all_ours(group: &Node) -> bool {
    let commands = group.get("hooks").and_then(Node::elements).unwrap_or_default();
    !commands.is_empty() && commands.iter().all(is_our_command)
}

/// Adds the entries that are not there, in a text that holds none but wanted ones.
fn add_missing(text: &str, wanted: &Wanted) -> Result<String> {
    let root = parse(text)?;
    let layout = Layout::of(text, root.as_ref());
    let all = wanted.hooks();
    let edits = match (&root, root.as_ref().and_then(|root| root.get("hooks"))) {
        (None, _) => vec![layout.document(text, &Map::from_iter([("hooks".to_owned(), all)]).into())],
        (Some(root), None) => vec![layout.append(text, root, &[Item::member("hooks", &all)])],
        (Some(_), Some(hooks)) => missing_events(text, &layout, hooks, wanted, &all),
    };
    Ok(apply(text, edits))
}

fn missing_events(text: &str, layout: &Layout, hooks: &Node, wanted: &Wanted, all: &Value) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut new = Vec::new();
    for event in wanted.events() {
        match hooks.get(event.name) {
            None => new.push(Item::member(event.name, &all[event.name])),
            Some(groups) if groups.elements().unwrap_or_default().iter().any(is_all_ours) => {}
            Some(groups) => edits.push(layout.append(text, groups, &[Item::element(&wanted.group(event))])),
        }
    }
    if !new.is_empty() {
        edits.push(layout.append(text, hooks, &new));
    }
    edits
}
