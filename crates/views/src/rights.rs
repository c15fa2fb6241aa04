//! What the caller may do: the scope of a token, the capabilities of an agent.

use trackway_domain::{Id, kind, words::TokenScope};
use trackway_store::{Reader, Result, params};

const CAPABILITIES: &str = "select handle, capabilities from agents where tenant_id = ?1 and id = ?2";
const SCOPE: &str = "select scope from tokens where tenant_id = ?1 and id = ?2";

/// The scope of a token.
pub fn scope(read: &mut Reader<'_>, token: Id<kind::Token>) -> Result<Option<TokenScope>> {
    Ok(read.one::<(TokenScope,)>(SCOPE, params![token])?.map(|(scope,)| scope))
}

/// The handle of an agent, and its capabilities if they were set.
pub fn capabilities(read: &mut Reader<'_>, agent: Id<kind::Agent>) -> Result<Option<(String, Option<Vec<String>>)>> {
    read.one(CAPABILITIES, params![agent])
}

/// Announces [`scope`], to be sent with the next query.
pub fn expect_scope(read: &mut Reader<'_>, token: Id<kind::Token>) -> Result<()> {
    read.expect(SCOPE, params![token])
}

/// Announces [`capabilities`], to be sent with the next query.
pub fn expect_capabilities(read: &mut Reader<'_>, agent: Id<kind::Agent>) -> Result<()> {
    read.expect(CAPABILITIES, params![agent])
}
