//! The adapter of Claude Code: its hook events, transcripts and settings.

mod agent_file;
mod connect;
pub mod discover;
pub mod event;
mod launch;
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
    client::{Client, SessionVariables},
    connection::Connection,
    discovery::Found,
    hook::{Answer, Header, HookEvent},
    launch::Launcher,
    transcript::{Flow, Mark, Tally, Transcript},
};
use trackway_domain::observed::Observation;

/// The name in the database.
const NAME: &str = "claude_code";
/// Set by the client for the MCP servers it starts, from 2.1 on (read from 2.1.197): which session it was then.
const SESSION: &str = "CLAUDE_CODE_SESSION_ID";
/// Set by the client for what it starts.
const MARK: &str = "CLAUDECODE";

/// Every environment variable that the client takes or sets.
const VARIABLES: &[(&str, &str)] = &[
    (
        connect::FOLDER,
        "Where Claude Code's settings for the user are (`~/.claude` by default), as Claude Code takes it.",
    ),
    (
        SESSION,
        "Set by Claude Code for `trackway mcp`: its session. Without a token, the one run that is open in that session acts; where there is none, or several, the person does, and is told so.",
    ),
    (MARK, "Set by Claude Code for what it starts; `trackway mcp` says so when it is not told the session."),
    (
        launch::CLIENT,
        "The Claude Code that a worker starts for agents of that kind, with arguments it should always have: `claude --allowedTools Bash`. `claude` by default.",
    ),
    (launch::SETTINGS, "Set for that client: its settings, with our hooks."),
    (launch::MODEL, "Set for that client: the model of its agent."),
];

/// The folder, below the top of a work tree, in which the client creates work trees for its agents.
const AGENT_TREES: &str = ".claude/worktrees";

/// Claude Code.
#[derive(Debug)]
pub struct ClaudeCode;

impl Client for ClaudeCode {
    fn name(&self) -> &'static str {
        NAME
    }

    fn display_name(&self) -> &'static str {
        "Claude Code"
    }

    fn command_name(&self) -> &'static str {
        "claude-code"
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

    fn connection(&self) -> &dyn Connection {
        self
    }

    fn launcher(&self) -> Option<&dyn Launcher> {
        Some(self)
    }

    fn session_variables(&self) -> SessionVariables {
        SessionVariables { session: SESSION, mark: MARK }
    }

    fn variables(&self) -> &'static [(&'static str, &'static str)] {
        VARIABLES
    }
}
