//! Text from people and models cannot inject front matter keys, HTML tags, table lines or scripts into a page.

use serde_json::{Value, json};
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

const HOSTILE: &[&str] = &[
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "x\n---\nactions: [evil]\n---\n# root",
    "]( javascript:alert(1)) [x](javascript:alert(1))",
    "a | b | c",
    "\u{1b}[31mred\u{1b}[0m\u{7}",
    "title: evil\nkey: value",
    "```\nrm -rf /\n```",
    "{{7*7}} ${7*7} <%= 7*7 %>",
    "' or 1=1 --",
    "\u{202e}drowssap",
    "&lt;script&gt;",
];

engines! {
    fn hostile_text_stays_text_on_every_page(env: TestEnv) {
        env.workflow("w");
        let visitor = Visitor::person(&env);
        for (number, text) in HOSTILE.iter().enumerate() {
            let note = env.execute_json("create_note", json!({ "studio": "main", "title": text, "body": text })).unwrap();
            let decision = env.execute_json("create_decision", json!({ "studio": "main", "question": text, "options": [text] })).unwrap();
            let variant = format!("t{number}");
            env.execute_json("set_task", json!({ "workflow": "w", "variant": variant, "title": text, "description": text })).unwrap();
            env.execute_json("send_message", json!({ "body": text, "title": text })).unwrap();
            let note = note["id"].as_str().unwrap().to_owned();
            for path in [
                format!("/notes/{note}"),
                format!("/decisions/{}", decision["id"].as_str().unwrap()),
                format!("/tasks/{variant}"),
                format!("/why?of={note}"),
                "/notes".to_owned(),
                "/decisions".to_owned(),
                "/tasks".to_owned(),
                "/messages".to_owned(),
                "/events".to_owned(),
            ] {
                let html = visitor.html(&path).body;
                for bad in ["<script>", "<img src=x", "onerror=alert(1)>", "href=\"javascript", "\u{1b}", "<evil"] {
                    assert!(!html.contains(bad), "{path} of {text:?} holds {bad:?}: {html}");
                }
                let markdown = visitor.markdown(&path).body;
                assert!(!markdown.contains('\u{1b}'), "{path} of {text:?}");
                let (matter, _) = markdown.strip_prefix("---\n").unwrap().split_once("\n---\n").unwrap();
                let matter: Value = serde_saphyr::from_str(matter).unwrap();
                let keys: Vec<&String> = matter.as_object().unwrap().keys().collect();
                assert_eq!(keys, ["path", "title", "actions"], "{path} of {text:?}");
                assert!(matter["actions"].as_array().unwrap().iter().all(Value::is_object), "{path} of {text:?}");
            }
        }
    }

    fn hostile_path_is_escaped_in_the_error_page(env: TestEnv) {
        let visitor = Visitor::person(&env);
        for path in ["/<script>alert(1)</script>", "/runs/<img src=x onerror=alert(1)>", "/runs?<script>=1", "/why?of=<script>alert(1)</script>"] {
            let html = visitor.html(path);
            assert!(html.status == 404 || html.status == 422, "{path}: {}", html.status);
            assert!(!html.body.contains("<script>alert") && !html.body.contains("<img src=x"), "{path}: {}", html.body);
        }
    }
}
