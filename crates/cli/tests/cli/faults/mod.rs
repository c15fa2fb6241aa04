//! Faults: processes that are killed at any point, disks that are full or read-only, a clock that is set back, a database
//! that others hold, a server that crashes or cannot be reached. After each: nothing that was acknowledged is lost, and
//! the record holds together (`audit`).
//!
//! `TRACKWAY_TEST_ALL=1` makes them long. A failure says its seed; `TRACKWAY_TEST_SEED` goes the same index again, as far as
//! the machine lets it.

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

/// Whether the long index is wanted.
fn is_exhaustive() -> bool {
    std::env::var_os("TRACKWAY_TEST_ALL").is_some()
}

/// SeededRandom that can be had again, and says how when the test fails.
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

    /// Another one, which goes its own index from here.
    fn fork(&mut self) -> Self {
        Self { seed: self.seed, state: self.next() }
    }

    /// A number after the other, by `SplitMix64`.
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
    #[expect(clippy::print_stderr, reason = "whoever wants the failure again needs it")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("TRACKWAY_TEST_SEED={}", self.seed);
        }
    }
}

/// A process with all that it starts: killed together, and not left behind.
struct ProcessGroup(Child);

impl ProcessGroup {
    fn spawn(command: &mut Command) -> Self {
        use std::os::unix::process::CommandExt;
        Self(command.process_group(0).spawn().unwrap())
    }

    fn kill(&mut self) {
        let leader = Pid::from_child(&self.0);
        // Fails only where all of them have ended.
        let _ = kill_process_group(leader, Signal::KILL);
        self.0.wait().unwrap();
    }

    /// Waits for its end, no longer than this. Says with which code, if that came.
    fn wait_for_exit(&mut self, at_most: Duration) -> Option<i32> {
        poll(at_most, || self.0.try_wait().unwrap()).map(|status| status.code().unwrap_or(-1))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Says why a test cannot be run here.
#[expect(clippy::print_stderr, reason = "a test that was not run should not look like one that passed")]
fn print_skip_reason(why: &str) {
    eprintln!("print_skip_reason: {why}");
}
