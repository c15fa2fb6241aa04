//! Somebody who asks a site.

use axum::{
    body::to_bytes,
    http::{HeaderName, HeaderValue, Method, header},
};
use serde_json::{Value, json};
use trackway_actions::Credential;
use trackway_server::{Question, Site};
use trackway_testkit::{TestEnv, TestRun};

use crate::served::site;

/// A site over the database of an env, and the token that is shown there.
pub struct Visitor {
    pub site: Site,
    pub token: Option<String>,
}

/// What came back.
#[derive(Debug)]
pub struct Heard {
    pub status: u16,
    pub headers: axum::http::HeaderMap,
    pub body: String,
}

impl Heard {
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
    /// The person of the env.
    pub fn person(env: &TestEnv) -> Self {
        let token = env.act("create_token", json!({ "name": "test" })).unwrap()["token"].as_str().unwrap().to_owned();
        Self { site: site(env), token: Some(token) }
    }

    /// The agent of a run.
    pub fn run(env: &TestEnv, run: &TestRun<'_>) -> Self {
        let Credential::Token(token) = &run.token else { panic!("a run has a token") };
        Self { site: site(env), token: Some(token.0.clone()) }
    }

    pub fn nobody(env: &TestEnv) -> Self {
        Self { site: site(env), token: None }
    }

    pub fn ask(&self, method: Method, path: &str, headers: &[(HeaderName, &str)], body: &[u8]) -> Heard {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut question = Question {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            body: body.to_vec(),
            ..Question::default()
        };
        if let Some(token) = &self.token {
            question.headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
        }
        for (name, value) in headers {
            question.headers.insert(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        heard(self.site.answer(&question))
    }

    pub fn markdown(&self, path: &str) -> Heard {
        self.ask(Method::GET, path, &[(header::ACCEPT, "text/markdown")], b"")
    }

    pub fn html(&self, path: &str) -> Heard {
        self.ask(Method::GET, path, &[(header::ACCEPT, "text/html")], b"")
    }

    pub fn json(&self, path: &str) -> Heard {
        self.ask(Method::GET, path, &[(header::ACCEPT, "application/json")], b"")
    }

    /// Does an action, and takes the answer as JSON.
    pub fn act(&self, path: &str, input: &Value) -> Heard {
        let headers = [(header::ACCEPT, "application/json"), (header::CONTENT_TYPE, "application/json")];
        self.ask(Method::POST, path, &headers, input.to_string().as_bytes())
    }
}

pub fn heard(response: axum::response::Response) -> Heard {
    let (parts, body) = response.into_parts();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let body = runtime.block_on(to_bytes(body, usize::MAX)).unwrap();
    Heard { status: parts.status.as_u16(), headers: parts.headers, body: String::from_utf8(body.to_vec()).unwrap() }
}
