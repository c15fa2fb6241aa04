//! The tools of an agent. They are stateless: every call names its target. The model calls them natively, or writes the
//! call as JSON in its text.

use serde_json::{Value, json};
use trackway_domain::closing;

use crate::{
    executor::{AGENT_ERROR, TASK_COMPLETED},
    model::{Call, Reply, Tool},
};

pub const TOOLS: &[Tool] = &[
    Tool {
        name: "fetch_page",
        description: "Read a page as Markdown. A long page is cut, and ends with the call that reads the next part.",
        parameters: &[
            ("path", "string", "The page, such as /whoami or /tasks/unit/go", true),
            ("from", "integer", "The character to begin at, for the next part of a long page", false),
        ],
    },
    Tool {
        name: "execute_action",
        description: "Execute an action of a page. Pages list their actions with their parameters.",
        parameters: &[
            ("path", "string", "The page that the action belongs to", true),
            ("action", "string", "The name of the action", true),
            ("params", "object", "Its parameters", false),
        ],
    },
    Tool {
        name: "search",
        description: "Search messages.",
        parameters: &[("words", "string", "The words to search for", true)],
    },
    Tool {
        name: "done",
        description: "Report that the task is done. Ends the run.",
        parameters: &[("message", "string", "What you did, for the person who requested it", true)],
    },
    Tool {
        name: "error",
        description: "Report that the task cannot be done. Ends the run.",
        parameters: &[("message", "string", "The reason", true)],
    },
];

/// Tells models without native tool calls to write a call as JSON in their text.
pub const TEXT_CALL_INSTRUCTIONS: &str = r#"Answer with one fenced json block and nothing after it, one of:
```json
{"type": "navigate", "path": "/whoami"}
```
{"type": "navigate", "path": "/tasks/unit/go", "from": 24000}
{"type": "execute", "path": "/whoami", "action": "update_scratchpad", "params": {"content": "..."}}
{"type": "search", "words": "..."}
{"type": "done", "message": "..."}
{"type": "error", "message": "..."}"#;

/// The page of an action call without a path.
const DEFAULT_PAGE: &str = "/whoami";

/// A valid tool call.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedCall {
    FetchPage { path: String, from: usize },
    ExecuteAction { path: String, action: String, params: Value },
    Search { words: String },
    Done { message: String },
    Error { message: String },
}

#[derive(Debug, PartialEq)]
pub enum ParsedReply {
    /// Native calls; an invalid call has an error message.
    Calls(Vec<(Call, Result<ParsedCall, String>)>),
    /// A call written as JSON in the text.
    InText(ParsedCall),
    /// The reason why the reply contains no valid call.
    NoValidCall(String),
}

impl ParsedReply {
    /// Whether the first call only reads.
    pub fn starts_with_read(&self) -> bool {
        let first = match self {
            Self::Calls(calls) => calls.first().and_then(|(_, parsed)| parsed.as_ref().ok()),
            Self::InText(parsed) => Some(parsed),
            Self::NoValidCall(_) => None,
        };
        matches!(first, Some(ParsedCall::FetchPage { .. } | ParsedCall::Search { .. }))
    }
}

/// Parses a reply: the native calls, or else a fenced json block, or else the first complete JSON object.
pub fn parse_reply(reply: &Reply) -> ParsedReply {
    if !reply.calls.is_empty() {
        return ParsedReply::Calls(
            reply.calls.iter().map(|call| (call.clone(), parse_call(&call.name, &call.input))).collect(),
        );
    }
    if reply.text.trim().is_empty() {
        return ParsedReply::NoValidCall("the answer is empty".to_owned());
    }
    let Some(object) = closing::find_object(&reply.text) else {
        return ParsedReply::NoValidCall("the answer contains neither a tool call nor a valid JSON object".to_owned());
    };
    let Some(name) = object["type"].as_str() else {
        return ParsedReply::NoValidCall("the JSON object in the answer has no \"type\"".to_owned());
    };
    match parse_call(name, &object) {
        Ok(parsed) => ParsedReply::InText(parsed),
        Err(why) => ParsedReply::NoValidCall(why),
    }
}

fn parse_call(name: &str, input: &Value) -> Result<ParsedCall, String> {
    if !input.is_object() {
        return Err(format!("the input of {name} is not a JSON object"));
    }
    let text = |field: &str| match &input[field] {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Err(format!("{name} requires {field:?}, a string")),
        _ => Err(format!("{field:?} of {name} is not a string")),
    };
    // The message is optional: a call without one still ends the run.
    let message = |default: &str| match &input["message"] {
        Value::Null => Ok(default.to_owned()),
        Value::String(given) if given.trim().is_empty() => Ok(default.to_owned()),
        _ => text("message"),
    };
    Ok(match name {
        "fetch_page" | "navigate" => {
            let from = match &input["from"] {
                Value::Null => 0,
                from => from
                    .as_u64()
                    .and_then(|from| usize::try_from(from).ok())
                    .ok_or_else(|| format!("\"from\" of {name} is not a character position"))?,
            };
            ParsedCall::FetchPage { path: page_path(&text("path")?)?, from }
        }
        "execute_action" | "execute" => {
            let path = if input["path"].is_null() { DEFAULT_PAGE.to_owned() } else { page_path(&text("path")?)? };
            let params = match &input["params"] {
                Value::Null => json!({}),
                params @ Value::Object(_) => params.clone(),
                _ => return Err(format!("\"params\" of {name} is not an object")),
            };
            let action = text("action")?;
            if action.is_empty()
                || !action.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
            {
                return Err(format!("invalid action name {action:?}"));
            }
            ParsedCall::ExecuteAction { path, action, params }
        }
        "search" => ParsedCall::Search { words: text("words")? },
        "done" => ParsedCall::Done { message: message(TASK_COMPLETED)? },
        "error" => ParsedCall::Error { message: message(AGENT_ERROR)? },
        _ => {
            let known: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
            return Err(format!("unknown tool {name:?}; the tools are: {}", known.join(", ")));
        }
    })
}

/// Validates the path of a page. Rejects URLs of other hosts.
fn page_path(path: &str) -> Result<String, String> {
    let path = path.trim();
    let path = path.split('#').next().unwrap_or_default();
    if !path.starts_with('/') || path.starts_with("//") {
        return Err(format!("invalid page path {path:?}: a path begins with /"));
    }
    if path.chars().any(|character| character.is_control() || character == '\\') {
        return Err("the path contains invalid characters".to_owned());
    }
    // A browser encodes spaces in typed links, too.
    Ok(path.replace(' ', "%20"))
}

/// The path of an action below its page, without the query of the page.
pub fn action_path(page: &str, action: &str) -> String {
    let page = page.split('?').next().unwrap_or_default().trim_end_matches('/');
    let page = page.split("/actions").next().unwrap_or_default();
    format!("{page}/actions/{action}")
}

pub fn search_path(words: &str) -> String {
    let mut path = "/search?words=".to_owned();
    for byte in words.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => path.push(byte.into()),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> ParsedReply {
        parse_reply(&Reply { text: text.to_owned(), calls: Vec::new() })
    }

    #[test]
    fn reply_starts_with_read_if_its_first_call_reads() {
        let calls = |names: &[&str]| {
            let input = json!({ "path": "/whoami", "words": "w", "action": "a", "message": "m" });
            let call = |name: &&str| Call { id: String::new(), name: (*name).to_owned(), input: input.clone() };
            parse_reply(&Reply { text: String::new(), calls: names.iter().map(call).collect() })
        };
        for (names, reads) in [
            (&["fetch_page"][..], true),
            (&["search", "execute_action"], true),
            (&["execute_action", "fetch_page"], false),
            (&["done"], false),
            (&["nonsense", "fetch_page"], false),
        ] {
            assert_eq!(calls(names).starts_with_read(), reads, "{names:?}");
        }
        assert!(parse_text("{\"type\":\"navigate\",\"path\":\"/b\"}").starts_with_read());
        assert!(!parse_text("prose").starts_with_read());
    }

    #[test]
    fn parses_calls_in_text() {
        let go = |path: &str| ParsedReply::InText(ParsedCall::FetchPage { path: path.to_owned(), from: 0 });
        assert_eq!(parse_text("Let me see {\"type\": \"navigate\", \"path\": \"/a b#c\"} and so on"), go("/a%20b"));
        assert_eq!(
            parse_text("{\"type\":\"done\",\"message\":\"x\"}\n```json\n{\"type\":\"navigate\",\"path\":\"/b\"}\n```"),
            go("/b"),
            "a fenced block comes first"
        );
        assert_eq!(
            parse_text("{\"type\":\"navigate\",\"path\":\"/one\"} {\"type\":\"navigate\",\"path\":\"/two\"}"),
            go("/one"),
            "of two the first"
        );
        let execute = ParsedCall::ExecuteAction {
            path: "/whoami".into(),
            action: "create_note".into(),
            params: json!({"title": "x"}),
        };
        assert_eq!(
            parse_text("{\"type\":\"execute\",\"action\":\"create_note\",\"params\":{\"title\":\"x\"}}"),
            ParsedReply::InText(execute)
        );
    }

    #[test]
    fn a_run_that_ends_without_a_message_gets_the_default_message() {
        for (text, message) in
            [("", ""), (",\"message\":null", ""), (",\"message\":\" \"", ""), (",\"message\":\"so\"", "so")]
        {
            let or = |default: &str| if message.is_empty() { default.to_owned() } else { message.to_owned() };
            let done = ParsedReply::InText(ParsedCall::Done { message: or("Task completed") });
            assert_eq!(parse_text(&format!("{{\"type\":\"done\"{text}}}")), done);
            let error = ParsedReply::InText(ParsedCall::Error { message: or("Agent encountered an error") });
            assert_eq!(parse_text(&format!("{{\"type\":\"error\"{text}}}")), error);
        }
        let ParsedReply::NoValidCall(why) = parse_text("{\"type\":\"done\",\"message\":7}") else { panic!() };
        assert_eq!(why, "\"message\" of done is not a string");
    }

    #[test]
    fn replies_without_a_valid_call_have_a_reason() {
        for (text, why) in [
            ("I think we should wait.", "the answer contains neither a tool call nor a valid JSON object"),
            (" \n", "the answer is empty"),
            ("{\"type\": \"navigate\", \"path\": ", "the answer contains neither a tool call nor a valid JSON object"),
            (
                "{\"type\":\"execute\",\"action\":\"create_note\",\"params\":{\"type\":\"done\",\"message\":\"x\"},}",
                "the answer contains neither a tool call nor a valid JSON object",
            ),
            ("{\"path\": \"/\"}", "the JSON object in the answer has no \"type\""),
            (
                "{\"type\": \"fly\"}",
                "unknown tool \"fly\"; the tools are: fetch_page, execute_action, search, done, error",
            ),
            ("{\"type\": \"navigate\", \"path\": 7}", "\"path\" of navigate is not a string"),
            (
                "{\"type\": \"navigate\", \"path\": \"http://x\"}",
                "invalid page path \"http://x\": a path begins with /",
            ),
            ("{\"type\": \"navigate\", \"path\": \"//x/\"}", "invalid page path \"//x/\": a path begins with /"),
            ("{\"type\": \"execute\", \"action\": \"../x\"}", "invalid action name \"../x\""),
            ("{\"type\": \"execute\", \"action\": \"x\", \"params\": [1]}", "\"params\" of execute is not an object"),
        ] {
            assert_eq!(parse_text(text), ParsedReply::NoValidCall(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn builds_action_and_search_paths() {
        assert_eq!(action_path("/whoami?x=1", "a"), "/whoami/actions/a");
        assert_eq!(action_path("/whoami/actions", "a"), "/whoami/actions/a");
        assert_eq!(action_path("/", "a"), "/actions/a");
        assert_eq!(search_path("ä b&c"), "/search?words=%C3%A4%20b%26c");
    }
}
