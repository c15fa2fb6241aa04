//! Founding a tenant: what must be there before anyone can act.

use trackway_domain::{Id, Time, kind, text, words::Runner};
use trackway_store::{Writer, params, tables};
use uuid::Uuid;

use crate::{
    action::{About, Resource},
    catalog,
    context::{Actor, Context},
    core::{Core, again_while_others_are_first, append_event},
    error::Result,
    people,
};

/// The tenant of a database that nobody shares.
pub const LOCAL_TENANT: &str = "local";
/// The studio that is always there.
pub const MAIN_STUDIO: &str = "main";
/// The agent that takes queue items nobody else is named for.
pub const WORKER: &str = "worker";

impl Core {
    /// Makes a tenant with a person, the studio `main` and the agent `worker`. One that is there stays as it is.
    pub fn found(&self, tenant: &str, handle: &str) -> Result<bool> {
        let name = text::name("tenant name", tenant)?;
        let handle = text::name("handle", handle)?;
        let now = Time::now();
        let context = Context {
            tenant: Id::new(now),
            actor: Actor::Person(Id::new(now)),
            run: None,
            token: None,
            request: Uuid::now_v7(),
        };
        again_while_others_are_first(|| {
            let mut write = self.begin(&context)?;
            let known = write.query_unscoped::<(Uuid,)>("select id from tenants where name = ?1", params![name])?;
            if !known.is_empty() {
                return Ok(false);
            }
            furnish(&context, &mut write, &name, &handle)?;
            write.commit()?;
            Ok(true)
        })
    }
}

fn furnish(context: &Context, write: &mut Writer<'_>, name: &str, handle: &str) -> Result<()> {
    write.insert(&tables::Tenant { id: context.tenant, name: name.to_owned(), created_at: write.now })?;
    let tenant = Resource::outside(context.tenant, name);
    tenant.register(context, write)?;

    let person: Id<kind::Person> = context.actor.id().into();
    write.insert(&people::new_person(context, write, person, handle.to_owned()))?;
    Resource::outside(person, handle).register(context, write)?;

    let studio = catalog::studio::new(context, write, MAIN_STUDIO.to_owned());
    write.insert(&studio)?;
    Resource::outside(studio.id, MAIN_STUDIO).register(context, write)?;

    let mut worker = people::new_agent(context, write, WORKER.to_owned(), person);
    worker.max_items = None;
    worker.runner = Runner::Shell;
    write.insert(&worker)?;
    Resource::outside(worker.id, WORKER).register(context, write)?;

    append_event(context, write, "found_tenant", &About::from(&tenant))
}
