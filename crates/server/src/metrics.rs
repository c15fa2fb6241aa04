//! Numbers for Prometheus: what the server does, and how the work stands.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use trackway_actions::context::Context;
use trackway_domain::words::ItemStatus;
use trackway_store::linked_tasks::UNAVAILABLE;
use trackway_views::queue::unsettled;

use crate::{problem::Problem, site::Site};

/// Upper ends of the buckets of how long requests take, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

/// What was counted since the start.
#[derive(Debug, Default)]
pub struct Metrics {
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    by_status: BTreeMap<u16, u64>,
    buckets: [u64; BUCKETS.len()],
    seconds: f64,
    requests: u64,
}

impl Metrics {
    /// Counts a request.
    pub fn count(&self, status: u16, took: Duration) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        *counted.by_status.entry(status).or_default() += 1;
        let seconds = took.as_secs_f64();
        for (bucket, end) in counted.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= end);
        }
        counted.seconds += seconds;
        counted.requests += 1;
    }

    /// Everything as text.
    pub fn text(&self, site: &Site, context: &Context) -> Result<String, Problem> {
        let items = unsettled(&mut site.core.store().read(context.tenant)?, site.core.now())?;
        let mut out = String::new();
        let mut line = |text: &str| {
            let _ = writeln!(out, "{text}");
        };
        line("# HELP trackway_build_info The version that runs");
        line("# TYPE trackway_build_info gauge");
        line(&format!("trackway_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")));
        line("# HELP trackway_queue_items Queue items that are not finished or failed for good, by status");
        line("# TYPE trackway_queue_items gauge");
        for status in ItemStatus::ALL.iter().filter(|status| !status.is_settled()) {
            let count = items.iter().find(|(with, _)| with == status).map_or(0, |(_, count)| *count);
            line(&format!("trackway_queue_items{{status=\"{status}\"}} {count}"));
        }
        line("# HELP trackway_linked_unavailable_total Linked tasks and reports that could not be told");
        line("# TYPE trackway_linked_unavailable_total counter");
        line(&format!("trackway_linked_unavailable_total {}", UNAVAILABLE.load(Ordering::Relaxed)));
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        line("# HELP trackway_http_requests_total Requests answered, by status");
        line("# TYPE trackway_http_requests_total counter");
        for (status, count) in &counted.by_status {
            line(&format!("trackway_http_requests_total{{status=\"{status}\"}} {count}"));
        }
        line("# HELP trackway_http_request_seconds How long requests took");
        line("# TYPE trackway_http_request_seconds histogram");
        for (count, end) in counted.buckets.iter().zip(BUCKETS) {
            line(&format!("trackway_http_request_seconds_bucket{{le=\"{end}\"}} {count}"));
        }
        line(&format!("trackway_http_request_seconds_bucket{{le=\"+Inf\"}} {}", counted.requests));
        line(&format!("trackway_http_request_seconds_sum {}", counted.seconds));
        line(&format!("trackway_http_request_seconds_count {}", counted.requests));
        Ok(out)
    }
}
