//! The tools of an agent: stateless, each call names its target. Called the provider's way, or by JSON in the text.

use serde_json::{Value, json};
use trackway_domain::closing;

use crate::{
    executor::{AGENT_ERROR, TASK_COMPLETED},
    model::{Call, Reply, Tool},
};

/// What an agent is offered.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "fetch_page",
        description: "Read a page as Markdown. A long page is cut and says where to go on.",
        parameters: &[
            ("path", "string", "The page, such as /whoami or /tasks/unit/go", true),
            ("from", "integer", "The character to begin at, for the rest of a page that was cut", false),
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
        description: "Search what was said and written.",
        parameters: &[("words", "string", "What to look for", true)],
    },
    Tool {
        name: "done",
        description: "Say that the task is done. Ends the run.",
        parameters: &[("message", "string", "What was done, for whoever asked", true)],
    },
    Tool {
        name: "error",
        description: "Say that the task cannot be done. Ends the run.",
        parameters: &[("message", "string", "Why", true)],
    },
];

/// How the same is said where the provider has no tools.
pub const IN_TEXT: &str = r#"Answer with one fenced json block and nothing after it, one of:
```json
{"type": "navigate", "path": "/whoami"}
```
{"type": "navigate", "path": "/tasks/unit/go", "from": 24000}
{"type": "execute", "path": "/whoami", "action": "update_scratchpad", "params": {"content": "..."}}
{"type": "search", "words": "..."}
{"type": "done", "message": "..."}
{"type": "error", "message": "..."}"#;

/// Where an action is executed that names no page.
const ANY_PAGE: &str = "/whoami";

/// What the model wants.
#[derive(Debug, Clone, PartialEq)]
pub enum Intent {
    FetchPage { path: String, from: usize },
    ExecuteAction { path: String, action: String, params: Value },
    Search { words: String },
    Done { message: String },
    Error { message: String },
}

/// What a reply asks for.
#[derive(Debug, PartialEq)]
pub enum Wanted {
    /// Calls, each read or with what is wrong with it.
    Calls(Vec<(Call, Result<Intent, String>)>),
    /// One thing, said in the text.
    InText(Intent),
    /// Nothing that can be read.
    Unreadable(String),
}

impl Wanted {
    /// Whether it reads before it does anything.
    pub fn begins_with_reading(&self) -> bool {
        let first = match self {
            Self::Calls(calls) => calls.first().and_then(|(_, intent)| intent.as_ref().ok()),
            Self::InText(intent) => Some(intent),
            Self::Unreadable(_) => None,
        };
        matches!(first, Some(Intent::FetchPage { .. } | Intent::Search { .. }))
    }
}

/// Reads a reply: native calls first, else a fenced json block, else the first balanced object.
pub fn wanted(reply: &Reply) -> Wanted {
    if !reply.calls.is_empty() {
        return Wanted::Calls(reply.calls.iter().map(|call| (call.clone(), read(&call.name, &call.input))).collect());
    }
    if reply.text.trim().is_empty() {
        return Wanted::Unreadable("the answer is empty".to_owned());
    }
    let Some(object) = closing::object(&reply.text) else {
        return Wanted::Unreadable("the answer calls no tool and holds no JSON object that can be read".to_owned());
    };
    let Some(name) = object["type"].as_str() else {
        return Wanted::Unreadable("the JSON object in the answer has no \"type\"".to_owned());
    };
    match read(name, &object) {
        Ok(intent) => Wanted::InText(intent),
        Err(why) => Wanted::Unreadable(why),
    }
}

fn read(name: &str, input: &Value) -> Result<Intent, String> {
    if !input.is_object() {
        return Err(format!("the input of {name} is not a JSON object"));
    }
    let text = |field: &str| match &input[field] {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Err(format!("{name} needs {field:?}, a text")),
        _ => Err(format!("{field:?} of {name} is not a text")),
    };
    // An agent that ends its run without a message still ends it.
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
                    .ok_or_else(|| format!("\"from\" of {name} is not a number of characters"))?,
            };
            Intent::FetchPage { path: page(&text("path")?)?, from }
        }
        "execute_action" | "execute" => {
            let path = if input["path"].is_null() { ANY_PAGE.to_owned() } else { page(&text("path")?)? };
            let params = match &input["params"] {
                Value::Null => json!({}),
                params @ Value::Object(_) => params.clone(),
                _ => return Err(format!("\"params\" of {name} is not an object")),
            };
            let action = text("action")?;
            if action.is_empty()
                || !action.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
            {
                return Err(format!("{action:?} is not the name of an action"));
            }
            Intent::ExecuteAction { path, action, params }
        }
        "search" => Intent::Search { words: text("words")? },
        "done" => Intent::Done { message: message(TASK_COMPLETED)? },
        "error" => Intent::Error { message: message(AGENT_ERROR)? },
        _ => {
            let known: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
            return Err(format!("there is no tool {name:?}; there are: {}", known.join(", ")));
        }
    })
}

/// The path of a page: of this house, and nowhere else.
fn page(path: &str) -> Result<String, String> {
    let path = path.trim();
    let path = path.split('#').next().unwrap_or_default();
    if !path.starts_with('/') || path.starts_with("//") {
        return Err(format!("{path:?} is not the path of a page; one begins with /"));
    }
    if path.chars().any(|character| character.is_control() || character == '\\') {
        return Err("the path holds characters that no page has".to_owned());
    }
    // What a browser would do with a link that somebody typed.
    Ok(path.replace(' ', "%20"))
}

/// Where an action is executed: below its page, whose query plays no part in it.
pub fn action_path(page: &str, action: &str) -> String {
    let page = page.split('?').next().unwrap_or_default().trim_end_matches('/');
    let page = page.split("/actions").next().unwrap_or_default();
    format!("{page}/actions/{action}")
}

/// Where words are searched.
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

    fn said(text: &str) -> Wanted {
        wanted(&Reply { text: text.to_owned(), calls: Vec::new() })
    }

    #[test]
    fn only_what_reads_first_may_be_told_of_afterwards() {
        let calls = |names: &[&str]| {
            let input = json!({ "path": "/whoami", "words": "w", "action": "a", "message": "m" });
            let call = |name: &&str| Call { id: String::new(), name: (*name).to_owned(), input: input.clone() };
            wanted(&Reply { text: String::new(), calls: names.iter().map(call).collect() })
        };
        for (names, reads) in [
            (&["fetch_page"][..], true),
            (&["search", "execute_action"], true),
            (&["execute_action", "fetch_page"], false),
            (&["done"], false),
            (&["nonsense", "fetch_page"], false),
        ] {
            assert_eq!(calls(names).begins_with_reading(), reads, "{names:?}");
        }
        assert!(said("{\"type\":\"navigate\",\"path\":\"/b\"}").begins_with_reading());
        assert!(!said("prose").begins_with_reading());
    }

    #[test]
    fn json_in_text_is_read() {
        let go = |path: &str| Wanted::InText(Intent::FetchPage { path: path.to_owned(), from: 0 });
        assert_eq!(said("Let me see {\"type\": \"navigate\", \"path\": \"/a b#c\"} and so on"), go("/a%20b"));
        assert_eq!(
            said("{\"type\":\"done\",\"message\":\"x\"}\n```json\n{\"type\":\"navigate\",\"path\":\"/b\"}\n```"),
            go("/b"),
            "a fenced block comes first"
        );
        assert_eq!(
            said("{\"type\":\"navigate\",\"path\":\"/one\"} {\"type\":\"navigate\",\"path\":\"/two\"}"),
            go("/one"),
            "of two the first"
        );
        let execute = Intent::ExecuteAction {
            path: "/whoami".into(),
            action: "create_note".into(),
            params: json!({"title": "x"}),
        };
        assert_eq!(
            said("{\"type\":\"execute\",\"action\":\"create_note\",\"params\":{\"title\":\"x\"}}"),
            Wanted::InText(execute)
        );
    }

    #[test]
    fn a_run_that_ends_without_a_message_gets_the_default_message() {
        for (text, message) in
            [("", ""), (",\"message\":null", ""), (",\"message\":\" \"", ""), (",\"message\":\"so\"", "so")]
        {
            let or = |default: &str| if message.is_empty() { default.to_owned() } else { message.to_owned() };
            let done = Wanted::InText(Intent::Done { message: or("Task completed") });
            assert_eq!(said(&format!("{{\"type\":\"done\"{text}}}")), done);
            let error = Wanted::InText(Intent::Error { message: or("Agent encountered an error") });
            assert_eq!(said(&format!("{{\"type\":\"error\"{text}}}")), error);
        }
        let Wanted::Unreadable(why) = said("{\"type\":\"done\",\"message\":7}") else { panic!() };
        assert_eq!(why, "\"message\" of done is not a text");
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        for (text, why) in [
            ("I think we should wait.", "the answer calls no tool and holds no JSON object that can be read"),
            (" \n", "the answer is empty"),
            (
                "{\"type\": \"navigate\", \"path\": ",
                "the answer calls no tool and holds no JSON object that can be read",
            ),
            (
                "{\"type\":\"execute\",\"action\":\"create_note\",\"params\":{\"type\":\"done\",\"message\":\"x\"},}",
                "the answer calls no tool and holds no JSON object that can be read",
            ),
            ("{\"path\": \"/\"}", "the JSON object in the answer has no \"type\""),
            (
                "{\"type\": \"fly\"}",
                "there is no tool \"fly\"; there are: fetch_page, execute_action, search, done, error",
            ),
            ("{\"type\": \"navigate\", \"path\": 7}", "\"path\" of navigate is not a text"),
            (
                "{\"type\": \"navigate\", \"path\": \"http://x\"}",
                "\"http://x\" is not the path of a page; one begins with /",
            ),
            ("{\"type\": \"navigate\", \"path\": \"//x/\"}", "\"//x/\" is not the path of a page; one begins with /"),
            ("{\"type\": \"execute\", \"action\": \"../x\"}", "\"../x\" is not the name of an action"),
            ("{\"type\": \"execute\", \"action\": \"x\", \"params\": [1]}", "\"params\" of execute is not an object"),
        ] {
            assert_eq!(said(text), Wanted::Unreadable(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn paths_are_made_for_pages() {
        assert_eq!(action_path("/whoami?x=1", "a"), "/whoami/actions/a");
        assert_eq!(action_path("/whoami/actions", "a"), "/whoami/actions/a");
        assert_eq!(action_path("/", "a"), "/actions/a");
        assert_eq!(search_path("ä b&c"), "/search?words=%C3%A4%20b%26c");
    }
}
