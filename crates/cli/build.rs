//! Sets `TRACKWAY_VERSION`: the version, and in release builds the commit.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TRACKWAY_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    // A build from a source archive has no repository: its packager sets TRACKWAY_COMMIT. Development builds omit the
    // commit, because otherwise every commit would cause a rebuild.
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let given = env::var("TRACKWAY_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| if is_release { commit_of_repository() } else { None });
    let shown = commit.map_or_else(|| version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo::rustc-env=TRACKWAY_VERSION={shown}");
    // A program at a fixed address needs no relocations when it starts: docs/decisions/0010.
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let is_static = target("FEATURE").split(',').any(|feature| feature == "crt-static");
    if is_release && target("OS") == "linux" && target("ENV") == "gnu" && !is_static {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}

/// The checked-out commit. None if this is a source archive unpacked inside another repository.
fn commit_of_repository() -> Option<String> {
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
    let line = String::from_utf8(answer.stdout).ok()?.trim().to_owned();
    (!line.is_empty() && !line.contains('\n')).then_some(line)
}
