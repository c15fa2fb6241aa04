//! Work trees: the main work tree of a repository, and the commits that a session records for its work trees. This
//! module only parses texts; it reads no files.

use std::path::{Path, PathBuf};

use crate::{lexical_path::normalize, text};

/// Maximum number of bytes of a `.git` file.
pub const GIT_FILE_MAX: u64 = 4_096;
/// Maximum number of work trees for which a session records commits.
const HEADS_MAX: usize = 32;

/// The main work tree of the repository that the work tree at `top` belongs to, from the text of its `.git` file. None
/// for a submodule, and for a bare repository.
pub fn main_work_tree(top: &Path, git_file: &str) -> Option<PathBuf> {
    let folder = normalize(&top.join(git_file.strip_prefix("gitdir:")?.trim()));
    let (trees, repository) = (folder.parent()?, folder.parent()?.parent()?);
    (trees.ends_with("worktrees") && repository.ends_with(".git"))
        .then(|| repository.parent().map(Path::to_path_buf))?
}

/// The commit that a session recorded last for the work tree `root`. `heads` has a line per work tree: the hash of the
/// commit and the root.
pub fn recorded_head<'a>(heads: &'a str, root: &str) -> Option<&'a str> {
    let root = text::clean_line(root);
    heads.lines().filter_map(|line| line.split_once(' ')).find(|(_, known)| *known == root).map(|(hash, _)| hash)
}

/// Adds a commit as the first line of the recorded commits, and drops the previous commit of the same work tree.
pub fn record_head(heads: Option<&str>, root: &str, hash: &str) -> String {
    let root = text::clean_line(root);
    let others =
        heads.unwrap_or_default().lines().filter(|line| line.split_once(' ').is_some_and(|(_, known)| known != root));
    let mut lines = vec![format!("{hash} {root}")];
    lines.extend(others.take(HEADS_MAX - 1).map(str::to_owned));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_file_of_a_linked_work_tree_leads_to_the_main_one() {
        for (text, expected) in [
            ("gitdir: /p/.git/worktrees/other\n", Some("/p")),
            ("gitdir: ../p/.git/worktrees/other", Some("/work/p")),
            ("gitdir: ../.git/modules/lib\n", None),
            ("gitdir: /bare.git/worktrees/other\n", None),
            ("anything", None),
        ] {
            assert_eq!(main_work_tree(Path::new("/work/other"), text).as_deref(), expected.map(Path::new), "{text}");
        }
    }

    #[test]
    fn each_work_tree_has_its_own_recorded_commit() {
        let one = record_head(Some("0000"), "/a b", "1111");
        let two = record_head(Some(&one), "/c\nd", "2222");
        let three = record_head(Some(&two), "/a b", "3333");
        assert_eq!(
            (recorded_head(&three, "/a b"), recorded_head(&three, "/c\nd"), recorded_head(&three, "/x")),
            (Some("3333"), Some("2222"), None)
        );
        let many = (0..100).fold(three, |heads, number| record_head(Some(&heads), &format!("/{number}"), "4444"));
        assert_eq!(
            (many.lines().count(), recorded_head(&many, "/99"), recorded_head(&many, "/a b")),
            (HEADS_MAX, Some("4444"), None)
        );
    }
}
