//! Identifies the caller by a bearer token or by the cookie of a logged-in browser.

use axum::http::{HeaderMap, Method, StatusCode, header};
use trackway_actions::{
    Core, Credential,
    context::{Context, Secret},
};
use trackway_domain::ErrorKind;

use crate::{problem::Problem, site::SiteRequest};

/// The name of the login cookie. It contains the port, because browsers share cookies between all ports of a host, and
/// each port may serve another database.
pub fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match split_port(host) {
        Some((_, port)) => format!("trackway_{port}"),
        None => "trackway".to_owned(),
    }
}

/// Splits `host:port`. None if there is no port.
pub fn split_port(host: &str) -> Option<(&str, &str)> {
    host.rsplit_once(':').filter(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The source of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialSource {
    Bearer,
    /// Browsers may attach the cookie to requests from pages of other origins, so a write must also come from this
    /// origin.
    Cookie,
}

/// The token of a request, and where it was found.
pub fn token(headers: &HeaderMap) -> Result<(String, CredentialSource), Problem> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let token = value.to_str().ok().and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        });
        return token
            .filter(|token| !token.is_empty())
            .map(|token| (token, CredentialSource::Bearer))
            .ok_or_else(|| Problem::unauthorised("the Authorization header must be `Bearer TOKEN`"));
    }
    let wanted = cookie_name(headers);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let found = cookies.flat_map(|value| value.split(';')).find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == wanted && !value.is_empty()).then(|| value.to_owned())
    });
    found.map(|token| (token, CredentialSource::Cookie)).ok_or_else(|| Problem::unauthorised("you are not signed in"))
}

/// Authenticates a token. An invalid token is answered with 401, not with 403.
pub fn authenticate(core: &Core, token: String) -> Result<Context, Problem> {
    core.authenticate(&Credential::Token(Secret(token))).map_err(|error| match error.kind() {
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

/// Rejects writes that other sites send with a browser's cookie (CSRF): the origin must be this server.
pub fn reject_cross_origin(request: &SiteRequest, source: CredentialSource) -> Result<(), Problem> {
    if source == CredentialSource::Bearer || request.method == Method::GET || request.method == Method::HEAD {
        return Ok(());
    }
    let header = |name: header::HeaderName| request.headers.get(name).and_then(|value| value.to_str().ok());
    let host = header(header::HOST).unwrap_or_default();
    let is_same_origin = match header(header::ORIGIN) {
        Some(origin) => origin.split_once("://").is_some_and(|(_, authority)| !host.is_empty() && authority == host),
        None => header(header::HeaderName::from_static("sec-fetch-site")) == Some("same-origin"),
    };
    if is_same_origin {
        return Ok(());
    }
    Err(Problem::new(StatusCode::FORBIDDEN, "denied", "the request was sent by a page of another site"))
}
