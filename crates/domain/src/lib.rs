//! Types and rules of Trackway. Pure: no I/O, and no clock but what is passed in.

pub mod capability;
pub mod close_matches;
pub mod closing;
pub mod duration;
pub mod error;
pub mod ids;
pub mod junit;
pub mod kind;
pub mod line_trace;
pub mod match_ladder;
pub mod observed;
pub mod patch;
pub mod plain_path;
pub mod queue;
pub mod reference;
pub mod replacement_graph;
pub mod report;
pub mod scratchpad;
pub mod search_query;
pub mod search_words;
pub mod snippet;
pub mod spawn;
pub mod text;
pub mod time;
pub mod variant;
pub mod vote_results;
pub mod wake_context;
pub mod wake_document;
pub mod words;

pub use duration::Duration;
pub use error::{Error, ErrorKind, Result};
pub use ids::Id;
pub use patch::Patch;
pub use reference::Ref;
pub use time::Time;
pub use variant::Variant;
