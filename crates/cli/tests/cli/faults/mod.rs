//! Faults: processes that are killed at any moment, full and read-only disks, a clock that is set back, a locked
//! database, and a PostgreSQL server that crashes or cannot be reached. After each fault, every acknowledged write must
//! still be there, and the record must be consistent (`audit`).
//!
//! `TRACKWAY_TEST_ALL=1` runs many more rounds. A failed test prints its seed; with `TRACKWAY_TEST_SEED` it makes the
//! same random choices again. The timing may still differ.

mod audit;
mod clock;
mod disk;
mod further_writes;
mod kill;
mod locked;
mod server;
mod writes;

use std::{
    process::{Child, Command},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use trackway_testkit::poll;

/// True if the tests run all rounds instead of a few.
fn is_exhaustive() -> bool {
    std::env::var_os("TRACKWAY_TEST_ALL").is_some()
}

/// A random number generator that prints its seed when the test fails.
pub struct SeededRandom {
    seed: u64,
    state: u64,
}

impl SeededRandom {
    fn new() -> Self {
        let seed = match std::env::var("TRACKWAY_TEST_SEED") {
            Ok(seed) => seed.parse().unwrap(),
            Err(_) => u64::from(uuid::Uuid::new_v4().as_fields().0),
        };
        Self { seed, state: seed }
    }

    /// A second generator with a different sequence of numbers.
    fn fork(&mut self) -> Self {
        Self { seed: self.seed, state: self.next() }
    }

    /// The next number, by `SplitMix64`.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    fn duration_below(&mut self, end: Duration) -> Duration {
        Duration::from_micros(self.next() % u64::try_from(end.as_micros()).unwrap().max(1))
    }
}

impl Drop for SeededRandom {
    #[expect(clippy::print_stderr, reason = "the seed is needed to repeat the failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("TRACKWAY_TEST_SEED={}", self.seed);
        }
    }
}

/// A process and all processes that it starts. They are killed together, at the latest on drop.
struct ProcessGroup(Child);

impl ProcessGroup {
    fn spawn(command: &mut Command) -> Self {
        use std::os::unix::process::CommandExt;
        Self(command.process_group(0).spawn().unwrap())
    }

    fn kill(&mut self) {
        let leader = Pid::from_child(&self.0);
        // Fails only if all processes of the group have ended.
        let _ = kill_process_group(leader, Signal::KILL);
        self.0.wait().unwrap();
    }

    /// Waits until the process ends, and returns its exit code, or `None` after the timeout.
    fn wait_for_exit(&mut self, timeout: Duration) -> Option<i32> {
        poll(timeout, || self.0.try_wait().unwrap()).map(|status| status.code().unwrap_or(-1))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Prints why a test is skipped on this machine. In CI, a missing prerequisite fails the test.
#[expect(clippy::print_stderr, reason = "a skipped test should not look like one that passed")]
fn print_skip_reason(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "missing prerequisite: {reason}");
    eprintln!("skipped: {reason}");
}
