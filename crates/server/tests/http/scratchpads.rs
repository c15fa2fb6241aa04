//! An agent's scratchpad is readable for people, the agent itself, and agents with the capability `read_scratchpads`.

use serde_json::{Value, json};
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

const SECRET: &str = "oakum is in the shed";

engines! {
    fn other_agents_need_a_capability_to_read_a_scratchpad(env: TestEnv) {
        env.workflow("unit");
        env.task("unit", "unit/go");
        let bobs_run = env.agent("bob").start_run_on("unit/go");
        for content in ["first", SECRET] {
            bobs_run.execute_json("update_scratchpad", json!({ "content": content })).unwrap();
        }
        bobs_run.execute_json("wake_run", json!({ "run": bobs_run.id })).unwrap();
        let zoes_run = env.agent("zoe").start_run();
        let (person, bob, zoe) = (Visitor::person(&env), Visitor::run(&env, &bobs_run), Visitor::run(&env, &zoes_run));
        let run = bobs_run.id.to_string();
        let restricted = [
            "/api/v1/scratchpad/get?agent=bob".to_owned(),
            "/api/v1/scratchpad/history?agent=bob".to_owned(),
            "/api/v1/scratchpad/diff?agent=bob".to_owned(),
            "/agents/bob?from=1&to=2".to_owned(),
            "/wake?task=unit/go&agent=bob".to_owned(),
            "/api/v1/wake?task=unit/go&agent=bob".to_owned(),
            format!("/api/v1/run/show?run={run}&wake=true"),
        ];
        let open = ["/agents/bob".to_owned(), format!("/runs/{run}"), "/agents/bob/actions/set_scratchpad".to_owned()];
        for path in & restricted {
            for visitor in [&person, &bob] {
                assert_eq!(visitor.json(path).status, 200, "{path}");
            }
            let refused = zoe.json(path);
            assert_eq!((refused.status, refused.json()["error"]["message"].clone()), (403, json!("agent zoe may not read_scratchpads")), "{path}");
            assert!(!refused.body.contains(SECRET) && !zoe.html(path).body.contains(SECRET), "{path}");
        }
        for path in &open {
            for (visitor, sees) in [(&person, true), (&bob, true), (&zoe, false)] {
                for response in [visitor.json(path), visitor.markdown(path), visitor.html(path)] {
                    assert!(response.status == 200 || !path.starts_with("/agents/bob/"), "{path}: {}", response.body);
                    assert!(sees || !response.body.contains(SECRET), "{path}: {}", response.body);
                }
                if !path.ends_with("set_scratchpad") {
                    assert_eq!(visitor.html(path).body.contains(SECRET), sees, "{path}");
                }
            }
        }
        assert_eq!(zoe.json("/agents/bob").data()["scratchpad"], Value::Null);
        assert!(zoe.markdown("/agents/bob").body.contains("Other agents need the capability `read_scratchpads`."));
        // Zoe can read her own scratchpad.
        assert_eq!(zoe.json("/api/v1/scratchpad/get?agent=zoe").data()["content"], "");
        assert_eq!(zoe.json("/agents/zoe").status, 200);
        env.execute_json("set_agent", json!({ "handle": "zoe", "capabilities": ["read_scratchpads"] })).unwrap();
        for path in & restricted {
            assert_eq!(zoe.json(path).status, 200, "{path}");
        }
        assert!(zoe.html("/agents/bob").body.contains(SECRET) && zoe.html(&open[1]).body.contains(SECRET));
    }
}
