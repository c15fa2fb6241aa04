//! Who gets in.

use axum::http::{Method, header};
use serde_json::json;
use trackway_domain::words::RunStatus;
use trackway_server::{Question, login};
use trackway_testkit::{House, engines};

use crate::visitor::{Heard, Visitor, heard};

fn login_code(house: &House) -> String {
    house.act("create_token", json!({ "scope": "login" })).unwrap()["token"].as_str().unwrap().to_owned()
}

fn follow(visitor: &Visitor, query: &str) -> Heard {
    let question = Question { path: "/login".to_owned(), query: query.to_owned(), ..Question::default() };
    heard(
        login::login(&visitor.site, &question)
            .unwrap_or_else(|problem| problem.respond(trackway_server::format::Format::Json)),
    )
}

engines! {
    fn nobody_gets_in_without_a_credential(house: House) {
        let visitor = Visitor::nobody(&house);
        for path in ["/", "/whoami", "/runs", "/nothing", "/api/v1/run/list"] {
            let refused = visitor.json(path);
            assert_eq!((refused.status, refused.header("www-authenticate")), (401, "Bearer realm=\"trackway\""), "{path}");
        }
        for token in ["trw_0000", "", "x".repeat(10_000).as_str()] {
            let visitor = Visitor { token: Some(token.to_owned()), ..Visitor::nobody(&house) };
            assert_eq!(visitor.json("/whoami").status, 401, "{token}");
        }
        let basic = visitor.ask(Method::GET, "/whoami", &[(header::AUTHORIZATION, "Basic eDp5")], b"");
        assert_eq!(basic.status, 401);
    }

    fn a_runs_token_opens_nothing_once_it_is_over(house: House) {
        let run = house.agent("ada").starts();
        let visitor = Visitor::run(&house, &run);
        assert_eq!(visitor.json("/whoami").status, 200);
        run.ends(RunStatus::Completed);
        let refused = visitor.json("/whoami");
        assert_eq!(refused.status, 401);
        assert_eq!(refused.json()["error"]["message"], "the run is completed: its token ended with it");
    }

    fn a_token_for_reading_reads(house: House) {
        let token = house.act("create_token", json!({ "scope": "read" })).unwrap()["token"].as_str().unwrap().to_owned();
        let visitor = Visitor { token: Some(token), ..Visitor::nobody(&house) };
        assert_eq!(visitor.json("/runs").status, 200);
        let refused = visitor.act("/notes/actions/create_note", &json!({ "studio": "main", "title": "t" }));
        assert_eq!((refused.status, refused.json()["error"]["message"].clone()), (403, json!("the token is for reading only")));
    }

    fn a_login_link_works_once(house: House) {
        let visitor = Visitor::nobody(&house);
        let code = login_code(&house);
        let bearer = Visitor { token: Some(code.clone()), ..Visitor::nobody(&house) };
        assert_eq!(bearer.json("/whoami").status, 401, "a link is not a credential");

        let followed = follow(&visitor, &format!("code={code}&to=/runs"));
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

    fn a_link_leads_nowhere_else(house: House) {
        for to in ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"] {
            let followed = follow(&Visitor::nobody(&house), &format!("code={}&to={to}", login_code(&house)));
            assert_eq!(followed.header("location"), "/", "{to}");
        }
    }

    fn two_browsers_cannot_follow_one_link(house: House) {
        let code = login_code(&house);
        let sites: Vec<Visitor> = (0..8).map(|_| Visitor::nobody(&house)).collect();
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = sites.iter().map(|visitor| scope.spawn(|| follow(visitor, &format!("code={code}")).status)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 303).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 7, "{statuses:?}");
    }
}
