//! All environment variables, with their documentation.

use trackway_capture::hook::daemon;

pub const DATABASE: &str = "TRACKWAY_DB";
pub const TOKEN: &str = "TRACKWAY_TOKEN";
pub const TENANT: &str = "TRACKWAY_TENANT";

pub const MODEL_PROVIDER: &str = "TRACKWAY_MODEL_PROVIDER";
pub const MODEL_URL: &str = "TRACKWAY_MODEL_URL";
pub const MODEL_KEY: &str = "TRACKWAY_MODEL_KEY";
pub const MODEL: &str = "TRACKWAY_MODEL";
pub const MODEL_STREAM: &str = "TRACKWAY_MODEL_STREAM";
pub const MODEL_CONTEXT: &str = "TRACKWAY_MODEL_CONTEXT";
pub const MODEL_SCRIPT: &str = "TRACKWAY_MODEL_SCRIPT";

/// The variables of the providers' own tools: URL and API key.
pub const ANTHROPIC: (&str, &str) = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY");
pub const OPENAI: (&str, &str) = ("OPENAI_BASE_URL", "OPENAI_API_KEY");

pub const LISTEN: &str = "TRACKWAY_LISTEN";

pub const LOG: &str = "TRACKWAY_LOG";

/// The variables with their documentation, from which the reference page is generated. Clients add their own.
pub const VARIABLES: &[(&str, &str)] = &[
    (
        DATABASE,
        "Database URL: `sqlite:PATH` or `postgres://USER@HOST/DATABASE`. `--db` takes precedence. Without either, Trackway uses the nearest `.trackway/trackway.db` in this directory and its parents, or else the database of the user.",
    ),
    (
        TOKEN,
        "Token of a run or a person. With the token of a run, you act as its agent in that run. Without a token, you act as the person with the name of your operating system user.",
    ),
    (
        TENANT,
        "Name of the tenant [default: `local`]. `--tenant` takes precedence. With a token, its own tenant is used.",
    ),
    (LISTEN, "Address of the server, for `trackway up` and `trackway open` [default: `127.0.0.1:7878`]."),
    (
        "USER",
        "Your operating system user, as whom you act without a token. If it is not set: `LOGNAME`, `USERNAME`, or the password file.",
    ),
    (
        LOG,
        "Log level of `up`, `work` and `mcp`, which log to standard error: `off`, `error`, `warn` (failures), `info`, `debug` (every request) or `trace` [default: `warn`].",
    ),
    (
        daemon::SWITCH,
        "`off` disables the hook daemon, which keeps the database open for ten minutes after a hook event. Without it, every hook opens the database itself, which takes a few milliseconds longer.",
    ),
    (
        "TRACKWAY_RUN",
        "Set for the scripts of tasks, like `TRACKWAY_DB` and `TRACKWAY_TOKEN`: the run. When the run ends, the worker kills all processes with this variable.",
    ),
    ("TRACKWAY_TASK", "Set for the scripts of tasks: the task's variant."),
    ("TRACKWAY_QUEUE_ITEM", "Set for the scripts of tasks: the queue item."),
    (
        "TRACKWAY_DESCRIPTION",
        "Set for the scripts of tasks whose queue item has a description: the description, cut if it is longer than 100,000 bytes.",
    ),
    ("TRACKWAY_ATTEMPT", "Set for the scripts of tasks: the number of the attempt, beginning with 1."),
    (
        "TRACKWAY_MESSAGE",
        "Set for the scripts of tasks that were queued by a message: the message. Its body is the standard input of the script.",
    ),
    (
        MODEL_PROVIDER,
        "API of the model for agents: `anthropic`, `openai` (Chat Completions, which many servers implement) or `scripted` [default: the provider that has a key]. The section `[model]` in config.toml has the same settings: `provider`, `url`, `key`, `name`, `stream`, `native_tools`, `timeout_seconds`, `context_tokens`, `script`, and `[model.prices.\"NAME\"]` with `input`, `output`, `cache_write`, `cache_read` for a million tokens.",
    ),
    (MODEL_URL, "URL of the model's API, for example `http://localhost:11434/v1`; for `anthropic` without the `/v1`."),
    (MODEL_KEY, "API key for the model."),
    (MODEL, "Name of the model, for agents without a model of their own."),
    (MODEL_STREAM, "`off` disables streaming of the model's answers."),
    (
        MODEL_CONTEXT,
        "Context size of the model in tokens, including its reply [default: 128000]. The closing call repeats the run's conversation, and removes its middle if it is longer. A token counts as three bytes.",
    ),
    (MODEL_SCRIPT, "File with the replies of a scripted model. Setting it selects the provider `scripted`."),
    (ANTHROPIC.0, "URL of Anthropic's API, as for Anthropic's own tools."),
    (ANTHROPIC.1, "API key for Anthropic."),
    (OPENAI.0, "URL of a Chat Completions server, as for OpenAI's own tools."),
    (OPENAI.1, "API key for that server."),
    (
        "HTTPS_PROXY",
        "Proxy for model calls. `ALL_PROXY` takes precedence over it, and it takes precedence over `HTTP_PROXY`. `NO_PROXY` lists hosts to reach without a proxy.",
    ),
    ("NO_COLOR", "Disables colours if set."),
    (
        "XDG_DATA_HOME",
        "Directory that contains the user's database, `trackway/trackway.db` [default: `~/.local/share`].",
    ),
    ("XDG_CONFIG_HOME", "Directory that contains the user's `trackway/config.toml` [default: `~/.config`]."),
];
