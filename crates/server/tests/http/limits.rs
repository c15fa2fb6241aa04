//! Limits of a run over HTTP: set with JSON, shown on pages.

use serde_json::{Value, json};
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

engines! {
    fn limits_are_set_with_json_and_shown_on_pages(env: TestEnv) {
        env.workflow("build");
        let visitor = Visitor::person(&env);
        let act = |action: &str, input: Value| {
            let response = visitor.act(&format!("/api/v1/actions/{action}"), &input);
            assert_eq!(response.status, 200, "{}", response.body);
            response.data()
        };
        act("set_agent", json!({ "handle": "bot", "max_steps": 4, "timeout": "2h", "spend_limit": 5.5, "end_of_run": "on" }));
        act("set_task", json!({ "workflow": "build", "variant": "tea", "max_steps": 3, "timeout": "1h", "spend_limit": 4.5, "end_of_run": "off", "retry_on_error": true }));
        let item = act("queue_add", json!({ "task": "tea", "agent": "bot", "max_steps": 2, "timeout": "30m", "spend_limit": 3.5, "end_of_run": "on" }));
        let id = item["id"].as_str().unwrap();
        for (path, max_steps, timeout, spend_limit, end_of_run) in [
            ("/agents/bot".to_owned(), 4, "2h", 5.5, true),
            ("/tasks/tea".to_owned(), 3, "1h", 4.5, false),
            (format!("/queue/{id}"), 2, "30m", 3.5, true),
        ] {
            let data = visitor.json(&path).data();
            let shown = (&data["max_steps"], &data["timeout"], &data["spend_limit"], &data["end_of_run"]);
            assert_eq!(shown, (&json!(max_steps), &json!(timeout), &json!(spend_limit), &json!(end_of_run)), "{path}");
            let page = visitor.markdown(&path).body;
            for expected in [format!("max steps: {max_steps}"), format!("timeout: {timeout}"), format!("spend limit: {spend_limit}")] {
                assert!(page.contains(&expected), "{expected} is missing in {page}");
            }
            assert!(visitor.html(&path).body.contains("<dt>max steps</dt>"), "{path}");
        }
        let taken = act("queue_take", json!({ "agent": "bot" }));
        let run = visitor.json(&format!("/runs/{}", taken[0]["run_id"].as_str().unwrap())).data();
        assert_eq!(run["max_steps"], 2);
        let refused = visitor.act("/api/v1/actions/set_task", &json!({ "workflow": "build", "variant": "tea", "max_steps": 201 }));
        assert_eq!(refused.status, 422, "{}", refused.body);
        assert!(refused.body.contains("from 1 to 200, not 201"), "{}", refused.body);
    }
}
