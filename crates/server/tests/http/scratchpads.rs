//! An agent's scratchpad is for people, for the agent itself, and for agents that were granted it.

use serde_json::{Value, json};
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

const SECRET: &str = "oakum is in the shed";

engines! {
    fn another_agent_reads_a_scratchpad_only_with_a_grant(env: TestEnv) {
        env.workflow("unit");
        env.task("unit", "unit/go");
        let bobs = env.agent("bob").start_run_on("unit/go");
        for content in ["first", SECRET] {
            bobs.act("update_scratchpad", json!({ "content": content })).unwrap();
        }
        bobs.act("wake_run", json!({ "run": bobs.id })).unwrap();
        let zoes = env.agent("zoe").start_run();
        let (person, bob, zoe) = (Visitor::person(&env), Visitor::run(&env, &bobs), Visitor::run(&env, &zoes));
        let run = bobs.id.to_string();
        let closed = [
            "/api/v1/scratchpad/get?agent=bob".to_owned(),
            "/api/v1/scratchpad/history?agent=bob".to_owned(),
            "/api/v1/scratchpad/diff?agent=bob".to_owned(),
            "/agents/bob?from=1&to=2".to_owned(),
            "/wake?task=unit/go&agent=bob".to_owned(),
            "/api/v1/wake?task=unit/go&agent=bob".to_owned(),
            format!("/api/v1/run/show?run={run}&wake=true"),
        ];
        let open = ["/agents/bob".to_owned(), format!("/runs/{run}"), "/agents/bob/actions/set_scratchpad".to_owned()];
        for path in &closed {
            for visitor in [&person, &bob] {
                assert_eq!(visitor.json(path).status, 200, "{path}");
            }
            let refused = zoe.json(path);
            assert_eq!((refused.status, refused.json()["error"]["message"].clone()), (403, json!("agent zoe may not read_scratchpads")), "{path}");
            assert!(!refused.body.contains(SECRET) && !zoe.html(path).body.contains(SECRET), "{path}");
        }
        for path in &open {
            for (visitor, sees) in [(&person, true), (&bob, true), (&zoe, false)] {
                for heard in [visitor.json(path), visitor.markdown(path), visitor.html(path)] {
                    assert!(heard.status == 200 || !path.starts_with("/agents/bob/"), "{path}: {}", heard.body);
                    assert!(sees || !heard.body.contains(SECRET), "{path}: {}", heard.body);
                }
                if !path.ends_with("set_scratchpad") {
                    assert_eq!(visitor.html(path).body.contains(SECRET), sees, "{path}");
                }
            }
        }
        assert_eq!(zoe.json("/agents/bob").data()["scratchpad"], Value::Null);
        assert!(zoe.markdown("/agents/bob").body.contains("Other agents need the capability `read_scratchpads`."));
        // Its own, zoe reads.
        assert_eq!(zoe.json("/api/v1/scratchpad/get?agent=zoe").data()["content"], "");
        assert_eq!(zoe.json("/agents/zoe").status, 200);
        env.act("set_agent", json!({ "handle": "zoe", "capabilities": ["read_scratchpads"] })).unwrap();
        for path in &closed {
            assert_eq!(zoe.json(path).status, 200, "{path}");
        }
        assert!(zoe.html("/agents/bob").body.contains(SECRET) && zoe.html(&open[1]).body.contains(SECRET));
    }
}
