//! Caches rendered pages. A cached page is valid until the next write to the database, and for at most a second.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{body::Bytes, http};
use trackway_actions::Core;
use trackway_store::DataVersion;

use crate::format::Format;

/// A rendered page, ready to be sent.
pub type RenderedPage = http::Response<Bytes>;

/// Maximum age of a cached page. Pages also depend on the clock: they show times, and tokens expire.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Maximum number of cached pages.
const PAGES_MAX: usize = 256;
/// Maximum size of a cached page, in bytes.
const BYTES_MAX: usize = 100_000;

/// Identifies a cached page. The token is part of the key, because pages depend on the caller.
#[derive(PartialEq, Eq, Hash)]
pub struct CacheKey {
    pub token: String,
    pub path: String,
    pub query: String,
    pub format: Format,
}

struct CachedPage {
    version: DataVersion,
    rendered_at: Instant,
    response: RenderedPage,
}

/// The cache of rendered pages.
#[derive(Default)]
pub struct PageCache(Mutex<HashMap<CacheKey, CachedPage>>);

// The keys contain tokens, which must not be printed.
impl fmt::Debug for PageCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PageCache").finish_non_exhaustive()
    }
}

/// The newest known version of a database server. Requests that arrive during a query for the version wait for the next
/// query and share its result, so that they occupy only one thread.
#[derive(Debug, Default)]
pub struct VersionCache(tokio::sync::Mutex<Option<(Instant, DataVersion)>>);

impl VersionCache {
    /// The current version of the database.
    pub async fn current(&self, core: &Arc<Core>) -> Option<DataVersion> {
        let arrived = Instant::now();
        let mut last = self.0.lock().await;
        if let Some((_, version)) = last.as_ref().filter(|(asked_at, _)| *asked_at >= arrived) {
            return Some(version.clone());
        }
        let (asked_at, core) = (Instant::now(), Arc::clone(core));
        let version = tokio::task::spawn_blocking(move || core.store().data_version()).await.ok()?.ok()?;
        *last = Some((asked_at, version.clone()));
        Some(version)
    }
}

impl PageCache {
    /// True if the page is cached and young enough. It may still turn out to be outdated.
    pub fn contains(&self, key: &CacheKey) -> bool {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.get(key).is_some_and(|page| page.rendered_at.elapsed() < MAX_AGE)
    }

    /// The cached page, if it was rendered at this version of the database.
    pub fn get(&self, key: &CacheKey, version: &DataVersion) -> Option<RenderedPage> {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let page = pages.get(key).filter(|page| page.version == *version && page.rendered_at.elapsed() < MAX_AGE)?;
        Some(page.response.clone())
    }

    /// Stores a page. The version must have been read before rendering began, so that any write since then invalidates
    /// the page.
    pub fn insert(&self, key: CacheKey, version: DataVersion, rendered_at: Instant, response: &RenderedPage) {
        if response.body().len() > BYTES_MAX {
            return;
        }
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() >= PAGES_MAX {
            pages.retain(|_, page| page.version == version && page.rendered_at.elapsed() < MAX_AGE);
        }
        if pages.len() < PAGES_MAX {
            pages.insert(key, CachedPage { version, rendered_at, response: response.clone() });
        }
    }
}
