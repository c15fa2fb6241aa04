//! Browser forms: filling in, clearing, unchecking, and the page after submitting.

use axum::http::{Method, header};
use serde_json::{Value, json};
use trackway_testkit::{TestEnv, engines};

use crate::visitor::{TestResponse, Visitor};

fn submit(visitor: &Visitor, path: &str, form: &str) -> TestResponse {
    let headers = [(header::ACCEPT, "text/html"), (header::CONTENT_TYPE, "application/x-www-form-urlencoded")];
    visitor.request(Method::POST, path, &headers, form.as_bytes())
}

engines! {
    fn browser_sees_the_token_it_created(env: TestEnv) {
        env.workflow("unit");
        env.task("unit", "unit/go");
        env.agent("bob");
        let visitor = Visitor::person(&env);
        let made = submit(&visitor, "/tokens/actions/create_token", "name=laptop");
        assert_eq!((made.status, made.header("content-type")), (200, "text/html; charset=utf-8"), "{}", made.body);
        let (_, after) = made.body.split_once("<dt>token</dt><dd>").unwrap();
        let token = after.split('<').next().unwrap().to_owned();
        assert_eq!(Visitor { token: Some(token), ..Visitor::anonymous(&env) }.json("/whoami").status, 200);
        assert!(made.body.contains("<a href=\"/tokens\">/tokens</a>"), "{}", made.body);

        let holds_token = |response: &TestResponse| response.status == 200 && response.body.contains("<dt>token</dt><dd>trw_");
        assert!(holds_token(&submit(&visitor, "/agents/bob/actions/start_run", "task=unit/go")));
        assert!(holds_token(&submit(&visitor, "/tasks/unit/go/actions/claim", "agent=bob")));
        env.task("unit", "unit/lint");
        env.execute_json("queue_add", json!({ "task": "unit/lint" })).unwrap();
        env.agent("cat");
        let taken = submit(&visitor, "/queue/actions/queue_take", "agent=cat");
        assert!(holds_token(&taken), "{} {}", taken.status, taken.body);
        // A result without a token redirects the browser.
        assert_eq!(submit(&visitor, "/queue/actions/queue_take", "agent=cat").status, 303);
    }

    fn emptied_form_field_clears_the_stored_value(env: TestEnv) {
        env.workflow("unit");
        env.execute_json("set_label", json!({ "key": "k", "name": "K" })).unwrap();
        env.execute_json("set_task", json!({
            "workflow": "unit", "variant": "unit/go", "title": "Old", "description": "long", "timeout": "90m",
            "tags": ["a", "b"], "labels": ["k"], "recurring": true, "archived": true, "priority": "P1",
        })).unwrap();
        let visitor = Visitor::person(&env);
        let page = visitor.html("/tasks/unit/go").body;
        for prefilled in [
            "<input type=hidden name=\"recurring\" value=false><label class=check><input type=checkbox name=\"recurring\" value=true checked>",
            "<input type=checkbox name=\"archived\" value=true checked>",
            "<input name=\"tags\" value=\"a\"><input name=\"tags\" value=\"b\"><input name=\"tags\">",
            "<input name=\"labels\" value=\"k\">",
            "name=\"if_revision\" value=\"1\"",
        ] {
            assert!(page.contains(prefilled), "{prefilled}: {page}");
        }

        let set = "/tasks/unit/go/actions/set_task";
        assert_eq!(submit(&visitor, set, "description=&title=New").status, 303);
        let task = || visitor.json("/tasks/unit/go").data();
        let fields = |names: &[&str]| { let task = task(); names.iter().map(|name| task[*name].clone()).collect::<Vec<Value>>() };
        assert_eq!(fields(&["title", "description", "tags", "recurring", "archived", "priority"]), [json!("New"), json!(null), json!(["a", "b"]), json!(true), json!(true), json!("P1")]);
        // A browser sends every field of the form, including the fields that the person emptied.
        let form = "title=New&timeout=&tags=&tags=b&tags=&labels=&labels=&recurring=false&archived=false&archived=true&priority=&status=&if_revision=2";
        assert_eq!(submit(&visitor, set, form).status, 303);
        assert_eq!(fields(&["timeout", "tags", "labels", "recurring", "archived", "priority"]), [json!(null), json!(["b"]), json!([]), json!(false), json!(true), json!("P1")]);
        // Another change happened in between.
        assert_eq!(submit(&visitor, set, "title=Late&if_revision=2").status, 409);
    }

    fn form_for_another_kind_is_not_prefilled_from_the_page(env: TestEnv) {
        env.execute_json("set_board", json!({ "name": "wall", "background": "bricks" })).unwrap();
        let page = Visitor::person(&env).html("/boards/wall").body;
        let (_, form) = page.split_once("/boards/wall/actions/set_stickie\">").unwrap();
        assert!(!form.split("</form>").next().unwrap().contains("value=\"wall\""), "{form}");
    }

    fn page_offers_the_actions_of_its_thing(env: TestEnv) {
        env.workflow("unit");
        env.task("unit", "unit/go");
        env.task("unit", "unit/lint");
        let link = env.execute_json("add_link", json!({ "from": "unit/go", "to": "unit/lint", "type": "blocks" })).unwrap();
        let conversation = env.execute_json("set_conversation", json!({ "title": "talk" })).unwrap()["id"].as_str().unwrap().to_owned();
        let visitor = Visitor::person(&env);
        let conversation = format!("/conversations/{conversation}");
        for (page, action) in [("/tokens", "revoke_token"), ("/tasks/unit/go", "delete_link"), (conversation.as_str(), "send_message"), ("/cleanup", "cleanup_leases"), ("/import", "import_beads")] {
            let html = visitor.html(page);
            assert_eq!(html.status, 200, "{page}");
            assert!(html.body.contains(&format!("action=\"{page}/actions/{action}\"")), "{page}: {action}");
        }
        let token = visitor.json("/tokens").data()[0]["id"].as_str().unwrap().to_owned();
        assert_eq!(submit(&visitor, &format!("{conversation}/actions/send_message"), "body=hello").header("location"), conversation);
        assert_eq!(visitor.json(&conversation).data()["messages"].as_array().unwrap().len(), 1);
        let link = link["id"].as_str().unwrap();
        assert_eq!(submit(&visitor, "/tasks/unit/go/actions/delete_link", &format!("link={link}")).header("location"), "/tasks/unit/go");
        assert_eq!(visitor.json("/tasks/unit/go").data()["links"], json!([]));
        assert_eq!(submit(&visitor, "/tokens/actions/revoke_token", &format!("token={token}")).status, 303);
        assert_eq!(visitor.json("/tokens").status, 401);
    }

    fn form_keeps_line_breaks_of_multiline_texts(env: TestEnv) {
        env.execute_json("set_board", json!({ "name": "wall", "guidelines": "first\nsecond" })).unwrap();
        let input = json!({ "board": "wall", "name": "one", "note": "first\nsecond", "code": "a\nb" });
        let stickie = env.execute_json("set_stickie", input).unwrap()["id"].as_str().unwrap().to_owned();
        let visitor = Visitor::person(&env);
        let form = visitor.html(&format!("/stickies/{stickie}/actions/update_stickie")).body;
        for (name, text) in [("note", "first\nsecond"), ("code", "a\nb")] {
            assert!(form.contains(&format!("<textarea name=\"{name}\" rows=5>\n{text}</textarea>")), "{form}");
        }
        let form = visitor.html("/boards/wall/actions/set_board").body;
        assert!(form.contains("<textarea name=\"guidelines\" rows=5>\nfirst\nsecond</textarea>"), "{form}");
    }
}
