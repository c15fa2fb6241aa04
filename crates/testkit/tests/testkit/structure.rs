//! Checks architecture rules that the compiler cannot check.

use std::{
    fs,
    path::{Path, PathBuf},
};

use trackway_actions::registry::ACTIONS;
use trackway_views::registry::VIEWS;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The Rust files in a folder, with their texts.
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

/// Lines of a crate's code, outside its unit tests, that contain one of the forbidden texts.
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
    for name in ["actions", "views", "capture", "server", "cli", "runner"] {
        let found = lines_with(
            name,
            &[
                " Engine::",
                "(Engine::",
                "Connection::Sqlite",
                "Connection::Postgres",
                "engine() ==",
                "prefers_one_transaction",
                "prepare_insert_by_variant",
                "WriteMode::OPTIMISTIC",
                "mode.optimistic",
            ],
        );
        assert!(found.is_empty(), "move this into a function of store:\n{}", found.join("\n"));
    }
}

#[test]
fn only_store_actions_and_views_hold_sql() {
    for name in ["capture", "server", "cli", "runner"] {
        let found = lines_with(name, &["tenant_id = ?1", "_unscoped(", "\"select ", ".query::<", "::select()"]);
        assert!(found.is_empty(), "move this into a function of views or store:\n{}", found.join("\n"));
    }
}

/// Files that hold the same verb for several nouns, with their crates.
const SHARED: &[(&str, &str)] = &[("actions", "archive.rs"), ("actions", "delete.rs"), ("views", "definitions.rs")];

/// The files that may contain the type of a command.
fn candidates((noun, verb): (&str, &str)) -> [String; 3] {
    let file = |name: &str| name.replace('-', "_");
    let noun = if noun.is_empty() { verb } else { noun };
    let (noun, verb) = (file(noun), file(verb));
    [format!("{noun}/{verb}.rs"), format!("{noun}.rs"), format!("{noun}/mod.rs")]
}

/// Checks that the command determines the file: `<noun>/<verb>.rs`, `<noun>.rs` or `<noun>/mod.rs` must contain its
/// type.
fn check_path(name: &str, command: (&str, &str), schema: &serde_json::Value) {
    let folder = crates().join(name).join("src");
    let type_name = schema.get("title").unwrap().as_str().unwrap();
    let candidates = candidates(command);
    let shared = SHARED.iter().filter(|(owner, _)| *owner == name).map(|(_, file)| *file);
    let names_type = |candidate: &str| {
        fs::read_to_string(folder.join(candidate)).is_ok_and(|text| {
            text.split(|char: char| !char.is_alphanumeric() && char != '_').any(|word| word == type_name)
        })
    };
    let found = candidates.iter().map(String::as_str).chain(shared).any(names_type);
    assert!(found, "{type_name} is in none of {} in {name}", candidates.join(", "));
}

#[test]
fn paths_of_actions_and_views_follow_their_commands() {
    for action in ACTIONS {
        check_path("actions", action.command, &(action.schema)().to_value());
    }
    for view in VIEWS {
        check_path("views", view.command, &(view.schema)().to_value());
    }
}

/// The noun and the verb that a line declares as the command of an action or a view.
fn declared_command(line: &str) -> Option<(&str, &str)> {
    let (_, declared) = line.split_once("const COMMAND: (&'static str, &'static str) = (\"")?;
    declared.strip_suffix("\");")?.split_once("\", \"")
}

/// Searches the sources, because they also contain actions that no interface offers and that no registry lists. Unlike
/// `check_path`, does not accept a file that only re-exports the type.
#[test]
fn each_command_is_declared_in_the_file_named_after_it() {
    let (mut found, mut misplaced) = (0, Vec::new());
    for name in ["actions", "views"] {
        let folder = crates().join(name).join("src");
        for (path, text) in sources(&folder) {
            let file = path.strip_prefix(&folder).unwrap().to_string_lossy().into_owned();
            for command in text.lines().filter_map(declared_command) {
                found += 1;
                if !candidates(command).contains(&file) {
                    misplaced.push(format!("{command:?} is in {name}/{file}"));
                }
            }
        }
    }
    assert!(found > 100, "found only {found} commands");
    assert_eq!(misplaced, Vec::<String>::new());
}
