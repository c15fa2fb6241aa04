//! Finds transcripts by their file names, which all client versions share.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use trackway_capture::{
    discovery::{self, FoundTranscripts, IdentifyResult},
    transcript::Transcript,
};
use trackway_domain::Time;

use crate::connect::CONFIG_DIR_VARIABLE;

/// The number of bytes at the start of a file that are searched for its session.
const HEAD_BYTES_MAX: u64 = 256 << 10;

/// The extension of transcripts.
const EXTENSION: &str = "jsonl";

/// The folder in which Claude Code stores all its transcripts.
pub fn default_folder() -> Option<PathBuf> {
    let configured = std::env::var_os(CONFIG_DIR_VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let home =
        || std::env::var_os("HOME").filter(|home| !home.is_empty()).map(|home| PathBuf::from(home).join(".claude"));
    configured.or_else(home).map(|folder| folder.join("projects"))
}

/// The name of the folder with the transcripts of a working directory.
pub fn folder_name(cwd: &str) -> String {
    cwd.chars().map(|character| if character.is_ascii_alphanumeric() { character } else { '-' }).collect()
}

/// Finds the transcripts in a folder, or the one at a file path.
pub fn find_transcripts(path: &Path, is_wanted: &mut dyn FnMut(&Path) -> bool) -> FoundTranscripts {
    discovery::find_transcripts(path, EXTENSION, is_wanted, identify)
}

/// Whether a file is a transcript: one of its first lines must name a session.
pub fn is_transcript(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION)
        && Head::read(path).is_ok_and(|head| head.session.is_some())
}

/// Determines the session and the agent of a transcript from its path, or else from its first lines. Also returns the
/// time of its first line.
pub fn identify(path: &Path) -> IdentifyResult {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let agent = stem.strip_prefix("agent-").map(str::to_owned);
    let head = Head::read(path)?;
    let folder = path.parent().filter(|folder| folder.file_name().is_some_and(|name| name == "subagents"));
    let parent_session =
        folder.and_then(|folder| folder.parent()?.file_name()).map(|name| name.to_string_lossy().into_owned());
    let session = match (&agent, parent_session) {
        // A file may start with lines that were copied from another session and keep the id of that session. So the
        // file name decides. Exception: version 2.0.0 of the client continues a session (`-c`) in a file with a new
        // name, and no line of that file contains the name.
        (None, _) if is_uuid(&stem) && (!head.continues_other_file || head_contains(path, &stem)?) => Some(stem),
        (Some(_), Some(parent_session)) => Some(parent_session),
        _ => head.session,
    };
    let is_valid_name = |name: &String| (1..=200).contains(&name.chars().count()) && !name.contains(char::is_control);
    let identified = |session| (Transcript { path: path.to_path_buf(), session, agent }, head.first_time);
    Ok(session.filter(is_valid_name).map(identified))
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.chars().enumerate().all(|(index, character)| match index {
            8 | 13 | 18 | 23 => character == '-',
            _ => character.is_ascii_hexdigit(),
        })
}

/// The fields that are read from one of the first lines.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HeadLine {
    session_id: Option<String>,
    timestamp: Option<Time>,
    cwd: Option<String>,
    parent_uuid: Option<String>,
}

/// The result of reading the first lines.
#[derive(Debug, Default)]
struct Head {
    session: Option<String>,
    /// The time of the first line with a time.
    first_time: String,
    /// Whether the first line has a parent in another file.
    continues_other_file: bool,
}

/// Opens the beginning of a file. Reads only up to the file's length, because reading a special file, which has no
/// length, could block.
fn open_head(path: &Path) -> io::Result<impl io::BufRead> {
    use io::Read;
    let file = fs::File::open(path)?;
    let length = file.metadata()?.len().min(HEAD_BYTES_MAX);
    Ok(io::BufReader::new(file.take(length)))
}

impl Head {
    fn read(path: &Path) -> io::Result<Self> {
        use io::BufRead;
        let mut reader = open_head(path)?;
        let (mut head, mut first) = (Self::default(), None);
        let mut bytes = Vec::new();
        while (head.session.is_none() || first.is_none()) && reader.read_until(b'\n', &mut bytes)? > 0 {
            if let Ok(line) = serde_json::from_slice::<HeadLine>(&bytes) {
                head.continues_other_file |=
                    head.session.is_none() && line.session_id.is_some() && line.parent_uuid.is_some();
                head.session = head.session.or(line.session_id);
                first = first.or(line.timestamp);
            }
            bytes.clear();
        }
        head.first_time = first.map(|time| time.to_string()).unwrap_or_default();
        Ok(head)
    }
}

/// Whether the beginning of a file contains a session id.
fn head_contains(path: &Path, session: &str) -> io::Result<bool> {
    use io::Read;
    let mut bytes = Vec::new();
    open_head(path)?.read_to_end(&mut bytes)?;
    Ok(memchr::memmem::find(&bytes, session.as_bytes()).is_some())
}

/// The working directory of a transcript's session: the first that its lines name.
pub fn cwd(path: &Path) -> Option<PathBuf> {
    use io::BufRead;
    let mut reader = open_head(path).ok()?;
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).ok()? > 0 {
        if let Some(cwd) = serde_json::from_slice::<HeadLine>(&bytes).ok().and_then(|line| line.cwd) {
            return Some(PathBuf::from(cwd));
        }
        bytes.clear();
    }
    None
}
