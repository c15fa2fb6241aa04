//! From a command line to an action or a question, and back with the answer.

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
    founding::Founded,
    registry::{ACTIONS, Entry, Mode},
};
use trackway_domain::Error as Rule;
use trackway_server::pages::At;
use trackway_store::{
    Reader, TenantId,
    registry::{self, tenant_named},
};
use trackway_views::registry::VIEWS;
use uuid::Uuid;

use crate::{
    arguments, board_folder, connect, demo, doctor, environment, failure::Failure, hook, ingest, init,
    location::Location, log, long_text, manual, mcp, render::Shape, transfer, up, user, work,
};

/// An answer, and how people see it.
#[derive(Debug)]
pub struct Outcome {
    pub data: Value,
    pub shape: Shape,
    /// What people read instead of the data.
    pub text: Option<String>,
    /// What is said beside the data, on stderr.
    pub remarks: Vec<String>,
    /// The flag that shows more of a list.
    pub more: Option<String>,
    /// Whether nothing was really done.
    pub dry_run: bool,
    /// Whether what was looked at is not as it should be.
    pub failed: bool,
    /// The short form of each id in the data.
    pub short_ids: Vec<(String, String)>,
}

impl Outcome {
    pub fn new(data: Value, shape: Shape) -> Self {
        Self {
            data,
            shape,
            text: None,
            remarks: Vec::new(),
            more: None,
            dry_run: false,
            failed: false,
            short_ids: Vec::new(),
        }
    }

    pub fn code(&self) -> ExitCode {
        if self.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Answers one command line.
pub fn answer(matches: &ArgMatches) -> Result<Outcome, Failure> {
    match matches.subcommand() {
        Some(("completions", rest)) => Ok(completions(rest)),
        Some(("connect", rest)) => connect::connect(rest),
        Some(("demo", rest)) => demo::demo(rest),
        Some(("disconnect", rest)) => connect::disconnect(rest),
        Some(("init", rest)) => init::init(rest),
        Some(("doctor", rest)) => {
            let location = Location::find(matches)?;
            doctor::doctor(&House::open_at(&location)?, &location, rest)
        }
        Some(("work", rest)) => {
            log::start()?;
            let location = Location::find(matches)?;
            work::work(&House::open_at(&location)?, &location.model, rest)
        }
        Some(("up", rest)) => {
            log::start()?;
            let location = Location::find(matches)?;
            up::up(&House::open_at(&location)?, &location, rest)
        }
        Some(("open", rest)) => up::open(&House::open(matches)?, rest),
        Some(("task", rest)) if rest.subcommand_name() == Some("run") => {
            let (_, rest) = rest.subcommand().unwrap_or(("", rest));
            let location = Location::find(matches)?;
            work::run_task(&House::open_at(&location)?, &location.model, rest)
        }
        Some(("board", rest)) if rest.subcommand_name().is_some_and(board_folder::is_about_folders) => {
            let (verb, rest) = rest.subcommand().unwrap_or(("", rest));
            board_folder::answer(&House::open(matches)?, verb, rest)
        }
        Some(("backup" | "export", rest)) => transfer::backup(&House::open(matches)?, rest),
        Some(("move", rest)) => transfer::move_to(&House::open(matches)?, rest),
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
            ingest::ingest(&House::open_at(&location)?, &location, rest)
        }
        _ => House::open(matches)?.answer(matches),
    }
}

/// Who acts: the token's holder, else the operating system's user.
pub fn credential(token: Option<String>, tenant: &str) -> Credential {
    match token {
        Some(token) => Credential::Token(Secret(token)),
        None => Credential::User { tenant: tenant.to_owned(), handle: user::handle() },
    }
}

/// An opened database and who is at the door.
#[derive(Debug)]
pub struct House {
    pub core: Core,
    tenant: String,
    /// The token, when one was given.
    pub token: Option<String>,
}

impl House {
    fn open(matches: &ArgMatches) -> Result<Self, Failure> {
        Self::open_at(&Location::find(matches)?)
    }

    fn open_at(location: &Location) -> Result<Self, Failure> {
        let token = given_token()?;
        Ok(Self { core: location.open()?, tenant: location.tenant.clone(), token })
    }

    pub fn over(core: Core, tenant: &str) -> Self {
        Self { core, tenant: tenant.to_owned(), token: None }
    }

    /// Answers one command line in this house.
    pub fn answer(&self, matches: &ArgMatches) -> Result<Outcome, Failure> {
        let Some((noun, rest)) = matches.subcommand() else {
            return self.ask(("", "status"), &arguments::command().get_matches_from(["trackway", "status"]));
        };
        match (noun, rest.subcommand()) {
            ("schema", _) => self.schema(rest),
            ("whoami", _) => self.whoami(),
            ("db", Some((_, rest))) => self.schema(rest),
            ("tenant", Some(("create", rest))) => self.create_tenant(rest),
            ("tenant", Some(_)) => self.tenants(),
            ("ready", None) if rest.get_flag("claim") => match ACTIONS.iter().find(|action| action.name == "claim") {
                Some(claim) => self.act(claim, rest),
                None => self.ask(("", "ready"), matches),
            },
            (verb, None) => match ACTIONS.iter().find(|action| action.command == ("", verb)) {
                Some(action) => self.act(action, rest),
                None => self.ask(("", verb), matches),
            },
            (noun, Some((verb, rest))) => match ACTIONS.iter().find(|action| action.command == (noun, verb)) {
                Some(action) => self.act(action, rest),
                None => self.ask((noun, verb), matches),
            },
        }
    }

    fn act(&self, action: &Entry, matches: &ArgMatches) -> Result<Outcome, Failure> {
        let context = self.context()?;
        let text = long_text::read(action, matches)?;
        let rehearse = || (action.with_matches)(&self.core, &context, matches, text.as_deref(), Mode::Rehearse);
        let dry = matches.get_flag("dry_run");
        let data = if dry {
            rehearse()?
        } else {
            if action.removes && !matches.get_flag("yes") {
                ask_first(action, &rehearse()?)?;
            }
            (action.with_matches)(&self.core, &context, matches, text.as_deref(), Mode::Execute)?
        };
        let mut outcome = Outcome::new(data, Shape::of(action.command));
        outcome.dry_run = dry;
        if let Some(token) = outcome.data.get_mut("token").filter(|_| dry) {
            // It opens nothing.
            *token = Value::Null;
        }
        let notices = outcome.data.get("notices").and_then(Value::as_array).cloned().unwrap_or_default();
        outcome.remarks.extend(notices.iter().filter_map(Value::as_str).map(|notice| format!("note: {notice}")));
        Ok(self.with_short_ids(outcome, context.tenant, matches))
    }

    fn ask(&self, command: (&str, &str), matches: &ArgMatches) -> Result<Outcome, Failure> {
        let view = VIEWS
            .iter()
            .find(|view| view.command == command)
            .ok_or_else(|| Rule::usage(format!("there is no command {} {}", command.0, command.1)))?;
        let (_, rest) = matches.subcommand().unwrap_or(("", matches));
        let rest = rest.subcommand().map_or(rest, |(_, rest)| rest);
        let mut reader = self.reader()?;
        let tenant = reader.tenant;
        let answer = (view.with_matches)(&mut reader, rest, self.core.now())?;
        drop(reader);
        if let Some(document) = answer.document {
            let outcome = Outcome::new(Value::String(document), Shape::Document);
            return Ok(Outcome { remarks: answer.remarks, ..outcome });
        }
        let mut outcome = Outcome::new(answer.data, Shape::of(view.command).with_columns(view.columns));
        outcome.more = answer.more;
        outcome.remarks = answer.remarks;
        if view.command == ("", "status") {
            outcome.data["database"] = json!(self.core.store().url().to_string());
            outcome.data["hooks"] = json!(doctor::connected_since().is_some());
        }
        Ok(self.with_short_ids(outcome, tenant, matches))
    }

    /// Says who is at the door.
    fn whoami(&self) -> Result<Outcome, Failure> {
        let context = self.context()?;
        let page = trackway_server::pages::whoami_at(
            &mut self.core.reader(&context)?,
            &context,
            At::CommandLine,
            self.core.now(),
        )
        .map_err(|problem| Failure::from(Rule::usage(problem.message)))?;
        let text = trackway_server::markdown::body(&page);
        Ok(Outcome { text: Some(text), ..Outcome::new(page.data, Shape::Fields) })
    }

    /// Who acts: the token's holder, else the operating system's user.
    pub fn context(&self) -> Result<Context, Failure> {
        Ok(self.core.enter(&credential(self.token.clone(), &self.tenant))?)
    }

    /// Reading needs a tenant; with a token, the token's, on behalf of its holder.
    pub fn reader(&self) -> Result<Reader<'_>, Failure> {
        match self.token {
            Some(_) => Ok(self.core.reader(&self.context()?)?),
            None => Ok(self.core.store().read(tenant_named(self.core.store(), &self.tenant)?)?),
        }
    }

    fn schema(&self, matches: &ArgMatches) -> Result<Outcome, Failure> {
        let schema = self.reader()?.schema()?;
        let data = serde_json::to_value(schema).map_err(|error| Rule::usage(error.to_string()))?;
        let shape = match matches.get_one::<String>("format").map(String::as_str) {
            Some("markdown") => Shape::SchemaMarkdown,
            Some("mermaid") => Shape::SchemaMermaid,
            Some("json") => Shape::Json,
            _ => Shape::SchemaTable,
        };
        Ok(Outcome::new(data, shape))
    }

    fn tenants(&self) -> Result<Outcome, Failure> {
        self.refuse_token("list tenants")?;
        let tenants = registry::tenants(self.core.store())?;
        Ok(Outcome::new(json!(tenants), Shape::Rows(&["id", "name", "created_at"])))
    }

    fn create_tenant(&self, matches: &ArgMatches) -> Result<Outcome, Failure> {
        self.refuse_token("make a tenant")?;
        let name = matches.get_one::<String>("name").cloned().unwrap_or_default();
        let new = self.core.found(&name, &user::handle())?;
        let id = tenant_named(self.core.store(), &name)?;
        Ok(Outcome::new(json!({ "id": id, "name": name, "new": new == Founded::Tenant }), Shape::Fields))
    }

    /// Tenants are for who can open the database, not for who was given a token to one of them.
    pub fn refuse_token(&self, what: &str) -> Result<(), Failure> {
        refuse(self.token.as_ref(), what)
    }

    /// Finds the short form of each id that is about to be shown to people. What was done is done: when this fails,
    /// ids are shown whole.
    fn with_short_ids(&self, mut outcome: Outcome, tenant: TenantId, matches: &ArgMatches) -> Outcome {
        let mut ids = BTreeSet::new();
        if !matches.get_flag("json") {
            collect_ids(&outcome.data, &mut ids);
        }
        if !ids.is_empty() {
            let ids: Vec<Uuid> = ids.into_iter().collect();
            let forms =
                self.core.store().read(tenant).and_then(|mut reader| reader.short_forms(&ids)).unwrap_or_default();
            outcome.short_ids = forms.into_iter().map(|(id, short)| (id.to_string(), short)).collect();
        }
        outcome
    }
}

/// The token that was given, if one was.
pub fn given_token() -> Result<Option<String>, Failure> {
    match std::env::var(environment::TOKEN) {
        Err(VarError::NotUnicode(_)) => Err(Rule::denied("the token is not known here").into()),
        token => Ok(token.ok().filter(|token| !token.is_empty())),
    }
}

/// Refuses whoever comes with a token.
pub fn refuse(token: Option<&String>, what: &str) -> Result<(), Failure> {
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

/// Asks on a terminal; elsewhere `--yes` is needed.
fn ask_first(action: &Entry, rehearsed: &Value) -> Result<(), Failure> {
    let (noun, verb) = action.command;
    let name = ["variant", "name", "handle", "key", "title", "question", "session_id", "id"]
        .iter()
        .find_map(|field| rehearsed.get(field).and_then(Value::as_str))
        .unwrap_or_default();
    let (what, question) = match rehearsed.get("removed").filter(|_| noun == "cleanup") {
        Some(removed) => {
            let what = if verb == "null-role" { "spawns without a role" } else { verb };
            (String::new(), format!("remove {removed} {what}"))
        }
        None => (format!(" {name:?}"), format!("{} {name}", format!("{verb} {noun}").trim_end())),
    };
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        let command = format!("{noun} {verb}");
        return Err(Rule::usage(format!("{}{what} needs --yes here", command.trim_start()))
            .hint("--dry-run shows what would happen")
            .into());
    }
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question}? [y/N] ")?;
    stderr.flush()?;
    let mut reply = String::new();
    std::io::stdin().lock().read_line(&mut reply)?;
    match reply.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Rule::usage("nothing was changed").into()),
    }
}

fn completions(matches: &ArgMatches) -> Outcome {
    let mut script = Vec::new();
    if let Some(shell) = matches.get_one::<clap_complete::Shell>("shell") {
        clap_complete::generate(*shell, &mut arguments::command(), "trackway", &mut script);
    }
    Outcome::new(Value::String(String::from_utf8_lossy(&script).into_owned()), Shape::Text)
}
