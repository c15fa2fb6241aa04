//! Digests of file contents.

use std::path::Path;

use sha2::{Digest, Sha256};
use trackway_domain::spawn::hex;

/// Maximum number of bytes of a file that is digested.
const FILE_MAX: u64 = 16 << 20;

/// The SHA-256 of a content, in hex digits.
pub fn digest(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

/// The digest of a file. None if it is larger than 16 MiB or not a regular file.
pub fn digest_of_file(path: &Path) -> Option<String> {
    path.symlink_metadata().ok().filter(|file| file.is_file() && file.len() <= FILE_MAX)?;
    std::fs::read(path).ok().map(|content| digest(&content))
}
