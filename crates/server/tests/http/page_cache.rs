//! The page cache never serves an outdated page.

use axum::http::{Method, header};
use serde_json::json;
use trackway_domain::enums::RunStatus;
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

engines! {
    fn every_write_is_visible_on_the_next_page(env: TestEnv) {
        let visitor = Visitor::person(&env);
        let page = || visitor.markdown("/notes").body;
        assert_eq!(page(), page());
        for number in 0..20 {
            let title = format!("number-{number}");
            assert!(!page().contains(&title));
            // Writes with a connection that does not belong to the site, as another process does.
            env.execute_json("create_note", json!({ "studio": "main", "title": title })).unwrap();
            assert!(page().contains(&title), "{title}");
            let by_site = format!("site-{number}");
            assert!(!page().contains(&by_site));
            assert_eq!(visitor.act("/notes/actions/create_note", &json!({ "studio": "main", "title": by_site })).status, 200);
            assert!(page().contains(&by_site), "{by_site}");
        }
    }

    fn concurrent_readers_never_see_outdated_pages(env: TestEnv) {
        let visitor = Visitor::person(&env);
        let written = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=60 {
                    env.execute_json("create_note", json!({ "studio": "main", "title": format!("number-{number}") })).unwrap();
                    written.store(number, std::sync::atomic::Ordering::SeqCst);
                }
            });
            for _ in 0..4 {
                scope.spawn(|| {
                    while written.load(std::sync::atomic::Ordering::SeqCst) < 60 {
                        let before = written.load(std::sync::atomic::Ordering::SeqCst);
                        let rows = visitor.json("/notes?limit=100").data().as_array().unwrap().len();
                        assert!(rows >= before, "{rows} of {before}");
                    }
                });
            }
        });
    }

    fn cached_page_belongs_to_one_token_and_format(env: TestEnv) {
        let visitor = Visitor::person(&env);
        let run = env.agent("zoe").start_run();
        let agent = Visitor { site: visitor.site.clone(), ..Visitor::run(&env, &run) };
        let stranger = Visitor { site: visitor.site.clone(), token: None };
        for _ in 0..2 {
            assert!(visitor.markdown("/whoami").body.contains("You are ada"));
            assert!(agent.markdown("/whoami").body.contains("You are zoe"));
            assert_eq!(stranger.markdown("/whoami").status, 401);
            assert_eq!(visitor.json("/whoami").data()["actor"]["handle"], "ada");
            assert!(visitor.html("/whoami").body.starts_with("<!doctype html>"));
            let head = visitor.request(Method::HEAD, "/whoami", &[(header::ACCEPT, "text/markdown")], b"");
            assert_eq!((head.status, head.body.as_str()), (200, ""));
            assert_eq!(visitor.markdown("/whoami.json").data()["actor"]["handle"], "ada");
        }
        run.end(RunStatus::Completed);
        assert_eq!(agent.markdown("/whoami").status, 401);
    }
}
