//! Checks that the files, modules and functions named in documents exist.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The checked documents.
const DOCUMENTS: &[&str] = &["docs/architecture.md", "docs/contributing.md"];
const PLACEHOLDERS: &[&str] = &["NOUN", "VERB"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The texts between single backticks, outside code blocks.
fn code_spans(text: &str) -> BTreeSet<String> {
    let prose = text.split("```").step_by(2).collect::<Vec<_>>().join("\n");
    prose.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect()
}

fn sources(folder: &Path, out: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

fn is_path(span: &str) -> bool {
    let has_folder = span.contains('/') && !span.starts_with('/') && !span.contains(' ');
    let is_file = [".rs", ".sql", ".md", ".toml"].iter().any(|end| span.ends_with(end));
    (has_folder || is_file) && !PLACEHOLDERS.iter().any(|placeholder| span.contains(placeholder))
}

/// The problem with a name in a document; none if the name exists or is not a name in the sources.
fn problem(span: &str, sources: &str) -> Option<String> {
    if is_path(span) {
        return (!workspace().join(span).exists()).then(|| format!("there is no file {span}"));
    }
    if let Some(module) = span.strip_prefix("domain::") {
        let file = format!("crates/domain/src/{module}.rs");
        return (!workspace().join(&file).exists()).then(|| format!("there is no file {file}"));
    }
    let function = span.strip_suffix("()").or_else(|| {
        let (owner, name) = span.split_once("::")?;
        owner.starts_with(char::is_uppercase).then_some(name)
    })?;
    let declared = sources.contains(&format!("fn {function}(")) || sources.contains(&format!("fn {function}<"));
    (!declared).then(|| format!("there is no function {function}"))
}

#[test]
fn documents_name_existing_files_and_functions() {
    let mut code = String::new();
    sources(&workspace().join("crates"), &mut code);
    let mut problems = Vec::new();
    for document in DOCUMENTS {
        let text = fs::read_to_string(workspace().join(document)).unwrap();
        let spans = code_spans(&text);
        assert!(spans.iter().filter(|span| is_path(span)).count() > 10, "{document} names too few files");
        problems.extend(spans.iter().filter_map(|span| Some(format!("{document}: {}", problem(span, &code)?))));
    }
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn reports_names_that_do_not_exist() {
    let problem = |span| problem(span, "fn begin(x: X) {}");
    assert_eq!(problem("crates/domain/src/lib.rs"), None);
    assert_eq!(problem("crates/domain/src/gone.rs").unwrap(), "there is no file crates/domain/src/gone.rs");
    assert_eq!(problem("domain::gone").unwrap(), "there is no file crates/domain/src/gone.rs");
    assert_eq!(problem("begin()"), None);
    assert_eq!(problem("Store::gone").unwrap(), "there is no function gone");
    assert_eq!(problem("/notes/1a2b3c4d"), None);
}
