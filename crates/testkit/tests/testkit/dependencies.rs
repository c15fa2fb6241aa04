//! The dependency audit: whose code is in here, under which licence, from where, and how much of it.
//!
//! Known vulnerabilities are not looked up: the database of advisories is fetched from the network at every run, and
//! these tests need none.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

/// Packages in Cargo.lock. Raise it on purpose, in the commit that adds the dependency.
const PACKAGES_MAX: usize = 330;

/// The source of a package from crates.io. Another registry has another address; a git repository would say `git+`.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Licences as packages state them. One that is not here is read before it is added.
const LICENCES: &[&str] = &[
    "(Apache-2.0 OR MIT) AND BSD-3-Clause",
    "(MIT OR Apache-2.0) AND Unicode-3.0",
    "Apache-2.0",
    "Apache-2.0 AND ISC",
    "Apache-2.0 OR BSL-1.0",
    "Apache-2.0 OR BSL-1.0 OR MIT",
    "Apache-2.0 OR ISC OR MIT",
    "Apache-2.0 OR MIT",
    "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
    "BSD-3-Clause",
    // The certificates of the web: data, and free to pass on.
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT AND BSD-3-Clause",
    "MIT OR Apache-2.0",
    "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
    "MIT/Apache-2.0",
    "Unlicense OR MIT",
    "Zlib",
    "Zlib OR Apache-2.0 OR MIT",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What cargo knows of every package, those for other platforms included.
fn packages() -> Vec<Value> {
    let answer = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(workspace())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&answer.stderr);
    assert!(answer.status.success(), "cargo metadata failed; is everything there? cargo fetch --locked\n{said}");
    let metadata: Value = serde_json::from_slice(&answer.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn names(packages: &[Value], odd: impl Fn(&Value) -> bool) -> Vec<String> {
    packages
        .iter()
        .filter(|package| odd(package))
        .map(|package| {
            format!("{} {}: {} {}", package["name"], package["version"], package["license"], package["source"])
        })
        .collect()
}

#[test]
fn every_licence_is_known() {
    let unknown =
        names(&packages(), |package| !package["license"].as_str().is_some_and(|licence| LICENCES.contains(&licence)));
    assert_eq!(unknown, Vec::<String>::new());
}

#[test]
fn everything_comes_from_here_or_from_crates_io() {
    assert_eq!(names(&packages(), is_from_elsewhere), Vec::<String>::new());
    let stranger = json!({ "name": "a", "source": "registry+https://registry.example/index" });
    assert_eq!(names(&[stranger, json!({ "name": "ours", "source": null })], is_from_elsewhere).len(), 1);
}

fn is_from_elsewhere(package: &Value) -> bool {
    package["source"].as_str().is_some_and(|source| source != CRATES_IO)
}

#[test]
fn the_dependencies_are_few() {
    let count = packages().len();
    assert!(count <= PACKAGES_MAX, "{count} packages, the limit is {PACKAGES_MAX}");
}

/// The names and values of one section of a manifest.
fn section(manifest: &str, heading: &str) -> Vec<(String, String)> {
    manifest
        .lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, value) = line.split_once('=').unwrap();
            (name.trim().to_owned(), value.trim().to_owned())
        })
        .collect()
}

#[test]
fn every_dependency_is_in_the_sorted_workspace_table() {
    let folder = workspace();
    let table = section(&fs::read_to_string(folder.join("Cargo.toml")).unwrap(), "[workspace.dependencies]");
    assert!(table.is_sorted(), "[workspace.dependencies] is sorted by name");

    let crates = fs::read_dir(folder.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut used = BTreeSet::new();
    for member in crates.chain([folder.join("bench")]) {
        let manifest = fs::read_to_string(member.join("Cargo.toml")).unwrap();
        for heading in ["[dependencies]", "[dev-dependencies]", "[build-dependencies]"] {
            for (name, value) in section(&manifest, heading) {
                let inherited = name.strip_suffix(".workspace").filter(|_| value == "true");
                let name = inherited.unwrap_or(&name).to_owned();
                let is_inherited = inherited.is_some() || value.starts_with("{ workspace = true");
                assert!(is_inherited, "{}: {name} is not taken from the workspace table", member.display());
                used.insert(name);
            }
        }
    }
    let listed: BTreeSet<_> = table.into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, used);
}
