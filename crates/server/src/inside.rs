//! The pages for an agent that works inside this process: the same as over HTTP, with its run's token.

use trackway_runner::pages::{PageAnswer, Pages};

use crate::site::{Answer, Site};

impl Pages for Site {
    fn get(&self, token: &str, path: &str) -> PageAnswer {
        answered(Self::get(self, token, path))
    }

    fn post(&self, token: &str, path: &str, input: &serde_json::Value) -> PageAnswer {
        answered(Self::post(self, token, path, input))
    }
}

fn answered(Answer { status, body }: Answer) -> PageAnswer {
    PageAnswer { status, body }
}
