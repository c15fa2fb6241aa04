//! Tool calls in hooks and transcripts: the files they change and the agents they start.

use std::borrow::Cow;

use serde::Deserialize;
use trackway_capture::{
    digest::digest,
    lenient::{boolean, or_default, without_nul},
    redact::redacted,
};
use trackway_domain::{
    enums::{ChangeEvidence, FileChange},
    line_trace::LineHashes,
    observed::{FileFacts, SpawnFacts},
    spawn::prompt_hash,
};

/// The tool that runs shell commands.
pub const SHELL: &str = "Bash";

/// The tools from which Trackway extracts facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Starts a subagent.
    Spawn,
    /// Changes a file.
    File,
    /// Runs a shell command.
    Shell,
}

impl Tool {
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "Task" | "Agent" => Some(Self::Spawn),
            "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => Some(Self::File),
            SHELL => Some(Self::Shell),
            _ => None,
        }
    }
}

/// The input of a tool call: the relevant fields of all tools.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Input {
    pub file_path: Option<String>,
    pub notebook_path: Option<String>,
    pub content: Option<String>,
    pub old_string: Option<String>,
    pub new_string: Option<String>,
    #[serde(deserialize_with = "boolean")]
    pub replace_all: Option<bool>,
    pub edits: Option<Vec<Edit>>,
    pub new_source: Option<String>,
    pub command: Option<String>,
    pub prompt: Option<String>,
    pub subagent_type: Option<String>,
    pub name: Option<String>,
    pub description: Option<String>,
    #[serde(deserialize_with = "boolean")]
    pub run_in_background: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Edit {
    #[serde(deserialize_with = "or_default")]
    pub old_string: String,
    #[serde(deserialize_with = "or_default")]
    pub new_string: String,
    #[serde(deserialize_with = "boolean")]
    pub replace_all: Option<bool>,
}

/// The response of a tool call: `tool_response` in hooks, `toolUseResult` in transcripts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Response {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub structured_patch: Option<Vec<Hunk>>,
    pub original_file: Option<String>,
    pub original_file_contents: Option<String>,
    #[serde(rename = "updated_file")]
    pub updated_file: Option<String>,
    #[serde(deserialize_with = "without_nul")]
    pub agent_id: Option<String>,
    pub status: Option<String>,
    #[serde(deserialize_with = "boolean")]
    pub is_async: Option<bool>,
    pub stdout: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Hunk {
    pub new_start: i64,
    pub lines: Vec<String>,
}

/// The facts about a call that starts a subagent.
pub fn spawn_facts(
    tool_use_id: &str,
    input: &Input,
    transcript_position: Option<(String, i64, i64)>,
) -> Option<SpawnFacts> {
    let prompt = input.prompt.as_deref()?;
    Some(SpawnFacts {
        tool_use_id: tool_use_id.to_owned(),
        subagent_type: input.subagent_type.as_deref().map(|named| redacted(named).into_owned()),
        name: input.name.as_deref().map(|name| redacted(name).into_owned()),
        prompt: redacted(prompt).into_owned(),
        prompt_hash: prompt_hash(prompt),
        description: input.description.as_deref().map(|description| redacted(description).into_owned()),
        background: input.run_in_background.unwrap_or_default(),
        transcript_position,
    })
}

/// The facts about a file that a call changed. `text` is the result text of the tool. Old clients write only this text,
/// and no structured fields.
pub fn file_facts(
    name: &str,
    tool_use_id: Option<&str>,
    input: &Input,
    response: &Response,
    text: Option<&str>,
) -> Option<FileFacts> {
    let path = input.file_path.as_ref().or(input.notebook_path.as_ref())?;
    let original = response.original_file.as_ref().or(response.original_file_contents.as_ref());
    let after = match name {
        "Write" => input.content.clone(),
        "NotebookEdit" => response.updated_file.clone(),
        _ => original.and_then(|original| content_after_edit(original, input)),
    };
    let created = response.kind.as_deref() == Some("create")
        || text.is_some_and(|text| text.starts_with("File created"))
        || (name == "Edit" && input.old_string.as_deref() == Some("") && original.is_none_or(String::is_empty));
    Some(FileFacts {
        path: redacted(path).into_owned(),
        change: if created { FileChange::Create } else { FileChange::Update },
        evidence: ChangeEvidence::Tool,
        tool: Some(name.to_owned()),
        tool_use_id: tool_use_id.map(Into::into),
        digest: after.as_deref().map(|content| digest(content.as_bytes())),
        line_hashes: written_lines(name, input, response, created),
    })
}

/// The content of the file after an edit, if the original is known.
fn content_after_edit(original: &str, input: &Input) -> Option<String> {
    let one = Edit {
        old_string: input.old_string.clone().unwrap_or_default(),
        new_string: input.new_string.clone().unwrap_or_default(),
        replace_all: input.replace_all,
    };
    let mut content = Cow::Borrowed(original);
    for Edit { old_string, new_string, replace_all } in input.edits.as_deref().unwrap_or(std::slice::from_ref(&one)) {
        let (before, after) = content.split_once(old_string)?;
        content = Cow::Owned(if *replace_all == Some(true) {
            content.replace(old_string, new_string)
        } else {
            [before, new_string, after].concat()
        });
    }
    Some(content.into_owned())
}

/// The lines that a call wrote, taken from the patch if there is one, or else from the input.
fn written_lines(name: &str, input: &Input, response: &Response, created: bool) -> Option<LineHashes> {
    if let Some(hunks) = response.structured_patch.as_ref().filter(|hunks| !hunks.is_empty()) {
        return Some(LineHashes::of_patch(
            hunks.iter().map(|hunk| (hunk.new_start, hunk.lines.iter().map(String::as_str))),
        ));
    }
    match (name, &input.content, &input.edits) {
        ("Write", Some(content), _) => {
            // The call wrote the same content again, so it changed no line.
            let unchanged =
                !created && response.structured_patch.is_some() && response.original_file.as_ref() == Some(content);
            // The call replaced a file of unknown content, so any line may be older than the call.
            let over = !created && response.structured_patch.is_none();
            (!unchanged)
                .then(|| if over { LineHashes::of_file_over_unknown(content) } else { LineHashes::of_file(content) })
        }
        (_, _, Some(edits)) => {
            let pieces =
                edits.iter().flat_map(|edit| LineHashes::of_replacement(&edit.old_string, &edit.new_string).segments);
            Some(LineHashes { segments: pieces.collect(), ..LineHashes::default() })
        }
        ("Edit", ..) => match (&input.old_string, &input.new_string) {
            (Some(old), Some(new)) if old.is_empty() => Some(LineHashes::of_file(new)),
            (Some(old), Some(new)) => Some(LineHashes::of_replacement(old, new)),
            _ => None,
        },
        _ => None,
    }
}

/// The agent id in the result text of a spawn call, for clients that write no structured result.
pub fn agent_id_in_text(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("agentId: ")?;
    let end = rest.find(|character: char| !character.is_ascii_alphanumeric() && !"-_".contains(character));
    Some(&rest[..end.unwrap_or(rest.len())]).filter(|agent| !agent.is_empty())
}

/// Whether the result text of a spawn call says that the agent continues in the background. In an agent's own
/// transcript, only this text says so.
pub fn is_background_launch(text: &str) -> bool {
    text.starts_with("Async agent launched")
}

#[cfg(test)]
mod tests {
    use trackway_capture::lenient::lenient;

    use super::*;

    fn input(json: &str) -> Input {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn edit_digest_matches_content_after_the_edit() {
        let edit = input(r#"{"file_path":"/p/a","old_string":"b","new_string":"c"}"#);
        let response: Response = serde_json::from_str(r#"{"originalFile":"abb"}"#).unwrap();
        let facts = file_facts("Edit", Some("t"), &edit, &response, None).unwrap();
        assert_eq!((facts.digest, facts.change), (Some(digest(b"acb")), FileChange::Update));
        let all = input(r#"{"file_path":"/p/a","old_string":"b","new_string":"c","replace_all":true}"#);
        assert_eq!(file_facts("Edit", None, &all, &response, None).unwrap().digest, Some(digest(b"acc")));
        let several = input(
            r#"{"file_path":"/p/a","edits":[{"old_string":"a","new_string":"x"},{"old_string":"xb","new_string":"y"}]}"#,
        );
        let response: Response = serde_json::from_str(r#"{"originalFileContents":"abb"}"#).unwrap();
        assert_eq!(file_facts("MultiEdit", None, &several, &response, None).unwrap().digest, Some(digest(b"yb")));
    }

    #[test]
    fn write_distinguishes_created_and_updated_files() {
        let write = input(r#"{"file_path":"/p/a","content":"x\n"}"#);
        let created: Response = serde_json::from_str(r#"{"type":"create","structuredPatch":[]}"#).unwrap();
        assert_eq!(file_facts("Write", None, &write, &created, None).unwrap().change, FileChange::Create);
        let words = file_facts("Write", None, &write, &Response::default(), Some("File created successfully at: /p/a"));
        assert_eq!(words.unwrap().change, FileChange::Create);
        assert_eq!(
            file_facts("Write", None, &write, &Response::default(), Some("updated")).unwrap().change,
            FileChange::Update
        );
        assert!(file_facts("Write", None, &input("{}"), &created, None).is_none());
    }

    #[test]
    fn reads_agent_id_from_tool_result_text() {
        assert_eq!(agent_id_in_text("done\nagentId: a1b2 (use SendMessage)"), Some("a1b2"));
        assert_eq!(agent_id_in_text("no agent"), None);
    }

    #[test]
    fn ignores_malformed_fields_and_keeps_the_others() {
        let raw = |json: &str| serde_json::from_str::<Box<serde_json::value::RawValue>>(json).unwrap();
        assert!(lenient::<Response>(Some(&raw(r#""Error: no""#))).status.is_none());
        assert!(lenient::<Input>(Some(&raw(r#"{"file_path":5}"#))).file_path.is_none());
        let edit: Input = lenient(Some(&raw(
            r#"{"file_path":"/p/a","old_string":"b","new_string":"c","replace_all":"true","content":7}"#,
        )));
        let response: Response = lenient(Some(&raw(
            r#"{"status":7,"originalFile":"abb","structuredPatch":[{"newStart":1,"lines":["+a"]}]}"#,
        )));
        let facts = file_facts("Edit", Some("t"), &edit, &response, None).unwrap();
        assert_eq!(facts.digest, Some(digest(b"acc")));
        assert_eq!(facts.line_hashes.unwrap().segments.len(), 1);
        let several: Input = lenient(Some(&raw(
            r#"{"file_path":"/p/a","edits":[{"old_string":"a","new_string":"x","replace_all":"false"},{"old_string":null}]}"#,
        )));
        assert_eq!(several.edits.unwrap().len(), 2);
        let spawned: Input = lenient(Some(&raw(r#"{"prompt":"cut \ud83d","run_in_background":"true","name":["x"]}"#)));
        let facts = spawn_facts("t", &spawned, None).unwrap();
        assert_eq!((facts.prompt.as_str(), facts.background, facts.name), ("cut \u{fffd}", true, None));
    }
}
