//! What pages need beside themselves, inside the binary: nothing is fetched from elsewhere.

use axum::{
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

const ASSETS: &[(&str, &str, &str)] = &[
    ("style.css", "text/css; charset=utf-8", include_str!("../web/style.css")),
    ("trackway.js", "text/javascript; charset=utf-8", include_str!("../web/trackway.js")),
    ("icon.svg", "image/svg+xml", include_str!("../web/icon.svg")),
];

/// The asset of a name.
pub fn asset(name: &str) -> Response {
    match ASSETS.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => {
            ([(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "public, max-age=300")], *text).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
