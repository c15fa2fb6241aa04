//! Renders messages and hints for HTTP and MCP: a field becomes a parameter, and a command becomes an action, a page or
//! a path of the API.

use trackway_actions::registry::{ACTIONS, ActionEntry as Action};
use trackway_domain::{
    Sentence,
    sentence::{Command, Part},
};
use trackway_views::registry::{VIEWS, ViewEntry as View};

use crate::{address::encode, nouns};

pub fn render(sentence: &Sentence) -> String {
    let part = |part: &Part| match part {
        Part::Words(words) => words.clone(),
        Part::Field(field) => field.name().to_owned(),
        Part::Command(command) => render_command(command),
    };
    sentence.parts().iter().map(part).collect()
}

/// Renders a command as an action or a view. A command that only the command line offers stays unchanged.
fn render_command(command: &Command) -> String {
    if let Some(action) = ACTIONS.iter().find(|action| matches_command(command, action.command, action.alias)) {
        render_action(action, command)
    } else if let Some(view) = VIEWS.iter().find(|view| matches_command(command, view.command, view.alias)) {
        render_view(view, command)
    } else {
        command.to_string()
    }
}

fn matches_command(command: &Command, (noun, verb): (&str, &str), alias: Option<&str>) -> bool {
    let (given_noun, given_verb) = command.usage.words.split_once(' ').unwrap_or(("", command.usage.words));
    given_noun == noun && (given_verb == verb || alias == Some(given_verb))
}

fn render_action(action: &Action, command: &Command) -> String {
    let GivenArguments { subject, flags } = given_arguments(action.arguments, command);
    let fields = subject.into_iter().chain(flags).map(|(field, value)| format!("{field} {value}"));
    let fields: Vec<String> = fields.collect();
    if fields.is_empty() { action.name.to_owned() } else { format!("{} with {}", action.name, fields.join(", ")) }
}

fn render_view(view: &View, command: &Command) -> String {
    let (noun, verb) = view.command;
    let GivenArguments { subject, flags } = given_arguments(view.arguments, command);
    let page = nouns::by_name(noun).filter(|page| page.list_verb.is_some());
    let (path, fields) = match (page, subject) {
        (Some(page), Some((_, thing))) => (format!("/{}/{}", page.path, encode(thing)), flags),
        (Some(page), None) if page.list_verb == Some(verb) || page.show_verb == Some(verb) => {
            (format!("/{}", page.path), flags)
        }
        (_, subject) => {
            let path = if noun.is_empty() { format!("/api/v1/{verb}") } else { format!("/api/v1/{noun}/{verb}") };
            (path, subject.into_iter().chain(flags).collect())
        }
    };
    let query: Vec<String> = fields.iter().map(|(field, value)| format!("{field}={}", encode(value))).collect();
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

/// A function that adds the arguments of an action or a view to a clap command.
type AddArguments = fn(clap::Command) -> clap::Command;

/// The arguments of a command, each with the name of its field.
struct GivenArguments<'a> {
    subject: Option<(String, &'a str)>,
    flags: Vec<(String, &'a str)>,
}

fn given_arguments(add_arguments: AddArguments, command: &Command) -> GivenArguments<'_> {
    let parser = add_arguments(clap::Command::new(command.usage.words));
    let positional = parser.get_positionals().next();
    let field_of_flag = |flag: &str| {
        let long = flag.replace('_', "-");
        let argument = parser.get_arguments().find(|argument| argument.get_long() == Some(&long));
        argument.map_or_else(|| flag.to_owned(), |argument| argument.get_id().to_string())
    };
    GivenArguments {
        subject: positional
            .zip(command.subject.as_deref())
            .map(|(argument, value)| (argument.get_id().to_string(), value)),
        flags: command
            .flags
            .iter()
            .map(|(flag, value)| (*flag, value.as_str()))
            .chain(command.switches.iter().map(|switch| (*switch, "true")))
            .map(|(flag, value)| (field_of_flag(flag), value))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use schemars::Schema;
    use trackway_domain::{
        command, field, sentence,
        sentence::{COMMANDS, CommandUsage, FIELDS},
    };

    use super::*;
    use crate::{input, schemas};

    #[test]
    fn renders_commands_as_actions_and_pages_and_fields_as_parameters() {
        for (sentence, expected) in [
            (sentence![field!(limit), " must be from 1 to 10000, not 0"], "limit must be from 1 to 10000, not 0"),
            (sentence![field!(max_items), " must be at least 1"], "max_items must be at least 1"),
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
            assert_eq!(render(&sentence), expected);
        }
    }

    /// The schema and the arguments of a command, if it is an action or a view.
    fn schema_and_arguments(usage: &'static CommandUsage) -> Option<(&'static Schema, AddArguments)> {
        let command = Command { usage, subject: None, flags: Vec::new(), switches: Vec::new() };
        let action = ACTIONS.iter().find(|action| matches_command(&command, action.command, action.alias));
        let view = || VIEWS.iter().find(|view| matches_command(&command, view.command, view.alias));
        action
            .map(|action| (schemas::of_action(action), action.arguments))
            .or_else(|| view().map(|view| (schemas::of_view(view), view.arguments)))
    }

    #[test]
    fn arguments_of_commands_are_fields_of_their_actions_and_views() {
        for usage in COMMANDS {
            let Some((schema, arguments)) = schema_and_arguments(usage) else { continue };
            let command = Command {
                usage,
                subject: usage.has_subject.then(|| "x".to_owned()),
                flags: usage.flags.iter().map(|flag| (*flag, "x".to_owned())).collect(),
                switches: usage.switches.to_vec(),
            };
            let given = given_arguments(arguments, &command);
            assert_eq!(given.subject.is_some(), usage.has_subject, "{usage:?}");
            for (field, _) in given.subject.into_iter().chain(given.flags) {
                assert!(input::fields(schema).unwrap().contains_key(&field), "{usage:?}: {field}");
            }
        }
    }

    #[test]
    fn every_field_in_a_sentence_is_a_field_of_an_action_or_view() {
        let actions = ACTIONS.iter().map(schemas::of_action);
        let schemas: Vec<_> = actions.chain(VIEWS.iter().map(schemas::of_view)).collect();
        for field in FIELDS {
            let has = |schema: &&Schema| input::fields(schema).is_some_and(|fields| fields.contains_key(*field));
            assert!(schemas.iter().any(has), "{field}");
        }
    }
}
