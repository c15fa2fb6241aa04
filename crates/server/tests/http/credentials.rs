//! Authentication: tokens, login links, cookies and logout.

use axum::http::{HeaderValue, Method, header};
use serde_json::json;
use trackway_domain::enums::RunStatus;
use trackway_server::{SiteRequest, login};
use trackway_testkit::{TestEnv, engines};

use crate::visitor::{TestResponse, Visitor, read_response};

fn login_code(env: &TestEnv) -> String {
    env.execute_json("create_token", json!({ "scope": "login" })).unwrap()["token"].as_str().unwrap().to_owned()
}

fn open_login_link(visitor: &Visitor, query: &str) -> TestResponse {
    request_login(visitor, Method::GET, "localhost", query)
}

fn request_login(visitor: &Visitor, method: Method, host: &str, query: &str) -> TestResponse {
    let mut request =
        SiteRequest { method, path: "/login".to_owned(), query: query.to_owned(), ..SiteRequest::default() };
    request.headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
    read_response(
        login::login(&visitor.site, &request)
            .unwrap_or_else(|problem| problem.respond(trackway_server::format::Format::Json)),
    )
}

engines! {
    fn rejects_requests_without_valid_credentials(env: TestEnv) {
        let visitor = Visitor::anonymous(&env);
        for path in ["/", "/whoami", "/runs", "/nothing", "/api/v1/run/list", "/api/openapi.json"] {
            let refused = visitor.json(path);
            assert_eq!((refused.status, refused.header("www-authenticate")), (401, "Bearer realm=\"trackway\""), "{path}");
        }
        for token in ["trw_0000", "", "x".repeat(10_000).as_str()] {
            let visitor = Visitor { token: Some(token.to_owned()), ..Visitor::anonymous(&env) };
            assert_eq!(visitor.json("/whoami").status, 401, "{token}");
        }
        let basic = visitor.request(Method::GET, "/whoami", &[(header::AUTHORIZATION, "Basic eDp5")], b"");
        assert_eq!(basic.status, 401);
    }

    fn run_token_expires_with_its_run(env: TestEnv) {
        let run = env.agent("ada").start_run();
        let visitor = Visitor::run(&env, &run);
        assert_eq!(visitor.json("/whoami").status, 200);
        run.end(RunStatus::Completed);
        let refused = visitor.json("/whoami");
        assert_eq!(refused.status, 401);
        assert_eq!(refused.json()["error"]["message"], "the run has ended (completed), so its token is no longer valid");
    }

    fn read_token_can_only_read(env: TestEnv) {
        let token = env.execute_json("create_token", json!({ "scope": "read" })).unwrap()["token"].as_str().unwrap().to_owned();
        let visitor = Visitor { token: Some(token), ..Visitor::anonymous(&env) };
        assert_eq!(visitor.json("/runs").status, 200);
        let refused = visitor.act("/notes/actions/create_note", &json!({ "studio": "main", "title": "t" }));
        assert_eq!((refused.status, refused.json()["error"]["message"].clone()), (403, json!("the token only allows reading")));
        // Pages offer no actions to a read token.
        env.workflow("ops");
        env.execute_json("set_task", json!({ "workflow": "ops", "variant": "lint" })).unwrap();
        assert!(!visitor.html("/tasks/lint").body.contains("<form method=post action=\"/tasks/"));
        assert!(!visitor.markdown("/tasks/lint").body.contains("set_task"));
    }

    fn login_link_works_once(env: TestEnv) {
        let visitor = Visitor::anonymous(&env);
        let code = login_code(&env);
        let bearer = Visitor { token: Some(code.clone()), ..Visitor::anonymous(&env) };
        assert_eq!(bearer.json("/whoami").status, 401, "a login code is not a bearer token");

        // A HEAD request does not use up the link.
        let seen = request_login(&visitor, Method::HEAD, "127.0.0.1:7878", &format!("code={code}"));
        assert_eq!((seen.status, seen.header("set-cookie")), (200, ""));
        assert_eq!(request_login(&visitor, Method::HEAD, "127.0.0.1:7878", "code=trw_no").status, 401);
        assert_eq!(request_login(&visitor, Method::POST, "127.0.0.1:7878", &format!("code={code}")).status, 405);
        let followed = request_login(&visitor, Method::GET, "127.0.0.1:7878", &format!("code={code}&to=/runs"));
        assert_eq!((followed.status, followed.header("location")), (303, "/runs"));
        let cookie = followed.header("set-cookie").to_owned();
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000"), "{cookie}");
        assert_eq!(open_login_link(&visitor, &format!("code={code}")).status, 401);
        assert_eq!(open_login_link(&visitor, "code=trw_no").status, 401);
        assert_eq!(open_login_link(&visitor, "").status, 401);

        let cookie = cookie.split(';').next().unwrap().to_owned();
        let ask = |method: Method, path: &str, more: &[(header::HeaderName, &str)]| {
            let mut headers = vec![(header::COOKIE, cookie.as_str()), (header::HOST, "127.0.0.1:7878"), (header::ACCEPT, "application/json")];
            headers.extend_from_slice(more);
            visitor.request(method, path, &headers, b"studio=main&title=t")
        };
        assert_eq!(ask(Method::GET, "/whoami", &[]).data()["actor"]["handle"], "ada");
        let form = (header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let create = "/notes/actions/create_note";
        assert_eq!(ask(Method::POST, create, std::slice::from_ref(&form)).status, 403, "a write without an origin");
        for origin in ["http://evil.example", "http://127.0.0.1:9999", "null", "http://127.0.0.1:7878.evil.example"] {
            assert_eq!(ask(Method::POST, create, &[form.clone(), (header::ORIGIN, origin)]).status, 403, "{origin}");
        }
        assert_eq!(ask(Method::POST, create, &[form, (header::ORIGIN, "http://127.0.0.1:7878")]).status, 200);
    }

    fn login_link_never_redirects_to_another_site(env: TestEnv) {
        for to in ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/%09/evil.example/x", "/%00", "/%0a/evil.example", "/%7f"] {
            let followed = open_login_link(&Visitor::anonymous(&env), &format!("code={}&to={to}", login_code(&env)));
            assert_eq!(followed.header("location"), "/", "{to}");
        }
    }

    fn servers_on_two_ports_have_separate_logins(env: TestEnv) {
        let visitor = Visitor::anonymous(&env);
        let cookies: Vec<String> = ["127.0.0.1:7878", "127.0.0.1:7979", "trackway.example"].map(|host| {
            let followed = request_login(&visitor, Method::GET, host, &format!("code={}", login_code(&env)));
            followed.header("set-cookie").split(';').next().unwrap().to_owned()
        }).to_vec();
        let names: Vec<&str> = cookies.iter().map(|cookie| cookie.split('=').next().unwrap()).collect();
        assert_eq!(names, ["trackway_7878", "trackway_7979", "trackway"]);
        let all = cookies.join("; ");
        let ask = |host: &str, cookie: &str| visitor.request(Method::GET, "/whoami", &[(header::HOST, host), (header::COOKIE, cookie), (header::ACCEPT, "application/json")], b"").status;
        assert_eq!([ask("localhost:7979", &all), ask("localhost:7979", &cookies[0]), ask("localhost:7979", "trackway_7878=trw_no; trackway_7979=trw_no")], [200, 401, 401]);
    }

    fn every_page_has_a_logout_button(env: TestEnv) {
        let visitor = Visitor::anonymous(&env);
        let followed = open_login_link(&visitor, &format!("code={}", login_code(&env)));
        let cookie = followed.header("set-cookie").split(';').next().unwrap().to_owned();
        let logout_request = |method: Method, origin: &str| {
            let mut request = SiteRequest { method, path: "/logout".to_owned(), ..SiteRequest::default() };
            for (name, value) in [(header::HOST, "localhost"), (header::COOKIE, &cookie), (header::ORIGIN, origin)] {
                request.headers.insert(name, HeaderValue::from_str(value).unwrap());
            }
            request
        };
        let logout = |method: Method, origin: &str| {
            let result = login::logout(&visitor.site, &logout_request(method, origin));
            read_response(result.unwrap_or_else(|problem| problem.respond(trackway_server::format::Format::Json)))
        };
        let read_notes = || visitor.request(Method::GET, "/notes", &[(header::HOST, "localhost"), (header::COOKIE, &cookie), (header::ACCEPT, "text/html")], b"");
        assert!(read_notes().body.contains("<form method=post action=\"/logout\"><button class=link>Log out</button></form>"));
        assert_eq!(logout(Method::GET, "http://localhost").status, 405);
        assert_eq!(logout(Method::POST, "http://evil.example").status, 403);
        assert_eq!(read_notes().status, 200);
        let response = logout(Method::POST, "http://localhost");
        assert_eq!((response.status, response.header("location"), response.header("set-cookie")), (303, "/login", "trackway=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"));
        let after = read_notes();
        assert!(after.status == 401 && !after.body.contains("Log out"), "{}", after.body);
    }

    fn only_one_of_several_browsers_can_use_a_login_link(env: TestEnv) {
        let code = login_code(&env);
        let sites: Vec<Visitor> = (0..8).map(|_| Visitor::anonymous(&env)).collect();
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = sites.iter().map(|visitor| scope.spawn(|| open_login_link(visitor, &format!("code={code}")).status)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 303).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 7, "{statuses:?}");
    }
}
