//! Paths by their words alone, without a look at any disk.

use std::path::{Component, Path, PathBuf};

/// A path without `.` and `..`. Links are left as they are: nobody asks where they lead.
pub fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_never_leaves_the_root() {
        for (path, wanted) in [("/a/./b/../c", "/a/c"), ("/../../etc", "/etc"), ("a/../../b", "b"), ("", "")] {
            assert_eq!(plain(Path::new(path)), Path::new(wanted));
        }
    }
}
