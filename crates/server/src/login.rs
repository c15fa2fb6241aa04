//! Logging a browser in: a link that works once, traded for a cookie that no script can read.

use axum::{
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use trackway_actions::{
    Credential,
    context::Secret,
    token::{ExchangeLogin, RevokeToken},
};
use trackway_domain::ErrorKind;

use crate::{
    caller, input,
    problem::Problem,
    site::{Question, Site},
};

/// How long a login lasts.
const LASTS_SECONDS: i64 = 30 * 86_400;

/// Follows a login link. Who only asks for the head learns whether it would work, and leaves it as it is.
pub fn login(site: &Site, question: &Question) -> Result<Response, Problem> {
    let pairs: Vec<_> = input::pairs(&question.query).collect();
    let given = |wanted: &str| pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
    let Some(code) = given("code") else {
        return Err(Problem::unauthorised("to log in, follow the link that `trackway open` prints"));
    };
    let refused = |error: trackway_actions::Error| match error.kind() {
        ErrorKind::Denied => Problem::unauthorised("the login link was used already, or is too old")
            .hint("`trackway open` makes another"),
        _ => error.into(),
    };
    let context = site.core.enter(&Credential::Login(Secret(code))).map_err(refused)?;
    match question.method {
        Method::GET => {}
        Method::HEAD => return Ok(StatusCode::OK.into_response()),
        _ => return Err(Problem::method(&question.method, &question.path, "GET, HEAD")),
    }
    let until = site.core.now().plus_seconds(LASTS_SECONDS);
    let made = site.core.execute(&context, &ExchangeLogin { until }).map_err(refused)?;
    let to = given("to").filter(|to| is_ours(to)).unwrap_or_else(|| "/".to_owned());
    let name = caller::cookie(&question.headers);
    Ok(led(&to, &format!("{name}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={LASTS_SECONDS}", made.token)))
}

/// Whether a place is on this server, whatever a browser makes of it.
pub fn is_ours(to: &str) -> bool {
    to.starts_with('/') && !to.starts_with("//") && !to.contains(|letter: char| letter == '\\' || letter.is_control())
}

/// Ends a login.
pub fn logout(site: &Site, question: &Question) -> Result<Response, Problem> {
    if question.method != Method::POST {
        return Err(
            Problem::method(&question.method, &question.path, "POST").hint("the foot of every page has a button")
        );
    }
    let (token, by) = caller::token(&question.headers)?;
    caller::refuse_foreign_pages(question, by)?;
    let context = caller::enter(&site.core, token)?;
    if let Some(token) = context.token {
        site.core.execute(&context, &RevokeToken { token: token.into() })?;
    }
    let name = caller::cookie(&question.headers);
    Ok(led("/login", &format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0")))
}

fn led(to: &str, cookie: &str) -> Response {
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, to.to_owned())]).into_response();
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
