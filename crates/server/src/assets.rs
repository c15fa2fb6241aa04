//! What pages need beside themselves, inside the binary: nothing is fetched from elsewhere.

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

/// The asset of a name.
pub fn asset(method: &Method, name: &str) -> Response {
    if method != Method::GET && method != Method::HEAD {
        return Problem::method(method, "/assets", "GET, HEAD").respond(Format::Json);
    }
    match ASSETS.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => {
            ([(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "public, max-age=300")], *text).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
