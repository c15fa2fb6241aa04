//! Timing: many calls one by one, or how long a number of them took together.

use std::time::{Duration, Instant};

use crate::Outcome;

/// How long each of many calls took, shortest first.
#[derive(Debug, Clone)]
pub struct Samples(Vec<Duration>);

impl Samples {
    pub fn new(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        Self(durations)
    }

    pub fn median(&self) -> Duration {
        self.at(50)
    }

    /// The time that 99 of 100 calls stay below.
    pub fn p99(&self) -> Duration {
        self.at(99)
    }

    fn at(&self, percent: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get(last.min(self.0.len() * percent / 100)).copied().unwrap_or_default()
    }
}

/// How often a question is asked.
#[derive(Debug, Clone, Copy)]
pub struct Often {
    /// Calls that are not counted.
    pub warm_up: usize,
    pub count: usize,
}

/// One that takes too long to be asked that often is asked less, and shows itself in the median.
const ENOUGH: Duration = Duration::from_mins(1);

/// Times calls one by one. Each is given its number.
pub fn calls(often: Often, mut call: impl FnMut(usize) -> Outcome<()>) -> Outcome<Samples> {
    Ok(calls_in_turn(often, &mut call, |_| Ok(()))?.0)
}

/// Times calls of two kinds in turn, so that whatever else the machine does meets both.
pub fn calls_in_turn(
    often: Often,
    mut one: impl FnMut(usize) -> Outcome<()>,
    mut other: impl FnMut(usize) -> Outcome<()>,
) -> Outcome<(Samples, Samples)> {
    let (mut of_one, mut of_other) = (Vec::new(), Vec::new());
    let start = Instant::now();
    for number in 0..often.warm_up + often.count {
        of_one.push(once(|| one(number))?.0);
        of_other.push(once(|| other(number))?.0);
        if start.elapsed() > ENOUGH {
            break;
        }
    }
    let warm_up = often.warm_up.min(of_one.len() / 2);
    Ok((Samples::new(of_one.split_off(warm_up)), Samples::new(of_other.split_off(warm_up))))
}

/// Times one call.
pub fn once<T>(call: impl FnOnce() -> Outcome<T>) -> Outcome<(Duration, T)> {
    let start = Instant::now();
    let value = call()?;
    Ok((start.elapsed(), value))
}

/// How many times longer one took than the other.
pub fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

/// A duration with the unit that suits it.
pub fn shown(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    match micros {
        ..1_000.0 => format!("{micros:.0} us"),
        ..1_000_000.0 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.1} s", micros / 1e6),
    }
}

/// A number with its thousands apart.
pub fn grouped(number: usize) -> String {
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
