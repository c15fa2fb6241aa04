//! What the files of a repository say about its work trees, by their words alone.

use std::path::{Path, PathBuf};

use crate::{plain_path::plain, text};

/// Bytes in a `.git` file.
pub const GIT_FILE_MAX: u64 = 4_096;
/// Work trees of one session whose commits are remembered.
const HEADS_MAX: usize = 32;

/// The main work tree of the repository that a work tree belongs to, by the text of its `.git` file. None for a
/// submodule, and for a repository that has none.
pub fn main(top: &Path, git_file: &str) -> Option<PathBuf> {
    let folder = plain(&top.join(git_file.strip_prefix("gitdir:")?.trim()));
    let (trees, repository) = (folder.parent()?, folder.parent()?.parent()?);
    (trees.ends_with("worktrees") && repository.ends_with(".git"))
        .then(|| repository.parent().map(Path::to_path_buf))?
}

/// The commit that a work tree was last seen at, of those that a session remembers: a line each, the hash and the root.
pub fn head_of<'a>(heads: &'a str, root: &str) -> Option<&'a str> {
    let root = text::clean_line(root);
    heads.lines().filter_map(|line| line.split_once(' ')).find(|(_, known)| *known == root).map(|(hash, _)| hash)
}

/// The same with one more, the newest first.
pub fn with_head(heads: Option<&str>, root: &str, hash: &str) -> String {
    let root = text::clean_line(root);
    let others =
        heads.unwrap_or_default().lines().filter(|line| line.split_once(' ').is_some_and(|(_, known)| known != root));
    let mut kept = vec![format!("{hash} {root}")];
    kept.extend(others.take(HEADS_MAX - 1).map(str::to_owned));
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_tree_of_its_own_leads_to_the_main_one() {
        for (text, leads) in [
            ("gitdir: /p/.git/worktrees/other\n", Some("/p")),
            ("gitdir: ../p/.git/worktrees/other", Some("/work/p")),
            ("gitdir: ../.git/modules/lib\n", None),
            ("gitdir: /bare.git/worktrees/other\n", None),
            ("anything", None),
        ] {
            assert_eq!(main(Path::new("/work/other"), text).as_deref(), leads.map(Path::new), "{text}");
        }
    }

    #[test]
    fn each_work_tree_has_its_own_commit() {
        let one = with_head(Some("0000"), "/a b", "1111");
        let two = with_head(Some(&one), "/c\nd", "2222");
        let three = with_head(Some(&two), "/a b", "3333");
        assert_eq!(
            (head_of(&three, "/a b"), head_of(&three, "/c\nd"), head_of(&three, "/x")),
            (Some("3333"), Some("2222"), None)
        );
        let many = (0..100).fold(three, |heads, number| with_head(Some(&heads), &format!("/{number}"), "4444"));
        assert_eq!(
            (many.lines().count(), head_of(&many, "/99"), head_of(&many, "/a b")),
            (HEADS_MAX, Some("4444"), None)
        );
    }
}
