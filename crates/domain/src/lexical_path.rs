//! Path operations on the text of a path, without access to the file system.

use std::path::{Component, Path, PathBuf};

/// Resolves `.` and `..` in a path. Does not follow symbolic links.
pub fn normalize(path: &Path) -> PathBuf {
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
    fn parent_components_never_leave_the_root() {
        for (path, wanted) in [("/a/./b/../c", "/a/c"), ("/../../etc", "/etc"), ("a/../../b", "b"), ("", "")] {
            assert_eq!(normalize(Path::new(path)), Path::new(wanted));
        }
    }
}
