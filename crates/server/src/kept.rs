//! Pages that are still true: while nothing is written, what was made once is shown again.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{body::Bytes, http};
use trackway_actions::Core;
use trackway_store::Moment;

use crate::format::Format;

/// A page as it is sent.
pub type Sent = http::Response<Bytes>;

/// How long one is shown: pages also tell of times, and tokens end.
const TRUE_FOR: Duration = Duration::from_secs(1);
/// How many are kept, and how large they may be.
const KEPT_MAX: usize = 256;
const BYTES_MAX: usize = 100_000;

/// Whose page it is, and which.
#[derive(PartialEq, Eq, Hash)]
pub struct Name {
    pub token: String,
    pub path: String,
    pub query: String,
    pub format: Format,
}

struct Page {
    moment: Moment,
    made: Instant,
    sent: Sent,
}

/// The pages of late.
#[derive(Default)]
pub struct Kept(Mutex<HashMap<Name, Page>>);

// It holds tokens.
impl fmt::Debug for Kept {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Kept").finish_non_exhaustive()
    }
}

/// What a server said last of the moment. Those who come while it is asked share what it says next, and take one thread
/// for all of them.
#[derive(Debug, Default)]
pub struct Told(tokio::sync::Mutex<Option<(Instant, Moment)>>);

impl Told {
    /// The moment now, or a later one.
    pub async fn moment(&self, core: &Arc<Core>) -> Option<Moment> {
        let came = Instant::now();
        let mut last = self.0.lock().await;
        if let Some((_, moment)) = last.as_ref().filter(|(asked, _)| *asked >= came) {
            return Some(moment.clone());
        }
        let (asked, core) = (Instant::now(), Arc::clone(core));
        let moment = tokio::task::spawn_blocking(move || core.store().moment()).await.ok()?.ok()?;
        *last = Some((asked, moment.clone()));
        Some(moment)
    }
}

impl Kept {
    /// Whether there is such a page that may still be true.
    pub fn has(&self, name: &Name) -> bool {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.get(name).is_some_and(|page| page.made.elapsed() < TRUE_FOR)
    }

    /// A page that was made at this moment.
    pub fn get(&self, name: &Name, moment: &Moment) -> Option<Sent> {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let page = pages.get(name).filter(|page| page.moment == *moment && page.made.elapsed() < TRUE_FOR)?;
        Some(page.sent.clone())
    }

    /// Keeps a page. The moment is one before it was made: whatever was written since makes it untrue.
    pub fn keep(&self, name: Name, moment: Moment, made: Instant, sent: &Sent) {
        if sent.body().len() > BYTES_MAX {
            return;
        }
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() >= KEPT_MAX {
            pages.retain(|_, page| page.moment == moment && page.made.elapsed() < TRUE_FOR);
        }
        if pages.len() < KEPT_MAX {
            pages.insert(name, Page { moment, made, sent: sent.clone() });
        }
    }
}
