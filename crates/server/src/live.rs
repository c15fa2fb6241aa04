//! What happens, as it happens: one look at the log twice a second for each tenant that somebody watches.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use trackway_domain::{Time, kind::Kind};
use trackway_store::{TenantId, params};
use uuid::Uuid;

use crate::{problem::Problem, site::Site};

/// How often the log is looked at.
const EVERY: Duration = Duration::from_millis(500);
/// The newest of the log that is compared. On PostgreSQL a later number may be there before an earlier one.
const COMPARED: i64 = 200;
/// Events told of at once.
const TOLD_MAX: i64 = 50;

/// How far the log has come, as far as it can be told.
type Mark = (i64, i64);

/// Who watches what.
#[derive(Clone)]
pub struct Live {
    site: Site,
    watched: Arc<Mutex<HashMap<TenantId, watch::Sender<Mark>>>>,
    /// Becomes true when the server is to stop: streams end then.
    stop: watch::Receiver<bool>,
}

impl fmt::Debug for Live {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Live {
    pub fn new(site: Site, stop: watch::Receiver<bool>) -> Self {
        Self { site, watched: Arc::default(), stop }
    }

    /// A stream that says when something happened, and what.
    pub fn stream(&self, tenant: TenantId) -> Response {
        let state = (self.clone(), self.watch(tenant), None::<i64>);
        let events = stream::unfold(state, move |(live, mut marks, told)| async move {
            let mut stop = live.stop.clone();
            let position = match told {
                // The first one says that the stream is open.
                None => marks.borrow_and_update().0,
                Some(_) => {
                    tokio::select! {
                        changed = marks.changed() => changed.ok()?,
                        _ = stop.wait_for(|stop| *stop) => return None,
                    }
                    marks.borrow_and_update().0
                }
            };
            let site = live.site.clone();
            let happened = match told {
                None => Value::Array(Vec::new()),
                Some(since) => tokio::task::spawn_blocking(move || since_then(&site, tenant, since))
                    .await
                    .ok()?
                    .unwrap_or_default(),
            };
            let data = json!({ "position": position, "events": happened });
            let event = Event::default().event("change").id(position.to_string()).data(data.to_string());
            Some((Ok::<_, Infallible>(event), (live, marks, Some(position))))
        });
        Sse::new(events).keep_alive(KeepAlive::default()).into_response()
    }

    fn watch(&self, tenant: TenantId) -> watch::Receiver<Mark> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = watched.get(&tenant) {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel((0, 0));
        watched.insert(tenant, sender);
        tokio::spawn(look(self.clone(), tenant));
        receiver
    }
}

/// Looks at the log as long as somebody watches.
async fn look(live: Live, tenant: TenantId) {
    let mut stop = live.stop.clone();
    loop {
        let site = live.site.clone();
        let looked = tokio::task::spawn_blocking(move || mark(&site, tenant)).await;
        if let Ok(Err(problem)) = &looked {
            tracing::debug!("what happened cannot be looked at: {}", problem.message);
        }
        if let Ok(Ok(mark)) = looked {
            let mut watched = live.watched.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(sender) = watched.get(&tenant) else {
                return;
            };
            if sender.receiver_count() == 0 {
                watched.remove(&tenant);
                return;
            }
            sender.send_if_modified(|known| std::mem::replace(known, mark) != mark);
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

fn mark(site: &Site, tenant: TenantId) -> Result<Mark, Problem> {
    let mut read = site.core.store().read(tenant)?;
    let found = read.one::<(Option<i64>, i64)>(
        "select max(position), count(*) from (select position from events where tenant_id = ?1 order by position desc limit ?2) e",
        params![COMPARED],
    )?;
    Ok(found.map_or((0, 0), |(newest, count)| (newest.unwrap_or(0), count)))
}

fn since_then(site: &Site, tenant: TenantId, since: i64) -> Result<Value, Problem> {
    let mut read = site.core.store().read(tenant)?;
    let rows = read.query::<(i64, String, Kind, Uuid, Time)>(
        "select position, action, subject_kind, subject_id, created_at from events where tenant_id = ?1 and position > ?2 order by position limit ?3",
        params![since, TOLD_MAX],
    )?;
    Ok(rows
        .into_iter()
        .map(|(position, action, kind, id, at)| json!({ "position": position, "action": action, "kind": kind, "id": id, "at": at }))
        .collect())
}
