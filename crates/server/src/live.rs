//! What happens, as it happens: one look at the log twice a second for each tenant that somebody watches, however many do.

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
use trackway_views::event::{self, EventOfRun};
use uuid::Uuid;

use crate::{
    caller,
    problem::Problem,
    site::{Question, Site},
};

/// How often the log is looked at.
const EVERY: Duration = Duration::from_millis(500);
/// The newest of the log that is compared. On PostgreSQL a later number may be there before an earlier one.
const COMPARED: i64 = 200;
/// Events told of at once: the newest.
const TOLD_MAX: usize = 50;
/// How often it is asked whether who listens still may, when nothing happens.
const ENTERED_AGAIN: Duration = Duration::from_secs(5);
/// News that wait for whoever reads slowly. Who is further behind is told that there was more.
const WAITING_MAX: usize = 16;

/// An event of the log.
#[derive(Debug, Clone, Serialize)]
pub struct Happened {
    pub position: i64,
    pub action: String,
    pub kind: Kind,
    pub id: Uuid,
    pub at: Time,
    /// What it belongs to: the run it happened in or is about, and that run's parent, task, agent and session.
    pub within: Vec<Uuid>,
}

/// What was new at one look.
#[derive(Debug, Clone)]
pub struct News {
    /// How far the log has come.
    pub position: i64,
    pub events: Arc<[Happened]>,
    /// Whether more happened than is told.
    pub is_cut: bool,
    /// As it is sent, made once for all who watch.
    text: Arc<str>,
    /// When it was known.
    known: Instant,
}

impl News {
    /// Of what happened the newest that can be told of at once.
    fn newest_of(position: i64, mut events: Vec<Happened>) -> Self {
        let is_cut = events.len() > TOLD_MAX;
        events.drain(..events.len().saturating_sub(TOLD_MAX));
        Self::new(position, events, is_cut)
    }

    fn new(position: i64, events: Vec<Happened>, is_cut: bool) -> Self {
        let mut told = json!({ "position": position, "events": events });
        if is_cut {
            told["cut"] = json!(true);
        }
        Self { position, is_cut, text: told.to_string().into(), known: Instant::now(), events: events.into() }
    }
}

/// The log of a tenant, as far as it is known.
struct Watched {
    news: broadcast::Sender<News>,
    known: BTreeSet<i64>,
}

/// Who watches what.
#[derive(Clone)]
pub struct Live {
    site: Site,
    watched: Arc<Mutex<HashMap<TenantId, Watched>>>,
    passes: Arc<Mutex<HashMap<String, Weak<Pass>>>>,
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
        Self { site, watched: Arc::default(), passes: Arc::default(), stop }
    }

    /// A stream that says when something happened, and what, as long as who asked for it may know.
    pub async fn stream(&self, question: Question) -> Result<Response, Problem> {
        let (token, _) = caller::token(&question.headers)?;
        let heard = question.headers.get("last-event-id").map(|last| last.to_str().ok()?.trim().parse::<i64>().ok());
        let site = self.site.clone();
        let entered = tokio::task::spawn_blocking(move || site.context(&question));
        let tenant = entered.await.map_err(Problem::crashed)??.tenant;
        let pass = self.pass(token);
        let (position, news) = self.watch(tenant).await?;
        // The first one says that the stream is open, and to who was here before what happened since.
        let opened = match heard {
            None => News::new(position, Vec::new(), false),
            Some(last) => self.since(tenant, last, position).await?,
        };
        let listener = Listener { pass, news, stop: self.stop.clone(), position };
        let events = stream::unfold((listener, Some(opened)), |(mut listener, first)| async move {
            let told = match first {
                Some(first) => first,
                None => listener.next().await?,
            };
            let event = Event::default().event("change").id(told.position.to_string()).data(&told.text);
            Some((Ok::<_, Infallible>(event), (listener, None)))
        });
        Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
    }

    /// What happened after what somebody heard last, up to where the log has come.
    async fn since(&self, tenant: TenantId, last: Option<i64>, position: i64) -> Result<News, Problem> {
        // Nothing that this log says: what was missed is not known.
        let Some(last) = last.filter(|last| (0..=position).contains(last)) else {
            return Ok(News::new(position, Vec::new(), true));
        };
        let site = self.site.clone();
        let found =
            tokio::task::spawn_blocking(move || newest(&site, tenant, last)).await.map_err(Problem::crashed)??;
        let missed = found.into_iter().filter(|event| event.position <= position).collect();
        Ok(News::newest_of(position, missed))
    }

    /// How far the log of a tenant has come, and everything from there on.
    pub async fn watch(&self, tenant: TenantId) -> Result<(i64, broadcast::Receiver<News>), Problem> {
        if let Some(joined) = self.joined(tenant) {
            return Ok(joined);
        }
        let site = self.site.clone();
        let known = tokio::task::spawn_blocking(move || newest(&site, tenant, 0)).await.map_err(Problem::crashed)??;
        let known: BTreeSet<i64> = known.into_iter().map(|event| event.position).collect();
        let mut watched = self.watched();
        let entry = watched.entry(tenant).or_insert_with(|| {
            tokio::spawn(look(self.clone(), tenant));
            Watched { news: broadcast::Sender::new(WAITING_MAX), known }
        });
        Ok((entry.position(), entry.news.subscribe()))
    }

    /// The pass of a token: one for all who show it.
    fn pass(&self, token: String) -> Arc<Pass> {
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pass) = passes.get(&token).and_then(Weak::upgrade) {
            return pass;
        }
        passes.retain(|_, pass| pass.strong_count() > 0);
        let pass =
            Arc::new(Pass { site: self.site.clone(), token: token.clone(), looked_at: tokio::sync::Mutex::default() });
        passes.insert(token, Arc::downgrade(&pass));
        pass
    }

    fn joined(&self, tenant: TenantId) -> Option<(i64, broadcast::Receiver<News>)> {
        self.watched().get(&tenant).map(|watched| (watched.position(), watched.news.subscribe()))
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<TenantId, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn position(&self) -> i64 {
        self.known.last().copied().unwrap_or(0)
    }
}

/// Who listens to a stream.
struct Listener {
    pass: Arc<Pass>,
    news: broadcast::Receiver<News>,
    stop: watch::Receiver<bool>,
    position: i64,
}

impl Listener {
    /// The next news; none once the server stops, or the token opens nothing any more.
    async fn next(&mut self) -> Option<News> {
        loop {
            let told = tokio::select! {
                told = self.news.recv() => match told {
                    Ok(told) => Some(told),
                    Err(RecvError::Lagged(_)) => Some(News::new(self.position, Vec::new(), true)),
                    Err(RecvError::Closed) => return None,
                },
                () = tokio::time::sleep(ENTERED_AGAIN) => None,
                _ = self.stop.wait_for(|stop| *stop) => return None,
            };
            let since = match &told {
                Some(told) => Some(told.known),
                None => Instant::now().checked_sub(ENTERED_AGAIN),
            };
            if !self.pass.opens_since(since.unwrap_or_else(Instant::now)).await {
                return None;
            }
            if let Some(told) = told {
                self.position = told.position;
                return Some(told);
            }
        }
    }
}

/// A token that streams were opened with. Those who show the same one share what was found out last.
struct Pass {
    site: Site,
    token: String,
    looked_at: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

impl Pass {
    /// Whether it opened something at that time, or later.
    async fn opens_since(&self, since: Instant) -> bool {
        let mut last = self.looked_at.lock().await;
        if let Some((_, opens)) = last.filter(|(looked, _)| *looked >= since) {
            return opens;
        }
        let (looked, core, token) = (Instant::now(), Arc::clone(&self.site.core), self.token.clone());
        let entered = tokio::task::spawn_blocking(move || caller::enter(&core, token).err()).await;
        // Only who is refused is refused: a database that is away now may be back.
        let opens = !matches!(entered, Ok(Some(problem)) if problem.status == StatusCode::UNAUTHORIZED);
        *last = Some((looked, opens));
        opens
    }
}

/// Looks at the log as long as somebody watches.
async fn look(live: Live, tenant: TenantId) {
    let mut stop = live.stop.clone();
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let known = {
            let mut watched = live.watched();
            match watched.get(&tenant) {
                Some(log) if log.news.receiver_count() > 0 => log.known.clone(),
                _ => {
                    watched.remove(&tenant);
                    return;
                }
            }
        };
        let site = live.site.clone();
        // A database that is away now is looked at again.
        let Ok(Ok(Some(found))) = tokio::task::spawn_blocking(move || changed(&site, tenant, &known)).await else {
            continue;
        };
        let mut watched = live.watched();
        if let Some(log) = watched.get_mut(&tenant) {
            let before = std::mem::replace(&mut log.known, found.iter().map(|event| event.position).collect());
            let oldest = before.first().copied().unwrap_or(i64::MIN);
            let new: Vec<Happened> = found
                .into_iter()
                .filter(|event| event.position > oldest && !before.contains(&event.position))
                .collect();
            if !new.is_empty() {
                let _ = log.news.send(News::newest_of(log.position(), new));
            }
        }
    }
}

/// The newest of the log, when it is not what is known.
fn changed(site: &Site, tenant: TenantId, known: &BTreeSet<i64>) -> Result<Option<Vec<Happened>>, Problem> {
    let mark = event::mark(&mut site.core.store().read(tenant)?, COMPARED)?;
    let (newest_known, sum) = (known.last().copied().unwrap_or(0), known.iter().sum::<i64>());
    let is_known = mark.is_none_or(|mark| (mark.0.unwrap_or(0), mark.1.unwrap_or(0)) == (newest_known, sum));
    if is_known { Ok(None) } else { newest(site, tenant, 0).map(Some) }
}

/// The newest of the log after a position, in order.
fn newest(site: &Site, tenant: TenantId, after: i64) -> Result<Vec<Happened>, Problem> {
    let rows = event::newest(&mut site.core.store().read(tenant)?, COMPARED, after)?;
    let happened = |row: EventOfRun| Happened {
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
    Ok(rows.into_iter().map(happened).collect())
}
