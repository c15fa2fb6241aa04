//! Tokens of people.

use serde::Deserialize;
use trackway_domain::Time;
use trackway_store::{Reader, Result, display::TokenRow, table::DisplayRow};

use crate::{
    page::{Filter, ListPage, Order, Page},
    view::View,
};

/// List the tokens of people; run tokens are not listed
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
    type Output = ListPage<TokenRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let of_people = Filter::default().require("k.run_id is null");
        self.page.read(read, TokenRow::select(), "k", of_people, Order::OldestFirst, |shown: &TokenRow| {
            shown.token.id.uuid()
        })
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}
