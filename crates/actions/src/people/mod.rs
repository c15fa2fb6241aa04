//! Actors: people and agents.

mod agent;
mod person;

pub use agent::SetAgent;
pub(crate) use agent::new as new_agent;
pub use person::SetPerson;
pub(crate) use person::new as new_person;
