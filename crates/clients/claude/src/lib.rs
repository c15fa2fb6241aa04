//! The adapter of Claude Code: its hook events, transcripts and settings.

mod agent_file;
pub mod discover;
pub mod event;
pub mod line;
pub mod notification;
pub mod plugin;
pub mod reading;
pub mod settings;
pub mod tool;
pub mod transcript;

use std::{
    io,
    path::{Path, PathBuf},
};

use trackway_capture::{
    client::Client,
    discovery::Found,
    hook::{Answer, Header, HookEvent},
    transcript::{Flow, Mark, Tally, Transcript},
};
use trackway_domain::observed::Observation;

/// The folder, below the top of a work tree, in which the client creates work trees for its agents.
const AGENT_TREES: &str = ".claude/worktrees";

/// Claude Code.
#[derive(Debug)]
pub struct ClaudeCode;

impl Client for ClaudeCode {
    fn name(&self) -> &'static str {
        "claude_code"
    }

    fn display_name(&self) -> &'static str {
        "Claude Code"
    }

    fn agent_trees(&self) -> Option<&'static str> {
        Some(AGENT_TREES)
    }

    fn transcripts_folder(&self) -> Option<PathBuf> {
        discover::default_folder()
    }

    fn project_prefix(&self, project: &Path) -> Option<String> {
        Some(discover::folder_name(&project.to_string_lossy()))
    }

    fn find_transcripts(&self, path: &Path, wanted: &mut dyn FnMut(&Path) -> bool) -> Found {
        discover::find(path, wanted)
    }

    fn transcript_cwd(&self, transcript: &Path) -> Option<PathBuf> {
        discover::cwd(transcript)
    }

    fn read_transcript(
        &self,
        transcript: &Transcript,
        mark: Option<&Mark>,
        sink: &mut dyn FnMut(Observation) -> Flow,
    ) -> io::Result<Tally> {
        transcript::read(transcript, mark, sink)
    }

    fn hook_header(&self, bytes: &[u8]) -> Result<Header, String> {
        event::header(bytes)
    }

    fn hook_event(&self, bytes: &[u8]) -> Result<HookEvent, String> {
        event::parse(bytes)
    }

    fn read_on_event(&self, event: &HookEvent) -> String {
        event::read_on(event)
    }

    fn hook_answer(&self, event: &HookEvent, answer: &Answer) -> String {
        event::rendered(event, answer)
    }
}
