//! Says which version this is, and in release builds of which commit.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TRACKWAY_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    // Who packs a source archive, where there is no repository, can say which commit it is of. A development build would
    // be made anew after every commit, so it does not ask.
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let given = env::var("TRACKWAY_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| if is_release { of_repository() } else { None });
    let shown = commit.map_or_else(|| version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo::rustc-env=TRACKWAY_VERSION={shown}");
    // At a fixed address nothing has to be adjusted at the start: docs/decisions/0010.
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let is_static = target("FEATURE").split(',').any(|feature| feature == "crt-static");
    if is_release && target("OS") == "linux" && target("ENV") == "gnu" && !is_static {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}

/// The commit that is checked out, when this is our repository and not one that a source archive was unpacked in.
fn of_repository() -> Option<String> {
    if !Path::new("../../.git").exists() {
        return None;
    }
    for part in ["logs/HEAD", "index"] {
        println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", part])?);
    }
    git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let answer = Command::new("git").args(arguments).output().ok().filter(|answer| answer.status.success())?;
    let said = String::from_utf8(answer.stdout).ok()?.trim().to_owned();
    (!said.is_empty() && !said.contains('\n')).then_some(said)
}
