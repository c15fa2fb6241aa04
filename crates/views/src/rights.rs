//! Queries for the permissions of a caller: token scope and agent capabilities.

use trackway_domain::{Id, enums::TokenScope, kind};
use trackway_store::{Reader, Result, params};

const CAPABILITIES: &str = "select handle, capabilities from agents where tenant_id = ?1 and id = ?2";
const SCOPE: &str = "select scope from tokens where tenant_id = ?1 and id = ?2";

pub fn token_scope(read: &mut Reader<'_>, token: Id<kind::Token>) -> Result<Option<TokenScope>> {
    Ok(read.one::<(TokenScope,)>(SCOPE, params![token])?.map(|(scope,)| scope))
}

/// The handle of an agent and its capabilities. The capabilities are `None` if nobody set them: the defaults apply.
pub fn agent_capabilities(
    read: &mut Reader<'_>,
    agent: Id<kind::Agent>,
) -> Result<Option<(String, Option<Vec<String>>)>> {
    read.one(CAPABILITIES, params![agent])
}

/// Prefetches [`token_scope`]: the next query sends it along, which saves a round trip.
pub fn prefetch_token_scope(read: &mut Reader<'_>, token: Id<kind::Token>) -> Result<()> {
    read.prefetch(SCOPE, params![token])
}

/// Prefetches [`agent_capabilities`]: the next query sends it along, which saves a round trip.
pub fn prefetch_agent_capabilities(read: &mut Reader<'_>, agent: Id<kind::Agent>) -> Result<()> {
    read.prefetch(CAPABILITIES, params![agent])
}
