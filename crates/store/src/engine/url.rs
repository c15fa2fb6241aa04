//! Database URLs: `sqlite:PATH` or `postgres://...`.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The URL of a database. Its `Debug` and `Display` hide the password.
#[derive(Clone, PartialEq, Eq)]
pub enum Url {
    Sqlite(PathBuf),
    Postgres(String),
}

impl Url {
    pub fn parse(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(Error::Url(text.to_owned()));
            }
            return Ok(Self::Sqlite(PathBuf::from(path)));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        Err(Error::Url(without_password(text)))
    }

    /// The complete URL including the password and an absolute path, for another process.
    pub fn with_password(&self) -> String {
        match self {
            Self::Sqlite(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                format!("sqlite:{}", path.display())
            }
            Self::Postgres(url) => url.clone(),
        }
    }

    /// Adds a connect timeout for PostgreSQL, unless the URL has one.
    #[must_use]
    pub fn with_connect_timeout(&self, seconds: u32) -> Self {
        match self {
            Self::Postgres(url) if !url.contains("connect_timeout=") => {
                let separator = if url.contains('?') { '&' } else { '?' };
                Self::Postgres(format!("{url}{separator}connect_timeout={seconds}"))
            }
            other => other.clone(),
        }
    }

    pub fn sqlite(path: impl AsRef<Path>) -> Self {
        Self::Sqlite(path.as_ref().to_owned())
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => write!(formatter, "sqlite:{}", path.display()),
            Self::Postgres(url) => formatter.write_str(&without_password(url)),
        }
    }
}

impl std::fmt::Debug for Url {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, formatter)
    }
}

/// Replaces a password by `***`, both after the user's `:` and in a `password` parameter.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (address, query) = rest.split_once('?').map_or((rest, None), |(a, q)| (a, Some(q)));
    let address = match address.rsplit_once('@') {
        Some((credentials, host)) => {
            let user = credentials.split(':').next().unwrap_or_default();
            let password = if credentials.contains(':') { ":***" } else { "" };
            format!("{user}{password}@{host}")
        }
        None => address.to_owned(),
    };
    let query = query.map(|query| {
        let pairs: Vec<_> =
            query.split('&').map(|pair| if pair.starts_with("password=") { "password=***" } else { pair }).collect();
        format!("?{}", pairs.join("&"))
    });
    format!("{scheme}://{address}{}", query.unwrap_or_default())
}

/// The parameters of a URL, each with its name, its decoded value, and its original text.
pub(crate) fn parameters(url: &str) -> std::result::Result<Vec<(&str, String, &str)>, String> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} has no value"))?;
            let value = percent_encoding::percent_decode_str(value).decode_utf8().map_err(|error| error.to_string())?;
            Ok((name, value.into_owned(), pair))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_scheme_selects_engine() {
        assert_eq!(Url::parse("sqlite:a.db").unwrap(), Url::sqlite("a.db"));
        assert_eq!(Url::parse("sqlite:///tmp/a.db").unwrap(), Url::sqlite("/tmp/a.db"));
        assert!(matches!(Url::parse("postgres://h/d").unwrap(), Url::Postgres(_)));
        for bad in ["", "a.db", "mysql://h/d", "sqlite:"] {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn connect_timeout_is_added_unless_given() {
        for (url, expected) in [
            ("postgres://h/d", "postgres://h/d?connect_timeout=1"),
            ("postgres://h/d?sslmode=require", "postgres://h/d?sslmode=require&connect_timeout=1"),
            ("postgres://h/d?connect_timeout=9", "postgres://h/d?connect_timeout=9"),
            ("sqlite:a.db", "sqlite:a.db"),
        ] {
            assert_eq!(Url::parse(url).unwrap().with_connect_timeout(1).to_string(), expected);
        }
    }

    #[test]
    fn display_and_debug_hide_password() {
        for (url, shown) in [
            ("postgres://ada:se:cr@t@h:5432/d?sslmode=disable", "postgres://ada:***@h:5432/d?sslmode=disable"),
            ("postgres://ada@h/d?password=secret&x=1", "postgres://ada@h/d?password=***&x=1"),
        ] {
            assert_eq!(Url::parse(url).unwrap().to_string(), shown);
            assert_eq!(format!("{:?}", Url::parse(url).unwrap()), shown);
        }
    }
}
