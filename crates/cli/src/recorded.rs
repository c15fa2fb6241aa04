//! A session of the first client in the table, recorded with a scripted model: what the demo reads.

use std::{fs, io, path::Path};

const SESSION: &str = "e2786af0-b243-4ae0-ad76-3649f330482c";
/// What stands in the lines for the project's directory.
const PROJECT: &str = "$PROJECT";
/// The file as the session left it.
pub const FILE: &str = "tea.js";
const CONTENT: &str =
    "export function steep(ring) {\n  const minutes = 3;\n  return setTimeout(ring, minutes * 60 * 1000);\n}\n";

/// Each file of the session, below its folder.
const LINES: [(&str, &str); 5] = [
    (".jsonl", include_str!("../recorded/session.jsonl")),
    ("/subagents/agent-a2eb6f54e72329b79.jsonl", include_str!("../recorded/coder.jsonl")),
    ("/subagents/agent-a2eb6f54e72329b79.meta.json", include_str!("../recorded/coder.meta.json")),
    ("/subagents/agent-a439492c162e81074.jsonl", include_str!("../recorded/reviewer.jsonl")),
    ("/subagents/agent-a439492c162e81074.meta.json", include_str!("../recorded/reviewer.meta.json")),
];

/// Writes the session's transcripts, and its project, as the client would have left them.
pub fn write(transcripts: &Path, project: &Path) -> io::Result<()> {
    fs::create_dir_all(project)?;
    fs::write(project.join(FILE), CONTENT)?;
    for (place, lines) in LINES {
        let path = transcripts.join(format!("{SESSION}{place}"));
        fs::create_dir_all(path.parent().unwrap_or(transcripts))?;
        fs::write(path, lines.replace(PROJECT, &project.to_string_lossy()))?;
    }
    Ok(())
}

/// The session, as people type it.
pub fn session() -> &'static str {
    &SESSION[SESSION.len() - 8..]
}
