//! Pages show who wrote a thing, in which run, and where it comes from.

use axum::http::{Method, header};
use serde_json::{Value, json};
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

engines! {
    fn pages_show_author_and_run(env: TestEnv) {
        let run = env.agent("bot").start_run();
        let act = |action: &str, input: Value| run.execute_json(action, input).unwrap()["id"].as_str().unwrap().to_owned();
        env.execute_json("set_board", json!({ "name": "wall" })).unwrap();
        let conversation = act("set_conversation", json!({ "title": "Tea" }));
        act("send_message", json!({ "body": "it boils", "conversation": conversation }));
        let stickie = act("set_stickie", json!({ "board": "wall", "name": "one", "note": "boil it" }));
        let note = act("create_note", json!({ "studio": "main", "title": "plan", "body": "soup" }));
        act("create_note", json!({ "studio": "main", "title": "Re", "body": "so it is", "about": note }));
        let decision = act("create_decision", json!({ "studio": "main", "question": "Lunch?", "options": ["soup"] }));
        act("vote", json!({ "decision": decision, "option": "soup", "accept": true }));

        let visitor = Visitor::person(&env);
        let (id, short) = (run.id.to_string(), run.id.short());
        let html = |path: &str| visitor.request(Method::GET, path, &[(header::ACCEPT, "text/html")], b"").body;
        let link = format!("<a class=id href=\"/runs/{id}\">{short}</a>");
        for (path, expected) in [
            (format!("/conversations/{conversation}"), format!("<b>bot</b> in run {link}")),
            ("/boards/wall".to_owned(), format!("<p class=by>bot in run {link}</p>")),
            (format!("/notes/{note}"), ">bot</td>".to_owned()),
            (format!("/decisions/{decision}"), ">bot</td>".to_owned()),
        ] {
            let page = html(&path);
            assert!(page.contains(&expected), "{path}: {expected:?} is not in {page}");
        }
        let in_markdown = format!("[{short}](/runs/{id})");
        for path in [
            format!("/notes/{note}"), "/notes".to_owned(), format!("/decisions/{decision}"), "/decisions".to_owned(), format!("/stickies/{stickie}"),
            "/stickies".to_owned(), "/boards/wall".to_owned(), format!("/conversations/{conversation}"), "/messages".to_owned(), "/search?words=boils".to_owned(),
        ] {
            let page = visitor.markdown(&path).body;
            assert!(page.contains("bot") && page.contains(&in_markdown), "{path}: {page}");
            assert!(html(&path).contains(&link), "{path}");
        }
        assert_eq!(visitor.json(&format!("/decisions/{decision}")).data()["votes"][0]["author"], "bot");
        assert_eq!(visitor.json(&format!("/stickies/{stickie}")).data()["created_by_run_id"], json!(id));
    }

    fn provenance_of_each_kind_links_to_the_run_in_every_format(env: TestEnv) {
        env.workflow("q");
        env.role("coder");
        env.execute_json("set_task", json!({ "workflow": "q", "variant": "unit/go", "role": "coder" })).unwrap();
        let agent = env.agent("bot");
        let capabilities = ["set_label", "set_package", "add_link", "set_conversation", "set_testcase", "queue_add", "set_board"];
        env.execute_json("set_agent", json!({ "handle": "bot", "capabilities": capabilities })).unwrap();
        env.task("q", "unit/next");
        let run = agent.start_run_on("unit/go");
        let mut made = Vec::new();
        for (action, input) in [
            ("set_label", json!({ "key": "k", "name": "K" })),
            ("set_package", json!({ "role": "coder", "task": "unit/next" })),
            ("add_link", json!({ "from": "unit/go", "to": "unit/next", "type": "blocks" })),
            ("set_conversation", json!({ "title": "Tea" })),
            ("set_testcase", json!({ "title": "pours" })),
            ("queue_add", json!({ "task": "unit/next" })),
            ("set_board", json!({ "name": "wall" })),
        ] {
            run.execute_json(action, input).unwrap();
        }
        let visitor = Visitor::person(&env);
        let shown = visitor.json(&format!("/runs/{}", run.id)).data();
        for touch in shown["touches"].as_array().unwrap().iter().filter(|touch| touch["resource_type"] != "task") {
            made.push(touch["resource_type"].as_str().unwrap().to_owned());
            let path = format!("/why?of={}", touch["resource_id"].as_str().unwrap());
            let why = visitor.json(&path).data();
            let kinds: Vec<_> = why["chain"].as_array().unwrap().iter().skip(1).map(|hop| hop["kind"].clone()).collect();
            assert_eq!((json!(kinds), &why["missing"]), (json!(["run", "agent", "role", "task", "person"]), &json!([])), "{touch}");
            let run_path = format!("/runs/{}", run.id);
            let html = visitor.request(Method::GET, &path, &[(header::ACCEPT, "text/html")], b"").body;
            assert!(html.contains(&format!("href=\"{run_path}\"")) && !html.contains("not recorded"), "{html}");
            let markdown = visitor.markdown(&path).body;
            assert!(markdown.contains(&format!("]({run_path})")) && !markdown.contains("not recorded"), "{markdown}");
        }
        assert_eq!(made, ["label", "package", "link", "conversation", "testcase", "queue_item", "board"]);
    }
}
