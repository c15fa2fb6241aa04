//! Long texts from standard input (`--body -`).

use serde_json::{Value, json};

use crate::terminal::{Terminal, both_engines, run_command_with_input, text};

both_engines! {
    fn note_body_from_standard_input_is_decoded_and_limited(terminal: Terminal) {
        let body = "é".repeat(1_000_000);
        let create = ["note", "create", "--studio", "main", "--title", "Long", "--body", "-", "--json"];
        let output = run_command_with_input(terminal.command(&create), body.as_bytes());
        assert_eq!(output.code, 0, "{}", output.stderr);
        let id = text(&serde_json::from_str::<Value>(&output.stdout).unwrap()["data"]["id"]);
        assert_eq!(terminal.json(&["note", "show", &id])["body"], json!(body));
        let output = run_command_with_input(terminal.command(&create), format!("{body}x").as_bytes());
        assert_eq!((output.code, output.stderr.contains("body has 1000001 characters, the limit is 1000000")), (2, true));
        let output = run_command_with_input(terminal.command(&create), b"\xff\xff");
        assert_eq!((output.code, output.stderr.contains("is not text in UTF-8")), (2, true), "{}", output.stderr);
        let output = run_command_with_input(terminal.command(&create), b"\xff\xfeh\0i\0");
        let id = text(&serde_json::from_str::<Value>(&output.stdout).unwrap()["data"]["id"]);
        assert_eq!(terminal.json(&["note", "show", &id])["body"], "hi");
    }
}
