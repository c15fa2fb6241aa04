//! Rules of the architecture that the compiler does not check.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    fs,
    path::{Path, PathBuf},
};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The Rust files under a folder, with their texts.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

/// The lines of a crate's code, before its unit tests, that contain one of the texts.
fn lines_with(name: &str, forbidden: &[&str]) -> Vec<String> {
    let files = sources(&crates().join(name).join("src"));
    assert!(!files.is_empty(), "no sources in {name}");
    let mut found = Vec::new();
    for (path, text) in files {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (line, number) in code.lines().zip(1..) {
            if forbidden.iter().any(|forbidden| line.contains(forbidden)) {
                found.push(format!("{}:{number}: {}", path.display(), line.trim()));
            }
        }
    }
    found
}

#[test]
fn only_store_distinguishes_the_engines() {
    for name in ["actions", "views", "server", "cli", "runner"] {
        let found =
            lines_with(name, &[" Engine::", "(Engine::", "Connection::Sqlite", "Connection::Postgres", "engine() =="]);
        assert!(found.is_empty(), "move this into a function of store:\n{}", found.join("\n"));
    }
}
