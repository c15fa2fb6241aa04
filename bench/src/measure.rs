//! Timing of single calls and of many calls.

use std::time::{Duration, Instant};

use crate::BenchResult;

/// The durations of many calls, shortest first.
#[derive(Debug, Clone)]
pub struct Samples(Vec<Duration>);

impl Samples {
    pub fn new(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        Self(durations)
    }

    pub fn median(&self) -> Duration {
        self.percentile(50)
    }

    /// The 99th percentile.
    pub fn p99(&self) -> Duration {
        self.percentile(99)
    }

    fn percentile(&self, percent: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get(last.min(self.0.len() * percent / 100)).copied().unwrap_or_default()
    }
}

/// The number of calls of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Repetitions {
    /// Calls whose time is discarded.
    pub warm_up: usize,
    pub count: usize,
}

/// A measurement stops after this time and reports the calls made so far.
const TIME_MAX: Duration = Duration::from_mins(1);

/// Times each call. The closure gets the index of the call.
pub fn time_calls(repetitions: Repetitions, mut call: impl FnMut(usize) -> BenchResult<()>) -> BenchResult<Samples> {
    Ok(time_calls_alternately(repetitions, &mut call, |_| Ok(()))?.0)
}

/// Times calls of two kinds alternately, so that other load on the machine affects both equally.
pub fn time_calls_alternately(
    repetitions: Repetitions,
    mut one: impl FnMut(usize) -> BenchResult<()>,
    mut other: impl FnMut(usize) -> BenchResult<()>,
) -> BenchResult<(Samples, Samples)> {
    let (mut of_one, mut of_other) = (Vec::new(), Vec::new());
    let start = Instant::now();
    for number in 0..repetitions.warm_up + repetitions.count {
        of_one.push(time_once(|| one(number))?.0);
        of_other.push(time_once(|| other(number))?.0);
        if start.elapsed() > TIME_MAX {
            break;
        }
    }
    let warm_up = repetitions.warm_up.min(of_one.len() / 2);
    Ok((Samples::new(of_one.split_off(warm_up)), Samples::new(of_other.split_off(warm_up))))
}

pub fn time_once<T>(call: impl FnOnce() -> BenchResult<T>) -> BenchResult<(Duration, T)> {
    let start = Instant::now();
    let value = call()?;
    Ok((start.elapsed(), value))
}

/// `one` divided by `other`.
pub fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

/// Formats a duration in microseconds, milliseconds or seconds.
pub fn format_duration(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    match micros {
        ..1_000.0 => format!("{micros:.0} us"),
        ..1_000_000.0 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.1} s", micros / 1e6),
    }
}

/// Formats a number with commas between groups of three digits.
pub fn format_count(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
