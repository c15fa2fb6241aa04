//! Finds the database of a command: from a flag, the environment, the project or the user.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use clap::ArgMatches;
use etcetera::BaseStrategy;
use trackway_actions::{Core, tenant};
use trackway_capture::{hook::Destination, paths::is_below};
use trackway_domain::Error as Rule;
use trackway_store::{Store, Url, registry::tenant_named};

use crate::{
    config::{Config, ModelConfig},
    environment,
    failure::Failure,
    user,
};

/// The directory of a project's database and configuration.
pub const FOLDER: &str = ".trackway";
/// The file name of the database.
pub const FILE: &str = "trackway.db";
/// The file name of the configuration.
const CONFIG: &str = "config.toml";

/// A database, and the configuration that applies to it.
#[derive(Debug)]
pub struct Location {
    pub url: Url,
    pub tenant: String,
    /// Set for the user's own database, which needs no `init`.
    create_if_missing: bool,
    /// The top directory of the project, if this is a project's database.
    pub project: Option<PathBuf>,
    /// Directories whose sessions are not recorded.
    pub exclude: Vec<PathBuf>,
    /// Whether the project's configuration names a server, and the user does not trust the project. A cloned project
    /// could otherwise send recorded data to its author.
    pub is_untrusted_server: bool,
    pub model: ModelConfig,
}

impl Location {
    /// Precedence: flags, environment, project, user.
    pub fn find(matches: &ArgMatches) -> Result<Self, Failure> {
        let flag = |name: &str| matches.get_one::<String>(name).cloned();
        Self::find_from(env::current_dir().ok().as_deref(), flag("db"), flag("tenant"))
    }

    /// Finds the database of a directory. `db` and `tenant` take precedence, if given.
    pub fn find_from(directory: Option<&Path>, db: Option<String>, tenant: Option<String>) -> Result<Self, Failure> {
        let folder = match directory.map_or(Ok(None), project_folder) {
            Err(_) if db.is_some() => None,
            folder => folder?,
        };
        let top = folder.as_ref().and_then(|folder| folder.parent()).map(Path::to_path_buf);
        let is_needed = db.is_none();
        let project =
            folder.as_ref().map_or(Ok(Config::default()), |folder| Config::read(&folder.join(CONFIG), is_needed))?;
        let user = user_config(is_needed)?;
        let tenant = tenant.or(project.tenant).or(user.tenant);
        let exclude = [project.exclude, user.exclude].concat();
        let is_server = project.db.as_deref().is_some_and(|url| !url.starts_with("sqlite:"));
        let is_trusted = top.as_ref().is_some_and(|top| is_below(top, &user.trust));
        let model = if is_trusted { project.model } else { project.model.untrusted() }.or(user.model);
        let is_untrusted_server = db.is_none() && is_server && !is_trusted;
        let file = folder.map(|folder| folder.join(FILE)).filter(|file| file.exists());
        let (url, create_if_missing, project) = match (db, project.db, file, user.db) {
            (Some(db), ..) => (Url::parse(&db)?, false, None),
            (None, Some(configured), ..) => (Url::parse(&configured)?, false, top),
            (None, None, Some(file), _) => (Url::sqlite(file), false, top),
            (None, None, None, Some(configured)) => (Url::parse(&configured)?, false, None),
            (None, None, None, None) => (Url::sqlite(user_file()?), true, None),
        };
        let tenant = tenant.unwrap_or_else(|| tenant::LOCAL_TENANT.to_owned());
        Ok(Self { url, tenant, create_if_missing, project, exclude, is_untrusted_server, model })
    }

    pub fn open(&self) -> trackway_actions::Result<Core> {
        match Store::open(self.url.clone()) {
            Err(trackway_store::Error::Missing(_)) if self.create_if_missing => {
                self.ensure_tenant(Core::new(Store::create(self.url.clone())?))
            }
            store => self.ensure_tenant(Core::new(store?)),
        }
    }

    /// Adds the tenant to the user's own database if it is missing. The process that created the database may have been
    /// killed before it added the tenant, or may not have added the tenant yet.
    fn ensure_tenant(&self, core: Core) -> trackway_actions::Result<Core> {
        if self.create_if_missing && tenant_named(core.store(), tenant::LOCAL_TENANT).is_err() {
            core.init_tenant(tenant::LOCAL_TENANT, &user::handle())?;
        }
        Ok(core)
    }
}

impl Destination for Location {
    fn url(&self) -> &Url {
        &self.url
    }

    fn tenant(&self) -> &str {
        &self.tenant
    }

    fn user(&self) -> String {
        user::handle()
    }

    fn open_with_busy_timeout(&self, wait_ms: u32) -> trackway_capture::Result<Core> {
        Ok(match Store::open_with_timeout(self.url.clone(), wait_ms) {
            Err(trackway_store::Error::Missing(_)) if self.create_if_missing => self.open()?,
            store => self.ensure_tenant(Core::new(store?))?,
        })
    }

    fn pass_to_child(&self, command: &mut Command) {
        command.env(environment::DATABASE, self.url.with_password()).env(environment::TENANT, &self.tenant);
    }
}

/// The nearest `.trackway` in this directory and its parents that contains a database or a configuration. An unreadable
/// `.trackway` is an error: skipping it would record the project's data in another database.
fn project_folder(here: &Path) -> Result<Option<PathBuf>, Failure> {
    for folder in here.ancestors().map(|directory| directory.join(FOLDER)).filter(|folder| folder.is_dir()) {
        let contains = |file| folder.join(file).try_exists();
        match contains(FILE).and_then(|has_database| Ok(has_database || contains(CONFIG)?)) {
            Ok(true) => return Ok(Some(folder)),
            Ok(false) => (),
            Err(error) => {
                return Err(Rule::denied(format!("no access to {}: {error}", folder.display()))
                    .hint("another user owns it; ask them for access, or name a database with --db sqlite:PATH")
                    .into());
            }
        }
    }
    Ok(None)
}

fn user_config(is_needed: bool) -> Result<Config, Failure> {
    match etcetera::choose_base_strategy() {
        Ok(user) => Config::read(&user.config_dir().join("trackway").join(CONFIG), is_needed),
        Err(_) => Ok(Config::default()),
    }
}

/// The directory of the user's database, or the directory for temporary files if the user has no home.
pub fn user_folder() -> PathBuf {
    user_file().ok().and_then(|file| file.parent().map(Path::to_path_buf)).unwrap_or_else(env::temp_dir)
}

/// The file of the user's database.
pub fn user_file() -> Result<PathBuf, Failure> {
    let user = etcetera::choose_base_strategy()
        .map_err(|_| Rule::usage("there is no home directory").hint("name a database with --db sqlite:PATH"))?;
    Ok(user.data_dir().join("trackway").join(FILE))
}

/// The top directory of the current project: the nearest one with `.trackway` or `.git`.
pub fn project_top() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    here.ancestors().find(|above| above.join(FOLDER).is_dir() || above.join(".git").exists()).map(Path::to_owned)
}

/// The file of a project's database.
pub fn project_file(directory: &Path) -> PathBuf {
    directory.join(FOLDER).join(FILE)
}
