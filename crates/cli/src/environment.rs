//! Every environment variable, in one place.

use trackway_capture::hook::daemon;
use trackway_runner::claude_code;

/// Which database.
pub const DATABASE: &str = "TRACKWAY_DB";
/// Who is acting.
pub const TOKEN: &str = "TRACKWAY_TOKEN";
/// Which tenant.
pub const TENANT: &str = "TRACKWAY_TENANT";

/// Who answers for agents: `anthropic`, `openai` or `scripted`.
pub const MODEL_PROVIDER: &str = "TRACKWAY_MODEL_PROVIDER";
/// Where.
pub const MODEL_URL: &str = "TRACKWAY_MODEL_URL";
/// With which key.
pub const MODEL_KEY: &str = "TRACKWAY_MODEL_KEY";
/// Which model.
pub const MODEL: &str = "TRACKWAY_MODEL";
/// Whether its answers are streamed.
pub const MODEL_STREAM: &str = "TRACKWAY_MODEL_STREAM";
/// How many tokens a conversation may have.
pub const MODEL_CONTEXT: &str = "TRACKWAY_MODEL_CONTEXT";
/// The replies of a scripted one.
pub const MODEL_SCRIPT: &str = "TRACKWAY_MODEL_SCRIPT";

/// What the providers' own tools take: the URL and the key of each.
pub const ANTHROPIC: (&str, &str) = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY");
pub const OPENAI: (&str, &str) = ("OPENAI_BASE_URL", "OPENAI_API_KEY");

/// Where the server listens.
pub const LISTEN: &str = "TRACKWAY_LISTEN";

/// How much is logged.
pub const LOG: &str = "TRACKWAY_LOG";

/// Where Claude Code keeps what is the user's.
pub const CLAUDE_FOLDER: &str = "CLAUDE_CONFIG_DIR";

/// Set by Claude Code for the MCP servers it starts, from 2.1 on (read from 2.1.197): which session it was then.
pub const CLAUDE_SESSION: &str = "CLAUDE_CODE_SESSION_ID";
/// Set by Claude Code for what it starts.
pub const CLAUDE_CODE: &str = "CLAUDECODE";

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
        LOG,
        "What `up`, `work` and `mcp` write into their log, on standard error: `off`, `error`, `warn` (what failed; the default), `info`, `debug` (every request) or `trace`.",
    ),
    (
        CLAUDE_SESSION,
        "Set by Claude Code for `trackway mcp`: its session. Without a token, the one run that is open in that session acts; where there is none, or several, the person does, and is told so.",
    ),
    (CLAUDE_CODE, "Set by Claude Code for what it starts; `trackway mcp` says so when it is not told the session."),
    (
        daemon::SWITCH,
        "`off` leaves no process behind that keeps the database open for the hooks of the next ten minutes: each opens it by itself, and takes a few milliseconds longer.",
    ),
    (
        "TRACKWAY_RUN",
        "Set for the scripts of tasks, beside `TRACKWAY_DB` and `TRACKWAY_TOKEN`: the run. Processes that still have it when the run is over are ended.",
    ),
    ("TRACKWAY_TASK", "Set for the scripts of tasks: the task's variant."),
    ("TRACKWAY_QUEUE_ITEM", "Set for the scripts of tasks: the queue item."),
    (
        "TRACKWAY_DESCRIPTION",
        "Set for the scripts of tasks whose queue item has a description: what is wanted, cut when it is longer than 100,000 bytes.",
    ),
    ("TRACKWAY_ATTEMPT", "Set for the scripts of tasks: which attempt it is, from 1."),
    (
        "TRACKWAY_MESSAGE",
        "Set for the scripts of tasks that answer a message: the message, whose body is their standard input.",
    ),
    (
        MODEL_PROVIDER,
        "Who answers for agents: `anthropic`, `openai` (chat completions, which many servers offer) or `scripted`. Without it, whichever has a key. `[model]` in config.toml says the same: `provider`, `url`, `key`, `name`, `stream`, `native_tools`, `timeout_seconds`, `context_tokens`, `script`, and `[model.prices.\"NAME\"]` with `input`, `output`, `cache_write`, `cache_read` for a million tokens.",
    ),
    (MODEL_URL, "Where the model is, as `http://localhost:11434/v1`; for `anthropic` without the `/v1`."),
    (MODEL_KEY, "The key for it."),
    (MODEL, "The model that is asked when an agent names none."),
    (MODEL_STREAM, "`off` asks for whole answers instead of streams."),
    (
        MODEL_CONTEXT,
        "How many tokens the model takes, its reply included (128000). The closing call repeats the run's conversation, cut from the middle where it would be longer. A token is counted as three bytes.",
    ),
    (MODEL_SCRIPT, "The file of replies of a scripted model; names one by itself."),
    (ANTHROPIC.0, "Where Anthropic's API is, as its own tools take it."),
    (ANTHROPIC.1, "The key for it."),
    (OPENAI.0, "Where a server of chat completions is, as its own tools take it."),
    (OPENAI.1, "The key for it."),
    (
        "HTTPS_PROXY",
        "The proxy through which models are reached (`ALL_PROXY` wins over it, `HTTP_PROXY` comes after it). `NO_PROXY` names hosts that need none.",
    ),
    (
        claude_code::CLIENT,
        "The Claude Code that a worker starts for agents of that kind, with arguments it should always have: `claude --allowedTools Bash`. `claude` by default.",
    ),
    (claude_code::SETTINGS, "Set for that client: its settings, with our hooks."),
    (claude_code::MODEL, "Set for that client: the model of its agent."),
    ("NO_COLOR", "When set, nothing is coloured."),
    ("XDG_DATA_HOME", "Where the user's database is: `trackway/trackway.db` below it (`~/.local/share` by default)."),
    ("XDG_CONFIG_HOME", "Where the user's `trackway/config.toml` is (`~/.config` by default)."),
];
