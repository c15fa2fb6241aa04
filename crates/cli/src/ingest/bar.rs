//! How far reading is, as people see it.

use std::{
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

use trackway_capture::ingest::Progress;

/// How far it is, on a terminal.
#[derive(Debug)]
pub struct Bar {
    total: u64,
    done: u64,
    started: Instant,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Default for Bar {
    fn default() -> Self {
        Self { total: 0, done: 0, started: Instant::now(), shown: None, is_terminal: std::io::stderr().is_terminal() }
    }
}

impl Progress for Bar {
    fn begin(&mut self, total: u64) {
        *self = Self { total, ..Self::default() };
    }

    fn add(&mut self, bytes: u64) {
        self.done += bytes;
        let lately = self.shown.is_some_and(|shown| shown.elapsed() < Duration::from_millis(100));
        if !self.is_terminal || lately {
            return;
        }
        self.shown = Some(Instant::now());
        let total = self.total.max(self.done).max(1);
        let rate = u128::from(self.done) * 1_000 / self.started.elapsed().as_millis().max(1);
        let filled = "━".repeat(usize::try_from(self.done * 30 / total).unwrap_or_default());
        let _ = write!(
            std::io::stderr(),
            "\r\u{1b}[2K{filled:<30} {:>3} %  {} of {}  {}/s",
            self.done * 100 / total,
            size(self.done),
            size(total),
            size(u64::try_from(rate).unwrap_or_default())
        );
    }

    fn finish(&mut self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\u{1b}[2K");
        }
    }
}

/// Bytes as people read them.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}
