//! The command line's grammar, made from the registries of actions and questions.

use std::{ffi::OsString, path::PathBuf};

use clap::{Arg, ArgAction, Command};
use trackway_actions::{LongText, registry::ACTIONS};
use trackway_capture::client::Client;
use trackway_clients::CLIENTS;
use trackway_domain::words::Memory;
use trackway_views::registry::VIEWS;

use crate::{environment, long_text};

/// The nouns, with what they are. A noun without commands is not shown.
const NOUNS: &[(&str, &str)] = &[
    ("agent", "Agents: who acts"),
    ("board", "Boards of stickies, and the folders they are written to"),
    ("cleanup", "Clean-ups of what is no longer wanted; each says how much it removed"),
    ("commitment", "Commitments: what counts once enough commit to it"),
    ("conversation", "Conversations: what belongs together of what is said"),
    ("decision", "Decisions: questions, options and votes"),
    ("event", "The event log: every change, in order"),
    ("experiment", "Experiments: tries inside a conversation"),
    ("import", "Import from other tools"),
    ("label", "Labels of tasks"),
    ("link", "Links between tasks"),
    ("message", "Messages: what people and agents said"),
    ("note", "Notes, comments and who read them"),
    ("package", "Packages: the version of a task that a role uses"),
    ("person", "People: who answers for what agents do"),
    ("queue", "The queue: requests that a task be run, each taken by one"),
    ("report", "Reports: what agents say about tasks when they stop"),
    ("role", "Roles: the names actors work under"),
    ("route", "Routes: which messages are work for which task"),
    ("run", "Runs: one execution of work by one agent"),
    ("scratchpad", "Scratchpads: an agent's notes to its future self"),
    ("session", "Sessions of agent clients: prompts, subagents, evidence"),
    ("spawn", "Spawns: the tool calls that started subagents"),
    ("stickie", "Stickies: short notes on a board, and how they relate"),
    ("studio", "Studios: shared spaces that own notes, decisions and commitments"),
    ("subagent", "Subagents: the agents that sessions started"),
    ("task", "Tasks, their versions and their history"),
    ("testcase", "Test cases: the results of a try"),
    ("token", "Tokens of people"),
    ("trace", "Traces for other tools"),
    ("workflow", "Workflows: the owners of task variants"),
    ("workspace", "Workspaces: places where work happens"),
];

/// Commands in the order in which a newcomer needs them: asking, recording, working, what belongs to it, looking after it.
const ORDER: &[&str] = &[
    // Begin
    "init",
    "connect",
    "ingest",
    "demo",
    "up",
    "open",
    // Ask
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
    // What was seen of sessions
    "session",
    "subagent",
    "spawn",
    "trace",
    // What is said and decided
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
    // What belongs to tasks and people
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
    // What other programs start
    "mcp",
    "hook",
    // Looking after it
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

/// How much of the grammar is needed.
#[derive(Debug, Clone)]
enum Extent {
    Whole,
    /// What these words name; everything else is there by name only.
    Words(Vec<String>),
}

impl Extent {
    fn has(&self, word: &str) -> bool {
        match self {
            Self::Whole => true,
            Self::Words(words) => words.iter().any(|known| known == word),
        }
    }
}

/// The whole grammar.
pub fn command() -> Command {
    grammar(&Extent::Whole)
}

/// As much of the grammar as a command line needs: a start-up pays for one command, not for all of them.
pub fn command_for(arguments: &[OsString]) -> Command {
    let words: Vec<String> = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let asks_for_help = words.iter().any(|word| matches!(word.as_str(), "-h" | "--help" | "help" | "completions"));
    let extent = Extent::Words(words);
    let lacks_a_verb = NOUNS.iter().any(|(noun, _)| extent.has(noun) && !verbs(noun).any(|verb| extent.has(verb)));
    grammar(if asks_for_help || lacks_a_verb { &Extent::Whole } else { &extent })
}

fn verbs(noun: &str) -> impl Iterator<Item = &'static str> {
    let actions = ACTIONS.iter().filter(move |action| action.command.0 == noun);
    let actions = actions.flat_map(|action| [Some(action.command.1), action.alias].into_iter().flatten());
    let views = VIEWS.iter().filter(move |view| view.command.0 == noun);
    let special: &[&str] = match noun {
        "task" => &["run"],
        "board" => &["export", "import", "diff"],
        "import" => &["jsonl"],
        _ => &[],
    };
    actions
        .chain(views.flat_map(|view| [Some(view.command.1), view.alias].into_iter().flatten()))
        .chain(special.iter().copied())
}

fn grammar(extent: &Extent) -> Command {
    let nouns = NOUNS.iter().map(|(noun, about)| noun_command(noun, about, extent));
    let questions = VIEWS.iter().filter(|view| view.command.0.is_empty()).map(|view| view_command(view, extent));
    let deeds =
        ACTIONS.iter().filter(|action| action.command.0.is_empty()).map(|action| action_command(action, extent));
    let mut commands: Vec<Command> = special().into_iter().chain(questions).chain(deeds).chain(nouns).collect();
    commands.sort_by_key(|command| ORDER.iter().position(|name| *name == command.get_name()));
    Command::new("trackway").about(ABOUT).version(env!("TRACKWAY_VERSION")).args(globals()).subcommands(commands)
}

fn noun_command(noun: &'static str, about: &'static str, extent: &Extent) -> Command {
    let command = Command::new(noun)
        .about(about)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true);
    if !extent.has(noun) {
        return command;
    }
    let actions = ACTIONS.iter().filter(|action| action.command.0 == noun).map(|action| action_command(action, extent));
    let views = VIEWS.iter().filter(|view| view.command.0 == noun).map(|view| view_command(view, extent));
    let command = command.subcommands(actions).subcommands(views);
    match noun {
        "task" => command.subcommand(crate::work::run_command()),
        "board" => crate::board_folder::commands(command),
        "import" => command.subcommand(crate::transfer::import_command()),
        _ => command,
    }
}

/// Flags that hold what people and agents write: it may begin with `-`, and `-` alone reads standard input. Flags that
/// take several values are not among them: they could not tell a value from the next flag.
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

/// Those of them that hold long texts: their help says that `-` reads standard input.
const LONG_TEXTS: &[&str] = &["body", "content", "note", "script"];

fn action_command(action: &trackway_actions::registry::Entry, extent: &Extent) -> Command {
    let named = Command::new(action.command.1).visible_aliases(action.alias);
    if !extent.has(action.command.1) && !action.alias.is_some_and(|alias| extent.has(alias)) {
        return named;
    }
    let is_one_of = |argument: &Arg, flags: &[&str]| argument.get_long().is_some_and(|long| flags.contains(&long));
    let free =
        |argument: Arg| if is_one_of(&argument, FREE_TEXTS) { argument.allow_hyphen_values(true) } else { argument };
    let file = match action.long_text {
        Some(LongText::File { field, .. }) => Some(field),
        _ => None,
    };
    let helped = |argument: Arg| match argument.get_help().map(|help| format!("{help}; - reads standard input")) {
        Some(help) if is_one_of(&argument, LONG_TEXTS) || file == Some(argument.get_id().as_str()) => {
            argument.help(help)
        }
        _ => argument,
    };
    let command = (action.arguments)(named).mut_args(free).mut_args(helped).args(long_text::argument(action)).arg(
        Arg::new("dry_run")
            .long("dry-run")
            .action(ArgAction::SetTrue)
            .help("Show what would happen, and change nothing"),
    );
    if action.removes {
        command.arg(Arg::new("yes").long("yes").short('y').action(ArgAction::SetTrue).help("Do not ask"))
    } else {
        command
    }
}

fn view_command(view: &trackway_views::registry::Entry, extent: &Extent) -> Command {
    let command = Command::new(view.command.1).visible_aliases(view.alias);
    if view.command == ("", "ready") && extent.has("ready") {
        return ready_command((view.arguments)(command));
    }
    if extent.has(view.command.1) || view.alias.is_some_and(|alias| extent.has(alias)) {
        (view.arguments)(command)
    } else {
        command
    }
}

/// `ready --claim` is the action `claim`, with its flags.
fn ready_command(ready: Command) -> Command {
    let claim = ACTIONS.iter().find(|action| action.command == ("", "claim"));
    let flags = claim.map(|claim| action_command(claim, &Extent::Whole)).unwrap_or_default();
    let flags = flags.get_arguments().map(|flag| flag.clone().requires("claim")).collect::<Vec<_>>();
    ready
        .arg(
            Arg::new("claim")
                .long("claim")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["limit", "after"])
                .help("Claim the first: get a run and its token for it"),
        )
        .args(flags)
}

fn globals() -> [Arg; 3] {
    let everywhere = |argument: Arg, place| argument.global(true).help_heading("Everywhere").display_order(place);
    [
        everywhere(Arg::new("db").long("db").env(environment::DATABASE).hide_env_values(true), 900)
            .value_name("URL")
            .help("The database: sqlite:PATH or postgres://USER@HOST/DATABASE"),
        everywhere(Arg::new("tenant").long("tenant").env(environment::TENANT).hide_env_values(true), 901)
            .value_name("NAME")
            .help("The tenant"),
        everywhere(Arg::new("json").long("json").action(ArgAction::SetTrue), 902).help("Answer in JSON"),
    ]
}

/// Commands that are neither an action nor a question about rows.
fn special() -> Vec<Command> {
    let [backup, restore, export, move_to] = crate::transfer::commands();
    vec![
        backup,
        restore,
        export,
        move_to,
        Command::new("init").about("Make a database here, or yours with --user").arg(
            Arg::new("user")
                .long("user")
                .action(ArgAction::SetTrue)
                .help("Make the user's database, used where no project has one"),
        ),
        crate::ingest::command(),
        crate::hook::command(),
        crate::doctor::command(),
        crate::manual::command(),
        crate::mcp::command(),
        crate::up::command(),
        crate::up::open_command(),
        crate::work::command(),
        Command::new("whoami").about("Show who you are here: your run, your task, your scratchpad, and how to go on"),
        client_command("connect", "Record the work of a client", connect_command),
        client_command("disconnect", "Stop recording the work of a client", |client| {
            let name = client.display_name();
            settings_command(client, format!("Take Trackway's hooks and its MCP server out of {name}'s settings"))
        }),
        crate::demo::command(),
        Command::new("schema")
            .about("Show the tables, relations and graph edges of this database")
            .arg(format_argument()),
        Command::new("db")
            .about("The database itself")
            .subcommand_required(true)
            .arg_required_else_help(true)
            .disable_help_subcommand(true)
            .subcommand(
                Command::new("show")
                    .about("Show the tables, relations and graph edges of this database")
                    .arg(format_argument()),
            ),
        Command::new("tenant")
            .about("Tenants: organisations that never see each other")
            .subcommand_required(true)
            .arg_required_else_help(true)
            .disable_help_subcommand(true)
            .subcommands([
                Command::new("list").about("List tenants"),
                Command::new("create")
                    .about("Make a tenant, with you in it")
                    .arg(Arg::new("name").long("name").value_name("NAME").required(true).help("Its name")),
            ]),
        Command::new("completions").about("Print completions for a shell").arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(clap::value_parser!(clap_complete::Shell))
                .help("The shell"),
        ),
    ]
}

/// A command whose verb is the client.
fn client_command(name: &'static str, about: &'static str, of: fn(&dyn Client) -> Command) -> Command {
    Command::new(name)
        .about(about)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands(CLIENTS.0.iter().map(|client| of(*client)))
}

fn connect_command(client: &dyn Client) -> Command {
    let name = client.display_name();
    let command = settings_command(client, format!("Put Trackway's hooks and its MCP server into {name}'s settings"));
    let command = command.arg(memory());
    let has_plugins = client.connection().plugin(Memory::default()).is_some();
    if has_plugins { command.arg(plugin()) } else { command }.arg(no_mcp(client))
}

fn settings_command(client: &dyn Client, about: String) -> Command {
    let files = client.connection().shown_files();
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    Command::new(client.command_name()).about(about).args([
        flag("project").conflicts_with("user").help(format!(
            "The project's settings, {} at its top; the default where a directory upward has .trackway or .git",
            files.project_hooks
        )),
        flag("user").help(format!("The user's settings, {}; the default elsewhere", files.user_hooks)),
        Arg::new("dry_run").long("dry-run").action(ArgAction::SetTrue).help("Show the difference, and change nothing"),
    ])
}

fn memory() -> Arg {
    Arg::new("memory")
        .long("memory")
        .value_name("WHOSE")
        .value_parser(clap::value_parser!(Memory))
        .help("Whose runs end with a question for what to remember; unchanged when omitted, at first: subagents")
}

fn no_mcp(client: &dyn Client) -> Arg {
    let files = client.connection().shown_files();
    Arg::new("no_mcp")
        .long("no-mcp")
        .action(ArgAction::SetTrue)
        .help(format!("Leave {} (for the user: {}) as it is", files.project_servers, files.user_servers))
}

fn plugin() -> Arg {
    Arg::new("plugin")
        .long("plugin")
        .value_name("DIR")
        .value_parser(clap::value_parser!(PathBuf))
        .conflicts_with_all(["project", "user"])
        .help("Write a plugin folder with the same to DIR instead, and leave settings alone")
}

fn format_argument() -> Arg {
    Arg::new("format")
        .long("format")
        .value_name("FORMAT")
        .value_parser(["table", "markdown", "mermaid", "json"])
        .default_value("table")
        .help("How to show it")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use trackway_domain::sentence::{COMMANDS, FIELDS};

    use super::*;

    #[test]
    fn every_command_has_its_place() {
        let placed: Vec<String> = command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        assert_eq!(placed, ORDER);
    }

    #[test]
    fn commands_and_fields_of_sentences_exist() {
        let grammar = command();
        for usage in COMMANDS {
            let mut known = &grammar;
            for word in usage.words.split(' ') {
                known = known.find_subcommand(word).unwrap_or_else(|| panic!("trackway {}", usage.words));
            }
            assert!(!known.is_subcommand_required_set(), "trackway {} lacks a verb", usage.words);
            assert!(!usage.has_subject || known.get_positionals().next().is_some(), "{usage:?}");
            for flag in usage.flags {
                let long = flag.replace('_', "-");
                let argument = known.get_arguments().find(|argument| argument.get_long() == Some(&long));
                let takes_value = |argument: &Arg| argument.get_action().takes_values();
                assert!(argument.is_some_and(takes_value), "trackway {} --{long} VALUE", usage.words);
            }
        }
        let commands = grammar.get_subcommands().flat_map(|noun| noun.get_subcommands().chain([noun]));
        let flags: BTreeSet<String> =
            commands.flat_map(Command::get_arguments).filter_map(Arg::get_long).map(ToOwned::to_owned).collect();
        for field in FIELDS {
            assert!(flags.contains(&field.replace('_', "-")), "{field}");
        }
    }

    /// A command in a plain text would not be rendered for HTTP and MCP.
    #[test]
    fn hints_name_commands_only_with_the_macro() {
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
