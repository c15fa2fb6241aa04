//! Notifies a client about changed resources. Every new event makes the server read all watched resources again and
//! compare their digests, because an event does not tell which resources it changes.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use rmcp::{Peer, RoleServer, model::ResourceUpdatedNotificationParam, service::SubscriptionSink};
use tokio::sync::{broadcast::error::RecvError, watch};
use trackway_actions::context::Context;
use trackway_domain::Error as Rule;

use super::{Mcp, resources};
use crate::{live::Live, problem::Problem, site::Site};

/// Maximum number of watched resources of a client. Each is read again after every event.
const WATCHED_MAX: usize = 50;

/// The subscriptions of one client. HTTP requests share no state, so subscriptions exist only over standard input and
/// output.
#[derive(Debug)]
pub struct Subscriptions {
    live: OnceLock<Live>,
    /// Dropped when the client disconnects. Dropping it stops the polling of the log.
    stop: watch::Sender<bool>,
    /// Resources that the client subscribed to one by one.
    pub named: WatchedResources,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self { live: OnceLock::new(), stop: watch::Sender::new(false), named: WatchedResources::default() }
    }
}

/// Watched resources by URI, each with the digest of its last known text.
#[derive(Debug, Clone, Default)]
pub struct WatchedResources(Arc<Mutex<BTreeMap<String, u64>>>);

impl WatchedResources {
    fn digests(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a resource. Returns true if it is the only watched resource.
    pub fn add(&self, site: &Site, context: &Context, uri: &str) -> Result<bool, Problem> {
        let text = resources::whole(site, context, uri)?;
        let mut digests = self.digests();
        if digests.len() >= WATCHED_MAX && !digests.contains_key(uri) {
            return Err(Rule::usage(format!("a client can subscribe to at most {WATCHED_MAX} resources")).into());
        }
        digests.insert(uri.to_owned(), digest(&Ok(text)));
        Ok(digests.len() == 1)
    }

    pub fn remove(&self, uri: &str) {
        self.digests().remove(uri);
    }

    /// The resources whose text has changed. Updates their digests.
    fn changed(&self, site: &Site, context: &Context) -> Vec<String> {
        let before = self.digests().clone();
        let mut changed = Vec::new();
        for (uri, old) in before {
            let now = digest(&resources::whole(site, context, &uri));
            // The client may have unsubscribed meanwhile.
            if now != old && self.digests().get_mut(&uri).is_some_and(|known| std::mem::replace(known, now) != now) {
                changed.push(uri);
            }
        }
        changed
    }
}

/// An error, such as "not found" for a deleted resource, counts as a change, too.
fn digest(content: &Result<String, Problem>) -> u64 {
    let mut hasher = DefaultHasher::new();
    match content {
        Ok(text) => text.hash(&mut hasher),
        Err(problem) => problem.message.hash(&mut hasher),
    }
    hasher.finish()
}

/// The receiver of notifications.
#[derive(Debug)]
pub enum Subscriber {
    /// A client that subscribed to resources one by one.
    Peer(Peer<RoleServer>),
    /// A client that subscribed to several resources with one request.
    Sink(SubscriptionSink),
}

impl Subscriber {
    /// Notifies the client. Returns false if the client has disconnected.
    async fn notify(&self, uri: String) -> bool {
        match self {
            Self::Peer(peer) => peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await.is_ok(),
            Self::Sink(sink) => sink.notify_resource_updated(uri).await.is_ok(),
        }
    }
}

/// Notifies a client about changed resources until it has no subscriptions left or disconnects.
pub async fn notify_changes(
    mcp: Mcp,
    subscriptions: Arc<Subscriptions>,
    watched: WatchedResources,
    subscriber: Subscriber,
) -> Result<(), Problem> {
    let (site, tenant) = mcp.with_site(|site, context| Ok((site.clone(), context.tenant))).await?;
    let live = subscriptions.live.get_or_init(|| Live::new(site, subscriptions.stop.subscribe()));
    let (_, mut updates) = live.subscribe(tenant).await?;
    loop {
        // A lagging receiver loses nothing, because all watched resources are compared anyway.
        if let Err(RecvError::Closed) = updates.recv().await {
            return Ok(());
        }
        if watched.digests().is_empty() {
            return Ok(());
        }
        let compared = watched.clone();
        let changed = mcp.with_site(move |site, context| Ok(compared.changed(site, context))).await;
        // If the database is unavailable, the next update tries again.
        for uri in changed.unwrap_or_default() {
            if !subscriber.notify(uri).await {
                return Ok(());
            }
        }
    }
}
