//! Programs on the PATH: this program, and the programs of clients.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use trackway_domain::Error as Rule;

/// The program name by which Trackway recognises its own hooks and servers.
const NAME: &str = "trackway";

/// A path of this program that stays valid after an update. Prefers a path on the PATH, which may be a link.
pub fn stable_path() -> trackway_domain::Result<String> {
    let this = env::current_exe()
        .map_err(|error| Rule::usage(format!("cannot determine the path of this program: {error}")))?;
    let is_this =
        |path: &PathBuf| matches!((fs::canonicalize(path), fs::canonicalize(&this)), (Ok(a), Ok(b)) if a == b);
    let path = find_on_path(NAME).find(is_this).unwrap_or_else(|| this.clone());
    match path.to_str() {
        Some(path) if is_own_name(path) => Ok(path.to_owned()),
        _ => Err(Rule::usage(format!("cannot recognise hooks that run {}", path.display())).hint(
            "rename the program so that its name begins with trackway, or put a link with such a name on the PATH",
        )),
    }
}

/// Whether the path of a program ends in a name of this program: `trackway`, `trackway.exe`, `trackway-0.2`.
pub fn is_own_name(program: &str) -> bool {
    let name = program.rsplit(['/', '\\']).next().unwrap_or_default();
    name.strip_prefix(NAME).is_some_and(|rest| !rest.starts_with(|character: char| character.is_alphanumeric()))
}

/// Whether the PATH has a `trackway`.
pub fn is_on_path() -> bool {
    find_on_path(NAME).next().is_some()
}

/// The programs with this name on the PATH. Skips relative directories, because they differ between processes. Like a
/// shell, skips files that are not executable.
pub fn find_on_path(name: &str) -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = env::split_paths(&path).filter(|directory| directory.is_absolute()).collect();
    let name = format!("{name}{}", env::consts::EXE_SUFFIX);
    directories.into_iter().map(move |directory| directory.join(&name)).filter(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    #[cfg(unix)]
    let has_permission =
        |metadata: &fs::Metadata| std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let has_permission = |_: &fs::Metadata| true;
    fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && has_permission(&metadata))
}
