//! The pages and actions an agent works with, as the server answers them.

/// The pages and actions an agent works with. The server implements this trait, so that agents see the same pages as
/// over HTTP.
pub trait Pages: Send + Sync {
    /// Reads a page as Markdown. The path may contain a query.
    fn get(&self, token: &str, path: &str) -> PageResponse;

    /// Executes an action of a page: `POST <path>` with JSON.
    fn post(&self, token: &str, path: &str, input: &serde_json::Value) -> PageResponse;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageResponse {
    pub status: u16,
    pub body: String,
}

impl PageResponse {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}
