//! The name of the operating system user, as a handle.

use std::env;

/// The name of the user. Characters that are invalid in a handle are replaced.
pub fn handle() -> String {
    let named =
        ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| env::var(name).ok().filter(|name| !name.is_empty()));
    let name = named.or_else(from_password_file).unwrap_or_else(|| "user".to_owned());
    name.chars()
        .map(|character| if character.is_alphanumeric() || "._-".contains(character) { character } else { '-' })
        .collect()
}

/// Finds the name by the user id, because hooks and services may run without the environment variables.
#[cfg(unix)]
fn from_password_file() -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let number = std::fs::metadata("/proc/self").ok()?.uid().to_string();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.split(':').nth(2) == Some(&number))?;
    line.split(':').next().map(str::to_owned)
}

#[cfg(not(unix))]
fn from_password_file() -> Option<String> {
    None
}
