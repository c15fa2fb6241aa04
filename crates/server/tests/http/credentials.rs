//! Who gets in.

use axum::http::{HeaderValue, Method, header};
use serde_json::json;
use trackway_domain::words::RunStatus;
use trackway_server::{Question, login};
use trackway_testkit::{TestEnv, engines};

use crate::visitor::{Heard, Visitor, heard};

fn login_code(env: &TestEnv) -> String {
    env.act("create_token", json!({ "scope": "login" })).unwrap()["token"].as_str().unwrap().to_owned()
}

fn follow(visitor: &Visitor, query: &str) -> Heard {
    visit(visitor, Method::GET, "localhost", query)
}

fn visit(visitor: &Visitor, method: Method, host: &str, query: &str) -> Heard {
    let mut question = Question { method, path: "/login".to_owned(), query: query.to_owned(), ..Question::default() };
    question.headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
    heard(
        login::login(&visitor.site, &question)
            .unwrap_or_else(|problem| problem.respond(trackway_server::format::Format::Json)),
    )
}

engines! {
    fn nobody_gets_in_without_a_credential(env: TestEnv) {
        let visitor = Visitor::nobody(&env);
        for path in ["/", "/whoami", "/runs", "/nothing", "/api/v1/run/list", "/api/openapi.json"] {
            let refused = visitor.json(path);
            assert_eq!((refused.status, refused.header("www-authenticate")), (401, "Bearer realm=\"trackway\""), "{path}");
        }
        for token in ["trw_0000", "", "x".repeat(10_000).as_str()] {
            let visitor = Visitor { token: Some(token.to_owned()), ..Visitor::nobody(&env) };
            assert_eq!(visitor.json("/whoami").status, 401, "{token}");
        }
        let basic = visitor.ask(Method::GET, "/whoami", &[(header::AUTHORIZATION, "Basic eDp5")], b"");
        assert_eq!(basic.status, 401);
    }

    fn a_runs_token_opens_nothing_once_it_is_over(env: TestEnv) {
        let run = env.agent("ada").start_run();
        let visitor = Visitor::run(&env, &run);
        assert_eq!(visitor.json("/whoami").status, 200);
        run.end(RunStatus::Completed);
        let refused = visitor.json("/whoami");
        assert_eq!(refused.status, 401);
        assert_eq!(refused.json()["error"]["message"], "the run is completed: its token ended with it");
    }

    fn a_token_for_reading_reads(env: TestEnv) {
        let token = env.act("create_token", json!({ "scope": "read" })).unwrap()["token"].as_str().unwrap().to_owned();
        let visitor = Visitor { token: Some(token), ..Visitor::nobody(&env) };
        assert_eq!(visitor.json("/runs").status, 200);
        let refused = visitor.act("/notes/actions/create_note", &json!({ "studio": "main", "title": "t" }));
        assert_eq!((refused.status, refused.json()["error"]["message"].clone()), (403, json!("the token is for reading only")));
        // What it may not do is not offered.
        env.workflow("ops");
        env.act("set_task", json!({ "workflow": "ops", "variant": "lint" })).unwrap();
        assert!(!visitor.html("/tasks/lint").body.contains("<form method=post action=\"/tasks/"));
        assert!(!visitor.markdown("/tasks/lint").body.contains("set_task"));
    }

    fn a_login_link_works_once(env: TestEnv) {
        let visitor = Visitor::nobody(&env);
        let code = login_code(&env);
        let bearer = Visitor { token: Some(code.clone()), ..Visitor::nobody(&env) };
        assert_eq!(bearer.json("/whoami").status, 401, "a link is not a credential");

        // Who only looks does not use it up.
        let seen = visit(&visitor, Method::HEAD, "127.0.0.1:7878", &format!("code={code}"));
        assert_eq!((seen.status, seen.header("set-cookie")), (200, ""));
        assert_eq!(visit(&visitor, Method::HEAD, "127.0.0.1:7878", "code=trw_no").status, 401);
        assert_eq!(visit(&visitor, Method::POST, "127.0.0.1:7878", &format!("code={code}")).status, 405);
        let followed = visit(&visitor, Method::GET, "127.0.0.1:7878", &format!("code={code}&to=/runs"));
        assert_eq!((followed.status, followed.header("location")), (303, "/runs"));
        let cookie = followed.header("set-cookie").to_owned();
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000"), "{cookie}");
        assert_eq!(follow(&visitor, &format!("code={code}")).status, 401);
        assert_eq!(follow(&visitor, "code=trw_no").status, 401);
        assert_eq!(follow(&visitor, "").status, 401);

        let cookie = cookie.split(';').next().unwrap().to_owned();
        let ask = |method: Method, path: &str, more: &[(header::HeaderName, &str)]| {
            let mut headers = vec![(header::COOKIE, cookie.as_str()), (header::HOST, "127.0.0.1:7878"), (header::ACCEPT, "application/json")];
            headers.extend_from_slice(more);
            visitor.ask(method, path, &headers, b"studio=main&title=t")
        };
        assert_eq!(ask(Method::GET, "/whoami", &[]).data()["actor"]["handle"], "ada");
        let form = (header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let create = "/notes/actions/create_note";
        assert_eq!(ask(Method::POST, create, std::slice::from_ref(&form)).status, 403, "nothing says where it comes from");
        for origin in ["http://evil.example", "http://127.0.0.1:9999", "null", "http://127.0.0.1:7878.evil.example"] {
            assert_eq!(ask(Method::POST, create, &[form.clone(), (header::ORIGIN, origin)]).status, 403, "{origin}");
        }
        assert_eq!(ask(Method::POST, create, &[form, (header::ORIGIN, "http://127.0.0.1:7878")]).status, 200);
    }

    fn a_link_leads_nowhere_else(env: TestEnv) {
        for to in ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/%09/evil.example/x", "/%00", "/%0a/evil.example", "/%7f"] {
            let followed = follow(&Visitor::nobody(&env), &format!("code={}&to={to}", login_code(&env)));
            assert_eq!(followed.header("location"), "/", "{to}");
        }
    }

    fn records_on_two_ports_keep_their_own_logins(env: TestEnv) {
        let visitor = Visitor::nobody(&env);
        let cookies: Vec<String> = ["127.0.0.1:7878", "127.0.0.1:7979", "trackway.example"].map(|host| {
            let followed = visit(&visitor, Method::GET, host, &format!("code={}", login_code(&env)));
            followed.header("set-cookie").split(';').next().unwrap().to_owned()
        }).to_vec();
        let names: Vec<&str> = cookies.iter().map(|cookie| cookie.split('=').next().unwrap()).collect();
        assert_eq!(names, ["trackway_7878", "trackway_7979", "trackway"]);
        let all = cookies.join("; ");
        let ask = |host: &str, cookie: &str| visitor.ask(Method::GET, "/whoami", &[(header::HOST, host), (header::COOKIE, cookie), (header::ACCEPT, "application/json")], b"").status;
        assert_eq!([ask("localhost:7979", &all), ask("localhost:7979", &cookies[0]), ask("localhost:7979", "trackway_7878=trw_no; trackway_7979=trw_no")], [200, 401, 401]);
    }

    fn logging_out_is_a_button_on_every_page(env: TestEnv) {
        let visitor = Visitor::nobody(&env);
        let followed = follow(&visitor, &format!("code={}", login_code(&env)));
        let cookie = followed.header("set-cookie").split(';').next().unwrap().to_owned();
        let question = |method: Method, origin: &str| {
            let mut question = Question { method, path: "/logout".to_owned(), ..Question::default() };
            for (name, value) in [(header::HOST, "localhost"), (header::COOKIE, &cookie), (header::ORIGIN, origin)] {
                question.headers.insert(name, HeaderValue::from_str(value).unwrap());
            }
            question
        };
        let leave = |method: Method, origin: &str| {
            let left = login::logout(&visitor.site, &question(method, origin));
            heard(left.unwrap_or_else(|problem| problem.respond(trackway_server::format::Format::Json)))
        };
        let look = || visitor.ask(Method::GET, "/notes", &[(header::HOST, "localhost"), (header::COOKIE, &cookie), (header::ACCEPT, "text/html")], b"");
        assert!(look().body.contains("<form method=post action=\"/logout\"><button class=link>Log out</button></form>"));
        assert_eq!(leave(Method::GET, "http://localhost").status, 405);
        assert_eq!(leave(Method::POST, "http://evil.example").status, 403);
        assert_eq!(look().status, 200);
        let left = leave(Method::POST, "http://localhost");
        assert_eq!((left.status, left.header("location"), left.header("set-cookie")), (303, "/login", "trackway=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"));
        let out = look();
        assert!(out.status == 401 && !out.body.contains("Log out"), "{}", out.body);
    }

    fn two_browsers_cannot_follow_one_link(env: TestEnv) {
        let code = login_code(&env);
        let sites: Vec<Visitor> = (0..8).map(|_| Visitor::nobody(&env)).collect();
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = sites.iter().map(|visitor| scope.spawn(|| follow(visitor, &format!("code={code}")).status)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 303).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 7, "{statuses:?}");
    }
}
