//! What an agent client is to Trackway: the trait that its adapter implements.

use std::{
    fmt::Debug,
    io,
    path::{Path, PathBuf},
};

use trackway_domain::observed::Observation;

use crate::{
    discovery::Found,
    hook::{Answer, Header, HookEvent},
    transcript::{Flow, Mark, Tally, Transcript},
};

/// The adapter of one agent client.
pub trait Client: Debug + Send + Sync {
    /// The name in the database and in JSON, which is also the word of the runner and of the mode of its runs.
    fn name(&self) -> &'static str;

    /// The name that people read.
    fn display_name(&self) -> &'static str;

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
}

/// The table of clients.
#[derive(Debug, Clone, Copy)]
pub struct Clients(pub &'static [&'static dyn Client]);

impl Clients {
    /// The client of a name. Events and files of versions that knew one client only carry no name: they are the first one's.
    pub fn named(self, name: Option<&str>) -> Option<&'static dyn Client> {
        match name {
            Some(name) => self.0.iter().copied().find(|client| client.name() == name),
            None => self.0.first().copied(),
        }
    }
}
