//! What is installed here: Claude Code, and this binary as a client will find it.

use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use trackway_client_claude::settings::{Version, is_our_name};
use trackway_domain::Error as Rule;
use trackway_runner::claude_code::CLIENT;

use crate::failure::Failure;

/// A client on Node needs most of a second to say who it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// The version of the `claude` on the path, when there is one that says so in time.
pub fn version() -> Option<Version> {
    let mut command = Command::new(on_path("claude").next()?);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() > deadline {
            child.kill().ok()?;
            child.wait().ok()?;
            return None;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let mut said = String::new();
    child.stdout?.take(100).read_to_string(&mut said).ok()?;
    said.parse().ok()
}

/// Whether the client that workers start can be found; else why not.
pub fn is_there() -> Result<(), String> {
    let said = env::var(CLIENT).ok().filter(|said| !said.trim().is_empty());
    let said = said.as_deref().unwrap_or("claude");
    let program = said.split_whitespace().next().unwrap_or_default();
    let is_found = if program.contains('/') { Path::new(program).is_file() } else { on_path(program).next().is_some() };
    if is_found { Ok(()) } else { Err(format!("there is no program {program:?}; {CLIENT} says where Claude Code is")) }
}

/// The path of this binary that lasts: the one on the path, which may be a link that an update turns elsewhere.
pub fn program() -> Result<String, Failure> {
    let this = env::current_exe()?;
    let is_this =
        |path: &PathBuf| matches!((fs::canonicalize(path), fs::canonicalize(&this)), (Ok(a), Ok(b)) if a == b);
    let path = on_path("trackway").find(is_this).unwrap_or_else(|| this.clone());
    match path.to_str() {
        Some(path) if is_our_name(path) => Ok(path.to_owned()),
        _ => Err(Rule::usage(format!("this binary is {}, and its hooks would not be known again", path.display()))
            .hint("a name that begins with trackway is known: rename it, or connect with a link to it on the path")
            .into()),
    }
}

/// Whether a plain `trackway` would be found.
pub fn is_on_path() -> bool {
    on_path("trackway").next().is_some()
}

/// The files of this name on the path. Relative directories are left out: they are elsewhere for everyone else.
fn on_path(name: &str) -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = env::split_paths(&path).filter(|directory| directory.is_absolute()).collect();
    let name = format!("{name}{}", env::consts::EXE_SUFFIX);
    directories.into_iter().map(move |directory| directory.join(&name)).filter(|file| Path::is_file(file))
}
