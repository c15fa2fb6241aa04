//! Looks up the rows that a batch of messages references, each row only once.

use std::collections::HashMap;

use trackway_domain::{
    Error as Rule, Id, Ref,
    kind::{self, Kind, Marker},
    text,
};
use trackway_store::{Writer, params, tables::Experiment};
use uuid::Uuid;

use crate::{
    error::Result,
    queue::runnable_task,
    route::{self, Destination, MatchingRoute},
};

/// The kinds of rows that a message can be addressed to by name.
const ADDRESSEES: &[Kind] = &[Kind::Agent, Kind::Person, Kind::Role];

#[derive(Debug, Default)]
pub(super) struct LookupCache {
    references: HashMap<(Kind, String), Uuid>,
    addressees: HashMap<String, (Kind, Uuid)>,
    experiments: HashMap<String, Experiment>,
    /// The key is the reference, and whether that exact version was requested.
    tasks: HashMap<(String, bool), Destination>,
    routes: HashMap<String, Vec<MatchingRoute>>,
}

impl LookupCache {
    pub(super) fn resolve<K: Marker>(
        &mut self,
        write: &mut Writer<'_>,
        reference: Option<&Ref<K>>,
    ) -> Result<Option<Id<K>>> {
        let Some(reference) = reference else {
            return Ok(None);
        };
        let key = (K::KIND, reference.as_str().to_owned());
        if let Some(known) = self.references.get(&key) {
            return Ok(Some((*known).into()));
        }
        let id = write.resolve(reference)?;
        self.references.insert(key, id.uuid());
        Ok(Some(id))
    }

    pub(super) fn addressee(&mut self, write: &mut Writer<'_>, name: &str) -> Result<(Kind, Uuid)> {
        if let Some(known) = self.addressees.get(name) {
            return Ok(*known);
        }
        let found = write.resolve_among(&text::clean_line(name), ADDRESSEES)?;
        self.addressees.insert(name.to_owned(), found);
        Ok(found)
    }

    pub(super) fn experiment(
        &mut self,
        write: &mut Writer<'_>,
        reference: &Ref<kind::Experiment>,
    ) -> Result<&Experiment> {
        if !self.experiments.contains_key(reference.as_str()) {
            let id = write.resolve(reference)?;
            let found = write
                .row::<Experiment>("where tenant_id = ?1 and id = ?2", params![id])?
                .ok_or_else(|| Rule::not_found(format!("there is no experiment {reference:?}")))?;
            self.experiments.insert(reference.as_str().to_owned(), found);
        }
        Ok(&self.experiments[reference.as_str()])
    }

    /// The queue destination of a message that is sent to a task.
    pub(super) fn task(
        &mut self,
        write: &mut Writer<'_>,
        reference: &Ref<kind::Task>,
        exact: bool,
    ) -> Result<Destination> {
        let key = (reference.as_str().to_owned(), exact);
        if let Some(known) = self.tasks.get(&key) {
            return Ok(known.clone());
        }
        let task = runnable_task(write, reference, None, exact)?;
        let workspace = write
            .one::<(Option<Id<kind::Workspace>>,)>(
                "select workspace_id from tasks where tenant_id = ?1 and id = ?2",
                params![task.id],
            )?
            .and_then(|(workspace,)| workspace);
        let destination = Destination {
            task: task.id,
            role: task.role,
            workspace,
            route: None,
            exact,
            variant_without_live_version: None,
        };
        self.tasks.insert(key, destination.clone());
        Ok(destination)
    }

    /// The routes that match a tag.
    pub(super) fn routes(&mut self, write: &mut Writer<'_>, tag: &str) -> Result<&[MatchingRoute]> {
        if !self.routes.contains_key(tag) {
            self.routes.insert(tag.to_owned(), route::routes_for_tag(write, tag)?);
        }
        Ok(&self.routes[tag])
    }
}
