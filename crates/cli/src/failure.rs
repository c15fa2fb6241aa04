//! What a failed command says: `error: what`, `hint: what to do`, or the same as JSON.

use serde_json::json;
use trackway_domain::ErrorKind;

/// A failure on its way to stderr.
#[derive(Debug)]
pub struct Failure {
    pub kind: ErrorKind,
    pub message: String,
    pub hint: Option<String>,
    /// Whether the same may succeed later: nothing is wrong with what was asked for, but with where it goes.
    pub may_pass: bool,
}

impl Failure {
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
        Self { kind: error.kind, may_pass: error.kind == ErrorKind::Busy, message: error.message, hint: error.hint }
    }
}

impl From<trackway_store::Error> for Failure {
    fn from(error: trackway_store::Error) -> Self {
        Self { kind: error.kind(), message: error.to_string(), hint: error.hint(), may_pass: error.may_pass() }
    }
}

impl From<trackway_actions::Error> for Failure {
    fn from(error: trackway_actions::Error) -> Self {
        Self { kind: error.kind(), message: error.to_string(), hint: error.hint(), may_pass: error.may_pass() }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self { kind: ErrorKind::Failed, message: error.to_string(), hint: None, may_pass: false }
    }
}

impl From<clap::Error> for Failure {
    /// clap says `error: what`, then usage and tips on lines of their own.
    fn from(error: clap::Error) -> Self {
        let rendered = error.render().to_string();
        let text = rendered.strip_prefix("error: ").unwrap_or(&rendered).trim_end();
        let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
        let said = |line: &&str| !line.is_empty() && !line.starts_with("For more information");
        let hint = rest.lines().map(str::trim).filter(said).collect::<Vec<_>>().join("\n      ");
        let hint = Some(hint).filter(|hint| !hint.is_empty());
        Self { kind: ErrorKind::Usage, message: message.to_owned(), hint, may_pass: false }
    }
}
