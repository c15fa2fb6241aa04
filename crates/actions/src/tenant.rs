//! Initialising a tenant: the rows that must exist before anyone can act.

use trackway_domain::{Id, enums::Runner, kind, text};
use trackway_store::{TenantId, Writer, params, tables};
use uuid::Uuid;

use crate::{
    action::{Resource, Subject},
    agent,
    context::{Actor, Context},
    core::{Core, append_event, retry_on_conflict},
    error::Result,
    person, studio,
};

/// The default tenant.
pub const LOCAL_TENANT: &str = "local";
/// The studio that every tenant has.
pub const MAIN_STUDIO: &str = "main";
/// The handle of the agent that takes queue items which name no agent.
pub const WORKER: &str = "worker";

/// The parts of a tenant that [`Core::init_tenant`] created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitResult {
    /// The tenant and all its parts.
    CreatedTenant,
    /// This many missing parts of an existing tenant.
    CreatedParts(usize),
}

impl Core {
    /// Creates a tenant with a person, the studio `main` and the agent `worker`. Existing rows are not changed.
    pub fn init_tenant(&self, tenant: &str, handle: &str) -> Result<InitResult> {
        let name = text::check_name("tenant name", tenant)?;
        let handle = text::check_name("handle", handle)?;
        retry_on_conflict(|| {
            let known = self.find_tenant(&name)?;
            let now = self.now();
            let mut context = Context {
                tenant: known.unwrap_or_else(|| Id::new(now)),
                actor: Actor::Person(Id::new(now)),
                run: None,
                token: None,
                unregistered_handle: None,
                request: Uuid::now_v7(),
            };
            let mut write = self.begin(&context)?;
            if known.is_none() {
                write.insert(&tables::Tenant { id: context.tenant, name: name.clone(), created_at: write.now })?;
            }
            let parts = create_missing_parts(&mut context, &mut write, &handle)?;
            if known.is_none() {
                let tenant = Resource::new(context.tenant, name.as_str());
                tenant.register(&context, &mut write)?;
                append_event(&context, &mut write, "found_tenant", &Subject::from(&tenant), None)?;
            }
            write.commit()?;
            Ok(if known.is_none() { InitResult::CreatedTenant } else { InitResult::CreatedParts(parts) })
        })
    }

    fn find_tenant(&self, name: &str) -> Result<Option<TenantId>> {
        let mut reader = self.store().read(Uuid::nil().into())?;
        let known = reader.query_unscoped::<(TenantId,)>("select id from tenants where name = ?1", params![name])?;
        Ok(known.first().map(|(id,)| *id))
    }
}

/// Creates the person, the studio and the agent if they are missing, and returns how many it created.
fn create_missing_parts(context: &mut Context, write: &mut Writer<'_>, handle: &str) -> Result<usize> {
    let mut created = 0;
    let select_live =
        |table, column| format!("select id from {table} where tenant_id = ?1 and {column} = ?2 and deleted_at is null");
    if let Some((person,)) = write.one::<(Id<kind::Person>,)>(&select_live("people", "handle"), params![handle])? {
        context.actor = Actor::Person(person);
    } else {
        let person = person::new(context, write, context.actor.id().into(), handle.to_owned());
        write.insert(&person)?;
        register_part(context, write, person.id, handle)?;
        created += 1;
    }
    if write.one::<(Uuid,)>(&select_live("studios", "name"), params![MAIN_STUDIO])?.is_none() {
        let studio = studio::set::new(context, write, MAIN_STUDIO.to_owned());
        write.insert(&studio)?;
        register_part(context, write, studio.id, MAIN_STUDIO)?;
        created += 1;
    }
    if write.one::<(Uuid,)>(&select_live("agents", "handle"), params![WORKER])?.is_none() {
        let mut worker = agent::new(context, write, WORKER.to_owned(), context.actor.id().into());
        worker.max_items = None;
        worker.runner = Runner::Shell;
        write.insert(&worker)?;
        register_part(context, write, worker.id, WORKER)?;
        created += 1;
    }
    Ok(created)
}

/// Adds a new part to the registry and to the event log.
fn register_part<K: kind::Marker>(context: &Context, write: &mut Writer<'_>, id: Id<K>, path: &str) -> Result<()> {
    let part = Resource::new(id, path);
    part.register(context, write)?;
    append_event(context, write, "found_part", &Subject::from(&part), None)
}
