//! What went wrong is said in the words of the command line, where most of it is read first. At the other doors flags are
//! parameters, and commands are actions and pages.

use serde_json::Value;
use trackway_actions::registry::ACTIONS;
use trackway_views::registry as views;

use crate::{address::encoded, input, nouns, schemas};

/// Where a word of a sentence ends.
const MARKS: [char; 7] = [';', ':', ',', '.', ')', '`', '?'];

/// The same in the words of pages and actions. What stands between quotes is somebody's, and stays.
pub fn at_the_doors(said: &str) -> String {
    let words: Vec<&str> = said.split(' ').collect();
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    let (mut index, mut is_quoted) = (0, false);
    while index < words.len() {
        let word = words[index];
        let (taken, spoken) = match command(&words[index..]) {
            Some((taken, spoken)) if !is_quoted => (taken, spoken),
            _ if !is_quoted => (1, parameter(word)),
            _ => (1, word.to_owned()),
        };
        let quotes: usize = words[index..index + taken].iter().map(|word| word.matches('"').count()).sum();
        is_quoted ^= quotes % 2 == 1;
        out.push(spoken);
        index += taken;
    }
    out.join(" ")
}

/// A flag as a parameter: `--max-items` is `max_items`.
fn parameter(word: &str) -> String {
    let start = word.len() - word.trim_start_matches(['(', '`']).len();
    match word[start..].strip_prefix("--") {
        Some(flag) if flag.starts_with(|letter: char| letter.is_ascii_lowercase()) => {
            format!("{}{}", &word[..start], flag.replace('-', "_"))
        }
        _ => word.to_owned(),
    }
}

/// A command that words begin with: how many of them it takes, and what it is elsewhere.
fn command(words: &[&str]) -> Option<(usize, String)> {
    let [program, noun, verb, ..] = words else { return None };
    let opening = program.strip_suffix("trackway").filter(|before| before.trim_matches(['(', '`']).is_empty())?;
    let (verb, mut closing) = apart(verb);
    let mut taken = 3;
    let mut given: Vec<(&str, &str)> = Vec::new();
    while closing.is_empty()
        && let [flag, value, ..] = words[taken..]
        && let Some(flag) = flag.strip_prefix("--")
    {
        let (value, mark) = apart(value);
        given.push((flag, value));
        closing = mark;
        taken += 2;
    }
    let spoken = if let Some(action) = ACTIONS.iter().find(|action| action.command == (*noun, verb)) {
        let fields = input::fields(schemas::of_action(action));
        let named = |flag: &str| {
            let name = flag.replace('-', "_");
            // What is repeated on the command line is a list here.
            let stem = name.trim_end_matches('y');
            let all: Vec<&String> = fields.into_iter().flatten().map(|(field, _)| field).collect();
            let is_there = all.contains(&&name);
            let list = all.into_iter().find(|field| !is_there && field.starts_with(stem) && field.ends_with('s'));
            list.cloned().unwrap_or(name)
        };
        let given: Vec<String> = given.iter().map(|(flag, value)| format!("{} {value}", named(flag))).collect();
        if given.is_empty() { action.name.to_owned() } else { format!("{} with {}", action.name, given.join(", ")) }
    } else {
        let question = views::VIEWS
            .iter()
            .find(|view| view.command.0 == *noun && (view.command.1 == verb || view.alias == Some(verb)))?;
        let page = nouns::of(noun).filter(|known| known.list.is_some());
        let id = words.get(taken).map(|word| apart(word)).filter(|(id, _)| closing.is_empty() && is_id(id));
        match (page, id) {
            (Some(page), Some((id, mark))) => {
                taken += 1;
                closing = mark;
                format!("/{}/{id}", page.path)
            }
            (Some(page), None) if page.list == Some(verb) || page.one == Some(question.command.1) => {
                format!("/{}", page.path)
            }
            _ => {
                let query: Vec<String> =
                    given.iter().map(|(flag, value)| format!("{flag}={}", encoded(value))).collect();
                let sign = if query.is_empty() { "" } else { "?" };
                format!("/api/v1/{noun}/{verb}{sign}{}", query.join("&"))
            }
        }
    };
    Some((taken, format!("{opening}{spoken}{closing}")))
}

/// A word, and the marks behind it.
fn apart(word: &str) -> (&str, &str) {
    word.split_at(word.trim_end_matches(MARKS).len())
}

/// The end of an id, as people see it.
fn is_id(word: &str) -> bool {
    word.len() >= 6 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Takes out of a description what only the command line has.
pub fn without_flags(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(said) if name == "description" => {
                        for only_there in ["; - reads standard input", ", - reads standard input"] {
                            *said = said.replace(only_there, "");
                        }
                    }
                    value => without_flags(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(without_flags),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_flags_are_actions_pages_and_parameters() {
        for (said, meant) in [
            ("--limit is from 1 to 10000, not 0", "limit is from 1 to 10000, not 0"),
            ("trackway task list", "/tasks"),
            ("give --command C, --variant V, or both", "give command C, variant V, or both"),
            ("read it again: trackway task get", "read it again: /tasks"),
            ("read it again: trackway note show 1a2b3c4d", "read it again: /notes/1a2b3c4d"),
            ("its results: trackway decision results 1a2b3c4d", "its results: /decisions/1a2b3c4d"),
            (
                "trackway queue held shows them; trackway agent set --handle ada --max-items NUMBER",
                "/api/v1/queue/held shows them; set_agent with handle ada, max_items NUMBER",
            ),
            (
                "trackway task latest --variant unit/go shows what replaces it",
                "/api/v1/task/latest?variant=unit/go shows what replaces it",
            ),
            (
                "a person can grant it: trackway agent set --handle ada --capability delete (with the others)",
                "a person can grant it: set_agent with handle ada, capabilities delete (with the others)",
            ),
            ("trackway run cancel", "cancel_run"),
            ("there is no task \"trackway task list --x\" here", "there is no task \"trackway task list --x\" here"),
            ("trackway init makes the first", "trackway init makes the first"),
            ("`trackway open` makes another", "`trackway open` makes another"),
        ] {
            assert_eq!(at_the_doors(said), meant);
        }
    }
}
