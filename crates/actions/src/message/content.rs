//! Bodies: one row each, however many messages have it.

use sha2::{Digest, Sha256};
use trackway_domain::{Error as Rule, kind};
use trackway_store::{
    Writer,
    sql::{Param, places},
    tables::Content,
};
use uuid::Uuid;

use crate::{context::Context, error::Result};

/// The row of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub id: Uuid,
    /// Whether nobody had said it before.
    pub new: bool,
}

/// The one row of a body, made and indexed when there is none.
pub(crate) fn keep(context: &Context, write: &mut Writer<'_>, body: &str) -> Result<Kept> {
    let content = content_of(context, write, body, Sha256::digest(body.as_bytes()).to_vec());
    if write.insert_new(&content)? {
        write.index_content(&content)?;
        return Ok(Kept { id: content.id, new: true });
    }
    let known = write.contents_by_digest(std::slice::from_ref(&content.digest))?;
    let id = known.get(&content.digest).ok_or_else(|| Rule::conflict("a body that was just there is gone"))?;
    Ok(Kept { id: *id, new: false })
}

fn content_of(context: &Context, write: &Writer<'_>, body: &str, digest: Vec<u8>) -> Content {
    Content {
        id: write.new_id::<kind::Message>().uuid(),
        tenant_id: context.tenant,
        digest,
        body: body.to_owned(),
        created_at: write.now,
    }
}

/// The rows of several bodies, in their order. Whoever makes the same one at the same moment is told by the unique index,
/// and finds it when all of it is done again.
pub(crate) fn keep_all(context: &Context, write: &mut Writer<'_>, bodies: &[&str]) -> Result<Vec<Kept>> {
    let digests: Vec<Vec<u8>> = bodies.iter().map(|body| Sha256::digest(body.as_bytes()).to_vec()).collect();
    // Most bodies exist already: only their digests have to travel.
    let mut known = write.contents_by_digest(&digests)?;
    let mut kept = Vec::with_capacity(bodies.len());
    let mut new = Vec::new();
    for (body, digest) in bodies.iter().zip(digests) {
        if let Some(id) = known.get(&digest) {
            kept.push(Kept { id: *id, new: false });
            continue;
        }
        let content = content_of(context, write, body, digest);
        known.insert(content.digest.clone(), content.id);
        kept.push(Kept { id: content.id, new: true });
        new.push(content);
    }
    // Two who keep the same bodies wait for each other in the same order.
    new.sort_unstable_by(|one, other| one.digest.cmp(&other.digest));
    write.insert_all(&new)?;
    new.iter().try_for_each(|content| write.index_content(content))?;
    Ok(kept)
}

/// What a sweep took away.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Swept {
    pub bodies: i64,
    pub characters: i64,
}

/// Removes the bodies that no message has any more, and their words.
pub(crate) fn sweep(write: &mut Writer<'_>) -> Result<Swept> {
    sweep_where(write, "true", &[])
}

/// The same among these.
pub(crate) fn sweep_these(write: &mut Writer<'_>, contents: &[Uuid]) -> Result<Swept> {
    let values: Vec<Param<'_>> = contents.iter().copied().map(Param::Uuid).collect();
    sweep_where(write, &format!("id in ({})", places(2, contents.len())), &values)
}

fn sweep_where(write: &mut Writer<'_>, which: &str, params: &[Param<'_>]) -> Result<Swept> {
    let unused = format!(
        "contents where tenant_id = ?1 and {which} and not exists (select 1 from messages m where m.tenant_id = ?1 and m.content_id = contents.id)"
    );
    // A sender that found a body locks it until its message is inserted. The sweep waits for it here, then looks again.
    write.lock_rows(&format!("select id from {unused}"), params)?;
    let characters =
        write.count(&format!("select cast(coalesce(sum(length(body)), 0) as bigint) from {unused}"), params)?;
    let bodies = write.execute(&format!("delete from {unused}"), params)?;
    Ok(Swept { bodies: i64::try_from(bodies).unwrap_or(i64::MAX), characters })
}
