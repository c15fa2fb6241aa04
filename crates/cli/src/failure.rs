//! What a failed command says: `error: what`, `hint: what to do`, or the same as JSON.

use serde_json::json;
use trackway_domain::ErrorKind;

/// A failure on its way to stderr.
#[derive(Debug)]
pub struct Failure {
    pub kind: ErrorKind,
    pub message: String,
    pub hint: Option<String>,
    /// Whether it passes by waiting, for those who may do a thing twice.
    pub is_passing: bool,
}

impl Failure {
    pub fn new(kind: ErrorKind, message: impl Into<String>, hint: Option<String>) -> Self {
        Self { kind, message: message.into(), hint, is_passing: kind == ErrorKind::Busy }
    }

    pub fn rendered(&self, as_json: bool) -> String {
        if as_json {
            return json!({
                "schema_version": 1,
                "error": { "code": self.kind.code(), "message": self.message, "hint": self.hint },
            })
            .to_string();
        }
        let red = anstyle::AnsiColor::Red.on_default().bold();
        let cyan = anstyle::AnsiColor::Cyan.on_default().bold();
        let hint = self.hint.as_ref().map(|hint| format!("\n{cyan}hint:{cyan:#} {hint}")).unwrap_or_default();
        format!("{red}error:{red:#} {}{hint}", self.message)
    }
}

impl From<trackway_domain::Error> for Failure {
    fn from(error: trackway_domain::Error) -> Self {
        Self::new(error.kind, error.message, error.hint)
    }
}

impl From<trackway_store::Error> for Failure {
    fn from(error: trackway_store::Error) -> Self {
        Self { is_passing: error.is_passing(), ..Self::new(error.kind(), error.to_string(), error.hint()) }
    }
}

impl From<trackway_actions::Error> for Failure {
    fn from(error: trackway_actions::Error) -> Self {
        Self { is_passing: error.is_passing(), ..Self::new(error.kind(), error.to_string(), error.hint()) }
    }
}

impl From<trackway_capture::Error> for Failure {
    fn from(error: trackway_capture::Error) -> Self {
        match error {
            trackway_capture::Error::Action(error) => error.into(),
            trackway_capture::Error::Io(error) => error.into(),
            busy @ trackway_capture::Error::Applying => Self::new(ErrorKind::Busy, busy.to_string(), None),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(ErrorKind::Failed, error.to_string(), None)
    }
}

impl From<clap::Error> for Failure {
    /// clap says `error: what`, then usage and tips on lines of their own.
    fn from(error: clap::Error) -> Self {
        let rendered = error.render().to_string();
        let text = rendered.strip_prefix("error: ").unwrap_or(&rendered).trim_end();
        let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
        let said = |line: &&str| !line.is_empty() && !line.starts_with("For more information");
        let hint = rest
            .lines()
            .map(|line| line.trim().trim_start_matches("tip: "))
            .filter(said)
            .collect::<Vec<_>>()
            .join("\n      ");
        Self::new(ErrorKind::Usage, message, Some(hint).filter(|hint| !hint.is_empty()))
    }
}
