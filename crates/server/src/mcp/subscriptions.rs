//! Resources that a client wants to hear of. The log says that something happened; what a resource says now, compared
//! with what it said before, says whether it was this one.

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

/// Resources of one client: each is read whenever something happens.
const MOST: usize = 50;

/// What one client follows. Over HTTP nothing is remembered between requests, so there it is not offered.
#[derive(Debug)]
pub struct Subscriptions {
    live: OnceLock<Live>,
    /// Stays open as long as the client: what follows the log ends with it.
    stop: watch::Sender<bool>,
    /// For clients that name resources one by one.
    pub named: Followed,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self { live: OnceLock::new(), stop: watch::Sender::new(false), named: Followed::default() }
    }
}

/// Resources by their address, with a digest of what each of them said.
#[derive(Debug, Clone, Default)]
pub struct Followed(Arc<Mutex<BTreeMap<String, u64>>>);

impl Followed {
    fn said(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the first.
    pub fn add(&self, site: &Site, context: &Context, uri: &str) -> Result<bool, Problem> {
        let said = resources::whole(site, context, uri)?;
        let mut followed = self.said();
        if followed.len() >= MOST && !followed.contains_key(uri) {
            return Err(Rule::usage(format!("at most {MOST} resources can be followed")).into());
        }
        followed.insert(uri.to_owned(), digest(&Ok(said)));
        Ok(followed.len() == 1)
    }

    pub fn remove(&self, uri: &str) {
        self.said().remove(uri);
    }

    /// Those that say something else than before.
    fn changed(&self, site: &Site, context: &Context) -> Vec<String> {
        let before = self.said().clone();
        let mut changed = Vec::new();
        for (uri, said) in before {
            let now = digest(&resources::whole(site, context, &uri));
            // It may have been taken out meanwhile.
            if now != said && self.said().get_mut(&uri).is_some_and(|known| std::mem::replace(known, now) != now) {
                changed.push(uri);
            }
        }
        changed
    }
}

/// One that is gone says so, which is news, too.
fn digest(said: &Result<String, Problem>) -> u64 {
    let mut hasher = DefaultHasher::new();
    match said {
        Ok(text) => text.hash(&mut hasher),
        Err(problem) => problem.message.hash(&mut hasher),
    }
    hasher.finish()
}

/// Who is told.
#[derive(Debug)]
pub enum Listener {
    /// A client that named resources one by one.
    Peer(Peer<RoleServer>),
    /// One that asked for all of them at once.
    Sink(SubscriptionSink),
}

impl Listener {
    /// Whether it is still there.
    async fn hears(&self, uri: String) -> bool {
        match self {
            Self::Peer(peer) => peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await.is_ok(),
            Self::Sink(sink) => sink.notify_resource_updated(uri).await.is_ok(),
        }
    }
}

/// Tells of every resource that changes, until there is none left or nobody to tell.
pub async fn follow(
    mcp: Mcp,
    subscriptions: Arc<Subscriptions>,
    followed: Followed,
    listener: Listener,
) -> Result<(), Problem> {
    let (site, tenant) = mcp.entered(|site, context| Ok((site.clone(), context.tenant))).await?;
    let live = subscriptions.live.get_or_init(|| Live::new(site, subscriptions.stop.subscribe()));
    let (_, mut news) = live.watch(tenant).await?;
    loop {
        // Whatever was missed: everything is compared anyway.
        if let Err(RecvError::Closed) = news.recv().await {
            return Ok(());
        }
        if followed.said().is_empty() {
            return Ok(());
        }
        let compared = followed.clone();
        let changed = mcp.entered(move |site, context| Ok(compared.changed(site, context))).await;
        // A database that is away now is asked again with the next news.
        for uri in changed.unwrap_or_default() {
            if !listener.hears(uri).await {
                return Ok(());
            }
        }
    }
}
