//! Message bodies. All messages with the same body share one content row.

use sha2::{Digest, Sha256};
use trackway_domain::{Error as Rule, kind};
use trackway_store::{
    Writer,
    sql::{Param, placeholders},
    tables::Content,
};
use uuid::Uuid;

use crate::{context::Context, error::Result};

/// The content row of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredContent {
    pub id: Uuid,
    /// Whether this is the first message with this body.
    pub new: bool,
}

/// Returns the content row of a body. Inserts and indexes it if there is none.
pub(crate) fn store(context: &Context, write: &mut Writer<'_>, body: &str) -> Result<StoredContent> {
    let content = content_of(context, write, body, Sha256::digest(body.as_bytes()).to_vec());
    if write.insert_new(&content)? {
        write.index_content(&content)?;
        return Ok(StoredContent { id: content.id, new: true });
    }
    let known = write.contents_by_digest(std::slice::from_ref(&content.digest))?;
    let id = known
        .get(&content.digest)
        .ok_or_else(|| Rule::conflict("another transaction removed the message body; try again"))?;
    Ok(StoredContent { id: *id, new: false })
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

/// Returns the content rows of several bodies, in the order of the bodies. If a concurrent transaction inserts one of
/// them first, the unique index makes this transaction fail, and its retry finds the row.
pub(crate) fn store_all(context: &Context, write: &mut Writer<'_>, bodies: &[&str]) -> Result<Vec<StoredContent>> {
    let digests: Vec<Vec<u8>> = bodies.iter().map(|body| Sha256::digest(body.as_bytes()).to_vec()).collect();
    // Most bodies exist already, so look them up by digest before sending any body to the server.
    let mut known = write.contents_by_digest(&digests)?;
    let mut stored = Vec::with_capacity(bodies.len());
    let mut new = Vec::new();
    for (body, digest) in bodies.iter().zip(digests) {
        if let Some(id) = known.get(&digest) {
            stored.push(StoredContent { id: *id, new: false });
            continue;
        }
        let content = content_of(context, write, body, digest);
        known.insert(content.digest.clone(), content.id);
        stored.push(StoredContent { id: content.id, new: true });
        new.push(content);
    }
    // Insert in the order of the digests, so that concurrent transactions cannot deadlock.
    new.sort_unstable_by(|one, other| one.digest.cmp(&other.digest));
    write.insert_all(&new)?;
    new.iter().try_for_each(|content| write.index_content(content))?;
    Ok(stored)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RemovedContents {
    pub bodies: i64,
    pub characters: i64,
}

/// Removes the bodies that no message uses, and their search index entries.
pub(crate) fn remove_unused(write: &mut Writer<'_>) -> Result<RemovedContents> {
    remove_unused_where(write, "true", &[])
}

pub(crate) fn remove_unused_among(write: &mut Writer<'_>, contents: &[Uuid]) -> Result<RemovedContents> {
    let values: Vec<Param<'_>> = contents.iter().copied().map(Param::Uuid).collect();
    remove_unused_where(write, &format!("id in ({})", placeholders(2, contents.len())), &values)
}

fn remove_unused_where(write: &mut Writer<'_>, which: &str, params: &[Param<'_>]) -> Result<RemovedContents> {
    let unused = format!(
        "contents where tenant_id = ?1 and {which} and not exists (select 1 from messages m where m.tenant_id = ?1 and m.content_id = contents.id)"
    );
    // A sender locks the body that it found until its message is inserted. Wait for such senders here; the delete
    // below then sees their messages.
    write.lock_rows(&format!("select id from {unused}"), params)?;
    let characters =
        write.count(&format!("select cast(coalesce(sum(length(body)), 0) as bigint) from {unused}"), params)?;
    let bodies = write.execute(&format!("delete from {unused}"), params)?;
    Ok(RemovedContents { bodies: i64::try_from(bodies).unwrap_or(i64::MAX), characters })
}
