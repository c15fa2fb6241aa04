//! Founding a tenant: what must be there before anyone can act.

use trackway_domain::{Id, kind, text, words::Runner};
use trackway_store::{TenantId, Writer, params, tables};
use uuid::Uuid;

use crate::{
    action::{About, Resource},
    agent,
    context::{Actor, Context},
    core::{Core, again_while_others_are_first, append_event},
    error::Result,
    person, studio,
};

/// The tenant of a database that nobody shares.
pub const LOCAL_TENANT: &str = "local";
/// The studio that is always there.
pub const MAIN_STUDIO: &str = "main";
/// The agent that takes queue items nobody else is named for.
pub const WORKER: &str = "worker";

/// What founding found missing and made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Founded {
    /// The tenant, and everything in it.
    Tenant,
    /// The tenant was there; this many of its parts were not.
    Parts(usize),
}

impl Core {
    /// Sees to it that a tenant is there with a person, the studio `main` and the agent `worker`. What is there stays
    /// as it is.
    pub fn found(&self, tenant: &str, handle: &str) -> Result<Founded> {
        let name = text::name("tenant name", tenant)?;
        let handle = text::name("handle", handle)?;
        again_while_others_are_first(|| {
            let known = self.tenant_named(&name)?;
            let now = self.now();
            let mut context = Context {
                tenant: known.unwrap_or_else(|| Id::new(now)),
                actor: Actor::Person(Id::new(now)),
                run: None,
                token: None,
                newcomer: None,
                request: Uuid::now_v7(),
            };
            let mut write = self.begin(&context)?;
            if known.is_none() {
                write.insert(&tables::Tenant { id: context.tenant, name: name.clone(), created_at: write.now })?;
            }
            let parts = furnish(&mut context, &mut write, &handle)?;
            if known.is_none() {
                let tenant = Resource::outside(context.tenant, name.as_str());
                tenant.register(&context, &mut write)?;
                append_event(&context, &mut write, "found_tenant", &About::from(&tenant), None)?;
            }
            write.commit()?;
            Ok(if known.is_none() { Founded::Tenant } else { Founded::Parts(parts) })
        })
    }

    fn tenant_named(&self, name: &str) -> Result<Option<TenantId>> {
        let mut reader = self.store().read(Uuid::nil().into())?;
        let known = reader.query_unscoped::<(TenantId,)>("select id from tenants where name = ?1", params![name])?;
        Ok(known.first().map(|(id,)| *id))
    }
}

/// Makes the person, the studio and the agent where they are missing, and says how many were.
fn furnish(context: &mut Context, write: &mut Writer<'_>, handle: &str) -> Result<usize> {
    let mut made = 0;
    let live =
        |table, column| format!("select id from {table} where tenant_id = ?1 and {column} = ?2 and deleted_at is null");
    if let Some((person,)) = write.one::<(Id<kind::Person>,)>(&live("people", "handle"), params![handle])? {
        context.actor = Actor::Person(person);
    } else {
        let person = person::new(context, write, context.actor.id().into(), handle.to_owned());
        write.insert(&person)?;
        enter(context, write, person.id, handle)?;
        made += 1;
    }
    if write.one::<(Uuid,)>(&live("studios", "name"), params![MAIN_STUDIO])?.is_none() {
        let studio = studio::set::new(context, write, MAIN_STUDIO.to_owned());
        write.insert(&studio)?;
        enter(context, write, studio.id, MAIN_STUDIO)?;
        made += 1;
    }
    if write.one::<(Uuid,)>(&live("agents", "handle"), params![WORKER])?.is_none() {
        let mut worker = agent::new(context, write, WORKER.to_owned(), context.actor.id().into());
        worker.max_items = None;
        worker.runner = Runner::Shell;
        write.insert(&worker)?;
        enter(context, write, worker.id, WORKER)?;
        made += 1;
    }
    Ok(made)
}

/// Registers a part and logs that it was made.
fn enter<K: kind::Marker>(context: &Context, write: &mut Writer<'_>, id: Id<K>, path: &str) -> Result<()> {
    let part = Resource::outside(id, path);
    part.register(context, write)?;
    append_event(context, write, "found_part", &About::from(&part), None)
}
