//! Creates executable files for tests.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// Writes an executable file in a separate process. If this process wrote the file, a fork by another test could
/// inherit the descriptor that is open for writing. Executing the file would then fail with "Text file busy".
pub fn write_program(path: &Path, text: &str) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut install = install.spawn().unwrap();
    install.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(install.wait().unwrap().success(), "cannot write {}", path.display());
}

/// Copies an executable file in a separate process, for the same reason as [`write_program`].
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(status.success(), "cannot copy {}", from.display());
}
