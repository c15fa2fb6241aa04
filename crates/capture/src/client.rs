//! What an agent client is to Trackway: the trait that its adapter implements.

use std::{
    fmt::Debug,
    io,
    path::{Path, PathBuf},
};

use trackway_domain::observed::Observation;

use crate::{
    connection::Connection,
    discovery::Found,
    hook::{Answer, Header, HookEvent},
    launch::Launcher,
    transcript::{Flow, Mark, Tally, Transcript},
};

/// The adapter of one agent client.
pub trait Client: Debug + Send + Sync {
    /// The name in the database and in JSON, which is also the word of the runner and of the mode of its runs.
    fn name(&self) -> &'static str;

    /// The name that people read.
    fn display_name(&self) -> &'static str;

    /// The name on the command line.
    fn command_name(&self) -> &'static str;

    /// The folder, below the top of a work tree, in which the client creates work trees for its agents.
    fn agent_trees(&self) -> Option<&'static str>;

    /// The folder in which the client keeps its transcripts.
    fn transcripts_folder(&self) -> Option<PathBuf>;

    /// What the names of folders with transcripts of a project begin with, where they do.
    fn project_prefix(&self, project: &Path) -> Option<String>;

    /// Finds the transcripts below a path, or takes the one it is. `wanted` is asked about each file and folder first.
    fn find_transcripts(&self, path: &Path, wanted: &mut dyn FnMut(&Path) -> bool) -> Found;

    /// The directory that the session of a transcript began in.
    fn transcript_cwd(&self, transcript: &Path) -> Option<PathBuf>;

    /// Reads a transcript on from a mark, and hands the facts on in parts that can be written one by one.
    fn read_transcript(
        &self,
        transcript: &Transcript,
        mark: Option<&Mark>,
        sink: &mut dyn FnMut(Observation) -> Flow,
    ) -> io::Result<Tally>;

    /// Reads from a hook event what is needed to find the database. The hook process does this for every event.
    fn hook_header(&self, bytes: &[u8]) -> Result<Header, String>;

    /// Parses a hook event, and looks for the files that it points at.
    fn hook_event(&self, bytes: &[u8]) -> Result<HookEvent, String>;

    /// The text of an event upon which only the transcripts of the session are read on.
    fn read_on_event(&self, event: &HookEvent) -> String;

    /// Renders an answer to an event as the client reads it.
    fn hook_answer(&self, event: &HookEvent, answer: &Answer) -> String;

    /// How its hooks are installed and removed.
    fn connection(&self) -> &dyn Connection;

    /// How it is started for a task, for a client that can be.
    fn launcher(&self) -> Option<&dyn Launcher>;

    /// The variables that it sets for the programs it starts.
    fn session_variables(&self) -> SessionVariables;

    /// Every environment variable that it takes or sets, with what the variable does.
    fn variables(&self) -> &'static [(&'static str, &'static str)];
}

/// The variables that a client sets for the programs it starts.
#[derive(Debug, Clone, Copy)]
pub struct SessionVariables {
    /// Holds the id of the session, in versions that tell it.
    pub session: &'static str,
    /// Is set in every version.
    pub mark: &'static str,
}

/// The table of clients.
#[derive(Debug, Clone, Copy)]
pub struct Clients(pub &'static [&'static dyn Client]);

impl Clients {
    /// The command that connects a client, for hints.
    pub fn connect_command(self) -> String {
        let name = match self.0 {
            [one] => one.command_name(),
            _ => "CLIENT",
        };
        format!("trackway connect {name}")
    }

    /// The names that people read, as a list in a sentence.
    pub fn display_names(self) -> String {
        self.0.iter().map(|client| client.display_name()).collect::<Vec<_>>().join(", ")
    }

    /// The client of a name. Events and files of versions that knew one client only carry no name: they are the first one's.
    pub fn named(self, name: Option<&str>) -> Option<&'static dyn Client> {
        match name {
            Some(name) => self.0.iter().copied().find(|client| client.name() == name),
            None => self.0.first().copied(),
        }
    }
}
