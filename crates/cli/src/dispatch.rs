//! Dispatches a parsed command line to an action, a view or another command, and returns its outcome.

use std::{
    collections::BTreeSet,
    env::VarError,
    io::{BufRead, IsTerminal, Write},
    process::ExitCode,
};

use clap::ArgMatches;
use serde_json::{Value, json};
use trackway_actions::{
    Core, Credential,
    context::{Context, Secret},
    registry::{ACTIONS, ActionEntry, Mode},
    tenant::InitResult,
};
use trackway_domain::Error as Rule;
use trackway_server::pages::Interface;
use trackway_store::{
    Reader, TenantId,
    registry::{self, tenant_named},
};
use trackway_views::registry::VIEWS;
use uuid::Uuid;

use crate::{
    arguments, board_folder, connect, demo, doctor, environment, failure::Failure, hook, ingest, init,
    location::Location, log, long_text, manual, mcp, render::Layout, transfer, up, user, work,
};

/// The result of a command, and how to display it.
#[derive(Debug)]
pub struct CommandOutcome {
    pub data: Value,
    pub layout: Layout,
    /// Text to display instead of the data.
    pub text: Option<String>,
    /// Lines for stderr.
    pub remarks: Vec<String>,
    /// The flag that requests the next page of a list.
    pub more: Option<String>,
    pub is_dry_run: bool,
    /// Whether the exit code is 1.
    pub has_failed: bool,
    /// An error to print after the data. It determines the exit code.
    pub failure: Option<Failure>,
    /// The short form of each id in the data.
    pub short_ids: Vec<(String, String)>,
}

impl CommandOutcome {
    pub fn new(data: Value, layout: Layout) -> Self {
        Self {
            data,
            layout,
            text: None,
            remarks: Vec::new(),
            more: None,
            is_dry_run: false,
            has_failed: false,
            failure: None,
            short_ids: Vec::new(),
        }
    }

    pub fn code(&self) -> ExitCode {
        if self.has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Runs one command line.
pub fn dispatch(matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    match matches.subcommand() {
        Some(("completions", rest)) => Ok(completions(rest)),
        Some(("connect", rest)) => connect::connect(rest),
        Some(("demo", rest)) => demo::demo(rest),
        Some(("disconnect", rest)) => connect::disconnect(rest),
        Some(("init", rest)) => init::init(rest),
        Some(("doctor", rest)) => {
            let location = Location::find(matches)?;
            doctor::doctor(&App::open_at(&location)?, &location, rest)
        }
        Some(("work", rest)) => {
            log::start()?;
            let location = Location::find(matches)?;
            work::work(&App::open_at(&location)?, &location.model, rest)
        }
        Some(("up", rest)) => {
            log::start()?;
            let location = Location::find(matches)?;
            up::up(&App::open_at(&location)?, &location, rest)
        }
        Some(("open", rest)) => up::open(&App::open(matches)?, rest),
        Some(("task", rest)) if rest.subcommand_name() == Some("run") => {
            let (_, rest) = rest.subcommand().unwrap_or(("", rest));
            let location = Location::find(matches)?;
            work::run_task(&App::open_at(&location)?, &location.model, rest)
        }
        Some(("board", rest)) if rest.subcommand_name().is_some_and(board_folder::is_folder_command) => {
            let (verb, rest) = rest.subcommand().unwrap_or(("", rest));
            board_folder::run(&App::open(matches)?, verb, rest)
        }
        Some(("backup" | "export", rest)) => transfer::backup(&App::open(matches)?, rest),
        Some(("move", rest)) => transfer::move_to(&App::open(matches)?, rest),
        Some(("restore", rest)) => transfer::restore(&Location::find(matches)?, rest),
        Some(("import", rest)) if rest.subcommand_name() == Some("jsonl") => {
            let (_, rest) = rest.subcommand().unwrap_or(("", rest));
            transfer::restore(&Location::find(matches)?, rest)
        }
        Some(("hook", rest)) => Ok(hook::hook(matches, rest)),
        Some(("man", rest)) => manual::write(rest),
        Some(("mcp", _)) => {
            log::start()?;
            mcp::mcp(matches)
        }
        Some(("ingest", rest)) => {
            let location = Location::find(matches)?;
            ingest::ingest(&App::open_at(&location)?, &location, rest)
        }
        _ => App::open(matches)?.run_command(matches),
    }
}

/// The token, or else the user of the operating system.
pub fn credential(token: Option<String>, tenant: &str) -> Credential {
    match token {
        Some(token) => Credential::Token(Secret(token)),
        None => Credential::User { tenant: tenant.to_owned(), handle: user::handle() },
    }
}

/// An opened database, and the credential of the caller.
#[derive(Debug)]
pub struct App {
    pub core: Core,
    tenant: String,
    /// From `TRACKWAY_TOKEN`. Without a token, the user of the operating system acts.
    pub token: Option<String>,
}

impl App {
    fn open(matches: &ArgMatches) -> Result<Self, Failure> {
        Self::open_at(&Location::find(matches)?)
    }

    fn open_at(location: &Location) -> Result<Self, Failure> {
        let token = token_from_environment()?;
        Ok(Self { core: location.open()?, tenant: location.tenant.clone(), token })
    }

    pub fn with_core(core: Core, tenant: &str) -> Self {
        Self { core, tenant: tenant.to_owned(), token: None }
    }

    /// Runs an action, a view, or another command that needs only the database.
    pub fn run_command(&self, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
        let Some((noun, rest)) = matches.subcommand() else {
            return self.run_view(("", "status"), &arguments::command().get_matches_from(["trackway", "status"]));
        };
        match (noun, rest.subcommand()) {
            ("schema", _) => self.schema(rest),
            ("whoami", _) => self.whoami(),
            ("db", Some((_, rest))) => self.schema(rest),
            ("tenant", Some(("create", rest))) => self.create_tenant(rest),
            ("tenant", Some(_)) => self.tenants(),
            ("ready", None) if rest.get_flag("claim") => match ACTIONS.iter().find(|action| action.name == "claim") {
                Some(claim) => self.run_action(claim, rest),
                None => self.run_view(("", "ready"), matches),
            },
            (verb, None) => match ACTIONS.iter().find(|action| action.command == ("", verb)) {
                Some(action) => self.run_action(action, rest),
                None => self.run_view(("", verb), matches),
            },
            (noun, Some((verb, rest))) => match ACTIONS.iter().find(|action| action.command == (noun, verb)) {
                Some(action) => self.run_action(action, rest),
                None => self.run_view((noun, verb), matches),
            },
        }
    }

    fn run_action(&self, action: &ActionEntry, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
        let context = self.context()?;
        let text = long_text::read(action, matches)?;
        let dry_run = || (action.with_matches)(&self.core, &context, matches, text.as_deref(), Mode::DryRun);
        let is_dry_run = matches.get_flag("dry_run");
        let data = if is_dry_run {
            dry_run()?
        } else {
            if action.is_destructive && !matches.get_flag("yes") {
                confirm(action, &dry_run()?)?;
            }
            (action.with_matches)(&self.core, &context, matches, text.as_deref(), Mode::Execute)?
        };
        let mut outcome = CommandOutcome::new(data, Layout::of(action.command));
        outcome.is_dry_run = is_dry_run;
        if let Some(token) = outcome.data.get_mut("token").filter(|_| is_dry_run) {
            // A dry run creates no token.
            *token = Value::Null;
        }
        let notices = outcome.data.get("notices").and_then(Value::as_array).cloned().unwrap_or_default();
        outcome.remarks.extend(notices.iter().filter_map(Value::as_str).map(|notice| format!("note: {notice}")));
        Ok(self.with_short_ids(outcome, context.tenant, matches))
    }

    fn run_view(&self, command: (&str, &str), matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
        let view = VIEWS
            .iter()
            .find(|view| view.command == command)
            .ok_or_else(|| Rule::usage(format!("unknown command: {} {}", command.0, command.1)))?;
        let (_, rest) = matches.subcommand().unwrap_or(("", matches));
        let rest = rest.subcommand().map_or(rest, |(_, rest)| rest);
        let mut reader = self.reader()?;
        let tenant = reader.tenant;
        let answer = (view.with_matches)(&mut reader, rest, self.core.now())?;
        drop(reader);
        if let Some(document) = answer.document {
            let outcome = CommandOutcome::new(Value::String(document), Layout::Document);
            return Ok(CommandOutcome { remarks: answer.remarks, ..outcome });
        }
        let mut outcome = CommandOutcome::new(answer.data, Layout::of(view.command).with_columns(view.columns));
        outcome.more = answer.next_page;
        outcome.remarks = answer.remarks;
        if view.command == ("", "status") {
            outcome.data["database"] = json!(self.core.store().url().to_string());
            outcome.data["hooks"] = json!(doctor::connected_since().is_some());
        }
        Ok(self.with_short_ids(outcome, tenant, matches))
    }

    fn whoami(&self) -> Result<CommandOutcome, Failure> {
        let context = self.context()?;
        let page = trackway_server::pages::whoami_page(
            &mut self.core.reader(&context)?,
            &context,
            Interface::CommandLine,
            self.core.now(),
        )
        .map_err(|problem| Failure::from(Rule::usage(problem.message)))?;
        let text = trackway_server::markdown::body(&page);
        Ok(CommandOutcome { text: Some(text), ..CommandOutcome::new(page.data, Layout::Fields) })
    }

    /// Authenticates the caller.
    pub fn context(&self) -> Result<Context, Failure> {
        Ok(self.core.authenticate(&credential(self.token.clone(), &self.tenant))?)
    }

    /// A reader of the caller's tenant. With a token, it reads as the holder of the token.
    pub fn reader(&self) -> Result<Reader<'_>, Failure> {
        match self.token {
            Some(_) => Ok(self.core.reader(&self.context()?)?),
            None => Ok(self.core.store().read(tenant_named(self.core.store(), &self.tenant)?)?),
        }
    }

    fn schema(&self, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
        let schema = self.reader()?.schema()?;
        let data = serde_json::to_value(schema).map_err(|error| Rule::usage(error.to_string()))?;
        let layout = match matches.get_one::<String>("format").map(String::as_str) {
            Some("markdown") => Layout::SchemaMarkdown,
            Some("mermaid") => Layout::SchemaMermaid,
            Some("json") => Layout::Json,
            _ => Layout::SchemaTable,
        };
        Ok(CommandOutcome::new(data, layout))
    }

    fn tenants(&self) -> Result<CommandOutcome, Failure> {
        self.reject_token("list tenants")?;
        let tenants = registry::tenants(self.core.store())?;
        Ok(CommandOutcome::new(json!(tenants), Layout::Rows(&["id", "name", "created_at"])))
    }

    fn create_tenant(&self, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
        self.reject_token("create a tenant")?;
        let name = matches.get_one::<String>("name").cloned().unwrap_or_default();
        let new = self.core.init_tenant(&name, &user::handle())?;
        let id = tenant_named(self.core.store(), &name)?;
        Ok(CommandOutcome::new(
            json!({ "id": id, "name": name, "new": new == InitResult::CreatedTenant }),
            Layout::Fields,
        ))
    }

    /// Rejects a token for commands that concern all tenants, because each token belongs to one tenant.
    pub fn reject_token(&self, what: &str) -> Result<(), Failure> {
        reject_any_token(self.token.as_ref(), what)
    }

    /// Adds the short form of each displayed id. If the short forms cannot be read, the full ids are displayed: the
    /// command must not fail after its action has been committed.
    fn with_short_ids(&self, mut outcome: CommandOutcome, tenant: TenantId, matches: &ArgMatches) -> CommandOutcome {
        let mut ids = BTreeSet::new();
        if !matches.get_flag("json") {
            collect_ids(&outcome.data, &mut ids);
        }
        if !ids.is_empty() {
            let ids: Vec<Uuid> = ids.into_iter().collect();
            let forms =
                self.core.store().read(tenant).and_then(|mut reader| reader.short_ids(&ids)).unwrap_or_default();
            outcome.short_ids = forms.into_iter().map(|(id, short)| (id.to_string(), short)).collect();
        }
        outcome
    }
}

/// The token in `TRACKWAY_TOKEN`, if it is set and not empty.
pub fn token_from_environment() -> Result<Option<String>, Failure> {
    match std::env::var(environment::TOKEN) {
        Err(VarError::NotUnicode(_)) => Err(Rule::denied("unknown token").into()),
        token => Ok(token.ok().filter(|token| !token.is_empty())),
    }
}

/// Returns an error if there is a token.
pub fn reject_any_token(token: Option<&String>, what: &str) -> Result<(), Failure> {
    match token {
        Some(_) => Err(Rule::denied(format!("a token cannot {what}")).into()),
        None => Ok(()),
    }
}

fn collect_ids(value: &Value, into: &mut BTreeSet<Uuid>) {
    match value {
        Value::String(text) if text.len() == 36 => into.extend(Uuid::parse_str(text)),
        Value::Array(values) => values.iter().for_each(|value| collect_ids(value, into)),
        Value::Object(fields) => fields.values().for_each(|value| collect_ids(value, into)),
        _ => {}
    }
}

/// Asks for confirmation on a terminal. Without a terminal, requires `--yes`.
fn confirm(action: &ActionEntry, preview: &Value) -> Result<(), Failure> {
    let (noun, verb) = action.command;
    let name = ["variant", "name", "handle", "key", "title", "question", "session_id", "id"]
        .iter()
        .find_map(|field| preview.get(field).and_then(Value::as_str))
        .unwrap_or_default();
    let (what, question) = match preview.get("removed").filter(|_| noun == "cleanup") {
        Some(removed) => {
            let what = if verb == "null-role" { "spawns without a role" } else { verb };
            (String::new(), format!("remove {removed} {what}"))
        }
        None => (format!(" {name:?}"), format!("{} {name}", format!("{verb} {noun}").trim_end())),
    };
    if !can_ask() {
        let command = format!("{noun} {verb}");
        return Err(Rule::usage(format!("{}{what} requires --yes without a terminal", command.trim_start()))
            .hint("--dry-run shows what would happen")
            .into());
    }
    if ask(&question)? { Ok(()) } else { Err(Rule::usage("nothing was changed").into()) }
}

/// Whether a terminal can show a question and answer it.
pub fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks a question on the terminal.
pub fn ask(question: &str) -> Result<bool, Failure> {
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question}? [y/N] ")?;
    stderr.flush()?;
    let mut reply = String::new();
    std::io::stdin().lock().read_line(&mut reply)?;
    Ok(matches!(reply.trim(), "y" | "Y" | "yes"))
}

fn completions(matches: &ArgMatches) -> CommandOutcome {
    let mut script = Vec::new();
    if let Some(shell) = matches.get_one::<clap_complete::Shell>("shell") {
        clap_complete::generate(*shell, &mut arguments::command(), "trackway", &mut script);
    }
    CommandOutcome::new(Value::String(String::from_utf8_lossy(&script).into_owned()), Layout::Text)
}
