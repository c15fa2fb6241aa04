//! `trackway init`: making a database, with what must be there from the start.

use std::env;

use clap::ArgMatches;
use serde_json::json;
use trackway_actions::{Core, founding};
use trackway_store::{Store, Url};

use crate::{
    door::Outcome,
    failure::Failure,
    location::{project_file, user_file},
    render::Shape,
    user,
};

/// Makes the database that was asked for. One that is there stays as it is.
pub fn init(matches: &ArgMatches) -> Result<Outcome, Failure> {
    let said = matches.get_one::<String>("db");
    let project = said.is_none() && !matches.get_flag("user");
    let url = match said {
        Some(said) => Url::parse(said)?,
        None if project => Url::sqlite(project_file(&env::current_dir()?)),
        None => Url::sqlite(user_file()?),
    };
    let core = Core::new(Store::create(url.clone())?);
    if project && let Url::Sqlite(file) = &url {
        keep_out_of_git(file)?;
    }
    let handle = user::handle();
    let new = core.found(founding::LOCAL_TENANT, &handle)?;
    let data = json!({
        "database": url.to_string(),
        "tenant": founding::LOCAL_TENANT,
        "studio": founding::MAIN_STUDIO,
        "agent": founding::WORKER,
        "person": handle,
        "new": new,
    });
    Ok(Outcome::new(data, Shape::Fields))
}

/// The record is not part of the project's source.
fn keep_out_of_git(file: &std::path::Path) -> Result<(), Failure> {
    let ignore = file.with_file_name(".gitignore");
    if !ignore.exists() {
        std::fs::write(ignore, "*\n")?;
    }
    Ok(())
}
