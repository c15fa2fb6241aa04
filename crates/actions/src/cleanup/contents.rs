//! Taking away bodies that no message has any more.

use serde::{Deserialize, Serialize};
use serde_json::json;
use trackway_domain::kind;
use trackway_store::Writer;

use crate::{
    action::{Action, Done, Resource},
    context::Context,
    error::Result,
    message::content,
    touched::Nothing,
};

/// Remove bodies that no message has any more, and their words from the search
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupContents {}

/// What was removed.
#[derive(Debug, Serialize)]
pub struct SweptContents {
    pub removed: i64,
    pub characters: i64,
}

impl Action for CleanupContents {
    const NAME: &'static str = "cleanup_contents";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "contents");
    type Touched = Nothing;
    type Output = SweptContents;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let swept = content::sweep(write)?;
        let output = SweptContents { removed: swept.bodies, characters: swept.characters };
        if swept.bodies == 0 {
            return Ok(Done::unchanged(output));
        }
        let tenant = Resource::<kind::Tenant>::outside(context.tenant, "bodies without a message");
        let detail = json!({ "removed": swept.bodies, "characters": swept.characters });
        Ok(Done::changed(output, &tenant, Nothing).with_detail(detail))
    }
}
