//! The trait that the adapter of each agent client implements, and the table of clients.

use std::{
    fmt::Debug,
    io,
    path::{Path, PathBuf},
};

use trackway_domain::observed::Observation;

use crate::{
    connection::Connection,
    discovery::FoundTranscripts,
    hook::{Answer, EventHeader, HookEvent},
    launch::Launcher,
    transcript::{Flow, ReadCursor, ReadStats, Transcript},
};

/// The adapter of one agent client.
pub trait Client: Debug + Send + Sync {
    /// The name in the database and in JSON. The client's runner and the mode of its runs have the same name.
    fn name(&self) -> &'static str;

    /// The name in texts for people.
    fn display_name(&self) -> &'static str;

    /// The name on the command line.
    fn command_name(&self) -> &'static str;

    /// The folder in which the client creates work trees for its agents, relative to the root of a work tree.
    fn agent_trees(&self) -> Option<&'static str>;

    /// The folder of the client's transcripts.
    fn transcripts_folder(&self) -> Option<PathBuf>;

    /// The prefix that the names of a project's transcript folders share, if the client uses such a prefix.
    fn project_prefix(&self, project: &Path) -> Option<String>;

    /// Finds the transcripts below a path, or the transcript at the path. Skips files and folders for which `is_wanted`
    /// is false.
    fn find_transcripts(&self, path: &Path, is_wanted: &mut dyn FnMut(&Path) -> bool) -> FoundTranscripts;

    /// Whether a file is a transcript of this client, by its name and its first lines. Ingest calls this for files that
    /// several clients may have written.
    fn is_transcript(&self, file: &Path) -> bool;

    /// The directory in which the session of a transcript began.
    fn transcript_cwd(&self, transcript: &Path) -> Option<PathBuf>;

    /// Reads a transcript from a cursor, and passes the facts to `sink` in parts that can be written separately.
    fn read_transcript(
        &self,
        transcript: &Transcript,
        cursor: Option<&ReadCursor>,
        sink: &mut dyn FnMut(Observation) -> Flow,
    ) -> io::Result<ReadStats>;

    /// Parses the fields of a hook event that are needed to find the database. The hook process does this for every
    /// event.
    fn hook_header(&self, bytes: &[u8]) -> Result<EventHeader, String>;

    /// Parses a hook event, and finds the files that it refers to.
    fn hook_event(&self, bytes: &[u8]) -> Result<HookEvent, String>;

    /// The text of an artificial event that only makes Trackway read the rest of the session's transcripts.
    fn catch_up_event(&self, event: &HookEvent) -> String;

    /// Renders an answer to an event in the format of the client.
    fn hook_answer(&self, event: &HookEvent, answer: &Answer) -> String;

    /// The installer of the client's hooks and MCP server.
    fn connection(&self) -> &dyn Connection;

    /// The launcher, for a client that can be started for a task.
    fn launcher(&self) -> Option<&dyn Launcher>;

    /// The environment variables that the client sets for the programs it starts. None if it sets none.
    fn session_variables(&self) -> Option<SessionVariables>;

    /// Every environment variable that the client reads or sets, with its description.
    fn variables(&self) -> &'static [(&'static str, &'static str)];
}

/// The environment variables that a client sets for the programs it starts.
#[derive(Debug, Clone, Copy)]
pub struct SessionVariables {
    /// The variable with the id of the session. Older versions of a client do not set it.
    pub session: &'static str,
    /// A variable that every version of the client sets.
    pub marker: &'static str,
}

/// The table of clients.
#[derive(Debug, Clone, Copy)]
pub struct Clients(pub &'static [&'static dyn Client]);

impl Clients {
    /// The command that connects a client, for hints. If Trackway supports several clients, the command lists them and
    /// asks which to connect.
    pub fn connect_command(self) -> String {
        match self.0 {
            [one] => format!("trackway connect {}", one.command_name()),
            _ => "trackway connect".to_owned(),
        }
    }

    /// The names of the clients for people, as an English list.
    pub fn display_names(self) -> String {
        let names: Vec<_> = self.0.iter().map(|client| client.display_name()).collect();
        match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => names.concat(),
        }
    }

    /// The client with this name on the command line. Also accepts the name in the database.
    pub fn by_command_name(self, name: &str) -> Option<&'static dyn Client> {
        self.0.iter().copied().find(|client| client.command_name() == name || client.name() == name)
    }

    /// The names of the clients on the command line, separated by commas.
    pub fn command_names(self) -> String {
        self.0.iter().map(|client| client.command_name()).collect::<Vec<_>>().join(", ")
    }

    /// The client with this name. Returns the first client if there is no name, because versions of Trackway that
    /// supported only one client stored none.
    pub fn named(self, name: Option<&str>) -> Option<&'static dyn Client> {
        match name {
            Some(name) => self.0.iter().copied().find(|client| client.name() == name),
            None => self.0.first().copied(),
        }
    }
}
