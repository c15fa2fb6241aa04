//! The error of a command: printed as `error: ...` and `hint: ...`, or as JSON.

use serde_json::json;
use trackway_domain::{ErrorKind, Sentence};

#[derive(Debug)]
pub struct Failure {
    pub kind: ErrorKind,
    pub message: Sentence,
    pub hint: Option<Sentence>,
    /// Whether retrying later can succeed.
    pub is_transient: bool,
}

impl Failure {
    pub fn new(kind: ErrorKind, message: impl Into<Sentence>, hint: Option<Sentence>) -> Self {
        Self { kind, message: message.into(), hint, is_transient: kind == ErrorKind::Busy }
    }

    pub fn render(&self, as_json: bool) -> String {
        let (message, hint) = (self.message.to_string(), self.hint.as_ref().map(ToString::to_string));
        if as_json {
            return json!({
                "schema_version": 1,
                "error": { "code": self.kind.code(), "message": message, "hint": hint },
            })
            .to_string();
        }
        let red = anstyle::AnsiColor::Red.on_default().bold();
        let cyan = anstyle::AnsiColor::Cyan.on_default().bold();
        let hint = hint.map(|hint| format!("\n{cyan}hint:{cyan:#} {hint}")).unwrap_or_default();
        format!("{red}error:{red:#} {message}{hint}")
    }
}

impl From<trackway_domain::Error> for Failure {
    fn from(error: trackway_domain::Error) -> Self {
        Self::new(error.kind, error.message, error.hint)
    }
}

impl From<trackway_store::Error> for Failure {
    fn from(error: trackway_store::Error) -> Self {
        Self { is_transient: error.is_transient(), ..Self::new(error.kind(), error.message(), error.hint()) }
    }
}

impl From<trackway_actions::Error> for Failure {
    fn from(error: trackway_actions::Error) -> Self {
        Self { is_transient: error.is_transient(), ..Self::new(error.kind(), error.message(), error.hint()) }
    }
}

impl From<trackway_capture::Error> for Failure {
    fn from(error: trackway_capture::Error) -> Self {
        match error {
            trackway_capture::Error::Action(error) => error.into(),
            trackway_capture::Error::Io(error) => error.into(),
            busy @ trackway_capture::Error::ApplyingSpool => Self::new(ErrorKind::Busy, busy.to_string(), None),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(ErrorKind::Failed, error.to_string(), None)
    }
}

impl From<clap::Error> for Failure {
    /// Splits clap's text: first the error, then usage and tips on separate lines.
    fn from(error: clap::Error) -> Self {
        let rendered = error.render().to_string();
        let text = rendered.strip_prefix("error: ").unwrap_or(&rendered).trim_end();
        let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
        let is_hint = |line: &&str| !line.is_empty() && !line.starts_with("For more information");
        let hint = rest
            .lines()
            .map(|line| line.trim().trim_start_matches("tip: "))
            .filter(is_hint)
            .collect::<Vec<_>>()
            .join("\n      ");
        Self::new(ErrorKind::Usage, message, Some(hint).filter(|hint| !hint.is_empty()).map(Into::into))
    }
}
