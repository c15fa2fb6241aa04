//! Where a database is: `sqlite:PATH` or `postgres://...`.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The address of a database. Its `Debug` and `Display` hide the password.
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

    /// The URL with everything in it, the password too, as a process elsewhere needs it.
    pub fn whole(&self) -> String {
        match self {
            Self::Sqlite(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                format!("sqlite:{}", path.display())
            }
            Self::Postgres(url) => url.clone(),
        }
    }

    /// The same database, with a server that is given up sooner, unless the URL says how soon.
    #[must_use]
    pub fn answering_within(&self, seconds: u32) -> Self {
        match self {
            Self::Postgres(url) if !url.contains("connect_timeout=") => {
                let joint = if url.contains('?') { '&' } else { '?' };
                Self::Postgres(format!("{url}{joint}connect_timeout={seconds}"))
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

/// The URL with `***` where a password stands, between the user's `:` and the last `@`, or as a parameter.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (address, query) = rest.split_once('?').map_or((rest, None), |(a, q)| (a, Some(q)));
    let address = match address.rsplit_once('@') {
        Some((credentials, host)) => {
            let user = credentials.split(':').next().unwrap_or_default();
            let mark = if credentials.contains(':') { ":***" } else { "" };
            format!("{user}{mark}@{host}")
        }
        None => address.to_owned(),
    };
    let query = query.map(|query| {
        let shown: Vec<_> =
            query.split('&').map(|pair| if pair.starts_with("password=") { "password=***" } else { pair }).collect();
        format!("?{}", shown.join("&"))
    });
    format!("{scheme}://{address}{}", query.unwrap_or_default())
}

/// The parameters of a URL: name, value, and both as they stand there.
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
    fn the_scheme_chooses_the_engine() {
        assert_eq!(Url::parse("sqlite:a.db").unwrap(), Url::sqlite("a.db"));
        assert_eq!(Url::parse("sqlite:///tmp/a.db").unwrap(), Url::sqlite("/tmp/a.db"));
        assert!(matches!(Url::parse("postgres://h/d").unwrap(), Url::Postgres(_)));
        for bad in ["", "a.db", "mysql://h/d", "sqlite:"] {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn who_is_in_a_hurry_waits_less_for_a_server() {
        for (url, hurried) in [
            ("postgres://h/d", "postgres://h/d?connect_timeout=1"),
            ("postgres://h/d?sslmode=require", "postgres://h/d?sslmode=require&connect_timeout=1"),
            ("postgres://h/d?connect_timeout=9", "postgres://h/d?connect_timeout=9"),
            ("sqlite:a.db", "sqlite:a.db"),
        ] {
            assert_eq!(Url::parse(url).unwrap().answering_within(1).to_string(), hurried);
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        for (url, shown) in [
            ("postgres://ada:se:cr@t@h:5432/d?sslmode=disable", "postgres://ada:***@h:5432/d?sslmode=disable"),
            ("postgres://ada@h/d?password=secret&x=1", "postgres://ada@h/d?password=***&x=1"),
        ] {
            assert_eq!(Url::parse(url).unwrap().to_string(), shown);
            assert_eq!(format!("{:?}", Url::parse(url).unwrap()), shown);
        }
    }
}
