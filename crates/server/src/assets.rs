//! The stylesheet, script and icon of the HTML pages. They are compiled into the binary, so pages load nothing from
//! other hosts.

use axum::{
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::{format::Format, problem::Problem};

const ASSETS: &[(&str, &str, &str)] = &[
    ("style.css", "text/css; charset=utf-8", include_str!("../web/style.css")),
    ("trackway.js", "text/javascript; charset=utf-8", include_str!("../web/trackway.js")),
    ("icon.svg", "image/svg+xml", include_str!("../web/icon.svg")),
];

/// Responds with the asset of this name.
pub fn asset(method: &Method, name: &str) -> Response {
    if method != Method::GET && method != Method::HEAD {
        return Problem::method_not_allowed(method, "/assets", "GET, HEAD").respond(Format::Json);
    }
    match ASSETS.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => {
            ([(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "public, max-age=300")], *text).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
