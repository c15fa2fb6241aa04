//! What an action touches, as part of its type. An action that touches nothing says [`Nothing`].

use std::marker::PhantomData;

use trackway_domain::{
    Id,
    kind::{ActionType, ResourceType, Studio, Touchable},
};
use uuid::Uuid;

use crate::action::Resource;

/// A touch that is about to be recorded.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub resource_type: ResourceType,
    pub resource_id: Uuid,
    pub studio: Option<Id<Studio>>,
    pub action_type: ActionType,
    pub path: String,
}

/// What an action touched. Its declaration is also the documentation.
pub trait Touched {
    /// Every pair of resource and action type that can come out.
    fn declared() -> Vec<(ResourceType, ActionType)>;
    fn recorded(self) -> Vec<Recorded>;
}

/// An action that touches no resource.
#[derive(Debug, Clone, Copy)]
pub struct Nothing;

impl Touched for Nothing {
    fn declared() -> Vec<(ResourceType, ActionType)> {
        Vec::new()
    }

    fn recorded(self) -> Vec<Recorded> {
        Vec::new()
    }
}

/// Resources of kind `K` to which `A` was done: none, one or many.
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

impl<K: Touchable, A: Did> Touched for Touch<K, A> {
    fn declared() -> Vec<(ResourceType, ActionType)> {
        vec![(K::RESOURCE, A::ACTION)]
    }

    fn recorded(self) -> Vec<Recorded> {
        let record = |resource: Resource<K>| Recorded {
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
    fn declared() -> Vec<(ResourceType, ActionType)> {
        [A::declared(), B::declared()].concat()
    }

    fn recorded(self) -> Vec<Recorded> {
        [self.0.recorded(), self.1.recorded()].concat()
    }
}

/// The resource of a `set`: created, or updated.
#[derive(Debug)]
pub struct CreatedOrUpdated<K> {
    created: Touch<K, did::Create>,
    updated: Touch<K, did::Update>,
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
    fn declared() -> Vec<(ResourceType, ActionType)> {
        <(Touch<K, did::Create>, Touch<K, did::Update>)>::declared()
    }

    fn recorded(self) -> Vec<Recorded> {
        (self.created, self.updated).recorded()
    }
}

/// A kind of deed, as a type.
pub trait Did: 'static {
    const ACTION: ActionType;
}

/// The deeds, a marker each.
pub mod did {
    use super::{ActionType, Did};

    macro_rules! deeds {
        ($($name:ident),* $(,)?) => {
            $(
                #[derive(Debug, Clone, Copy)]
                pub enum $name {}
                impl Did for $name {
                    const ACTION: ActionType = ActionType::$name;
                }
            )*
        };
    }

    deeds!(Create, Update, Delete, AddOption, Vote, Confirm, Commit, Close, Send, Pin, Archive, Report);
}
