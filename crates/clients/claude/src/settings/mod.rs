//! Adds Trackway's hooks to the text of a Claude Code settings file, and removes them.
//!
//! All other text stays the same, byte for byte. Removing the hooks restores the text from before they were added.

pub mod hooks;
pub mod json_spans;
pub mod servers;
pub mod splice;

use serde_json::{Map, Value};
use trackway_domain::enums::Memory;

pub use trackway_capture::connection::{HookSettings, SettingsError};

pub use self::hooks::{Event, HookEntries};
use self::{
    hooks::{is_trackway_command, memory_option},
    json_spans::{Node, error_at, parse},
    splice::{Edit, Item, Layout, RemovalResult, apply, remove_children, remove_document},
};

pub type Result<T> = std::result::Result<T, SettingsError>;

/// Returns the text with one hook entry per event. An existing entry of Trackway is updated, whatever the path of its
/// binary.
pub fn connect(text: &str, wanted: &HookSettings) -> Result<String> {
    check_structure(text, parse(text)?.as_ref())?;
    let update_entries = update_entries(text, Some(wanted))?;
    add_missing(&update_entries, wanted)
}

/// Returns the text without Trackway's hooks.
pub fn disconnect(text: &str) -> Result<String> {
    update_entries(text, None)
}

/// The memory setting of the first hook of Trackway in the text; none if there is no hook.
pub fn connected_memory(text: &str) -> Result<Option<Memory>> {
    let root = parse(text)?;
    let hooks = root.as_ref().and_then(|root| root.get("hooks"));
    let groups =
        hooks.and_then(Node::members).into_iter().flatten().filter_map(|event| event.value.elements()).flatten();
    let commands = groups.filter_map(|group| group.get("hooks")).filter_map(Node::elements).flatten();
    let mut trackway_commands = commands
        .filter_map(|hook| hook.get("command").and_then(Node::text))
        .filter(|command| is_trackway_command(command));
    Ok(trackway_commands.next().map(memory_option))
}

/// Checks the parts of the text that will be edited. The client rejects the same errors.
fn check_structure(text: &str, root: Option<&Node>) -> Result<()> {
    let Some(root) = root else { return Ok(()) };
    let error = |node: &Node, what: String| Err(error_at(text, node.span.start, &what));
    if root.members().is_none() {
        return error(root, format!("settings must be an object, but this is {}", root.kind_name()));
    }
    let Some(hooks) = root.get("hooks") else { return Ok(()) };
    let Some(events) = hooks.members() else {
        return error(hooks, format!("\"hooks\" must be an object, but is {}", hooks.kind_name()));
    };
    match events.iter().find(|event| event.value.elements().is_none()) {
        Some(event) => error(
            &event.value,
            format!("the hooks of {:?} must be an array, but are {}", event.key, event.value.kind_name()),
        ),
        None => Ok(()),
    }
}

/// Updates Trackway's entries to the wanted ones and removes the others. Without wanted hooks, removes all of
/// Trackway's entries.
fn update_entries(text: &str, wanted: Option<&HookSettings>) -> Result<String> {
    let Some(root) = parse(text)? else { return Ok(text.to_owned()) };
    let updater = EntryUpdater { text, layout: Layout::of(text, Some(&root)), wanted };
    let mut edits = Vec::new();
    if updater.root(&root, &mut edits) == RemovalResult::RemoveBrackets {
        edits = vec![remove_document(text, &root)];
    }
    Ok(apply(text, edits))
}

/// Walks down to Trackway's entries. Each method returns whether the brackets of its node stay.
struct EntryUpdater<'a> {
    text: &'a str,
    layout: Layout,
    wanted: Option<&'a HookSettings>,
}

impl EntryUpdater<'_> {
    fn root(&self, root: &Node, edits: &mut Vec<Edit>) -> RemovalResult {
        let members = root.members().unwrap_or_default();
        let is_removed: Vec<bool> = members
            .iter()
            .map(|member| {
                let is_effective = root.get("hooks").is_some_and(|hooks| hooks.span == member.value.span);
                member.key == "hooks" && self.hooks(&member.value, is_effective, edits) == RemovalResult::RemoveBrackets
            })
            .collect();
        remove_children(self.text, root, &is_removed, edits)
    }

    fn hooks(&self, hooks: &Node, is_effective: bool, edits: &mut Vec<Edit>) -> RemovalResult {
        let events = hooks.members().unwrap_or_default();
        let is_removed: Vec<bool> = events
            .iter()
            .map(|event| {
                let is_effective =
                    is_effective && hooks.get(&event.key).is_some_and(|last| last.span == event.value.span);
                let wanted = self.wanted.filter(|_| is_effective).and_then(|wanted| {
                    wanted.events().find(|known| known.name == event.key).map(|known| wanted.group(known))
                });
                self.groups(&event.value, wanted, edits) == RemovalResult::RemoveBrackets
            })
            .collect();
        remove_children(self.text, hooks, &is_removed, edits)
    }

    /// Replaces the first group that contains only Trackway's hooks with the wanted one, and removes the hooks from all
    /// other groups.
    fn groups(&self, groups: &Node, mut wanted: Option<Value>, edits: &mut Vec<Edit>) -> RemovalResult {
        let is_removed: Vec<bool> = groups
            .elements()
            .unwrap_or_default()
            .iter()
            .map(|group| match wanted.take_if(|_| has_only_trackway_hooks(group)) {
                Some(wanted) => {
                    let is_current =
                        serde_json::from_str(&self.text[group.span.clone()]).is_ok_and(|now: Value| now == wanted);
                    if !is_current {
                        edits.push(self.layout.replace(self.text, group, &wanted));
                    }
                    false
                }
                None => self.group(group, edits) == RemovalResult::RemoveBrackets,
            })
            .collect();
        remove_children(self.text, groups, &is_removed, edits)
    }

    /// Removes Trackway's commands from a group that may also contain other commands.
    fn group(&self, group: &Node, edits: &mut Vec<Edit>) -> RemovalResult {
        let Some(commands) = group.get("hooks") else { return RemovalResult::KeepBrackets };
        if has_only_trackway_hooks(group) {
            return RemovalResult::RemoveBrackets;
        }
        let is_removed: Vec<bool> = commands.elements().unwrap_or_default().iter().map(is_trackway_hook).collect();
        remove_children(self.text, commands, &is_removed, edits)
    }
}

fn is_trackway_hook(hook: &Node) -> bool {
    hook.get("command").and_then(Node::text).is_some_and(is_trackway_command)
}

fn has_only_trackway_hooks(group: &Node) -> bool {
    let commands = group.get("hooks").and_then(Node::elements).unwrap_or_default();
    !commands.is_empty() && commands.iter().all(is_trackway_hook)
}

/// Adds the missing entries to a text whose existing entries are up to date.
fn add_missing(text: &str, wanted: &HookSettings) -> Result<String> {
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

fn missing_events(text: &str, layout: &Layout, hooks: &Node, wanted: &HookSettings, all: &Value) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut new = Vec::new();
    for event in wanted.events() {
        match hooks.get(event.name) {
            None => new.push(Item::member(event.name, &all[event.name])),
            Some(groups) if groups.elements().unwrap_or_default().iter().any(has_only_trackway_hooks) => {}
            Some(groups) => edits.push(layout.append(text, groups, &[Item::element(&wanted.group(event))])),
        }
    }
    if !new.is_empty() {
        edits.push(layout.append(text, hooks, &new));
    }
    edits
}
