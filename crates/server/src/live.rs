//! Live events: polls the event log of each tenant with subscribers twice a second. All subscribers of a tenant share
//! these polls.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use axum::{
    http::StatusCode,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{broadcast, broadcast::error::RecvError, watch};
use trackway_domain::{Time, kind::Kind};
use trackway_store::TenantId;
use trackway_views::event::{self, EventWithRun};
use uuid::Uuid;

use crate::{
    caller,
    problem::Problem,
    site::{Site, SiteRequest},
};

/// Interval at which the log is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Number of newest events whose positions a poll compares with the previous poll. On PostgreSQL, an event can become
/// visible after an event with a higher position, so the highest position alone does not show all new events.
const COMPARED_EVENTS: i64 = 200;
/// Maximum number of events in one update. Older events are left out.
const UPDATE_EVENTS_MAX: usize = 50;
/// Interval at which an idle stream checks that its token is still valid.
const TOKEN_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Number of updates buffered for a slow subscriber. A subscriber that falls further behind is told that it missed
/// events.
const BUFFERED_UPDATES: usize = 16;

/// An event of the log, as it is sent to subscribers.
#[derive(Debug, Clone, Serialize)]
pub struct LiveEvent {
    pub position: i64,
    pub action: String,
    pub kind: Kind,
    pub id: Uuid,
    pub at: Time,
    /// The ids of the run that the event is about, or in which it happened, and of the run's parent, task, agent,
    /// session and queue item.
    pub within: Vec<Uuid>,
}

/// The new events of one poll.
#[derive(Debug, Clone)]
pub struct LiveUpdate {
    /// The newest position of the log.
    pub position: i64,
    pub events: Arc<[LiveEvent]>,
    /// True if there were more events than the update contains.
    pub is_cut: bool,
    /// The serialised update, shared by all subscribers.
    text: Arc<str>,
    /// The time at which the update was created.
    created: Instant,
}

impl LiveUpdate {
    fn of_newest(position: i64, mut events: Vec<LiveEvent>) -> Self {
        let is_cut = events.len() > UPDATE_EVENTS_MAX;
        events.drain(..events.len().saturating_sub(UPDATE_EVENTS_MAX));
        Self::new(position, events, is_cut)
    }

    fn new(position: i64, events: Vec<LiveEvent>, is_cut: bool) -> Self {
        let mut data = json!({ "position": position, "events": events });
        if is_cut {
            data["cut"] = json!(true);
        }
        Self { position, is_cut, text: data.to_string().into(), created: Instant::now(), events: events.into() }
    }
}

/// The state of one tenant's log at the last poll.
struct TenantLog {
    updates: broadcast::Sender<LiveUpdate>,
    positions: BTreeSet<i64>,
}

/// All subscriptions to live events.
#[derive(Clone)]
pub struct Live {
    site: Site,
    logs: Arc<Mutex<HashMap<TenantId, TenantLog>>>,
    token_checks: Arc<Mutex<HashMap<String, Weak<TokenCheck>>>>,
    /// Becomes true when the server stops, which ends all streams.
    stop: watch::Receiver<bool>,
}

impl fmt::Debug for Live {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Live {
    pub fn new(site: Site, stop: watch::Receiver<bool>) -> Self {
        Self { site, logs: Arc::default(), token_checks: Arc::default(), stop }
    }

    /// Responds with a stream of events, which ends when the token becomes invalid.
    pub async fn stream(&self, request: SiteRequest) -> Result<Response, Problem> {
        let (token, _) = caller::token(&request.headers)?;
        let last_event_id =
            request.headers.get("last-event-id").map(|last| last.to_str().ok()?.trim().parse::<i64>().ok());
        let site = self.site.clone();
        let context = tokio::task::spawn_blocking(move || site.context(&request));
        let tenant = context.await.map_err(Problem::task_failed)??.tenant;
        let token_check = self.token_check(token);
        let (position, updates) = self.subscribe(tenant).await?;
        // The first update tells the client that the stream is open. For a reconnecting client, it contains the missed
        // events.
        let first = match last_event_id {
            None => LiveUpdate::new(position, Vec::new(), false),
            Some(last) => self.missed_events(tenant, last, position).await?,
        };
        let subscriber = Subscriber { token_check, updates, stop: self.stop.clone(), position };
        let events = stream::unfold((subscriber, Some(first)), |(mut subscriber, first)| async move {
            let update = match first {
                Some(first) => first,
                None => subscriber.next().await?,
            };
            let event = Event::default().event("change").id(update.position.to_string()).data(&update.text);
            Some((Ok::<_, Infallible>(event), (subscriber, None)))
        });
        Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
    }

    /// The events that a reconnecting client missed. `last` is the position up to which it received events.
    async fn missed_events(&self, tenant: TenantId, last: Option<i64>, position: i64) -> Result<LiveUpdate, Problem> {
        // The id is not from this log, so it is unknown which events the client missed.
        let Some(last) = last.filter(|last| (0..=position).contains(last)) else {
            return Ok(LiveUpdate::new(position, Vec::new(), true));
        };
        let site = self.site.clone();
        let events =
            tokio::task::spawn_blocking(move || newest(&site, tenant, last)).await.map_err(Problem::task_failed)??;
        let missed = events.into_iter().filter(|event| event.position <= position).collect();
        Ok(LiveUpdate::of_newest(position, missed))
    }

    /// Subscribes to the events of a tenant. Also returns the current position of its log.
    pub async fn subscribe(&self, tenant: TenantId) -> Result<(i64, broadcast::Receiver<LiveUpdate>), Problem> {
        if let Some(subscription) = self.join_existing(tenant) {
            return Ok(subscription);
        }
        let site = self.site.clone();
        let events =
            tokio::task::spawn_blocking(move || newest(&site, tenant, 0)).await.map_err(Problem::task_failed)??;
        let positions: BTreeSet<i64> = events.into_iter().map(|event| event.position).collect();
        let mut logs = self.logs();
        let log = logs.entry(tenant).or_insert_with(|| {
            tokio::spawn(poll_log(self.clone(), tenant));
            TenantLog { updates: broadcast::Sender::new(BUFFERED_UPDATES), positions }
        });
        Ok((log.position(), log.updates.subscribe()))
    }

    /// The check of a token, shared by all streams that were opened with the token.
    fn token_check(&self, token: String) -> Arc<TokenCheck> {
        let mut checks = self.token_checks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(check) = checks.get(&token).and_then(Weak::upgrade) {
            return check;
        }
        checks.retain(|_, check| check.strong_count() > 0);
        let check = Arc::new(TokenCheck {
            site: self.site.clone(),
            token: token.clone(),
            last_result: tokio::sync::Mutex::default(),
        });
        checks.insert(token, Arc::downgrade(&check));
        check
    }

    fn join_existing(&self, tenant: TenantId) -> Option<(i64, broadcast::Receiver<LiveUpdate>)> {
        self.logs().get(&tenant).map(|log| (log.position(), log.updates.subscribe()))
    }

    fn logs(&self) -> MutexGuard<'_, HashMap<TenantId, TenantLog>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TenantLog {
    fn position(&self) -> i64 {
        self.positions.last().copied().unwrap_or(0)
    }
}

/// The receiving end of one stream.
struct Subscriber {
    token_check: Arc<TokenCheck>,
    updates: broadcast::Receiver<LiveUpdate>,
    stop: watch::Receiver<bool>,
    position: i64,
}

impl Subscriber {
    /// The next update. None once the server stops or the token is no longer valid.
    async fn next(&mut self) -> Option<LiveUpdate> {
        loop {
            let update = tokio::select! {
                received = self.updates.recv() => match received {
                    Ok(update) => Some(update),
                    Err(RecvError::Lagged(_)) => Some(LiveUpdate::new(self.position, Vec::new(), true)),
                    Err(RecvError::Closed) => return None,
                },
                () = tokio::time::sleep(TOKEN_CHECK_INTERVAL) => None,
                _ = self.stop.wait_for(|stop| *stop) => return None,
            };
            let since = match &update {
                Some(update) => Some(update.created),
                None => Instant::now().checked_sub(TOKEN_CHECK_INTERVAL),
            };
            if !self.token_check.is_valid_since(since.unwrap_or_else(Instant::now)).await {
                return None;
            }
            if let Some(update) = update {
                self.position = update.position;
                return Some(update);
            }
        }
    }
}

/// Checks a token on behalf of all streams that were opened with it. They share the last result.
struct TokenCheck {
    site: Site,
    token: String,
    last_result: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

impl TokenCheck {
    /// True if the token was valid at this time or later.
    async fn is_valid_since(&self, since: Instant) -> bool {
        let mut last = self.last_result.lock().await;
        if let Some((_, is_valid)) = last.filter(|(checked_at, _)| *checked_at >= since) {
            return is_valid;
        }
        let (checked_at, core, token) = (Instant::now(), Arc::clone(&self.site.core), self.token.clone());
        let error = tokio::task::spawn_blocking(move || caller::authenticate(&core, token).err()).await;
        // Only a rejected token ends the stream. After any other error, the database may be available again later.
        let is_valid = !matches!(error, Ok(Some(problem)) if problem.status == StatusCode::UNAUTHORIZED);
        *last = Some((checked_at, is_valid));
        is_valid
    }
}

/// Polls the log of a tenant as long as it has subscribers.
async fn poll_log(live: Live, tenant: TenantId) {
    let mut stop = live.stop.clone();
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let known_positions = {
            let mut logs = live.logs();
            match logs.get(&tenant) {
                Some(log) if log.updates.receiver_count() > 0 => log.positions.clone(),
                _ => {
                    logs.remove(&tenant);
                    return;
                }
            }
        };
        let site = live.site.clone();
        // If the database is unavailable, the next poll tries again.
        let Ok(Ok(Some(events))) =
            tokio::task::spawn_blocking(move || newest_if_changed(&site, tenant, &known_positions)).await
        else {
            continue;
        };
        let mut logs = live.logs();
        if let Some(log) = logs.get_mut(&tenant) {
            let before = std::mem::replace(&mut log.positions, events.iter().map(|event| event.position).collect());
            let oldest = before.first().copied().unwrap_or(i64::MIN);
            let new: Vec<LiveEvent> = events
                .into_iter()
                .filter(|event| event.position > oldest && !before.contains(&event.position))
                .collect();
            if !new.is_empty() {
                let _ = log.updates.send(LiveUpdate::of_newest(log.position(), new));
            }
        }
    }
}

/// The newest events, if their positions differ from the known ones. Compares only the maximum and the sum of the
/// positions, because their query returns a single row.
fn newest_if_changed(site: &Site, tenant: TenantId, known: &BTreeSet<i64>) -> Result<Option<Vec<LiveEvent>>, Problem> {
    let fingerprint = event::log_fingerprint(&mut site.core.store().read(tenant)?, COMPARED_EVENTS)?;
    let (newest_known, known_sum) = (known.last().copied().unwrap_or(0), known.iter().sum::<i64>());
    let is_known =
        fingerprint.is_none_or(|(newest, sum)| (newest.unwrap_or(0), sum.unwrap_or(0)) == (newest_known, known_sum));
    if is_known { Ok(None) } else { newest(site, tenant, 0).map(Some) }
}

/// The newest events after a position, oldest first.
fn newest(site: &Site, tenant: TenantId, after: i64) -> Result<Vec<LiveEvent>, Problem> {
    let rows = event::newest_events(&mut site.core.store().read(tenant)?, COMPARED_EVENTS, after)?;
    let live_event = |row: EventWithRun| LiveEvent {
        within: [row.run_id, row.parent_run_id, row.task_id, row.agent_id, row.session_id, row.queue_item_id]
            .into_iter()
            .flatten()
            .collect(),
        position: row.position,
        action: row.action,
        kind: row.subject_kind,
        id: row.subject_id,
        at: row.created_at,
    };
    Ok(rows.into_iter().map(live_event).collect())
}
