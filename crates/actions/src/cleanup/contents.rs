use serde::{Deserialize, Serialize};
use serde_json::json;
use trackway_domain::kind;
use trackway_store::Writer;

use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    error::Result,
    message::content,
    touched::NoTouches,
};

/// Remove message bodies that no message uses, and their search index entries
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct CleanupContents {}

#[derive(Debug, Serialize)]
pub struct ContentCleanupResult {
    pub removed: i64,
    pub characters: i64,
}

impl Action for CleanupContents {
    const NAME: &'static str = "cleanup_contents";
    const CAPABILITY: &'static str = "cleanup";
    const COMMAND: (&'static str, &'static str) = ("cleanup", "contents");
    type Touched = NoTouches;
    type Output = ContentCleanupResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let swept = content::remove_unused(write)?;
        let output = ContentCleanupResult { removed: swept.bodies, characters: swept.characters };
        if swept.bodies == 0 {
            return Ok(ActionOutcome::unchanged(output));
        }
        let tenant = Resource::<kind::Tenant>::new(context.tenant, "bodies without a message");
        let detail = json!({ "removed": swept.bodies, "characters": swept.characters });
        Ok(ActionOutcome::changed(output, &tenant, NoTouches).with_detail(detail))
    }
}
