//! Checks that the glossary covers the command line and the kinds of resources, and that the project uses its terms.

use std::{collections::BTreeSet, fs, path::Path};

use trackway_actions::registry::ACTIONS;
use trackway_domain::kind::ResourceType;
use trackway_views::registry::VIEWS;

const GLOSSARY: &str = "docs/concepts/glossary.md";

/// Nouns of the command line that are not product terms.
const OTHER_NOUNS: &[&str] = &["cleanup", "db", "import"];

/// Words of an earlier vocabulary. The current words are, for example, "interface", "workspace" and "hook daemon".
const RETIRED: &[&str] = &["house", "door", "doors", "bell", "keeper", "keepers", "makings"];

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn terms() -> BTreeSet<String> {
    let text = fs::read_to_string(workspace().join(GLOSSARY)).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    rows.map(|(term, _)| term.to_owned()).filter(|term| term != "term").collect()
}

/// The first words of commands with two words, such as `task` in `task set`.
fn nouns() -> BTreeSet<&'static str> {
    let actions = ACTIONS.iter().map(|action| action.command);
    let views = VIEWS.iter().map(|view| view.command);
    actions.chain(views).map(|(noun, _)| noun).filter(|noun| !noun.is_empty()).collect()
}

#[test]
fn glossary_has_all_nouns_and_resource_types() {
    let terms = terms();
    let nouns = nouns().into_iter().filter(|noun| !OTHER_NOUNS.contains(noun)).map(|noun| match noun {
        "queue" => "queue item".to_owned(),
        noun => noun.to_owned(),
    });
    let resources = ResourceType::ALL.iter().map(|resource| resource.as_str().replace('_', " "));
    let missing: Vec<String> = nouns.chain(resources).filter(|word| !terms.contains(word)).collect();
    assert_eq!(missing, Vec::<String>::new(), "add these to {GLOSSARY}");
}

#[test]
fn each_term_is_used_in_the_help() {
    let help = fs::read_to_string(workspace().join("docs/reference/cli.md")).unwrap().to_lowercase();
    let guides = fs::read_dir(workspace().join("docs/guides")).unwrap();
    let guides = guides.map(|guide| fs::read_to_string(guide.unwrap().path()).unwrap().to_lowercase());
    let text = (help + &guides.collect::<String>()).replace('-', " ");
    let unused: Vec<String> = terms().into_iter().filter(|term| !text.contains(&term.replace('-', " "))).collect();
    assert_eq!(unused, Vec::<String>::new(), "{GLOSSARY} has terms that neither the help nor a guide uses");
}

#[test]
fn help_and_documents_avoid_retired_words() {
    let mut documents = vec![workspace().join("README.md"), workspace().join("docs/architecture.md")];
    for folder in ["docs/guides", "docs/concepts", "docs/reference"] {
        documents.extend(fs::read_dir(workspace().join(folder)).unwrap().map(|entry| entry.unwrap().path()));
    }
    let mut found = Vec::new();
    for path in documents {
        let text = fs::read_to_string(&path).unwrap().to_lowercase();
        for (line, number) in text.lines().zip(1..) {
            let mut words = line.split(|char: char| !char.is_alphanumeric());
            if words.any(|word| RETIRED.contains(&word)) {
                found.push(format!("{}:{number}: {line}", path.display()));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}
