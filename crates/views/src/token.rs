//! Tokens of people.

use serde::Deserialize;
use trackway_domain::Time;
use trackway_store::{Reader, Result, display::TokenShown, table::Shown};

use crate::{
    page::{Filter, Listed, Order, Page},
    view::View,
};

/// List the tokens of people; a run's token lives and dies with the run
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListTokens {
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListTokens {
    const COMMAND: (&'static str, &'static str) = ("token", "list");
    const COLUMNS: &'static [&'static str] =
        &["id", "actor", "name", "scope", "expires_at", "revoked_at", "created_at"];
    type Output = Listed<TokenShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let of_people = Filter::default().always("k.run_id is null");
        self.page.read(read, TokenShown::select(), "k", of_people, Order::OldestFirst, |shown: &TokenShown| {
            shown.token.id.uuid()
        })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}
