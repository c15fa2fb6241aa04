//! Messages and hints as HTTP and MCP show them: a field is a parameter, a command is an action, a page or a path of the API.

use trackway_actions::registry::{ACTIONS, Entry as Action};
use trackway_domain::{
    Sentence,
    sentence::{Command, Part},
};
use trackway_views::registry::{Entry as View, VIEWS};

use crate::{address::encoded, nouns};

pub fn rendered(sentence: &Sentence) -> String {
    let part = |part: &Part| match part {
        Part::Words(words) => words.clone(),
        Part::Field(field) => field.name().to_owned(),
        Part::Command(command) => of_command(command),
    };
    sentence.parts().iter().map(part).collect()
}

/// What only the command line has stays as it is there.
fn of_command(command: &Command) -> String {
    if let Some(action) = ACTIONS.iter().find(|action| is_named(command, action.command, action.alias)) {
        of_action(action, command)
    } else if let Some(view) = VIEWS.iter().find(|view| is_named(command, view.command, view.alias)) {
        of_view(view, command)
    } else {
        command.to_string()
    }
}

fn is_named(command: &Command, (noun, verb): (&str, &str), alias: Option<&str>) -> bool {
    let (given_noun, given_verb) = command.usage.words.split_once(' ').unwrap_or(("", command.usage.words));
    given_noun == noun && (given_verb == verb || alias == Some(given_verb))
}

fn of_action(action: &Action, command: &Command) -> String {
    let Given { subject, flags } = given(action.arguments, command);
    let fields = subject.into_iter().chain(flags).map(|(field, value)| format!("{field} {value}"));
    let fields: Vec<String> = fields.collect();
    if fields.is_empty() { action.name.to_owned() } else { format!("{} with {}", action.name, fields.join(", ")) }
}

fn of_view(view: &View, command: &Command) -> String {
    let (noun, verb) = view.command;
    let Given { subject, flags } = given(view.arguments, command);
    let page = nouns::of(noun).filter(|page| page.list.is_some());
    let (path, fields) = match (page, subject) {
        (Some(page), Some((_, thing))) => (format!("/{}/{}", page.path, encoded(thing)), flags),
        (Some(page), None) if page.list == Some(verb) || page.one == Some(verb) => (format!("/{}", page.path), flags),
        (_, subject) => {
            let path = if noun.is_empty() { format!("/api/v1/{verb}") } else { format!("/api/v1/{noun}/{verb}") };
            (path, subject.into_iter().chain(flags).collect())
        }
    };
    let query: Vec<String> = fields.iter().map(|(field, value)| format!("{field}={}", encoded(value))).collect();
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

/// Adds the arguments of an action or a view to a command of clap.
type Arguments = fn(clap::Command) -> clap::Command;

/// The arguments of a command, each with the field that the command line fills from it.
struct Given<'a> {
    subject: Option<(String, &'a str)>,
    flags: Vec<(String, &'a str)>,
}

fn given(arguments: Arguments, command: &Command) -> Given<'_> {
    let grammar = arguments(clap::Command::new(command.usage.words));
    let positional = grammar.get_positionals().next();
    let of_flag = |flag: &str| {
        let long = flag.replace('_', "-");
        let argument = grammar.get_arguments().find(|argument| argument.get_long() == Some(&long));
        argument.map_or_else(|| flag.to_owned(), |argument| argument.get_id().to_string())
    };
    Given {
        subject: positional
            .zip(command.subject.as_deref())
            .map(|(argument, value)| (argument.get_id().to_string(), value)),
        flags: command.flags.iter().map(|(flag, value)| (of_flag(flag), value.as_str())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use schemars::Schema;
    use trackway_domain::{
        command, field, sentence,
        sentence::{COMMANDS, FIELDS, Usage},
    };

    use super::*;
    use crate::{input, schemas};

    #[test]
    fn commands_and_fields_are_actions_pages_and_parameters() {
        for (said, meant) in [
            (sentence![field!(limit), " is from 1 to 10000, not 0"], "limit is from 1 to 10000, not 0"),
            (sentence![field!(max_items), " is at least 1"], "max_items is at least 1"),
            (command!("task list").into(), "/tasks"),
            (
                sentence!["give ", field!(command), " C, ", field!(variant), " V, or both"],
                "give command C, variant V, or both",
            ),
            (sentence!["read it again: ", command!("task get")], "read it again: /tasks"),
            (sentence!["read it again: ", command!("note show", ["1a2b3c4d"])], "read it again: /notes/1a2b3c4d"),
            (
                sentence!["its results: ", command!("decision results", ["1a2b3c4d"])],
                "its results: /decisions/1a2b3c4d",
            ),
            (
                sentence![
                    command!("queue held"),
                    " shows them; ",
                    command!("agent set", handle = "ada", max_items = "NUMBER"),
                ],
                "/api/v1/queue/held shows them; set_agent with handle ada, max_items NUMBER",
            ),
            (
                sentence![command!("task latest", variant = "unit/go"), " shows what replaces it"],
                "/api/v1/task/latest?variant=unit/go shows what replaces it",
            ),
            (
                sentence![
                    "a person can grant it: ",
                    command!("agent set", handle = "ada", capability = "delete"),
                    " (with the others)",
                ],
                "a person can grant it: set_agent with handle ada, capabilities delete (with the others)",
            ),
            (command!("run cancel").into(), "cancel_run"),
            (command!("queue list", role = "a b").into(), "/queue?role=a%20b"),
            (
                "there is no task \"trackway task list --x\" here".into(),
                "there is no task \"trackway task list --x\" here",
            ),
            (sentence![command!("init"), " makes the first"], "trackway init makes the first"),
            ("`trackway open` makes another".into(), "`trackway open` makes another"),
        ] {
            assert_eq!(rendered(&said), meant);
        }
    }

    /// The schema and the grammar of a command, if it is an action or a view.
    fn described(usage: &'static Usage) -> Option<(&'static Schema, Arguments)> {
        let command = Command { usage, subject: None, flags: Vec::new() };
        let action = ACTIONS.iter().find(|action| is_named(&command, action.command, action.alias));
        let view = || VIEWS.iter().find(|view| is_named(&command, view.command, view.alias));
        action
            .map(|action| (schemas::of_action(action), action.arguments))
            .or_else(|| view().map(|view| (schemas::of_question(view), view.arguments)))
    }

    #[test]
    fn commands_of_sentences_have_the_fields_of_their_actions_and_views() {
        for usage in COMMANDS {
            let Some((schema, arguments)) = described(usage) else { continue };
            let command = Command {
                usage,
                subject: usage.has_subject.then(|| "x".to_owned()),
                flags: usage.flags.iter().map(|flag| (*flag, "x".to_owned())).collect(),
            };
            let given = given(arguments, &command);
            assert_eq!(given.subject.is_some(), usage.has_subject, "{usage:?}");
            for (field, _) in given.subject.into_iter().chain(given.flags) {
                assert!(input::fields(schema).unwrap().contains_key(&field), "{usage:?}: {field}");
            }
        }
    }

    #[test]
    fn fields_of_sentences_are_fields_of_actions_and_views() {
        let actions = ACTIONS.iter().map(schemas::of_action);
        let schemas: Vec<_> = actions.chain(VIEWS.iter().map(schemas::of_question)).collect();
        for field in FIELDS {
            let has = |schema: &&Schema| input::fields(schema).is_some_and(|fields| fields.contains_key(*field));
            assert!(schemas.iter().any(has), "{field}");
        }
    }
}
