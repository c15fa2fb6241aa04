//! Browser login: a one-time link is exchanged for a cookie that scripts cannot read.

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
    site::{Site, SiteRequest},
};

/// Lifetime of a login.
const LOGIN_SECONDS: i64 = 30 * 86_400;

/// Handles a login link. A HEAD request only checks whether the link is still valid, and does not use it up.
pub fn login(site: &Site, request: &SiteRequest) -> Result<Response, Problem> {
    let pairs: Vec<_> = input::pairs(&request.query).collect();
    let parameter = |name: &str| pairs.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
    let Some(code) = parameter("code") else {
        return Err(Problem::unauthorised("you are not signed in: open the link that `trackway open` prints"));
    };
    let to_problem = |error: trackway_actions::Error| match error.kind() {
        ErrorKind::Denied => Problem::unauthorised("the login link was already used or has expired")
            .hint("create a new link with `trackway open`"),
        _ => error.into(),
    };
    let context = site.core.authenticate(&Credential::Login(Secret(code))).map_err(to_problem)?;
    match request.method {
        Method::GET => {}
        Method::HEAD => return Ok(StatusCode::OK.into_response()),
        _ => return Err(Problem::method_not_allowed(&request.method, &request.path, "GET, HEAD")),
    }
    let expires_at = site.core.now().plus_seconds(LOGIN_SECONDS);
    let login = site.core.execute(&context, &ExchangeLogin { until: expires_at }).map_err(to_problem)?;
    let path = parameter("to").filter(|path| is_local_path(path)).unwrap_or_else(|| "/".to_owned());
    let name = caller::cookie_name(&request.headers);
    Ok(redirect_with_cookie(
        &path,
        &format!("{name}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={LOGIN_SECONDS}", login.token),
    ))
}

/// True if every browser resolves the redirect target to this server. Some browsers treat backslashes as slashes and
/// drop control characters.
pub fn is_local_path(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//")
        && !path.contains(|character: char| character == '\\' || character.is_control())
}

/// Revokes the login token and deletes the cookie.
pub fn logout(site: &Site, request: &SiteRequest) -> Result<Response, Problem> {
    if request.method != Method::POST {
        return Err(Problem::method_not_allowed(&request.method, &request.path, "POST")
            .hint("use the button at the bottom of any page"));
    }
    let (token, source) = caller::token(&request.headers)?;
    caller::reject_cross_origin(request, source)?;
    let context = caller::authenticate(&site.core, token)?;
    if let Some(token) = context.token {
        site.core.execute(&context, &RevokeToken { token: token.into() })?;
    }
    let name = caller::cookie_name(&request.headers);
    Ok(redirect_with_cookie("/login", &format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0")))
}

fn redirect_with_cookie(path: &str, cookie: &str) -> Response {
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, path.to_owned())]).into_response();
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
