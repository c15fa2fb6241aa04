//! The pages and actions an agent works with, as the server answers them.

/// The pages and actions an agent works with, as the server answers them.
pub trait Pages: Send + Sync {
    /// Reads a page as Markdown. The path may carry a query.
    fn get(&self, token: &str, path: &str) -> PageAnswer;

    /// Executes an action below a page: `POST <path>` with JSON.
    fn post(&self, token: &str, path: &str, input: &serde_json::Value) -> PageAnswer;
}

/// What a page answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageAnswer {
    pub status: u16,
    pub body: String,
}

impl PageAnswer {
    pub fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }
}
