//! Programs on the path: this one as a client finds it, and clients.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use trackway_domain::Error as Rule;

/// The name that hooks and servers are recognised by.
const NAME: &str = "trackway";

/// A path of this program that lasts: the one on the path, which may be a link that an update changes.
pub fn lasting() -> trackway_domain::Result<String> {
    let this = env::current_exe().map_err(|error| Rule::usage(format!("this program has no path: {error}")))?;
    let is_this =
        |path: &PathBuf| matches!((fs::canonicalize(path), fs::canonicalize(&this)), (Ok(a), Ok(b)) if a == b);
    let path = on_path(NAME).find(is_this).unwrap_or_else(|| this.clone());
    match path.to_str() {
        Some(path) if is_own_name(path) => Ok(path.to_owned()),
        _ => Err(Rule::usage(format!("this binary is {}, and its hooks would not be known again", path.display()))
            .hint("a name that begins with trackway is known: rename it, or connect with a link to it on the path")),
    }
}

/// Whether the path of a program ends in a name of ours: `trackway`, `trackway.exe`, `trackway-0.2`.
pub fn is_own_name(program: &str) -> bool {
    let name = program.rsplit(['/', '\\']).next().unwrap_or_default();
    name.strip_prefix(NAME).is_some_and(|rest| !rest.starts_with(|character: char| character.is_alphanumeric()))
}

/// Whether a plain `trackway` would be found.
pub fn is_on_path() -> bool {
    on_path(NAME).next().is_some()
}

/// The files of this name on the path. Relative directories are left out: they are elsewhere for everyone else.
pub fn on_path(name: &str) -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = env::split_paths(&path).filter(|directory| directory.is_absolute()).collect();
    let name = format!("{name}{}", env::consts::EXE_SUFFIX);
    directories.into_iter().map(move |directory| directory.join(&name)).filter(|file| Path::is_file(file))
}
