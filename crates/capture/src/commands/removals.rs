//! Files that a command took away: the paths that it names to `rm`, and that are gone.
//!
//! A folder does not tell when a file went out of it. The command says so, as far as its words stand for themselves:
//! where the shell would have to be asked what they mean, nothing is said.

use std::path::{Path, PathBuf};

use trackway_domain::{
    observed::FileFacts,
    plain_path::plain,
    words::{ChangeEvidence, FileChange},
};

use super::{is_keyword, simple_commands};
use crate::redact::redacted;

/// Paths that one command is believed to remove.
const PATHS_MAX: usize = 200;

/// The files and folders that a command removed. The record knows what was in a folder.
pub fn removed(tool: &str, tool_use_id: &str, command: &str, cwd: Option<&str>) -> Vec<FileFacts> {
    let Some(cwd) = cwd else { return Vec::new() };
    let is_gone = |path: &PathBuf| path.symlink_metadata().is_err();
    let fact = |path: PathBuf| FileFacts {
        path: redacted(&path.to_string_lossy()).into_owned(),
        change: FileChange::Delete,
        evidence: ChangeEvidence::Observed,
        tool: Some(tool.to_owned()),
        tool_use_id: Some(tool_use_id.to_owned()),
        digest: None,
        written: None,
    };
    paths_in(command, Path::new(cwd)).into_iter().filter(is_gone).take(PATHS_MAX).map(fact).collect()
}

/// The paths that a command gives to `rm`.
fn paths_in(command: &str, cwd: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut place = cwd.to_path_buf();
    for words in simple_commands(command) {
        let keywords = words.iter().take_while(|word| word.as_deref().is_some_and(is_keyword)).count();
        let words = &words[keywords..];
        let named =
            |count: usize| words[count..].iter().flatten().filter(|word| !word.is_empty() && !word.starts_with('-'));
        match (words.first().and_then(Option::as_deref), words.get(1)) {
            // The client may name the directory that the command went to.
            (Some("cd"), Some(Some(folder))) if cwd.ends_with(folder) => place = cwd.to_path_buf(),
            (Some("cd"), Some(Some(folder))) => place.push(folder),
            // Wherever that is: what follows happens there.
            (Some("cd" | "pushd" | "popd"), _) => return paths,
            (Some("rm" | "unlink"), _) => paths.extend(named(1).map(|path| plain(&place.join(path)))),
            (Some("git"), Some(Some(verb))) if verb == "rm" => {
                paths.extend(named(2).map(|path| plain(&place.join(path))));
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
    fn what_a_command_removes_is_what_it_names() {
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
            assert_eq!(paths_in(command, Path::new("/p")), wanted, "{command}");
        }
    }

    #[test]
    fn what_is_still_there_was_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kept"), "").unwrap();
        let facts = removed("Bash", "t1", "rm kept gone", folder.path().to_str());
        let paths: Vec<_> = facts.iter().map(|fact| Path::new(&fact.path)).collect();
        assert_eq!(paths, [folder.path().join("gone")]);
        assert!(removed("Bash", "t1", "rm gone", None).is_empty());
    }
}
