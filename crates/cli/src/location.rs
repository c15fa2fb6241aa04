//! Which database is meant: a flag, a variable, the project's, the user's.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use clap::ArgMatches;
use etcetera::BaseStrategy;
use trackway_actions::{Core, founding};
use trackway_capture::{hook::Destination, paths::is_below};
use trackway_domain::Error as Rule;
use trackway_store::{Store, Url, registry::tenant_named};

use crate::{
    config::{Config, ModelConfig},
    environment,
    failure::Failure,
    user,
};

/// The folder of a project's database.
pub const FOLDER: &str = ".trackway";
/// The file in it.
pub const FILE: &str = "trackway.db";
/// What is configured, beside a database or for a user.
const CONFIG: &str = "config.toml";

/// Where a database is, and whether it may be made on the first visit.
#[derive(Debug)]
pub struct Location {
    pub url: Url,
    pub tenant: String,
    /// The user's own database needs no set-up.
    make_if_missing: bool,
    /// The project it is found in, when it is a project's.
    pub project: Option<PathBuf>,
    /// Directories whose sessions are not read.
    pub exclude: Vec<PathBuf>,
    /// Whether only the project says so, and the user never did, that its data goes to a server: a cloned project may
    /// say anything.
    pub is_sent_away: bool,
    /// The model that agents think with, as it is configured.
    pub model: ModelConfig,
}

impl Location {
    /// Flags win over environment over project over user.
    pub fn find(matches: &ArgMatches) -> Result<Self, Failure> {
        let said = |name: &str| matches.get_one::<String>(name).cloned();
        Self::find_from(env::current_dir().ok().as_deref(), said("db"), said("tenant"))
    }

    /// The same for whoever is in a directory, with what was said.
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
        let is_sent_away = db.is_none() && is_server && !is_trusted;
        let file = folder.map(|folder| folder.join(FILE)).filter(|file| file.exists());
        let (url, make_if_missing, project) = match (db, project.db, file, user.db) {
            (Some(said), ..) => (Url::parse(&said)?, false, None),
            (None, Some(configured), ..) => (Url::parse(&configured)?, false, top),
            (None, None, Some(file), _) => (Url::sqlite(file), false, top),
            (None, None, None, Some(configured)) => (Url::parse(&configured)?, false, None),
            (None, None, None, None) => (Url::sqlite(user_file()?), true, None),
        };
        let tenant = tenant.unwrap_or_else(|| founding::LOCAL_TENANT.to_owned());
        Ok(Self { url, tenant, make_if_missing, project, exclude, is_sent_away, model })
    }

    pub fn open(&self) -> trackway_actions::Result<Core> {
        match Store::open(self.url.clone()) {
            Err(trackway_store::Error::Missing(_)) if self.make_if_missing => {
                self.founded(Core::new(Store::create(self.url.clone())?))
            }
            store => self.founded(Core::new(store?)),
        }
    }

    /// Sees to it that somebody can be in the user's own database. Whoever made it may have been cut off before that, or
    /// not have come so far yet.
    fn founded(&self, core: Core) -> trackway_actions::Result<Core> {
        if self.make_if_missing && tenant_named(core.store(), founding::LOCAL_TENANT).is_err() {
            core.found(founding::LOCAL_TENANT, &user::handle())?;
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

    fn open_patient(&self, wait_ms: u32) -> trackway_capture::Result<Core> {
        Ok(match Store::open_patient(self.url.clone(), wait_ms) {
            Err(trackway_store::Error::Missing(_)) if self.make_if_missing => self.open()?,
            store => self.founded(Core::new(store?))?,
        })
    }

    fn hand_on(&self, command: &mut Command) {
        command.env(environment::DATABASE, self.url.whole()).env(environment::TENANT, &self.tenant);
    }
}

/// The nearest `.trackway` upward that holds a database or says where one is. One that is there and closed to this user is
/// not passed by: what is meant for the project would go into another database.
fn project_folder(here: &Path) -> Result<Option<PathBuf>, Failure> {
    for folder in here.ancestors().map(|directory| directory.join(FOLDER)).filter(|folder| folder.is_dir()) {
        let holds = |file| folder.join(file).try_exists();
        match holds(FILE).and_then(|holds_one| Ok(holds_one || holds(CONFIG)?)) {
            Ok(true) => return Ok(Some(folder)),
            Ok(false) => (),
            Err(error) => {
                return Err(Rule::denied(format!("{} cannot be entered: {error}", folder.display()))
                    .hint("it belongs to somebody else; ask them, or say which database: --db sqlite:PATH")
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

/// The folder of the user's database; a temporary one where the user has no home.
pub fn user_folder() -> PathBuf {
    user_file().ok().and_then(|file| file.parent().map(Path::to_path_buf)).unwrap_or_else(env::temp_dir)
}

/// The user's database.
pub fn user_file() -> Result<PathBuf, Failure> {
    let user = etcetera::choose_base_strategy()
        .map_err(|_| Rule::usage("there is no home directory").hint("say which database: --db sqlite:PATH"))?;
    Ok(user.data_dir().join("trackway").join(FILE))
}

/// The top of the project that the current directory is in: a directory with `.trackway` or of a git repository.
pub fn project_top() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    here.ancestors().find(|above| above.join(FOLDER).is_dir() || above.join(".git").exists()).map(Path::to_owned)
}

/// The project's database, in a directory.
pub fn project_file(directory: &Path) -> PathBuf {
    directory.join(FOLDER).join(FILE)
}
