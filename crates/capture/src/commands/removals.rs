//! Finds the files that a command removed: the arguments of `rm` that no longer exist.
//!
//! The file system does not record when a file was removed, but the command shows it. Arguments that a shell would have
//! to expand are ignored.

use std::path::{Path, PathBuf};

use trackway_domain::{
    enums::{ChangeEvidence, FileChange},
    lexical_path::normalize,
    observed::FileFacts,
};

use super::{is_keyword, simple_commands};
use crate::redact::redacted;

/// Maximum number of removed paths that are recorded for one command.
const PATHS_MAX: usize = 200;

/// The files and folders that a command removed. The database knows which files were in a folder.
pub fn find_removed(tool: &str, tool_use_id: &str, command: &str, cwd: Option<&str>) -> Vec<FileFacts> {
    let Some(cwd) = cwd else { return Vec::new() };
    let is_gone = |path: &PathBuf| path.symlink_metadata().is_err();
    let fact = |path: PathBuf| FileFacts {
        path: redacted(&path.to_string_lossy()).into_owned(),
        change: FileChange::Delete,
        evidence: ChangeEvidence::Observed,
        tool: Some(tool.to_owned()),
        tool_use_id: Some(tool_use_id.to_owned()),
        digest: None,
        line_hashes: None,
    };
    rm_paths(command, Path::new(cwd)).into_iter().filter(is_gone).take(PATHS_MAX).map(fact).collect()
}

/// The paths in a command's arguments to `rm`, `unlink` and `git rm`.
fn rm_paths(command: &str, cwd: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut directory = cwd.to_path_buf();
    for words in simple_commands(command) {
        let keywords = words.iter().take_while(|word| word.as_deref().is_some_and(is_keyword)).count();
        let words = &words[keywords..];
        let named =
            |count: usize| words[count..].iter().flatten().filter(|word| !word.is_empty() && !word.starts_with('-'));
        match (words.first().and_then(Option::as_deref), words.get(1)) {
            // `cwd` may already be the directory that this `cd` changed to.
            (Some("cd"), Some(Some(folder))) if cwd.ends_with(folder) => directory = cwd.to_path_buf(),
            (Some("cd"), Some(Some(folder))) => directory.push(folder),
            // The rest of the command runs in an unknown directory.
            (Some("cd" | "pushd" | "popd"), _) => return paths,
            (Some("rm" | "unlink"), _) => paths.extend(named(1).map(|path| normalize(&directory.join(path)))),
            (Some("git"), Some(Some(verb))) if verb == "rm" => {
                paths.extend(named(2).map(|path| normalize(&directory.join(path))));
            }
            _ => {}
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_paths_that_a_command_removes() {
        for (command, wanted) in [
            ("rm a.txt", &["/p/a.txt"][..]),
            ("rm -rf -- src/old ../b 'c d' e\\ f \"g\"", &["/p/src/old", "/b", "/p/c d", "/p/e f", "/p/g"]),
            ("make && rm a; git rm -q b || unlink c", &["/p/a", "/p/b", "/p/c"]),
            ("cd sub && rm a", &["/p/sub/a"]),
            ("cd p && rm a", &["/p/a"]),
            ("cd \"$HOME\"; rm a", &[]),
            ("cd; rm a", &[]),
            ("rm *.txt $x ~/a {b,c} ok", &["/p/ok"]),
            ("if [ -e a ]; then rm a; fi", &["/p/a"]),
            ("rm a 2>/dev/null # and b", &["/p/a", "/p/2"]),
            ("cat > x <<'EOF'\nrm a\nEOF", &[]),
            ("(cd x; rm a)", &[]),
            ("echo rm a; git mv a b; ls a", &[]),
            ("rm 'open", &["/p/open"]),
            ("rm \\", &[]),
            ("", &[]),
        ] {
            let wanted: Vec<PathBuf> = wanted.iter().map(PathBuf::from).collect();
            assert_eq!(rm_paths(command, Path::new("/p")), wanted, "{command}");
        }
    }

    #[test]
    fn existing_files_are_not_reported_as_removed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kept"), "").unwrap();
        let facts = find_removed("shell", "t1", "rm kept gone", folder.path().to_str());
        let paths: Vec<_> = facts.iter().map(|fact| Path::new(&fact.path)).collect();
        assert_eq!(paths, [folder.path().join("gone")]);
        assert!(find_removed("shell", "t1", "rm gone", None).is_empty());
    }
}
