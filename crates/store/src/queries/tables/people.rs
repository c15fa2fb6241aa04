//! Tenants, people and API tokens.

use trackway_domain::{
    Id, Time,
    enums::{ActorKind, TokenScope},
    kind,
};
use uuid::Uuid;

use crate::{store::TenantId, table};

table! {
    pub struct Tenant in "tenants" {
        id: TenantId,
        name: String,
        created_at: Time,
    }
}

table! {
    pub struct Person in "people" {
        id: Id<kind::Person>,
        #[serde(skip)] tenant_id: TenantId,
        handle: String,
        name: Option<String>,
        created_at: Time,
        updated_at: Time,
        #[serde(skip)] deleted_at: Option<Time>,
    }
}

table! {
    pub struct Token in "tokens" {
        id: Id<kind::Token>,
        #[serde(skip)] tenant_id: TenantId,
        #[serde(skip)] hash: Vec<u8>,
        actor_kind: ActorKind,
        actor_id: Uuid,
        run_id: Option<Id<kind::Run>>,
        name: Option<String>,
        expires_at: Option<Time>,
        revoked_at: Option<Time>,
        created_at: Time,
        scope: TokenScope,
    }
}
