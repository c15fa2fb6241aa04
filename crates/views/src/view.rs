//! What a question is: one type whose fields are flags and query parameters, and one method.

use serde::{Serialize, de::DeserializeOwned};
use trackway_domain::Time;
use trackway_store::{Reader, Result};

/// A question. Its doc comment is its description at every door.
pub trait View: DeserializeOwned + schemars::JsonSchema + clap::Args + 'static {
    /// Its noun and verb on the command line; a question without a noun has an empty one.
    const COMMAND: (&'static str, &'static str);
    /// Another word for the verb.
    const ALIAS: Option<&'static str> = None;
    /// The columns of its table; none shows every field.
    const COLUMNS: &'static [&'static str] = &[];
    type Output: Serialize;

    /// Answers it, as of one moment.
    fn answer(&self, read: &mut Reader<'_>, now: Time) -> Result<Self::Output>;

    /// Where a list goes on, when it does.
    fn more(_: &Self::Output) -> Option<String> {
        None
    }

    /// The answer as a text that is printed as it is, whatever was asked for: a document of its own.
    fn document(_: &Self::Output) -> Option<String> {
        None
    }

    /// What has to be known to read the answer right.
    fn remarks(_: &Self::Output) -> Vec<String> {
        Vec::new()
    }
}
