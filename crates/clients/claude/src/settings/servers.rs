//! Adds Trackway's MCP server to the text of a file with the client's server list, and removes it.

use serde_json::{Value, json};
use trackway_capture::program::is_own_name;

use super::{
    Result,
    json_spans::{Node, error_at, parse},
    splice::{Item, Layout, RemovalResult, apply, remove_children, remove_document},
};

/// The key of the server list.
const LIST_KEY: &str = "mcpServers";
/// The server's name, which is part of the tool names: `mcp__trackway__whoami`.
const SERVER_NAME: &str = "trackway";

/// A file with Trackway's server only.
pub fn list(program: &str) -> Value {
    json!({ LIST_KEY: { SERVER_NAME: entry(program) } })
}

fn entry(program: &str) -> Value {
    json!({ "type": "stdio", "command": program, "args": ["mcp"] })
}

/// Returns the text with Trackway's server. An existing entry keeps its other fields, such as environment variables.
pub fn connect(text: &str, program: &str) -> Result<String> {
    let root = parse(text)?;
    let layout = Layout::of(text, root.as_ref());
    let refuse = |node: &Node, what: String| Err(error_at(text, node.span.start, &what));
    let Some(root) = root else {
        return Ok(apply(text, vec![layout.document(text, &list(program))]));
    };
    if root.members().is_none() {
        return refuse(&root, format!("the server list must be in an object, but this is {}", root.kind_name()));
    }
    let edit = match root.get(LIST_KEY) {
        None => layout.append(text, &root, &[Item::member(LIST_KEY, &json!({ SERVER_NAME: entry(program) }))]),
        Some(servers) if servers.members().is_none() => {
            return refuse(servers, format!("{LIST_KEY:?} must be an object, but is {}", servers.kind_name()));
        }
        Some(servers) => match servers.get(SERVER_NAME) {
            None => layout.append(text, servers, &[Item::member(SERVER_NAME, &entry(program))]),
            Some(server) if !is_trackway_server(server) => {
                return refuse(server, format!("another server already has the name {SERVER_NAME:?}"));
            }
            Some(server) => match server.get("command") {
                Some(command) if command.text() != Some(program) => layout.replace(text, command, &json!(program)),
                _ => return Ok(text.to_owned()),
            },
        },
    };
    Ok(apply(text, vec![edit]))
}

/// Returns the text without Trackway's server.
pub fn disconnect(text: &str) -> Result<String> {
    let Some(root) = parse(text)? else { return Ok(text.to_owned()) };
    let mut edits = Vec::new();
    let is_removed: Vec<bool> = root
        .members()
        .unwrap_or_default()
        .iter()
        .map(|member| {
            let servers = member.value.members().filter(|_| member.key == LIST_KEY).unwrap_or_default();
            let is_ours: Vec<bool> =
                servers.iter().map(|server| server.key == SERVER_NAME && is_trackway_server(&server.value)).collect();
            remove_children(text, &member.value, &is_ours, &mut edits) == RemovalResult::RemoveBrackets
        })
        .collect();
    if remove_children(text, &root, &is_removed, &mut edits) == RemovalResult::RemoveBrackets {
        edits = vec![remove_document(text, &root)];
    }
    Ok(apply(text, edits))
}

/// Whether the list contains Trackway's server.
pub fn is_connected(text: &str) -> Result<bool> {
    let root = parse(text)?;
    Ok(root.as_ref().and_then(|root| root.get(LIST_KEY)?.get(SERVER_NAME)).is_some_and(is_trackway_server))
}

/// Whether a server is a binary called `trackway` with the argument `mcp`.
fn is_trackway_server(server: &Node) -> bool {
    let arguments = server.get("args").and_then(Node::elements).unwrap_or_default();
    server.get("command").and_then(Node::text).is_some_and(is_own_name)
        && arguments.iter().any(|argument| argument.text() == Some("mcp"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn connect_and_check(text: &str) -> String {
        let connected = connect(text, "/bin/trackway").unwrap();
        assert_eq!(connect(&connected, "/bin/trackway").unwrap(), connected);
        assert_eq!((is_connected(text), is_connected(&connected)), (Ok(false), Ok(true)));
        assert_eq!(disconnect(&connected).unwrap(), text);
        connected
    }

    #[test]
    fn keeps_other_text_byte_for_byte() {
        assert_eq!(serde_json::from_str::<Value>(&connect_and_check("")).unwrap(), list("/bin/trackway"));
        for text in [
            "{}",
            "{ }\n",
            "\u{feff}",
            "{\"mcpServers\": {}}",
            "{\r\n\t\"mcpServers\": {\r\n\t\t\"other\": {\"command\": \"x\"}\r\n\t},\r\n\t\"z\": 1\r\n}",
            "{\"numStartups\": 7,   \"projects\": {\"/a\": {\"mcpServers\": {\"b\": {}}}}}",
        ] {
            let now: Value = serde_json::from_str(connect_and_check(text).trim_start_matches('\u{feff}')).unwrap();
            assert_eq!(now["mcpServers"]["trackway"]["args"], json!(["mcp"]), "{text}");
        }
    }

    #[test]
    fn replaces_only_the_command_of_an_existing_trackway_server() {
        let text = r#"{"mcpServers": {"trackway": {"command": "/old/trackway", "args": ["--db", "x", "mcp"], "env": {"A": "1"}}}}"#;
        assert_eq!(connect(text, "/new/trackway").unwrap(), text.replace("/old/", "/new/"));
        assert_eq!(disconnect(text).unwrap(), "");
    }

    #[test]
    fn rejects_malformed_server_lists() {
        let error_of = |text| connect(text, "trackway").unwrap_err().to_string();
        assert_eq!(error_of("[]"), "line 1, column 1: the server list must be in an object, but this is an array");
        assert_eq!(
            error_of("{\"mcpServers\": []}"),
            "line 1, column 16: \"mcpServers\" must be an object, but is an array"
        );
        let another = "{\n\"mcpServers\": {\"trackway\": {\"command\": \"docker\"}}}";
        assert_eq!(error_of(another), "line 2, column 28: another server already has the name \"trackway\"");
        assert_eq!(disconnect(another).unwrap(), another);
        assert!(error_of("{// mine\n}").contains("found a comment"));
    }

    proptest! {
        #[test]
        fn disconnect_restores_the_original_text(
            names in proptest::collection::vec("[a-z]{1,4}", 0..4),
            blank in prop_oneof![Just(""), Just(" "), Just("\n  ")],
            has_list in any::<bool>(),
        ) {
            let members: Vec<String> = names.iter().map(|name| format!("{blank}\"{name}\":{blank}{{}}")).collect();
            let inner = format!("{{{}{blank}}}", members.join(","));
            let text = if has_list { format!("{{{blank}\"mcpServers\": {inner}}}\n") } else { inner };
            let connected = connect(&text, "/a b/trackway").unwrap();
            prop_assert_eq!(disconnect(&connected).unwrap(), text);
        }
    }
}
