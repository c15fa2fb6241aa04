//! Every environment variable, in one place.

/// Which database.
pub const DATABASE: &str = "TRACKWAY_DB";
/// Who is acting.
pub const TOKEN: &str = "TRACKWAY_TOKEN";
/// Which tenant.
pub const TENANT: &str = "TRACKWAY_TENANT";

/// Where the server listens.
pub const LISTEN: &str = "TRACKWAY_LISTEN";

/// Where Claude Code keeps what is the user's.
pub const CLAUDE_FOLDER: &str = "CLAUDE_CONFIG_DIR";

/// Every variable with what it does; the reference page is made from this.
pub const VARIABLES: &[(&str, &str)] = &[
    (
        DATABASE,
        "The database: `sqlite:PATH` or `postgres://USER@HOST/DATABASE`. `--db` wins over it. Without either: the nearest `.trackway/trackway.db` upward, else the user's.",
    ),
    (
        TOKEN,
        "A token. A run's gives the agent and the run that act; a person's gives the person. Without it, the person of the operating system's user acts.",
    ),
    (TENANT, "The tenant, `local` by default. `--tenant` wins over it; a token brings its own."),
    (LISTEN, "Where `trackway up` listens and `trackway open` looks for it: `127.0.0.1:7878` by default."),
    (
        "USER",
        "The operating system's user, who acts without a token; else `LOGNAME`, `USERNAME`, or the user's entry in the password file.",
    ),
    (CLAUDE_FOLDER, "Where Claude Code's settings for the user are (`~/.claude` by default), as Claude Code takes it."),
    (
        "TRACKWAY_RUN",
        "Set for the scripts of tasks, beside `TRACKWAY_DB` and `TRACKWAY_TOKEN`: the run. Processes that still have it when the run is over are ended.",
    ),
    ("TRACKWAY_TASK", "Set for the scripts of tasks: the task's variant."),
    ("TRACKWAY_QUEUE_ITEM", "Set for the scripts of tasks: the queue item."),
    ("TRACKWAY_ATTEMPT", "Set for the scripts of tasks: which attempt it is, from 1."),
    (
        "TRACKWAY_MESSAGE",
        "Set for the scripts of tasks that answer a message: the message, whose body is their standard input.",
    ),
    ("NO_COLOR", "When set, nothing is coloured."),
    ("XDG_DATA_HOME", "Where the user's database is: `trackway/trackway.db` below it (`~/.local/share` by default)."),
    ("XDG_CONFIG_HOME", "Where the user's `trackway/config.toml` is (`~/.config` by default)."),
];
