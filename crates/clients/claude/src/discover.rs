//! Which transcripts there are: found by their names, whatever version wrote them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use trackway_capture::{
    discovery::{self, Found, Identified},
    transcript::Transcript,
};
use trackway_domain::Time;

/// Bytes of a file in which its session must be named.
const PEEK: u64 = 256 << 10;

/// Where Claude Code keeps its transcripts.
pub fn default_folder() -> Option<PathBuf> {
    let set = std::env::var_os("CLAUDE_CONFIG_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let home =
        || std::env::var_os("HOME").filter(|home| !home.is_empty()).map(|home| PathBuf::from(home).join(".claude"));
    set.or_else(home).map(|folder| folder.join("projects"))
}

/// The folder in which Claude Code keeps the transcripts of a working directory.
pub fn folder_name(cwd: &str) -> String {
    cwd.chars().map(|character| if character.is_ascii_alphanumeric() { character } else { '-' }).collect()
}

/// Finds the transcripts below a path, or takes the one it is.
pub fn find(path: &Path, wanted: &mut dyn FnMut(&Path) -> bool) -> Found {
    discovery::find(path, "jsonl", wanted, identify)
}

/// Whose transcript a file is, and its first time: by its name, else by its first lines.
pub fn identify(path: &Path) -> Identified {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let agent = stem.strip_prefix("agent-").map(str::to_owned);
    let head = Head::of(path)?;
    let folder = path.parent().filter(|folder| folder.file_name().is_some_and(|name| name == "subagents"));
    let above = folder.and_then(|folder| folder.parent()?.file_name()).map(|name| name.to_string_lossy().into_owned());
    let session = match (&agent, above) {
        // Copies of another session's lines keep that one's id: the name of the file is what counts. But 2.0.0 goes on
        // with a session (`-c`) in a file of another name, which then no line in it gives.
        (None, _) if is_uuid(&stem) && (!head.goes_on || names(path, &stem)?) => Some(stem),
        (Some(_), Some(above)) => Some(above),
        _ => head.session,
    };
    let limited = |name: &String| (1..=200).contains(&name.chars().count()) && !name.contains(char::is_control);
    let found = |session| (Transcript { path: path.to_path_buf(), session, agent }, head.first);
    Ok(session.filter(limited).map(found))
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.chars().enumerate().all(|(place, character)| match place {
            8 | 13 | 18 | 23 => character == '-',
            _ => character.is_ascii_hexdigit(),
        })
}

/// What one of the first lines tells.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HeadLine {
    session_id: Option<String>,
    timestamp: Option<Time>,
    cwd: Option<String>,
    parent_uuid: Option<String>,
}

/// What the first lines tell together.
#[derive(Debug, Default)]
struct Head {
    session: Option<String>,
    /// The first time.
    first: String,
    /// Whether it begins with an answer to a line of another file.
    goes_on: bool,
}

/// The beginning of a file, as far as it has a length: what the system makes up as it is read may never come.
fn beginning(path: &Path) -> io::Result<impl io::BufRead> {
    use io::Read;
    let file = fs::File::open(path)?;
    let length = file.metadata()?.len().min(PEEK);
    Ok(io::BufReader::new(file.take(length)))
}

impl Head {
    fn of(path: &Path) -> io::Result<Self> {
        use io::BufRead;
        let mut reader = beginning(path)?;
        let (mut head, mut first) = (Self::default(), None);
        let mut bytes = Vec::new();
        while (head.session.is_none() || first.is_none()) && reader.read_until(b'\n', &mut bytes)? > 0 {
            if let Ok(line) = serde_json::from_slice::<HeadLine>(&bytes) {
                head.goes_on |= head.session.is_none() && line.session_id.is_some() && line.parent_uuid.is_some();
                head.session = head.session.or(line.session_id);
                first = first.or(line.timestamp);
            }
            bytes.clear();
        }
        head.first = first.map(|time| time.to_string()).unwrap_or_default();
        Ok(head)
    }
}

/// Whether the beginning of a file names a session.
fn names(path: &Path, session: &str) -> io::Result<bool> {
    use io::Read;
    let mut bytes = Vec::new();
    beginning(path)?.read_to_end(&mut bytes)?;
    Ok(memchr::memmem::find(&bytes, session.as_bytes()).is_some())
}

/// Where a transcript's session happened: the first directory its lines name.
pub fn cwd(path: &Path) -> Option<PathBuf> {
    use io::BufRead;
    let mut reader = beginning(path).ok()?;
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).ok()? > 0 {
        if let Some(cwd) = serde_json::from_slice::<HeadLine>(&bytes).ok().and_then(|line| line.cwd) {
            return Some(PathBuf::from(cwd));
        }
        bytes.clear();
    }
    None
}
