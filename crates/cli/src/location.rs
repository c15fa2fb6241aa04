//! Which database is meant: a flag, a variable, the project's, the user's.

use std::{
    env,
    path::{Path, PathBuf},
};

use clap::ArgMatches;
use etcetera::BaseStrategy;
use trackway_actions::{Core, founding};
use trackway_domain::Error as Rule;
use trackway_store::{Store, Url};

use crate::{config::Config, failure::Failure, user};

/// The folder of a project's database.
pub const FOLDER: &str = ".trackway";
/// The file in it.
pub const FILE: &str = "trackway.db";

/// Where a database is, and whether it may be made on the first visit.
#[derive(Debug)]
pub struct Location {
    pub url: Url,
    pub tenant: String,
    /// The user's own database needs no set-up.
    make_if_missing: bool,
}

impl Location {
    /// Flags win over environment over project over user.
    pub fn find(matches: &ArgMatches) -> Result<Self, Failure> {
        let folder = project_folder();
        let config = match &folder {
            Some(folder) => Config::read(&folder.join("config.toml"))?.or(user_config()?),
            None => user_config()?,
        };
        let tenant = matches
            .get_one::<String>("tenant")
            .cloned()
            .or(config.tenant)
            .unwrap_or_else(|| founding::LOCAL_TENANT.to_owned());
        let said = matches.get_one::<String>("db").cloned();
        let file = folder.map(|folder| folder.join(FILE)).filter(|file| file.exists());
        let (url, make_if_missing) = match (said, file, config.db) {
            (Some(said), ..) => (Url::parse(&said)?, false),
            (None, Some(file), None) => (Url::sqlite(file), false),
            (None, _, Some(configured)) => (Url::parse(&configured)?, false),
            (None, None, None) => (Url::sqlite(user_file()?), true),
        };
        Ok(Self { url, tenant, make_if_missing })
    }

    pub fn open(&self) -> Result<Core, Failure> {
        match Store::open(self.url.clone()) {
            Err(trackway_store::Error::Missing(_)) if self.make_if_missing => {
                let core = Core::new(Store::create(self.url.clone())?);
                core.found(founding::LOCAL_TENANT, &user::handle())?;
                Ok(core)
            }
            store => Ok(Core::new(store?)),
        }
    }
}

/// The nearest `.trackway` upward.
fn project_folder() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    here.ancestors().map(|directory| directory.join(FOLDER)).find(|folder| folder.is_dir())
}

fn user_config() -> Result<Config, Failure> {
    match etcetera::choose_base_strategy() {
        Ok(user) => Config::read(&user.config_dir().join("trackway").join("config.toml")),
        Err(_) => Ok(Config::default()),
    }
}

/// The user's database.
pub fn user_file() -> Result<PathBuf, Failure> {
    let user = etcetera::choose_base_strategy()
        .map_err(|_| Rule::usage("there is no home directory").hint("say which database: --db sqlite:PATH"))?;
    Ok(user.data_dir().join("trackway").join(FILE))
}

/// The project's database, in a directory.
pub fn project_file(directory: &Path) -> PathBuf {
    directory.join(FOLDER).join(FILE)
}
