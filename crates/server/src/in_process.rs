//! Serves pages to the agent runner in this process, without a socket. The agent is authenticated by its run token, as
//! over HTTP.

use trackway_runner::pages::{PageResponse, Pages};

use crate::site::{Site, SiteResponse};

impl Pages for Site {
    fn get(&self, token: &str, path: &str) -> PageResponse {
        page_answer(Self::get(self, token, path))
    }

    fn post(&self, token: &str, path: &str, input: &serde_json::Value) -> PageResponse {
        page_answer(Self::post(self, token, path, input))
    }
}

fn page_answer(SiteResponse { status, body }: SiteResponse) -> PageResponse {
    PageResponse { status, body }
}
