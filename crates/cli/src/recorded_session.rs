//! The session that the demo imports: a session of the first client, recorded with a scripted model.

use std::{fs, io, path::Path};

const SESSION: &str = "e2786af0-b243-4ae0-ad76-3649f330482c";
/// The placeholder for the project's directory in the recorded lines.
const PROJECT: &str = "$PROJECT";
/// The file that the session wrote.
pub const FILE: &str = "tea.js";
const CONTENT: &str =
    "export function steep(ring) {\n  const minutes = 3;\n  return setTimeout(ring, minutes * 60 * 1000);\n}\n";

/// The transcript files: the suffix of the path, and the content.
const LINES: [(&str, &str); 5] = [
    (".jsonl", include_str!("../recorded/session.jsonl")),
    ("/subagents/agent-a2eb6f54e72329b79.jsonl", include_str!("../recorded/coder.jsonl")),
    ("/subagents/agent-a2eb6f54e72329b79.meta.json", include_str!("../recorded/coder.meta.json")),
    ("/subagents/agent-a439492c162e81074.jsonl", include_str!("../recorded/reviewer.jsonl")),
    ("/subagents/agent-a439492c162e81074.meta.json", include_str!("../recorded/reviewer.meta.json")),
];

/// Writes the transcripts and the project of the session, as the client would.
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

/// The short form of the session's id.
pub fn session() -> &'static str {
    &SESSION[SESSION.len() - 8..]
}
