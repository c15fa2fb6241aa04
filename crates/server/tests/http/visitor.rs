//! A test client for a site.

use axum::{
    body::to_bytes,
    http::{HeaderName, HeaderValue, Method, header},
};
use serde_json::{Value, json};
use trackway_actions::Credential;
use trackway_server::{Site, SiteRequest};
use trackway_testkit::{TestEnv, TestRun};

use crate::test_server::site;

/// A site on the database of the test environment, and the token that requests are sent with.
pub struct Visitor {
    pub site: Site,
    pub token: Option<String>,
}

/// A response with its body.
#[derive(Debug)]
pub struct TestResponse {
    pub status: u16,
    pub headers: axum::http::HeaderMap,
    pub body: String,
}

impl TestResponse {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn data(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.json()["data"].clone()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Visitor {
    /// A visitor with a token of the test environment's person.
    pub fn person(env: &TestEnv) -> Self {
        let token =
            env.execute_json("create_token", json!({ "name": "test" })).unwrap()["token"].as_str().unwrap().to_owned();
        Self { site: site(env), token: Some(token) }
    }

    /// A visitor with the token of a run.
    pub fn run(env: &TestEnv, run: &TestRun<'_>) -> Self {
        let Credential::Token(token) = &run.token else { panic!("a run has a token") };
        Self { site: site(env), token: Some(token.0.clone()) }
    }

    pub fn anonymous(env: &TestEnv) -> Self {
        Self { site: site(env), token: None }
    }

    pub fn request(&self, method: Method, path: &str, headers: &[(HeaderName, &str)], body: &[u8]) -> TestResponse {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut request = SiteRequest {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            body: body.to_vec(),
            ..SiteRequest::default()
        };
        if let Some(token) = &self.token {
            request.headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
        }
        for (name, value) in headers {
            request.headers.insert(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        read_response(self.site.answer(&request))
    }

    pub fn markdown(&self, path: &str) -> TestResponse {
        self.request(Method::GET, path, &[(header::ACCEPT, "text/markdown")], b"")
    }

    pub fn html(&self, path: &str) -> TestResponse {
        self.request(Method::GET, path, &[(header::ACCEPT, "text/html")], b"")
    }

    pub fn json(&self, path: &str) -> TestResponse {
        self.request(Method::GET, path, &[(header::ACCEPT, "application/json")], b"")
    }

    /// Executes an action with JSON input, and accepts JSON.
    pub fn act(&self, path: &str, input: &Value) -> TestResponse {
        let headers = [(header::ACCEPT, "application/json"), (header::CONTENT_TYPE, "application/json")];
        self.request(Method::POST, path, &headers, input.to_string().as_bytes())
    }
}

pub fn read_response(response: axum::response::Response) -> TestResponse {
    let (parts, body) = response.into_parts();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let body = runtime.block_on(to_bytes(body, usize::MAX)).unwrap();
    TestResponse {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}
