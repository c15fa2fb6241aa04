//! Who is calling: a bearer token, or the cookie of a browser that logged in.

use axum::http::{HeaderMap, Method, StatusCode, header};
use trackway_actions::{
    Core, Credential,
    context::{Context, Secret},
};
use trackway_domain::ErrorKind;

use crate::{problem::Problem, site::Question};

/// What the cookie of a login is called. Cookies are for all ports of a machine, and on each there may be another record.
pub fn cookie(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match port(host) {
        Some((_, port)) => format!("trackway_{port}"),
        None => "trackway".to_owned(),
    }
}

/// A name and its port, where a host has one.
pub fn port(host: &str) -> Option<(&str, &str)> {
    host.rsplit_once(':').filter(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// How a caller showed who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Bearer,
    /// Sent by a browser on its own, so a write also has to come from our pages.
    Cookie,
}

/// The token of a request.
pub fn token(headers: &HeaderMap) -> Result<(String, By), Problem> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let token = value.to_str().ok().and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        });
        return token
            .filter(|token| !token.is_empty())
            .map(|token| (token, By::Bearer))
            .ok_or_else(|| Problem::unauthorised("Authorization has to be `Bearer TOKEN`"));
    }
    let wanted = cookie(headers);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let found = cookies.flat_map(|value| value.split(';')).find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == wanted && !value.is_empty()).then(|| value.to_owned())
    });
    found.map(|token| (token, By::Cookie)).ok_or_else(|| Problem::unauthorised("who is calling was not said"))
}

/// Makes the context of a token. One that opens nothing is a failure to say who is calling.
pub fn enter(core: &Core, token: String) -> Result<Context, Problem> {
    core.enter(&Credential::Token(Secret(token))).map_err(|error| match error.kind() {
        ErrorKind::Denied => {
            let problem = Problem::unauthorised(error.message());
            match error.hint() {
                Some(hint) if !hint.to_string().contains("TRACKWAY_TOKEN") => problem.hint(hint),
                _ => problem,
            }
        }
        _ => error.into(),
    })
}

/// A browser sends its cookie whoever wrote the page it is on: a write has to come from a page of ours.
pub fn refuse_foreign_pages(question: &Question, by: By) -> Result<(), Problem> {
    if by == By::Bearer || question.method == Method::GET || question.method == Method::HEAD {
        return Ok(());
    }
    let header = |name: header::HeaderName| question.headers.get(name).and_then(|value| value.to_str().ok());
    let host = header(header::HOST).unwrap_or_default();
    let is_ours = match header(header::ORIGIN) {
        Some(origin) => origin.split_once("://").is_some_and(|(_, authority)| !host.is_empty() && authority == host),
        None => header(header::HeaderName::from_static("sec-fetch-site")) == Some("same-origin"),
    };
    if is_ours {
        return Ok(());
    }
    Err(Problem::new(StatusCode::FORBIDDEN, "denied", "this was sent from a page that is not Trackway's"))
}
