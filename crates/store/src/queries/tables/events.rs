//! Rows that accompany every change: registry entries and events.

use serde_json::Value;
use trackway_domain::{Id, Time, enums::ActorKind, ids, kind};
use uuid::Uuid;

use crate::{
    store::{TenantId, Writer},
    table,
};

table! {
    /// A new registry entry.
    pub struct NewRegistryEntry in "registry" {
        id: Uuid,
        tenant_id: TenantId,
        kind: kind::Kind,
        display_path: String,
        short_key: i64,
        created_by: Option<Uuid>,
        created_at: Time,
    }
}

impl NewRegistryEntry {
    /// Creates the entry of a resource that belongs to no studio.
    pub fn new<K: kind::Marker>(write: &Writer<'_>, by: Uuid, id: Id<K>, display_path: &str) -> Self {
        Self {
            id: id.uuid(),
            tenant_id: write.tenant,
            kind: K::KIND,
            display_path: display_path.to_owned(),
            short_key: ids::short_key(id.uuid()),
            created_by: Some(by),
            created_at: write.now,
        }
    }
}

table! {
    /// A new event. The database assigns its position.
    pub struct NewEvent in "events" {
        request_id: Uuid,
        tenant_id: TenantId,
        created_at: Time,
        actor_kind: ActorKind,
        actor_id: Uuid,
        run_id: Option<Id<kind::Run>>,
        action: String,
        subject_kind: kind::Kind,
        subject_id: Uuid,
        subject_path: String,
        detail: Option<Value>,
    }
}
