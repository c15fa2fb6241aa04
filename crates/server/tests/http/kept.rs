//! A page that is shown again is never one that is no longer true.

use axum::http::{Method, header};
use serde_json::json;
use trackway_domain::words::RunStatus;
use trackway_testkit::{TestEnv, engines};

use crate::visitor::Visitor;

engines! {
    fn whatever_is_written_by_whomever_is_on_the_next_page(env: TestEnv) {
        let visitor = Visitor::person(&env);
        let page = || visitor.markdown("/notes").body;
        assert_eq!(page(), page());
        for number in 0..20 {
            let title = format!("number-{number}");
            assert!(!page().contains(&title));
            // By another connection than any of the site's, as another process has one.
            env.act("create_note", json!({ "studio": "main", "title": title })).unwrap();
            assert!(page().contains(&title), "{title}");
            let by_site = format!("site-{number}");
            assert!(!page().contains(&by_site));
            assert_eq!(visitor.act("/notes/actions/create_note", &json!({ "studio": "main", "title": by_site })).status, 200);
            assert!(page().contains(&by_site), "{by_site}");
        }
    }

    fn many_who_look_while_one_writes_never_see_the_past(env: TestEnv) {
        let visitor = Visitor::person(&env);
        let written = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=60 {
                    env.act("create_note", json!({ "studio": "main", "title": format!("number-{number}") })).unwrap();
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

    fn a_page_is_of_one_caller_in_one_form_and_ends_with_the_token(env: TestEnv) {
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
            let head = visitor.ask(Method::HEAD, "/whoami", &[(header::ACCEPT, "text/markdown")], b"");
            assert_eq!((head.status, head.body.as_str()), (200, ""));
            assert_eq!(visitor.markdown("/whoami.json").data()["actor"]["handle"], "ada");
        }
        run.end(RunStatus::Completed);
        assert_eq!(agent.markdown("/whoami").status, 401);
    }
}
