//! `trackway init`: creates a database with a tenant, a studio and a person.

use std::{env, io::IsTerminal};

use clap::{ArgMatches, parser::ValueSource};
use serde_json::json;
use trackway_actions::{
    Core,
    tenant::{self, InitResult},
};
use trackway_clients::CLIENTS;
use trackway_domain::Error as Rule;
use trackway_store::{Store, Url};

use crate::{
    dispatch::CommandOutcome,
    failure::Failure,
    location::{Location, project_file, user_file},
    render::Layout,
    user,
};

/// Creates the database. An existing database stays as it is.
pub fn init(matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let user = matches.get_flag("user");
    let flag = matches.value_source("db") == Some(ValueSource::CommandLine);
    if user && flag {
        return Err(Rule::usage("use only one of --user and --db").into());
    }
    let given_url = matches.get_one::<String>("db").filter(|_| !user);
    let url = match given_url {
        Some(url) => Url::parse(url)?,
        None if user => Url::sqlite(user_file()?),
        None => Url::sqlite(project_file(&env::current_dir()?)),
    };
    let previous = if given_url.is_none() && !user { previous_database(&url) } else { None };
    let core = Core::new(Store::create(url.clone())?);
    if let (Url::Sqlite(file), None, false) = (&url, given_url, user) {
        write_gitignore(file)?;
    }
    let tenant = matches.get_one::<String>("tenant").map_or(tenant::LOCAL_TENANT, String::as_str);
    let handle = user::handle();
    let init_result = core.init_tenant(tenant, &handle)?;
    let data = json!({
        "database": url.to_string(),
        "tenant": tenant,
        "studio": tenant::MAIN_STUDIO,
        "agent": tenant::WORKER,
        "person": handle,
        "new": init_result == InitResult::CreatedTenant,
    });
    let mut outcome = CommandOutcome::new(data, Layout::Fields);
    if let Some(previous) = previous.filter(|_| init_result == InitResult::CreatedTenant) {
        outcome.remarks.push(format!(
            "note: commands here used {previous} until now; its data stays there. To import earlier sessions of {} into the new database: trackway ingest",
            CLIENTS.display_names()
        ));
    }
    if std::io::stderr().is_terminal() {
        let (connect, clients) = (CLIENTS.connect_command(), CLIENTS.display_names());
        outcome
            .remarks
            .push(format!("next: {connect} to record {clients} sessions, or trackway demo for a guided demo"));
    }
    Ok(outcome)
}

/// The database that commands in this directory used before, if it differs from the new database.
fn previous_database(new: &Url) -> Option<Url> {
    let current = Location::find_from(env::current_dir().ok().as_deref(), None, None).ok()?.url;
    let exists = match &current {
        Url::Sqlite(file) => file.exists(),
        Url::Postgres(_) => true,
    };
    (exists && current.with_password() != new.with_password()).then_some(current)
}

/// Excludes the database from the project's git repository.
fn write_gitignore(file: &std::path::Path) -> Result<(), Failure> {
    let ignore = file.with_file_name(".gitignore");
    if !ignore.exists() {
        std::fs::write(ignore, "*\n")?;
    }
    Ok(())
}
