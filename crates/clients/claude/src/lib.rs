//! The adapter for Claude Code: its hook events, transcripts and settings.

mod agent_file;
mod connect;
pub mod discover;
pub mod event;
pub mod fact_extractor;
mod launch;
pub mod line;
pub mod notification;
pub mod plugin;
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
    discovery::FoundTranscripts,
    hook::{Answer, EventHeader, HookEvent},
    launch::Launcher,
    transcript::{Flow, ReadCursor, ReadStats, Transcript},
};
use trackway_domain::observed::Observation;

/// The client's name in the database.
const NAME: &str = "claude_code";
/// Environment variable with the session id. The client sets it when it starts an MCP server, from version 2.1 on
/// (verified with 2.1.197).
const SESSION_VARIABLE: &str = "CLAUDE_CODE_SESSION_ID";
/// Environment variable that the client sets for all programs it starts.
const MARK_VARIABLE: &str = "CLAUDECODE";

/// All environment variables that the client reads or sets, with help texts.
const VARIABLES: &[(&str, &str)] = &[
    (
        connect::CONFIG_DIR_VARIABLE,
        "Folder of the user's Claude Code settings and transcripts, as for Claude Code itself [default: `~/.claude`].",
    ),
    (
        SESSION_VARIABLE,
        "Session id, set by Claude Code for `trackway mcp`. Without a token, `trackway mcp` acts as the session's open run. If the session has no open run, or several, it acts as the person and tells the agent.",
    ),
    (
        MARK_VARIABLE,
        "Set by Claude Code for the programs it starts. If it is set and the session id is not, `trackway mcp` reports that it does not know the session.",
    ),
    (
        launch::CLIENT_VARIABLE,
        "Command with which a worker starts Claude Code, including arguments, for example `claude --allowedTools Bash` [default: `claude`].",
    ),
    (launch::SETTINGS_VARIABLE, "Set by the worker for Claude Code: settings with Trackway's hooks."),
    (launch::MODEL_VARIABLE, "Set by the worker for Claude Code: the model of the agent."),
    (launch::MAX_TURNS_VARIABLE, "Set by the worker for Claude Code: the maximum number of turns, from --max-steps."),
];

/// The folder in a work tree in which the client creates work trees for its agents.
const AGENT_TREES: &str = ".claude/worktrees";

/// The adapter.
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

    fn find_transcripts(&self, path: &Path, is_wanted: &mut dyn FnMut(&Path) -> bool) -> FoundTranscripts {
        discover::find_transcripts(path, is_wanted)
    }

    fn is_transcript(&self, file: &Path) -> bool {
        discover::is_transcript(file)
    }

    fn transcript_cwd(&self, transcript: &Path) -> Option<PathBuf> {
        discover::cwd(transcript)
    }

    fn read_transcript(
        &self,
        transcript: &Transcript,
        mark: Option<&ReadCursor>,
        sink: &mut dyn FnMut(Observation) -> Flow,
    ) -> io::Result<ReadStats> {
        transcript::read(transcript, mark, sink)
    }

    fn hook_header(&self, bytes: &[u8]) -> Result<EventHeader, String> {
        event::header(bytes)
    }

    fn hook_event(&self, bytes: &[u8]) -> Result<HookEvent, String> {
        event::parse(bytes)
    }

    fn catch_up_event(&self, event: &HookEvent) -> String {
        event::catch_up_event(event)
    }

    fn hook_answer(&self, event: &HookEvent, answer: &Answer) -> String {
        event::render_answer(event, answer)
    }

    fn connection(&self) -> &dyn Connection {
        self
    }

    fn launcher(&self) -> Option<&dyn Launcher> {
        Some(self)
    }

    fn session_variables(&self) -> Option<SessionVariables> {
        Some(SessionVariables { session: SESSION_VARIABLE, marker: MARK_VARIABLE })
    }

    fn variables(&self) -> &'static [(&'static str, &'static str)] {
        VARIABLES
    }
}
