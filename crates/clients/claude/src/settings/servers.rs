//! Claude Code's list of MCP servers: putting ours into the text of a file that holds one, and taking it out again.

use serde_json::{Value, json};

use super::{
    Result, is_our_name,
    json_spans::{Node, parse, refused_at},
    splice::{Item, Layout, Left, apply, take_out, take_out_document},
};

/// The key of the list.
const LIST: &str = "mcpServers";
/// What our server is called; tools are called `mcp__trackway__whoami` after it.
const NAME: &str = "trackway";

/// A whole list with our server only.
pub fn list(program: &str) -> Value {
    json!({ LIST: { NAME: entry(program) } })
}

fn entry(program: &str) -> Value {
    json!({ "type": "stdio", "command": program, "args": ["mcp"] })
}

/// The text with our server in its list. One that is there already keeps what was added to it, such as variables.
pub fn connect(text: &str, program: &str) -> Result<String> {
    let root = parse(text)?;
    let layout = Layout::of(text, root.as_ref());
    let refuse = |node: &Node, what: String| Err(refused_at(text, node.span.start, &what));
    let Some(root) = root else {
        return Ok(apply(text, vec![layout.document(text, &list(program))]));
    };
    if root.members().is_none() {
        return refuse(&root, format!("servers are listed in an object, and this is {}", root.described()));
    }
    let edit = match root.get(LIST) {
        None => layout.append(text, &root, &[Item::member(LIST, &json!({ NAME: entry(program) }))]),
        Some(servers) if servers.members().is_none() => {
            return refuse(servers, format!("{LIST:?} should be an object, and is {}", servers.described()));
        }
        Some(servers) => match servers.get(NAME) {
            None => layout.append(text, servers, &[Item::member(NAME, &entry(program))]),
            Some(server) if !is_ours(server) => {
                return refuse(server, format!("another server is called {NAME:?} here"));
            }
            Some(server) => match server.get("command") {
                Some(command) if command.text() != Some(program) => layout.replace(text, command, &json!(program)),
                _ => return Ok(text.to_owned()),
            },
        },
    };
    Ok(apply(text, vec![edit]))
}

/// The text without our server.
pub fn disconnect(text: &str) -> Result<String> {
    let Some(root) = parse(text)? else { return Ok(text.to_owned()) };
    let mut edits = Vec::new();
    let gone: Vec<bool> = root
        .members()
        .unwrap_or_default()
        .iter()
        .map(|member| {
            let servers = member.value.members().filter(|_| member.key == LIST).unwrap_or_default();
            let ours: Vec<bool> = servers.iter().map(|server| server.key == NAME && is_ours(&server.value)).collect();
            take_out(text, &member.value, &ours, &mut edits) == Left::Nothing
        })
        .collect();
    if take_out(text, &root, &gone, &mut edits) == Left::Nothing {
        edits = vec![take_out_document(text, &root)];
    }
    Ok(apply(text, edits))
}

/// Whether our server is in the list of a text.
pub fn is_connected(text: &str) -> Result<bool> {
    let root = parse(text)?;
    Ok(root.as_ref().and_then(|root| root.get(LIST)?.get(NAME)).is_some_and(is_ours))
}

/// Whether a server is some binary called `trackway`, told to serve.
fn is_ours(server: &Node) -> bool {
    let arguments = server.get("args").and_then(Node::elements).unwrap_or_default();
    server.get("command").and_then(Node::text).is_some_and(is_our_name)
        && arguments.iter().any(|argument| argument.text() == Some("mcp"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn connected(text: &str) -> String {
        let connected = connect(text, "/bin/trackway").unwrap();
        assert_eq!(connect(&connected, "/bin/trackway").unwrap(), connected);
        assert_eq!((is_connected(text), is_connected(&connected)), (Ok(false), Ok(true)));
        assert_eq!(disconnect(&connected).unwrap(), text);
        connected
    }

    #[test]
    fn what_else_is_there_stays_byte_for_byte() {
        assert_eq!(serde_json::from_str::<Value>(&connected("")).unwrap(), list("/bin/trackway"));
        for text in [
            "{}",
            "{ }\n",
            "\u{feff}",
            "{\"mcpServers\": {}}",
            "{\r\n\t\"mcpServers\": {\r\n\t\t\"other\": {\"command\": \"x\"}\r\n\t},\r\n\t\"z\": 1\r\n}",
            "{\"numStartups\": 7,   \"projects\": {\"/a\": {\"mcpServers\": {\"b\": {}}}}}",
        ] {
            let now: Value = serde_json::from_str(connected(text).trim_start_matches('\u{feff}')).unwrap();
            assert_eq!(now["mcpServers"]["trackway"]["args"], json!(["mcp"]), "{text}");
        }
    }

    #[test]
    fn a_server_of_ours_keeps_what_was_added_to_it() {
        let text = r#"{"mcpServers": {"trackway": {"command": "/old/trackway", "args": ["--db", "x", "mcp"], "env": {"A": "1"}}}}"#;
        assert_eq!(connect(text, "/new/trackway").unwrap(), text.replace("/old/", "/new/"));
        assert_eq!(disconnect(text).unwrap(), "");
    }

    #[test]
    fn what_is_not_as_it_should_be_is_refused() {
        let said = |text| connect(text, "trackway").unwrap_err().to_string();
        assert_eq!(said("[]"), "line 1, column 1: servers are listed in an object, and this is an array");
        assert_eq!(
            said("{\"mcpServers\": []}"),
            "line 1, column 16: \"mcpServers\" should be an object, and is an array"
        );
        let another = "{\n\"mcpServers\": {\"trackway\": {\"command\": \"docker\"}}}";
        assert_eq!(said(another), "line 2, column 28: another server is called \"trackway\" here");
        assert_eq!(disconnect(another).unwrap(), another);
        assert!(said("{// mine\n}").contains("not a comment"));
    }

    proptest! {
        #[test]
        fn taking_out_gives_back_what_was_there(
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
