//! `trackway init`: making a database, with what must be there from the start.

use std::{env, io::IsTerminal};

use clap::{ArgMatches, parser::ValueSource};
use serde_json::json;
use trackway_actions::{
    Core,
    founding::{self, Founded},
};
use trackway_clients::CLIENTS;
use trackway_domain::Error as Rule;
use trackway_store::{Store, Url};

use crate::{
    door::Outcome,
    failure::Failure,
    location::{Location, project_file, user_file},
    render::Shape,
    user,
};

/// Makes the database that was asked for. What is there stays as it is.
pub fn init(matches: &ArgMatches) -> Result<Outcome, Failure> {
    let user = matches.get_flag("user");
    let flag = matches.value_source("db") == Some(ValueSource::CommandLine);
    if user && flag {
        return Err(Rule::usage("--user names a database, and so does --db").hint("give one of them").into());
    }
    let said = matches.get_one::<String>("db").filter(|_| !user);
    let url = match said {
        Some(said) => Url::parse(said)?,
        None if user => Url::sqlite(user_file()?),
        None => Url::sqlite(project_file(&env::current_dir()?)),
    };
    let before = if said.is_none() && !user { used_before(&url) } else { None };
    let core = Core::new(Store::create(url.clone())?);
    if let (Url::Sqlite(file), None, false) = (&url, said, user) {
        keep_out_of_git(file)?;
    }
    let tenant = matches.get_one::<String>("tenant").map_or(founding::LOCAL_TENANT, String::as_str);
    let handle = user::handle();
    let founded = core.found(tenant, &handle)?;
    let data = json!({
        "database": url.to_string(),
        "tenant": tenant,
        "studio": founding::MAIN_STUDIO,
        "agent": founding::WORKER,
        "person": handle,
        "new": founded == Founded::Tenant,
    });
    let mut outcome = Outcome::new(data, Shape::Fields);
    if let Some(before) = before.filter(|_| founded == Founded::Tenant) {
        outcome.remarks.push(format!(
            "note: until now {before} was used here, and it keeps what it holds; trackway ingest brings earlier sessions of {} into this one",
            CLIENTS.display_names()
        ));
    }
    if std::io::stderr().is_terminal() {
        let (connect, clients) = (CLIENTS.connect_command(), CLIENTS.display_names());
        outcome
            .remarks
            .push(format!("next: {connect} records what {clients} does here; trackway demo tells a small story"));
    }
    Ok(outcome)
}

/// The database that commands typed here have used so far, where there is another.
fn used_before(new: &Url) -> Option<Url> {
    let used = Location::find_from(env::current_dir().ok().as_deref(), None, None).ok()?.url;
    let is_there = match &used {
        Url::Sqlite(file) => file.exists(),
        Url::Postgres(_) => true,
    };
    (is_there && used.whole() != new.whole()).then_some(used)
}

/// The record is not part of the project's source.
fn keep_out_of_git(file: &std::path::Path) -> Result<(), Failure> {
    let ignore = file.with_file_name(".gitignore");
    if !ignore.exists() {
        std::fs::write(ignore, "*\n")?;
    }
    Ok(())
}
