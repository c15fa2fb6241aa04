//! Digests of file contents.

use std::path::Path;

use sha2::{Digest, Sha256};
use trackway_domain::spawn::hex;

/// Larger files are not digested.
const FILE_MAX: u64 = 16 << 20;

/// SHA-256 in hex digits.
pub fn digest(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

/// The digest of a regular file of at most 16 MiB.
pub fn digest_of_file(path: &Path) -> Option<String> {
    path.symlink_metadata().ok().filter(|file| file.is_file() && file.len() <= FILE_MAX)?;
    std::fs::read(path).ok().map(|content| digest(&content))
}
