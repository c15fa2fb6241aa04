//! Ingest with a second client, which only this test has: ingest reads each file with the client that wrote the file.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use trackway_capture::{
    client::{Client, SessionVariables},
    connection::Connection,
    discovery::FoundTranscripts,
    hook::{Answer, EventHeader, HookEvent},
    ingest::{Ingest, IngestSummary, Progress, Selection, Source},
    launch::Launcher,
    transcript::{Flow, ReadCursor, ReadStats, Transcript},
};
use trackway_client_claude::ClaudeCode;
use trackway_domain::observed::{Fact, Observation, ObservedFact, PromptKey, SessionFacts, Source as FactSource};
use trackway_testkit::{TestEnv, engines};
use trackway_views::{View, session::ListSessions};

/// A client whose transcripts have the same extension as those of Claude Code, but start with the line `other SESSION`.
#[derive(Debug)]
struct OtherClient;

impl OtherClient {
    fn session(file: &Path) -> Option<String> {
        fs::read_to_string(file).ok()?.lines().next()?.strip_prefix("other ").map(str::to_owned)
    }
}

impl Client for OtherClient {
    fn name(&self) -> &'static str {
        "other"
    }

    fn display_name(&self) -> &'static str {
        "Other"
    }

    fn command_name(&self) -> &'static str {
        "other"
    }

    fn agent_trees(&self) -> Option<&'static str> {
        None
    }

    fn transcripts_folder(&self) -> Option<PathBuf> {
        None
    }

    fn project_prefix(&self, _: &Path) -> Option<String> {
        None
    }

    fn find_transcripts(&self, path: &Path, is_wanted: &mut dyn FnMut(&Path) -> bool) -> FoundTranscripts {
        trackway_capture::discovery::find_transcripts(path, "jsonl", is_wanted, |file| {
            let transcript = |session| Transcript { path: file.to_path_buf(), session, agent: None };
            Ok(Self::session(file).map(|session| (transcript(session), String::new())))
        })
    }

    fn is_transcript(&self, file: &Path) -> bool {
        Self::session(file).is_some()
    }

    fn transcript_cwd(&self, _: &Path) -> Option<PathBuf> {
        None
    }

    fn read_transcript(
        &self,
        transcript: &Transcript,
        _: Option<&ReadCursor>,
        sink: &mut dyn FnMut(Observation) -> Flow,
    ) -> io::Result<ReadStats> {
        let at = "2026-02-27T09:00:00Z".parse().unwrap();
        let fact = ObservedFact::new(at, None, &PromptKey::default(), Fact::Session(Box::<SessionFacts>::default()));
        sink(Observation {
            client: self.name(),
            session: transcript.session.clone(),
            source: FactSource::Transcript,
            facts: vec![fact],
            progress: None,
        });
        Ok(ReadStats { lines: 1, ..ReadStats::default() })
    }

    fn hook_header(&self, bytes: &[u8]) -> Result<EventHeader, String> {
        ClaudeCode.hook_header(bytes)
    }

    fn hook_event(&self, bytes: &[u8]) -> Result<HookEvent, String> {
        ClaudeCode.hook_event(bytes)
    }

    fn catch_up_event(&self, event: &HookEvent) -> String {
        ClaudeCode.catch_up_event(event)
    }

    fn hook_answer(&self, event: &HookEvent, answer: &Answer) -> String {
        ClaudeCode.hook_answer(event, answer)
    }

    fn connection(&self) -> &dyn Connection {
        &ClaudeCode
    }

    fn launcher(&self) -> Option<&dyn Launcher> {
        None
    }

    fn session_variables(&self) -> Option<SessionVariables> {
        None
    }

    fn variables(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

struct NoProgress;

impl Progress for NoProgress {
    fn begin(&mut self, _: u64) {}

    fn add(&mut self, _: u64) {}

    fn finish(&mut self) {}
}

const CLAUDE_SESSION: &str = "11111111-1111-4111-8111-111111111111";

/// Writes a transcript of each client, a file with the same extension that no client wrote, and a text file.
fn write_folder(folder: &Path) {
    let line = format!(
        "{{\"type\":\"user\",\"sessionId\":\"{CLAUDE_SESSION}\",\"uuid\":\"u1\",\"timestamp\":\"2026-02-27T09:00:00Z\",\"cwd\":\"/ship\",\"version\":\"2.1.197\",\"message\":{{\"role\":\"user\",\"content\":\"go\"}}}}\n"
    );
    fs::write(folder.join("a.jsonl"), line).unwrap();
    // The name alone would make this a transcript of Claude Code.
    fs::write(folder.join("22222222-2222-4222-8222-222222222222.jsonl"), "other s-2\n").unwrap();
    fs::write(folder.join("strange.jsonl"), "{}\n").unwrap();
    fs::write(folder.join("notes.txt"), "notes").unwrap();
}

fn sources(clients: &[&'static dyn Client], path: &Path) -> Vec<Source> {
    clients.iter().map(|client| Source { client: *client, path: path.to_path_buf() }).collect()
}

fn ingest(env: &TestEnv, sources: Vec<Source>) -> IngestSummary {
    let mut ingest = Ingest::new(&env.core, &env.ada, Selection::new(sources));
    ingest.pass(&mut NoProgress).unwrap();
    // A second pass reads no line again, and reports no problem again.
    let second = ingest.pass(&mut NoProgress).unwrap();
    assert_eq!((second.lines, second.problems.len()), (0, 0), "{:?}", second.problems);
    ingest.summary().unwrap()
}

/// Every session as `CLIENT SESSION`.
fn sessions(env: &TestEnv) -> Vec<String> {
    let list = ListSessions { workspace: None, limit: 10, before: None };
    let listed = env.read(|read| Ok(list.answer(read, "2026-02-27T09:00:00Z".parse().unwrap())?));
    let mut sessions: Vec<_> =
        listed.rows.iter().map(|row| format!("{} {}", row.session.client, row.session.session_id)).collect();
    sessions.sort_unstable();
    sessions
}

engines! {
    fn ingest_of_a_folder_reads_each_file_with_its_client(env: TestEnv) {
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path());
        for clients in [[&ClaudeCode as &'static dyn Client, &OtherClient], [&OtherClient, &ClaudeCode]] {
            let summary = ingest(&env, sources(&clients, folder.path()));
            assert_eq!((summary.files, summary.sessions), (2, 2), "{:?}", summary.problems);
            // Only one of the clients reports the file that no client wrote.
            assert_eq!(summary.problems.len(), 1, "{:?}", summary.problems);
            assert!(summary.problems[0].ends_with("strange.jsonl: no line names a session"), "{:?}", summary.problems);
        }
        assert_eq!(sessions(&env), [format!("claude_code {CLAUDE_SESSION}"), "other s-2".to_owned()]);
    }

    fn problem_with_a_file_that_no_client_recognises_names_the_clients(env: TestEnv) {
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path());
        let clients: [&'static dyn Client; 2] = [&ClaudeCode, &OtherClient];
        let paths = ["notes.txt", "strange.jsonl", "a.jsonl"].map(|name| folder.path().join(name).canonicalize().unwrap());
        let summary = ingest(&env, paths.iter().flat_map(|path| sources(&clients, path)).collect());
        let folder = folder.path().canonicalize().unwrap();
        let problems: Vec<_> =
            summary.problems.iter().map(|problem| problem.replace(folder.to_str().unwrap(), "FOLDER")).collect();
        assert_eq!(
            problems,
            ["FOLDER/strange.jsonl: no line names a session", "FOLDER/notes.txt: not a transcript of Claude Code, Other"]
        );
        assert_eq!(sessions(&env), [format!("claude_code {CLAUDE_SESSION}")]);
    }

    fn ingest_for_one_client_reads_no_file_of_another_client(env: TestEnv) {
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path());
        let summary = ingest(&env, sources(&[&OtherClient], folder.path()));
        assert_eq!(summary.files, 1);
        assert_eq!(sessions(&env), ["other s-2"]);
    }
}
