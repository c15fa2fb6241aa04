//! A browser that is led to the server, and pages of what only hooks and transcripts tell.

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
    /// The pages over this database, for somebody with a token.
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
fn a_link_is_made_only_for_a_server_that_knows_it() {
    let (here, elsewhere) = (Terminal::new(Engine::Sqlite), Terminal::new(Engine::Sqlite));
    let server = Server::start(&here);
    let address = server.address.to_string();
    let url = text(&here.json(&["open", "--listen", &address])["url"]);
    let path = url.strip_prefix(&format!("http://{address}")).unwrap();
    // That the server was asked did not use the link up.
    assert_eq!(server.send(&format!("GET {path} HTTP/1.1\r\nHost: {address}"), "").0, 303);
    let (code, said) = elsewhere.expect_error(&["open", "--listen", &address]);
    assert_eq!((code, said), (4, format!("the server at {address} uses another database")));
}

#[test]
fn a_link_is_not_made_for_what_is_not_a_server_of_ours() {
    let here = Terminal::new(Engine::Sqlite);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        }
    });
    let (code, said) = here.expect_error(&["open", "--listen", &address]);
    assert_eq!((code, said), (4, format!("the program at {address} is not this version of Trackway")));
}

both_engines! {
    fn a_session_is_called_by_its_first_prompt(terminal: Terminal) {
        let hears = |event: &str, more: serde_json::Value| {
            let mut whole = json!({ "hook_event_name": event, "session_id": "0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001", "cwd": terminal.home.path() });
            whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            run_command_with_input(terminal.command(&["hook"]), whole.to_string().as_bytes());
        };
        hears("UserPromptSubmit", json!({ "prompt": "\nWater the ficus\nand the cactus" }));
        hears("Stop", json!({ "last_assistant_message": "Both are watered." }));
        hears("UserPromptSubmit", json!({ "prompt": "Now the fern" }));

        assert_eq!(terminal.json(&["session", "list"])[0]["prompt"], "Water the ficus");
        let shown = terminal.json(&["session", "show", "0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001"]);
        assert_eq!(shown["prompt"], "Water the ficus");
        let prompts: Vec<_> = shown["prompts"].as_array().unwrap().iter().map(|run| run["prompt"].clone()).collect();
        assert_eq!(prompts, ["Water the ficus", "Now the fern"]);

        let pages = terminal.pages();
        let (status, page) = pages("/sessions/0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001");
        assert_eq!(status, 200, "{page}");
        for said in ["# Water the ficus\n", "| Now the fern |", "| Both are watered. |", "[all messages](/messages?session=0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001)"] {
            assert!(page.contains(said), "{said}: {page}");
        }
        assert!(pages("/sessions").1.contains("| Water the ficus |"));
        let (status, messages) = pages("/messages?session=0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001");
        assert!(status == 200 && messages.contains("Now the fern"), "{messages}");
        let (status, why) = pages("/why?of=0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001");
        assert_eq!(status, 200, "{why}");
        assert!(page.contains("forget_session"), "{page}");
        // What caused a run is a link.
        let run = text(&shown["prompts"][0]["id"]);
        assert!(pages(&format!("/runs/{run}")).1.contains("- cause: [message "));
    }

    fn a_line_is_shown_with_where_it_comes_from(terminal: Terminal) {
        let file = terminal.home.path().join("tea.js");
        std::fs::write(&file, "const kettle = 1;\npour(kettle);\n").unwrap();
        let hears = |event: &str, more: serde_json::Value| {
            let mut whole = json!({ "hook_event_name": event, "session_id": "0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0002", "cwd": terminal.home.path() });
            whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            run_command_with_input(terminal.command(&["hook"]), whole.to_string().as_bytes());
        };
        hears("UserPromptSubmit", json!({ "prompt": "Make tea" }));
        let content = "const kettle = 1;\npour(kettle);\n";
        hears("PostToolUse", json!({
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
