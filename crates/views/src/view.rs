//! The [`View`] trait. The fields of a view type are its command-line flags, its query parameters and its MCP tool
//! input.

use serde::{Serialize, de::DeserializeOwned};
use trackway_domain::Time;
use trackway_store::{Reader, Result};

/// A read-only query. The doc comment of the type is its description on the command line, in the HTTP API and in MCP.
pub trait View: DeserializeOwned + schemars::JsonSchema + clap::Args + 'static {
    /// Noun and verb on the command line. The noun is empty for commands such as `ready` and `why`.
    const COMMAND: (&'static str, &'static str);
    /// A second name for the verb on the command line.
    const ALIAS: Option<&'static str> = None;
    /// The columns of the table on the command line. An empty list shows every field.
    const COLUMNS: &'static [&'static str] = &[];
    type Output: Serialize;

    /// Reads the result. Time-dependent fields, such as durations, are computed for `now`.
    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Self::Output>;

    /// The flag that requests the next page of a list, such as `--after 1a2b3c4d`. `None` on the last page.
    fn next_page(_: &Self::Output) -> Option<String> {
        None
    }

    /// A complete document, which the command line prints verbatim in every output format.
    fn document(_: &Self::Output) -> Option<String> {
        None
    }

    /// Limitations of this result, for example that only the newest rows were counted.
    fn remarks(_: &Self::Output) -> Vec<String> {
        Vec::new()
    }
}
