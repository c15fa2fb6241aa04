//! Login links of `trackway open`, and pages of sessions and lines that hooks recorded.

use std::{io::Write, sync::Arc};

use serde_json::json;
use trackway_actions::Core;
use trackway_server::Site;
use trackway_store::Store;
use trackway_testkit::Engine;

use crate::{
    mcp_client::Server,
    terminal::{Terminal, both_engines, run_command_with_input, text},
};

impl Terminal {
    /// Creates a token, and returns a function that gets the page at a path: its status and its body.
    fn pages(&self) -> impl Fn(&str) -> (u16, String) {
        let site = Site::new(Arc::new(Core::new(Store::open(self.database.url()).unwrap())));
        let token = text(&self.json(&["token", "create", "--name", "pages"])["token"]);
        move |path| {
            let answer = site.get(&token, path);
            (answer.status, answer.body)
        }
    }
}

#[test]
fn open_refuses_a_server_of_another_database() {
    let (here, elsewhere) = (Terminal::new(Engine::Sqlite), Terminal::new(Engine::Sqlite));
    let server = Server::start(&here);
    let address = server.address.to_string();
    let url = text(&here.json(&["open", "--listen", &address])["url"]);
    let path = url.strip_prefix(&format!("http://{address}")).unwrap();
    // `open` queries the server, which must not use up the one-time link.
    assert_eq!(server.send(&format!("GET {path} HTTP/1.1\r\nHost: {address}"), "").0, 303);
    let (code, message) = elsewhere.expect_error(&["open", "--listen", &address]);
    assert_eq!((code, message), (4, format!("the server at {address} uses another database")));
}

#[test]
fn open_refuses_a_port_of_another_program() {
    let here = Terminal::new(Engine::Sqlite);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        }
    });
    let (code, message) = here.expect_error(&["open", "--listen", &address]);
    assert_eq!((code, message), (4, format!("the program at {address} is not this version of Trackway")));
}

both_engines! {
    fn session_title_is_the_first_line_of_its_first_prompt(terminal: Terminal) {
        let send_hook = |event: &str, more: serde_json::Value| {
            let mut input = json!({ "hook_event_name": event, "session_id": "0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001", "cwd": terminal.home.path() });
            input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            run_command_with_input(terminal.command(&["hook"]), input.to_string().as_bytes());
        };
        send_hook("UserPromptSubmit", json!({ "prompt": "\nWater the ficus\nand the cactus" }));
        send_hook("Stop", json!({ "last_assistant_message": "Both are watered." }));
        send_hook("UserPromptSubmit", json!({ "prompt": "Now the fern" }));

        assert_eq!(terminal.json(&["session", "list"])[0]["prompt"], "Water the ficus");
        let shown = terminal.json(&["session", "show", "0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001"]);
        assert_eq!(shown["prompt"], "Water the ficus");
        let prompts: Vec<_> = shown["prompts"].as_array().unwrap().iter().map(|run| run["prompt"].clone()).collect();
        assert_eq!(prompts, ["Water the ficus", "Now the fern"]);

        let pages = terminal.pages();
        let (status, page) = pages("/sessions/0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001");
        assert_eq!(status, 200, "{page}");
        for expected in ["# Water the ficus\n", "| Now the fern |", "| Both are watered. |", "[all messages](/messages?session=0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001)"] {
            assert!(page.contains(expected), "{expected}: {page}");
        }
        assert!(pages("/sessions").1.contains("| Water the ficus |"));
        let (status, messages) = pages("/messages?session=0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001");
        assert!(status == 200 && messages.contains("Now the fern"), "{messages}");
        let (status, why) = pages("/why?of=0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001");
        assert_eq!(status, 200, "{why}");
        assert!(page.contains("forget_session"), "{page}");
        // The cause of a run is a link.
        let run = text(&shown["prompts"][0]["id"]);
        assert!(pages(&format!("/runs/{run}")).1.contains("- cause: [message "));
    }

    fn why_page_of_a_line_shows_the_line_and_its_origin(terminal: Terminal) {
        let file = terminal.home.path().join("tea.js");
        std::fs::write(&file, "const kettle = 1;\npour(kettle);\n").unwrap();
        let send_hook = |event: &str, more: serde_json::Value| {
            let mut input = json!({ "hook_event_name": event, "session_id": "0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0002", "cwd": terminal.home.path() });
            input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            run_command_with_input(terminal.command(&["hook"]), input.to_string().as_bytes());
        };
        send_hook("UserPromptSubmit", json!({ "prompt": "Make tea" }));
        let content = "const kettle = 1;\npour(kettle);\n";
        send_hook("PostToolUse", json!({
            "tool_name": "Write", "tool_use_id": "toolu_1", "tool_input": { "file_path": file, "content": content },
            "tool_response": { "type": "create", "filePath": file, "content": content, "structuredPatch": [] },
        }));
        let pages = terminal.pages();
        let (status, page) = pages(&format!("/why?of={}:2", file.display()));
        assert_eq!(status, 200, "{page}");
        assert!(page.contains("Line 2: exact:\n\n```text\npour(kettle);\n```"), "{page}");
        assert!(page.contains("- resource: [file ") && page.contains("](/why?of="), "{page}");
    }
}
