//! Maps URL paths to pages and to the actions below them.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::nouns::{self, Noun};

/// Characters that a path keeps unescaped.
const UNESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'@').remove(b':').remove(b'/');

/// Percent-encodes a reference (a name or an id) for use in a path.
pub fn encode(reference: &str) -> String {
    utf8_percent_encode(reference, UNESCAPED).to_string()
}

/// A page, independent of its format and its query.
#[derive(Debug, Clone, PartialEq)]
pub enum PageRef {
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
    /// The list of all things of one kind.
    List(&'static Noun),
    /// One thing, by its name or id.
    Detail(&'static Noun, String),
}

/// The part of a page that a path addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Page,
    /// The list of the page's actions.
    Actions,
    /// One action, by its name.
    Action(String),
}

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct Address {
    pub page: PageRef,
    pub target: Target,
}

impl Address {
    /// Parses a path. A reference may contain slashes, because task variants do.
    pub fn parse(path: &str) -> Option<Self> {
        let decoded = percent_decode_str(path).decode_utf8().ok()?;
        let path = decoded.trim_matches('/');
        let (path, target) = split_actions(path);
        let page = match path {
            "" => PageRef::Overview,
            "whoami" => PageRef::Whoami,
            "why" => PageRef::Why,
            "search" => PageRef::Search,
            "usage" => PageRef::Usage,
            "wake" => PageRef::Wake,
            "ready" => PageRef::Ready,
            "made" => PageRef::Made,
            "latest" => PageRef::Latest,
            "next" => PageRef::Next,
            "api" => PageRef::Api,
            _ => {
                let (first, reference) = path.split_once('/').unwrap_or((path, ""));
                let noun = nouns::by_path(first)?;
                match reference {
                    "" => PageRef::List(noun),
                    reference => PageRef::Detail(noun, reference.to_owned()),
                }
            }
        };
        Some(Self { page, target })
    }
}

impl PageRef {
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
            Self::Detail(noun, reference) => format!("/{}/{}", noun.path, encode(reference)),
        }
    }
}

fn split_actions(path: &str) -> (&str, Target) {
    if let Some(before) = path.strip_suffix("/actions") {
        return (before, Target::Actions);
    }
    if path == "actions" {
        return ("", Target::Actions);
    }
    match path.rsplit_once('/') {
        Some(("actions", name)) => ("", Target::Action(name.to_owned())),
        Some((before, name)) if before.ends_with("/actions") => {
            (before.trim_end_matches("/actions"), Target::Action(name.to_owned()))
        }
        _ => (path, Target::Page),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Option<(String, Target)> {
        Address::parse(path).map(|address| (address.page.path(), address.target))
    }

    #[test]
    fn parses_pages_and_their_actions() {
        assert_eq!(parse("/"), Some(("/".into(), Target::Page)));
        assert_eq!(parse("/whoami/"), Some(("/whoami".into(), Target::Page)));
        assert_eq!(parse("/whoami/actions"), Some(("/whoami".into(), Target::Actions)));
        assert_eq!(
            parse("/whoami/actions/update_scratchpad"),
            Some(("/whoami".into(), Target::Action("update_scratchpad".into())))
        );
        assert_eq!(parse("/tasks/unit/go"), Some(("/tasks/unit/go".into(), Target::Page)));
        assert_eq!(parse("/tasks/unit%2Fgo/actions/x"), Some(("/tasks/unit/go".into(), Target::Action("x".into()))));
        assert_eq!(parse("/notes/actions"), Some(("/notes".into(), Target::Actions)));
        assert_eq!(parse("/nothing"), None);
        assert_eq!(parse("/tasks/%ff"), None);
    }
}
