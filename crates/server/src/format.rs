//! Chooses the format of a page: by the extension of its path, or else by the `Accept` header.

use axum::http::{HeaderMap, header::ACCEPT};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    Json,
    Markdown,
    Html,
}

impl Format {
    const EXTENSIONS: [(&'static str, Self); 3] =
        [(".json", Self::Json), (".md", Self::Markdown), (".html", Self::Html)];

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Markdown => "text/markdown; charset=utf-8",
            Self::Html => "text/html; charset=utf-8",
        }
    }

    /// Splits off the extension of a path, if it names a format.
    pub fn of_extension(path: &str) -> Option<(&str, Self)> {
        Self::EXTENSIONS.iter().find_map(|(extension, format)| Some((path.strip_suffix(extension)?, *format)))
    }

    /// The format that the `Accept` header prefers. Without a preference, Markdown, because agents and `curl` state
    /// none.
    pub fn of_accept(headers: &HeaderMap) -> Self {
        let ranges =
            headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        let mut best: Option<(f32, Self)> = None;
        for range in ranges {
            let mut parts = range.split(';').map(str::trim);
            let format = match parts.next().map(str::to_ascii_lowercase).as_deref() {
                Some("application/json" | "application/*" | "text/json") => Self::Json,
                Some("text/markdown" | "text/x-markdown" | "text/plain") => Self::Markdown,
                Some("text/html" | "application/xhtml+xml") => Self::Html,
                _ => continue,
            };
            let weight = parts
                .find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok())
                .filter(|weight| weight.is_finite())
                .unwrap_or(1.0);
            if weight > 0.0 && best.is_none_or(|(most, _)| weight > most) {
                best = Some((weight, format));
            }
        }
        best.map_or(Self::Markdown, |(_, format)| format)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn accepting(accept: &str) -> Format {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_str(accept).unwrap());
        Format::of_accept(&headers)
    }

    #[test]
    fn prefers_the_format_with_the_highest_weight() {
        assert_eq!(Format::of_accept(&HeaderMap::new()), Format::Markdown);
        assert_eq!(accepting("*/*"), Format::Markdown);
        assert_eq!(accepting("application/json"), Format::Json);
        assert_eq!(accepting("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"), Format::Html);
        assert_eq!(accepting("text/html;q=0.1, text/markdown;q=0.7"), Format::Markdown);
        assert_eq!(accepting("application/json;q=0, text/html"), Format::Html);
        assert_eq!(accepting("application/json;q=nan"), Format::Json);
    }
}
