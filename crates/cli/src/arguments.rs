//! The clap commands, generated from the registries of actions and views.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};
use trackway_actions::{LongText, registry::ACTIONS};
use trackway_views::registry::VIEWS;

use crate::{environment, long_text};

/// The nouns with their help texts.
const NOUNS: &[(&str, &str)] = &[
    ("agent", "Manage agents"),
    ("board", "Manage boards of stickies, and sync them with folders"),
    ("cleanup", "Remove data that is no longer needed"),
    ("commitment", "Manage commitments, which take effect once enough people and agents commit"),
    ("conversation", "Manage conversations, which group messages"),
    ("decision", "Manage decisions: questions, options and votes"),
    ("event", "Read the event log: every change, in order"),
    ("experiment", "Manage experiments of conversations"),
    ("import", "Import data from other tools"),
    ("label", "Manage labels of tasks"),
    ("link", "Manage links between tasks"),
    ("message", "Send and read messages of people and agents"),
    ("note", "Manage notes and comments, and record who read them"),
    ("package", "Pin the version of a task that a role uses"),
    ("person", "Manage people, who are responsible for agents"),
    ("queue", "Manage the queue of requests to run a task"),
    ("report", "Read and write reports, which agents write about tasks when they stop"),
    ("role", "Manage roles, under which people and agents work"),
    ("route", "Manage routes, which turn messages into queue items"),
    ("run", "Start, end and inspect runs: single executions of work by an agent"),
    ("scratchpad", "Read and write scratchpads: an agent's notes to its future self"),
    ("session", "Inspect sessions of agent clients: prompts, subagents, evidence"),
    ("spawn", "Inspect spawns: the tool calls that started subagents"),
    ("stickie", "Manage stickies: short notes on a board, and their relations"),
    ("studio", "Manage studios: shared spaces that own notes, decisions and commitments"),
    ("subagent", "Inspect subagents: the agents that sessions started"),
    ("task", "Manage tasks, their versions and their history"),
    ("testcase", "Manage test cases: the results of experiments"),
    ("token", "Manage access tokens of people"),
    ("trace", "Export traces for other tools"),
    ("workflow", "Manage workflows: named groups of tasks"),
    ("workspace", "Manage workspaces: directories in which tasks run"),
];

/// Commands in the order of the help, which is the order in which a newcomer needs them.
const ORDER: &[&str] = &[
    // Getting started
    "init",
    "connect",
    "ingest",
    "demo",
    "up",
    "open",
    // Queries
    "status",
    "why",
    "made",
    "search",
    "whoami",
    "usage",
    // Work
    "task",
    "queue",
    "ready",
    "claim",
    "work",
    "run",
    "wake",
    "report",
    "agent",
    "scratchpad",
    // Recorded sessions
    "session",
    "subagent",
    "spawn",
    "trace",
    // Messages and decisions
    "message",
    "conversation",
    "experiment",
    "testcase",
    "route",
    "note",
    "decision",
    "commitment",
    "board",
    "stickie",
    // Tasks and people
    "workflow",
    "role",
    "package",
    "link",
    "label",
    "workspace",
    "studio",
    "person",
    "token",
    "tenant",
    "event",
    // Commands for other programs
    "mcp",
    "hook",
    // Maintenance
    "doctor",
    "backup",
    "restore",
    "export",
    "import",
    "move",
    "cleanup",
    "forget",
    "disconnect",
    "schema",
    "db",
    "completions",
    "man",
];

const ABOUT: &str = "The system of record for agent work";

/// The commands to build with their arguments and help.
#[derive(Debug, Clone)]
enum GrammarScope {
    Full,
    /// The commands with these names. Every other command is built with its name only.
    Words(Vec<String>),
}

impl GrammarScope {
    fn includes(&self, word: &str) -> bool {
        match self {
            Self::Full => true,
            Self::Words(words) => words.iter().any(|known| known == word),
        }
    }
}

pub fn command() -> Command {
    grammar(&GrammarScope::Full)
}

/// Builds only the commands that this command line needs, so that the program starts faster.
pub fn command_for(arguments: &[OsString]) -> Command {
    let words: Vec<String> = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let has_help_flag = words.iter().any(|word| matches!(word.as_str(), "-h" | "--help" | "help" | "completions"));
    let scope = GrammarScope::Words(words);
    let has_noun_without_verb =
        NOUNS.iter().any(|(noun, _)| scope.includes(noun) && !verbs(noun).any(|verb| scope.includes(verb)));
    grammar(if has_help_flag || has_noun_without_verb { &GrammarScope::Full } else { &scope })
}

fn verbs(noun: &str) -> impl Iterator<Item = &'static str> {
    let actions = ACTIONS.iter().filter(move |action| action.command.0 == noun);
    let actions = actions.flat_map(|action| [Some(action.command.1), action.alias].into_iter().flatten());
    let views = VIEWS.iter().filter(move |view| view.command.0 == noun);
    let others: &[&str] = match noun {
        "task" => &["run"],
        "board" => &["export", "import", "diff"],
        "import" => &["jsonl"],
        _ => &[],
    };
    actions
        .chain(views.flat_map(|view| [Some(view.command.1), view.alias].into_iter().flatten()))
        .chain(others.iter().copied())
}

fn grammar(scope: &GrammarScope) -> Command {
    let nouns = NOUNS.iter().map(|(noun, about)| noun_command(noun, about, scope));
    let views = VIEWS.iter().filter(|view| view.command.0.is_empty()).map(|view| view_command(view, scope));
    let actions =
        ACTIONS.iter().filter(|action| action.command.0.is_empty()).map(|action| action_command(action, scope));
    let mut commands: Vec<Command> = other_commands().into_iter().chain(views).chain(actions).chain(nouns).collect();
    commands.sort_by_cached_key(|command| ORDER.iter().position(|name| *name == command.get_name()));
    Command::new("trackway").about(ABOUT).version(env!("TRACKWAY_VERSION")).args(globals()).subcommands(commands)
}

fn noun_command(noun: &'static str, about: &'static str, scope: &GrammarScope) -> Command {
    let command = Command::new(noun)
        .about(about)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true);
    if !scope.includes(noun) {
        return command;
    }
    let actions = ACTIONS.iter().filter(|action| action.command.0 == noun).map(|action| action_command(action, scope));
    let views = VIEWS.iter().filter(|view| view.command.0 == noun).map(|view| view_command(view, scope));
    let command = command.subcommands(actions).subcommands(views);
    match noun {
        "task" => command.subcommand(crate::work::run_command()),
        "board" => crate::board_folder::commands(command),
        "import" => command.subcommand(crate::transfer::import_command()),
        _ => command,
    }
}

/// Flags with free text. The text may begin with `-`, and `-` alone reads standard input. The list excludes flags with
/// several values: a value that begins with `-` could be the next flag.
pub const FREE_TEXTS: &[&str] = &[
    "background",
    "body",
    "code",
    "comment",
    "content",
    "description",
    "detail",
    "error",
    "error-message",
    "goal",
    "guidelines",
    "identity",
    "message",
    "motivation",
    "name",
    "note",
    "notes",
    "one-liner",
    "outcome",
    "question",
    "script",
    "title",
    "tldr",
];

/// Flags with long texts. Their help mentions that `-` reads standard input.
const LONG_TEXTS: &[&str] = &["body", "content", "note", "script"];

fn action_command(action: &trackway_actions::registry::ActionEntry, scope: &GrammarScope) -> Command {
    let named = Command::new(action.command.1).visible_aliases(action.alias);
    if !scope.includes(action.command.1) && !action.alias.is_some_and(|alias| scope.includes(alias)) {
        return named;
    }
    let is_one_of = |argument: &Arg, flags: &[&str]| argument.get_long().is_some_and(|long| flags.contains(&long));
    let allow_hyphen =
        |argument: Arg| if is_one_of(&argument, FREE_TEXTS) { argument.allow_hyphen_values(true) } else { argument };
    let file = match action.long_text {
        Some(LongText::File { field, .. }) => Some(field),
        _ => None,
    };
    let with_input_hint =
        |argument: Arg| match argument.get_help().map(|help| format!("{help}; - reads standard input")) {
            Some(help) if is_one_of(&argument, LONG_TEXTS) || file == Some(argument.get_id().as_str()) => {
                argument.help(help)
            }
            _ => argument,
        };
    let command = (action.arguments)(named)
        .mut_args(allow_hyphen)
        .mut_args(with_input_hint)
        .args(long_text::argument(action))
        .arg(
            Arg::new("dry_run")
                .long("dry-run")
                .action(ArgAction::SetTrue)
                .help("Show what would happen, without changing anything"),
        );
    if action.is_destructive {
        command.arg(Arg::new("yes").long("yes").short('y').action(ArgAction::SetTrue).help("Skip the confirmation"))
    } else {
        command
    }
}

fn view_command(view: &trackway_views::registry::ViewEntry, scope: &GrammarScope) -> Command {
    let command = Command::new(view.command.1).visible_aliases(view.alias);
    if view.command == ("", "ready") && scope.includes("ready") {
        return ready_command((view.arguments)(command));
    }
    if scope.includes(view.command.1) || view.alias.is_some_and(|alias| scope.includes(alias)) {
        (view.arguments)(command)
    } else {
        command
    }
}

/// `ready --claim` executes the action `claim`, so it has the flags of that action.
fn ready_command(ready: Command) -> Command {
    let claim = ACTIONS.iter().find(|action| action.command == ("", "claim"));
    let flags = claim.map(|claim| action_command(claim, &GrammarScope::Full)).unwrap_or_default();
    let flags = flags.get_arguments().map(|flag| flag.clone().requires("claim")).collect::<Vec<_>>();
    ready
        .arg(
            Arg::new("claim")
                .long("claim")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["limit", "after"])
                .help("Claim the first task: start a run for it, and print the token of the run"),
        )
        .args(flags)
}

fn globals() -> [Arg; 3] {
    let global = |argument: Arg, place| argument.global(true).help_heading("Global options").display_order(place);
    [
        global(Arg::new("db").long("db").env(environment::DATABASE).hide_env_values(true), 900)
            .value_name("URL")
            .help("Database URL: sqlite:PATH or postgres://USER@HOST/DATABASE"),
        global(Arg::new("tenant").long("tenant").env(environment::TENANT).hide_env_values(true), 901)
            .value_name("NAME")
            .help("Name of the tenant"),
        global(Arg::new("json").long("json").action(ArgAction::SetTrue), 902).help("Print JSON"),
    ]
}

/// Commands that are neither actions nor views.
fn other_commands() -> Vec<Command> {
    let [backup, restore, export, move_to] = crate::transfer::commands();
    let [connect, disconnect] = crate::connect::commands();
    vec![
        backup,
        restore,
        export,
        move_to,
        Command::new("init").about("Create a database for this project, or for your user with --user").arg(
            Arg::new("user")
                .long("user")
                .action(ArgAction::SetTrue)
                .help("Create the database of your user, for directories outside projects"),
        ),
        crate::ingest::command(),
        crate::hook::command(),
        crate::doctor::command(),
        crate::manual::command(),
        crate::mcp::command(),
        crate::up::command(),
        crate::up::open_command(),
        crate::work::command(),
        Command::new("whoami").about("Show your identity, your run, your task, your scratchpad and next steps"),
        connect,
        disconnect,
        crate::demo::command(),
        Command::new("schema")
            .about("Show the tables, relations and graph edges of this database")
            .arg(format_argument()),
        Command::new("db")
            .about("Inspect the database")
            .subcommand_required(true)
            .arg_required_else_help(true)
            .disable_help_subcommand(true)
            .subcommand(
                Command::new("show")
                    .about("Show the tables, relations and graph edges of this database")
                    .arg(format_argument()),
            ),
        Command::new("tenant")
            .about("Manage tenants: isolated organisations")
            .subcommand_required(true)
            .arg_required_else_help(true)
            .disable_help_subcommand(true)
            .subcommands([
                Command::new("list").about("List tenants"),
                Command::new("create")
                    .about("Create a tenant, with you as its first person")
                    .arg(Arg::new("name").long("name").value_name("NAME").required(true).help("Name of the tenant")),
            ]),
        Command::new("completions").about("Print a completion script for a shell").arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(clap::value_parser!(clap_complete::Shell))
                .help("The shell"),
        ),
    ]
}

fn format_argument() -> Arg {
    Arg::new("format")
        .long("format")
        .value_name("FORMAT")
        .value_parser(["table", "markdown", "mermaid", "json"])
        .default_value("table")
        .help("Output format")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use trackway_domain::sentence::{COMMANDS, FIELDS};

    use super::*;

    #[test]
    fn every_command_is_in_the_order_list() {
        let placed: Vec<String> = command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        assert_eq!(placed, ORDER);
    }

    #[test]
    fn commands_and_fields_in_hints_exist() {
        let grammar = command();
        for usage in COMMANDS {
            let mut known = &grammar;
            for word in usage.words.split(' ') {
                known = known.find_subcommand(word).unwrap_or_else(|| panic!("trackway {}", usage.words));
            }
            assert!(!known.is_subcommand_required_set(), "trackway {} lacks a verb", usage.words);
            assert!(!usage.has_subject || known.get_positionals().next().is_some(), "{usage:?}");
            let flags = usage.flags.iter().map(|flag| (flag, true));
            for (flag, takes_value) in flags.chain(usage.switches.iter().map(|switch| (switch, false))) {
                let long = flag.replace('_', "-");
                let argument = known.get_arguments().find(|argument| argument.get_long() == Some(&long));
                let argument = argument.unwrap_or_else(|| panic!("trackway {} --{long}", usage.words));
                assert_eq!(argument.get_action().takes_values(), takes_value, "trackway {} --{long}", usage.words);
            }
        }
        let commands = grammar.get_subcommands().flat_map(|noun| noun.get_subcommands().chain([noun]));
        let flags: BTreeSet<String> =
            commands.flat_map(Command::get_arguments).filter_map(Arg::get_long).map(ToOwned::to_owned).collect();
        for field in FIELDS {
            assert!(flags.contains(&field.replace('_', "-")), "{field}");
        }
    }

    /// Hints must write commands with `command!`: HTTP and MCP can translate only those.
    #[test]
    fn hints_write_commands_with_command_macro() {
        let grammar = command();
        let commands: Vec<String> =
            grammar.get_subcommands().map(|known| format!("trackway {}", known.get_name())).collect();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut folders = vec![crates.to_owned()];
        let mut hints = 0;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                // The server's own hints are never shown on the command line.
                if path.is_dir() && !path.ends_with("tests") && !path.ends_with("server") {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = fs::read_to_string(&path).unwrap();
                    for (start, _) in text.match_indices(".hint(") {
                        let hint = &text[start..];
                        let hint = &hint[..hint.find(";\n").unwrap_or(hint.len())];
                        let found = commands.iter().find(|command| hint.contains(command.as_str()));
                        assert_eq!(found, None, "{}: {hint}", path.display());
                        hints += 1;
                    }
                }
            }
        }
        assert!(hints > 50, "{hints}");
    }
}
