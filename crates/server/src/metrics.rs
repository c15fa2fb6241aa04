//! Metrics for Prometheus: HTTP requests and the queue.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use trackway_actions::context::Context;
use trackway_domain::enums::ItemStatus;
use trackway_store::linked_tasks::UNAVAILABLE_COUNT;
use trackway_views::queue::count_unfinished_and_failed;

use crate::{problem::Problem, site::Site};

/// Upper bounds of the histogram of request durations, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub struct Metrics {
    counters: Mutex<RequestCounters>,
}

#[derive(Debug, Default)]
struct RequestCounters {
    by_status: BTreeMap<u16, u64>,
    buckets: [u64; BUCKETS.len()],
    seconds: f64,
    requests: u64,
}

impl Metrics {
    pub fn count(&self, status: u16, duration: Duration) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        *counters.by_status.entry(status).or_default() += 1;
        let seconds = duration.as_secs_f64();
        for (bucket, bound) in counters.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= bound);
        }
        counters.seconds += seconds;
        counters.requests += 1;
    }

    /// All metrics in the Prometheus text format.
    pub fn text(&self, site: &Site, context: &Context) -> Result<String, Problem> {
        let items = count_unfinished_and_failed(&mut site.core.store().read(context.tenant)?, site.core.now())?;
        let mut out = String::new();
        let mut line = |text: &str| {
            let _ = writeln!(out, "{text}");
        };
        line("# HELP trackway_build_info Version of the running server");
        line("# TYPE trackway_build_info gauge");
        line(&format!("trackway_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")));
        line(
            "# HELP trackway_queue_items Unfinished queue items, and items that failed with no retries left, by status",
        );
        line("# TYPE trackway_queue_items gauge");
        for status in ItemStatus::ALL.iter().filter(|status| !status.is_settled()) {
            let count = items.iter().find(|(with, _)| with == status).map_or(0, |(_, count)| *count);
            line(&format!("trackway_queue_items{{status=\"{status}\"}} {count}"));
        }
        line(
            "# HELP trackway_linked_unavailable_total Linked tasks and reports that could not be loaded for a wake prompt",
        );
        line("# TYPE trackway_linked_unavailable_total counter");
        line(&format!("trackway_linked_unavailable_total {}", UNAVAILABLE_COUNT.load(Ordering::Relaxed)));
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        line("# HELP trackway_http_requests_total Answered requests, by status");
        line("# TYPE trackway_http_requests_total counter");
        for (status, count) in &counters.by_status {
            line(&format!("trackway_http_requests_total{{status=\"{status}\"}} {count}"));
        }
        line("# HELP trackway_http_request_seconds Duration of requests in seconds");
        line("# TYPE trackway_http_request_seconds histogram");
        for (count, bound) in counters.buckets.iter().zip(BUCKETS) {
            line(&format!("trackway_http_request_seconds_bucket{{le=\"{bound}\"}} {count}"));
        }
        line(&format!("trackway_http_request_seconds_bucket{{le=\"+Inf\"}} {}", counters.requests));
        line(&format!("trackway_http_request_seconds_sum {}", counters.seconds));
        line(&format!("trackway_http_request_seconds_count {}", counters.requests));
        Ok(out)
    }
}
