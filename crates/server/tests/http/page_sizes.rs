//! HTML pages stay below a size limit and link to the rest of long content.

use serde_json::json;
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

/// Maximum size of an HTML page, in bytes.
const PAGE_MAX: usize = 100_000;

engines! {
    fn run_shows_its_newest_steps_and_links_to_earlier_ones(env: TestEnv) {
        let run = env.agent("ada").start_run();
        for number in 1..=230 {
            let detail = format!("step {number} {}", "said <much> ".repeat(60));
            run.execute_json("record_step", json!({ "run": run.id, "type": "shell", "detail": detail })).unwrap();
        }
        for number in 1..=110 {
            run.execute_json("create_note", json!({ "studio": "main", "title": format!("note {number} {}", "of some length ".repeat(8)) })).unwrap();
        }
        let visitor = Visitor::person(&env);
        let path = format!("/runs/{}", run.id);
        let page = visitor.html(&path).body;
        assert!(page.len() < PAGE_MAX, "{}", page.len());
        assert!(page.contains("131 to 230 of 230 steps.") && page.contains("51 to 110 of 110 touches."), "{page}");
        assert!(page.contains("step 230 said") && !page.contains("step 130 said"));
        assert!(page.contains(&format!("href=\"{path}?steps_before=130\"")));

        let earlier = visitor.html(&format!("{path}?steps_before=130")).body;
        assert!(earlier.len() < PAGE_MAX, "{}", earlier.len());
        assert!(earlier.contains("step 31 said") && earlier.contains("step 130 said") && !earlier.contains("step 131 said"));
        let first = visitor.html(&format!("{path}?touches_before=10")).body;
        assert!(first.contains("1 to 10 of 110 touches.") && !first.contains("steps."), "{first}");
        assert_eq!(visitor.json(&path).data()["steps"].as_array().unwrap().len(), 230);
    }

    fn long_text_is_cut_and_edited_on_its_own_page(env: TestEnv) {
        let body = "much <b>to</b> read\n\n".repeat(10_000);
        let input = json!({ "studio": "main", "title": "long", "body": body });
        let note = env.execute_json("create_note", input).unwrap()["id"].as_str().unwrap().to_owned();
        let visitor = Visitor::person(&env);
        let path = format!("/notes/{note}");
        let page = visitor.html(&path).body;
        assert!(page.len() < PAGE_MAX, "{}", page.len());
        assert!(page.contains(&format!("of 210,000 characters. <a href=\"{path}.md\">Complete text</a>")), "{page}");
        assert!(page.contains(&format!("<a href=\"{path}/actions/update_note\">")) && !page.contains("name=\"body\""), "{page}");
        assert_eq!(visitor.markdown(&path).body.matches("much <b>to</b> read").count(), 10_000);
        let form = visitor.html(&format!("{path}/actions/update_note")).body;
        assert_eq!(form.matches("much &lt;b&gt;to&lt;/b&gt; read").count(), 10_000);

        let content = "remember this\n".repeat(600);
        env.agent("bob");
        env.execute_json("set_scratchpad", json!({ "agent": "bob", "content": content })).unwrap();
        assert!(!visitor.html("/agents/bob").body.contains("name=\"content\""));
        let form = visitor.html("/agents/bob/actions/set_scratchpad").body;
        assert_eq!(form.matches("remember this").count(), 600);
        assert!(form.contains("name=\"if_revision\" value=\"1\""), "{form}");
    }

    fn html_list_is_limited_and_links_to_the_next_page(env: TestEnv) {
        for number in 1..=120 {
            env.execute_json("create_note", json!({ "studio": "main", "title": format!("n{number}") })).unwrap();
        }
        let visitor = Visitor::person(&env);
        for (path, rows) in [("/events?limit=10000", 100), ("/notes?limit=10000", 100)] {
            let page = visitor.html(path).body;
            assert_eq!((page.matches("<tr><td").count(), page.len() < PAGE_MAX), (rows, true), "{path}");
            let next = page.split("rel=next href=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().replace("&amp;", "&");
            let rest = visitor.html(&next).body;
            assert!(rest.matches("<tr><td").count() >= 20 && !rest.contains(">n120<"), "{next}: {rest}");
        }
        assert_eq!(visitor.json("/notes?limit=10000").data().as_array().unwrap().len(), 120);
        assert!(visitor.json("/events?limit=10000").data().as_array().unwrap().len() > 120);
        assert_eq!(visitor.html("/notes?limit=0").status, 422);
    }

    fn large_board_shows_last_changed_stickies_and_links_to_the_rest(env: TestEnv) {
        let id = |made: &serde_json::Value| made["id"].as_str().unwrap().to_owned();
        env.execute_json("set_board", json!({ "name": "wall", "background": "why <we> do this\n".repeat(2_000) })).unwrap();
        let note = "> * one <thing> & another\n".repeat(200);
        let stickies: Vec<String> = (0..300)
            .map(|number| {
                let priority = ["must", "should", "could", "wont"].get(number % 5);
                let name = format!("{number:03} {}", "<&>".repeat(60));
                let input = json!({ "board": "wall", "name": name, "note": note, "code": note, "labels": ["<&>".repeat(60)], "priority": priority });
                id(&env.execute_json("set_stickie", input).unwrap())
            })
            .collect();
        for (from, to) in [(0, 1), (298, 299), (1, 298)] {
            env.execute_json("relate_stickies", json!({ "from": stickies[from], "to": stickies[to], "type": "CAUSES" })).unwrap();
        }
        let visitor = Visitor::person(&env);
        let page = visitor.html("/boards/wall").body;
        assert!(page.len() < PAGE_MAX, "{}", page.len());
        assert_eq!((page.matches("<li class=card").count(), page.matches("<h2>Must <small>60</small>").count()), (50, 1));
        assert!(page.contains("The 10 stickies that changed last. <a href=\"/boards/wall?column=must\">all 60</a>"), "{page}");
        assert!(page.contains(&format!("data-stickie=\"{}\"", stickies[295])) && !page.contains(&stickies[0]));
        assert!(page.contains(&format!("data-from=\"{}\" data-to=\"{}\"", stickies[298], stickies[299])));
        assert!(page.contains("2 relations are not shown here"), "{page}");
        assert!(page.contains(&format!("action=\"/stickies/{}/actions/update_stickie?then=/boards/wall\"", stickies[299])));

        // A stickie that was just moved is visible.
        env.execute_json("update_stickie", json!({ "stickie": stickies[0], "priority": "should" })).unwrap();
        assert!(visitor.html("/boards/wall").body.contains(&format!("data-stickie=\"{}\"", stickies[0])));

        let column = visitor.html("/boards/wall?column=none").body;
        assert!(column.len() < PAGE_MAX, "{}", column.len());
        assert!(column.contains("1 to 50 of 60, oldest first. <a href=\"/boards/wall?column=none&amp;from=51\">later</a>"), "{column}");
        let rest = visitor.html("/boards/wall?column=none&from=51").body;
        assert_eq!(rest.matches("<li class=card").count(), 10);
        assert!(rest.contains(&stickies[299]) && rest.contains(">earlier</a>") && !rest.contains(">later</a>"), "{rest}");
        assert_eq!(visitor.html("/boards/wall?column=some").status, 422);

        env.execute_json("set_board", json!({ "name": "wall", "background": "" })).unwrap();
        let markdown = visitor.markdown("/boards/wall").body;
        assert!(markdown.len() < PAGE_MAX, "{}", markdown.len());
        assert!(markdown.contains("[all 59](/boards/wall?column=must)"), "{markdown}");
        assert_eq!(visitor.json("/boards/wall").data()["stickies"].as_array().unwrap().len(), 300);
    }

    fn small_board_shows_all_stickies(env: TestEnv) {
        env.execute_json("set_board", json!({ "name": "wall" })).unwrap();
        for number in 0..30 {
            env.execute_json("set_stickie", json!({ "board": "wall", "name": format!("n{number}"), "priority": "must", "note": "short" })).unwrap();
        }
        let page = Visitor::person(&env).html("/boards/wall").body;
        assert_eq!((page.matches("<li class=card").count(), page.contains("changed last")), (30, false));
    }

    fn lists_with_long_rows_have_shorter_pages(env: TestEnv) {
        for number in 0..120 {
            let input = json!({ "name": format!("r{number:03}{}", "x".repeat(190)), "title": "<&>".repeat(66) });
            env.execute_json("set_role", input).unwrap();
        }
        let visitor = Visitor::person(&env);
        for read in [Visitor::html, Visitor::markdown] {
            let (mut path, mut names) = ("/roles?limit=100".to_owned(), 0);
            loop {
                let page = read(&visitor, &path).body;
                assert!(page.len() < PAGE_MAX, "{path}: {}", page.len());
                names += (0..120).filter(|number| page.contains(&format!("r{number:03}xxx"))).count();
                let next = page.split("/roles?").skip(1).find(|rest| rest.contains("after=")).and_then(|rest| rest.split(['"', '`']).next());
                let Some(next) = next else { break };
                path = format!("/roles?{}", next.replace("&amp;", "&"));
            }
            assert_eq!(names, 120);
        }
    }

    fn long_blocks_share_the_size_of_a_page(env: TestEnv) {
        let options: Vec<String> = (0..100).map(|number| format!("{number} {}", "<&>".repeat(60))).collect();
        let input = json!({ "studio": "main", "question": "<&>".repeat(60), "description": "<&>\n".repeat(20_000), "options": options });
        let decision = env.execute_json("create_decision", input).unwrap()["id"].as_str().unwrap().to_owned();
        let visitor = Visitor::person(&env);
        let path = format!("/decisions/{decision}");
        let page = visitor.html(&path).body;
        assert!(page.len() < PAGE_MAX, "{}", page.len());
        assert!(page.contains(">99 &lt;") && page.contains(&format!("<a href=\"{path}/actions/vote\">")), "{page}");
        assert_eq!(visitor.html(&format!("{path}/actions/vote")).body.matches("type=radio").count(), 100);
    }
}
