//! The touches of an action, as part of its type. An action without touches declares [`NoTouches`].

use std::marker::PhantomData;

use trackway_domain::{
    Id,
    kind::{ActionType, ResourceType, Studio, Touchable},
};
use uuid::Uuid;

use crate::action::Resource;

/// A touch to be recorded.
#[derive(Debug, Clone)]
pub struct TouchRecord {
    pub resource_type: ResourceType,
    pub resource_id: Uuid,
    pub studio: Option<Id<Studio>>,
    pub action_type: ActionType,
    pub path: String,
}

/// The touches of an executed action.
pub trait Touched {
    /// All pairs of resource type and action type that the action may record. The documentation lists them.
    fn declared_touches() -> Vec<(ResourceType, ActionType)>;
    fn into_records(self) -> Vec<TouchRecord>;
}

/// The touches of an action that touches no resource.
#[derive(Debug, Clone, Copy)]
pub struct NoTouches;

impl Touched for NoTouches {
    fn declared_touches() -> Vec<(ResourceType, ActionType)> {
        Vec::new()
    }

    fn into_records(self) -> Vec<TouchRecord> {
        Vec::new()
    }
}

/// Touches of type `A` on any number of resources of kind `K`.
#[derive(Debug)]
pub struct Touch<K, A> {
    resources: Vec<Resource<K>>,
    action: PhantomData<fn() -> A>,
}

impl<K, A> Touch<K, A> {
    pub fn one(resource: Resource<K>) -> Self {
        Self::many([resource])
    }

    pub fn many(resources: impl IntoIterator<Item = Resource<K>>) -> Self {
        Self { resources: resources.into_iter().collect(), action: PhantomData }
    }

    pub fn none() -> Self {
        Self::many([])
    }
}

impl<K: Touchable, A: TouchAction> Touched for Touch<K, A> {
    fn declared_touches() -> Vec<(ResourceType, ActionType)> {
        vec![(K::RESOURCE, A::ACTION)]
    }

    fn into_records(self) -> Vec<TouchRecord> {
        let record = |resource: Resource<K>| TouchRecord {
            resource_type: K::RESOURCE,
            resource_id: resource.id.uuid(),
            studio: resource.studio,
            action_type: A::ACTION,
            path: resource.path,
        };
        self.resources.into_iter().map(record).collect()
    }
}

impl<A: Touched, B: Touched> Touched for (A, B) {
    fn declared_touches() -> Vec<(ResourceType, ActionType)> {
        [A::declared_touches(), B::declared_touches()].concat()
    }

    fn into_records(self) -> Vec<TouchRecord> {
        [self.0.into_records(), self.1.into_records()].concat()
    }
}

/// The touch of an action that creates or updates a resource.
#[derive(Debug)]
pub struct CreatedOrUpdated<K> {
    created: Touch<K, action_type::Create>,
    updated: Touch<K, action_type::Update>,
}

impl<K> CreatedOrUpdated<K> {
    pub fn created(resource: Resource<K>) -> Self {
        Self { created: Touch::one(resource), updated: Touch::none() }
    }

    pub fn updated(resource: Resource<K>) -> Self {
        Self { created: Touch::none(), updated: Touch::one(resource) }
    }
}

impl<K: Touchable> Touched for CreatedOrUpdated<K> {
    fn declared_touches() -> Vec<(ResourceType, ActionType)> {
        <(Touch<K, action_type::Create>, Touch<K, action_type::Update>)>::declared_touches()
    }

    fn into_records(self) -> Vec<TouchRecord> {
        (self.created, self.updated).into_records()
    }
}

/// An [`ActionType`] as a type.
pub trait TouchAction: 'static {
    const ACTION: ActionType;
}

/// One marker type for each [`ActionType`] of a touch.
pub mod action_type {
    use super::{ActionType, TouchAction};

    macro_rules! touch_actions {
        ($($name:ident),* $(,)?) => {
            $(
                #[derive(Debug, Clone, Copy)]
                pub enum $name {}
                impl TouchAction for $name {
                    const ACTION: ActionType = ActionType::$name;
                }
            )*
        };
    }

    touch_actions!(Create, Update, Delete, AddOption, Vote, Confirm, Commit, Close, Send, Pin, Archive, Report);
}
