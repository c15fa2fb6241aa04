//! The progress of an import, on a terminal.

use std::{
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

use trackway_capture::ingest::Progress;

#[derive(Debug)]
pub struct ProgressBar {
    total: u64,
    done: u64,
    started: Instant,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Default for ProgressBar {
    fn default() -> Self {
        Self { total: 0, done: 0, started: Instant::now(), shown: None, is_terminal: std::io::stderr().is_terminal() }
    }
}

impl Progress for ProgressBar {
    fn begin(&mut self, total: u64) {
        *self = Self { total, ..Self::default() };
    }

    fn add(&mut self, bytes: u64) {
        self.done += bytes;
        let is_recent = self.shown.is_some_and(|shown| shown.elapsed() < Duration::from_millis(100));
        if !self.is_terminal || is_recent {
            return;
        }
        self.shown = Some(Instant::now());
        let total = self.total.max(self.done).max(1);
        let rate = u128::from(self.done) * 1_000 / self.started.elapsed().as_millis().max(1);
        let bar = "━".repeat(usize::try_from(self.done * 30 / total).unwrap_or_default());
        let _ = write!(
            std::io::stderr(),
            "\r\u{1b}[2K{bar:<30} {:>3} %  {} of {}  {}/s",
            self.done * 100 / total,
            format_size(self.done),
            format_size(total),
            format_size(u64::try_from(rate).unwrap_or_default())
        );
    }

    fn finish(&mut self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\u{1b}[2K");
        }
    }
}

/// A number of bytes with a unit.
pub fn format_size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}
