//! Audits the dependencies: their licences, their sources and their number.
//!
//! The audit does not check for known vulnerabilities: that needs the network, and these tests run without it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

/// The highest allowed number of packages in Cargo.lock. Raise it deliberately, in the commit that adds the dependency.
const PACKAGES_MAX: usize = 330;

/// The source of packages from crates.io. Other registries have other addresses, and git sources start with `git+`.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Allowed licences, as packages state them. Read a new licence before adding it.
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
    // Root certificates: data that may be redistributed.
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

/// The metadata of all packages, including those for other platforms.
fn packages() -> Vec<Value> {
    let answer = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(workspace())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&answer.stderr);
    assert!(
        answer.status.success(),
        "cargo metadata failed; to fetch missing packages, run: cargo fetch --locked\n{stderr}"
    );
    let metadata: Value = serde_json::from_slice(&answer.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn describe_matching(packages: &[Value], predicate: impl Fn(&Value) -> bool) -> Vec<String> {
    packages
        .iter()
        .filter(|package| predicate(package))
        .map(|package| {
            format!("{} {}: {} {}", package["name"], package["version"], package["license"], package["source"])
        })
        .collect()
}

#[test]
fn all_licences_are_on_the_allow_list() {
    let unknown = describe_matching(&packages(), |package| {
        !package["license"].as_str().is_some_and(|licence| LICENCES.contains(&licence))
    });
    assert_eq!(unknown, Vec::<String>::new());
}

#[test]
fn packages_come_from_the_workspace_or_crates_io() {
    assert_eq!(describe_matching(&packages(), has_other_source), Vec::<String>::new());
    let other_registry = json!({ "name": "a", "source": "registry+https://registry.example/index" });
    assert_eq!(
        describe_matching(&[other_registry, json!({ "name": "ours", "source": null })], has_other_source).len(),
        1
    );
}

fn has_other_source(package: &Value) -> bool {
    package["source"].as_str().is_some_and(|source| source != CRATES_IO)
}

#[test]
fn package_count_stays_below_limit() {
    let count = packages().len();
    assert!(count <= PACKAGES_MAX, "{count} packages, the limit is {PACKAGES_MAX}");
}

/// The keys and values of one section of a manifest.
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
fn workspace_table_is_sorted_and_lists_every_dependency() {
    let manifest = fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let table = section(&manifest, "[workspace.dependencies]");
    assert!(table.is_sorted(), "[workspace.dependencies] must be sorted by name");

    let mut used = BTreeSet::new();
    for package in packages().iter().filter(|package| package["source"].is_null()) {
        let path = package["manifest_path"].as_str().unwrap();
        let manifest = fs::read_to_string(path).unwrap();
        for heading in ["[dependencies]", "[dev-dependencies]", "[build-dependencies]"] {
            for (name, value) in section(&manifest, heading) {
                let inherited = name.strip_suffix(".workspace").filter(|_| value == "true");
                let name = inherited.unwrap_or(&name).to_owned();
                let is_inherited = inherited.is_some() || value.starts_with("{ workspace = true");
                assert!(is_inherited, "{path}: {name} does not use the workspace table");
                used.insert(name);
            }
        }
    }
    let listed: BTreeSet<_> = table.into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, used);
}
