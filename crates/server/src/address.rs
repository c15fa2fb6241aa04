//! Which page a path names.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::nouns::{self, Noun};

/// What stays as it is in a path.
const KEPT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'@').remove(b':').remove(b'/');

/// A reference as a part of a path.
pub fn encoded(reference: &str) -> String {
    utf8_percent_encode(reference, KEPT).to_string()
}

/// The thing a page is about.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    Overview,
    Whoami,
    Why,
    Search,
    Usage,
    Wake,
    Ready,
    Made,
    Latest,
    Next,
    Api,
    List(&'static Noun),
    One(&'static Noun, String),
}

/// Something a path can ask for at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    Page,
    /// The actions there.
    Actions,
    /// One of them.
    Action(String),
}

/// What a path names.
#[derive(Debug, Clone, PartialEq)]
pub struct Address {
    pub place: Place,
    pub wanted: Wanted,
}

impl Address {
    /// Reads a path. References may hold slashes, as variants do.
    pub fn parse(path: &str) -> Option<Self> {
        let decoded = percent_decode_str(path).decode_utf8().ok()?;
        let path = decoded.trim_matches('/');
        let (path, wanted) = split_actions(path);
        let place = match path {
            "" => Place::Overview,
            "whoami" => Place::Whoami,
            "why" => Place::Why,
            "search" => Place::Search,
            "usage" => Place::Usage,
            "wake" => Place::Wake,
            "ready" => Place::Ready,
            "made" => Place::Made,
            "latest" => Place::Latest,
            "next" => Place::Next,
            "api" => Place::Api,
            _ => {
                let (first, reference) = path.split_once('/').unwrap_or((path, ""));
                let noun = nouns::at(first)?;
                match reference {
                    "" => Place::List(noun),
                    reference => Place::One(noun, reference.to_owned()),
                }
            }
        };
        Some(Self { place, wanted })
    }
}

impl Place {
    pub fn path(&self) -> String {
        match self {
            Self::Overview => "/".to_owned(),
            Self::Whoami => "/whoami".to_owned(),
            Self::Why => "/why".to_owned(),
            Self::Search => "/search".to_owned(),
            Self::Usage => "/usage".to_owned(),
            Self::Wake => "/wake".to_owned(),
            Self::Ready => "/ready".to_owned(),
            Self::Made => "/made".to_owned(),
            Self::Latest => "/latest".to_owned(),
            Self::Next => "/next".to_owned(),
            Self::Api => "/api".to_owned(),
            Self::List(noun) => format!("/{}", noun.path),
            Self::One(noun, reference) => format!("/{}/{}", noun.path, encoded(reference)),
        }
    }
}

fn split_actions(path: &str) -> (&str, Wanted) {
    if let Some(before) = path.strip_suffix("/actions") {
        return (before, Wanted::Actions);
    }
    if path == "actions" {
        return ("", Wanted::Actions);
    }
    match path.rsplit_once('/') {
        Some(("actions", name)) => ("", Wanted::Action(name.to_owned())),
        Some((before, name)) if before.ends_with("/actions") => {
            (before.trim_end_matches("/actions"), Wanted::Action(name.to_owned()))
        }
        _ => (path, Wanted::Page),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str) -> Option<(String, Wanted)> {
        Address::parse(path).map(|address| (address.place.path(), address.wanted))
    }

    #[test]
    fn a_path_names_a_page_or_what_can_be_done_there() {
        assert_eq!(parsed("/"), Some(("/".into(), Wanted::Page)));
        assert_eq!(parsed("/whoami/"), Some(("/whoami".into(), Wanted::Page)));
        assert_eq!(parsed("/whoami/actions"), Some(("/whoami".into(), Wanted::Actions)));
        assert_eq!(
            parsed("/whoami/actions/update_scratchpad"),
            Some(("/whoami".into(), Wanted::Action("update_scratchpad".into())))
        );
        assert_eq!(parsed("/tasks/unit/go"), Some(("/tasks/unit/go".into(), Wanted::Page)));
        assert_eq!(parsed("/tasks/unit%2Fgo/actions/x"), Some(("/tasks/unit/go".into(), Wanted::Action("x".into()))));
        assert_eq!(parsed("/notes/actions"), Some(("/notes".into(), Wanted::Actions)));
        assert_eq!(parsed("/nothing"), None);
        assert_eq!(parsed("/tasks/%ff"), None);
    }
}
