//! Bodies: one row each, however many messages have it.

use sha2::{Digest, Sha256};
use trackway_domain::kind;
use trackway_store::{Engine, Writer, params, tables::Content};
use uuid::Uuid;

use crate::{context::Context, error::Result};

/// The row of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub id: Uuid,
    /// Whether nobody had said it before.
    pub new: bool,
}

/// The one row of a body, made and indexed when there is none. Whoever makes the same one at the same moment is told by
/// the unique index, and finds it when all of it is done again.
pub(crate) fn keep(context: &Context, write: &mut Writer<'_>, body: &str) -> Result<Kept> {
    let digest = Sha256::digest(body.as_bytes()).to_vec();
    // Looked for first: most bodies were said before, and only their digest has to travel. Held, so that no sweep takes
    // it away before its message stands.
    let held = match write.engine() {
        Engine::Sqlite => "",
        Engine::Postgres => " for key share",
    };
    let known = write.one::<(Uuid,)>(
        &format!("select id from contents where tenant_id = ?1 and digest = ?2{held}"),
        params![digest],
    )?;
    if let Some((id,)) = known {
        return Ok(Kept { id, new: false });
    }
    let content = Content {
        id: write.new_id::<kind::Message>().uuid(),
        tenant_id: context.tenant,
        digest,
        body: body.to_owned(),
        created_at: write.now,
    };
    write.insert(&content)?;
    write.index_content(&content)?;
    Ok(Kept { id: content.id, new: true })
}

/// What a sweep took away.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Swept {
    pub bodies: i64,
    pub characters: i64,
}

/// Removes the bodies that no message has any more, and their words.
pub(crate) fn sweep(write: &mut Writer<'_>) -> Result<Swept> {
    let unused = "contents where tenant_id = ?1 and not exists (select 1 from messages m where m.tenant_id = ?1 and m.content_id = contents.id)";
    if write.engine() == Engine::Postgres {
        // A sender that found a body holds it until its message stands: the sweep waits for it here, and looks again.
        write.query::<(Uuid,)>(&format!("select id from {unused} for update"), &[])?;
    }
    let characters =
        write.count(&format!("select cast(coalesce(sum(length(body)), 0) as bigint) from {unused}"), &[])?;
    let bodies = write.execute(&format!("delete from {unused}"), &[])?;
    Ok(Swept { bodies: i64::try_from(bodies).unwrap_or(i64::MAX), characters })
}
