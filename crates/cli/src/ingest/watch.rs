//! `trackway ingest --watch`: imports new lines of transcripts until interrupted.

use std::{
    io::Write,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use trackway_capture::ingest::{Ingest, IngestSummary};
use trackway_runner::signals::Signals;

use super::progress_bar::{ProgressBar, format_size};
use crate::failure::Failure;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Imports repeatedly. Retries after transient failures.
pub fn until_stopped(ingesting: &mut Ingest<'_>) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let (sender, stop) = mpsc::channel();
    thread::spawn(move || {
        signals.wait();
        // The send fails if the import has already ended with an error.
        let _ = sender.send(());
    });
    let (mut is_first, mut is_waiting) = (true, false);
    loop {
        match ingesting.pass(&mut ProgressBar::default()) {
            Ok(read) => {
                print_progress(&read, is_first)?;
                (is_first, is_waiting) = (false, false);
            }
            Err(failure) if failure.is_transient() => {
                if !std::mem::replace(&mut is_waiting, true) {
                    writeln!(anstream::stderr(), "warning: {failure}; retrying")?;
                }
            }
            Err(failure) => return Err(failure.into()),
        }
        if stop.recv_timeout(POLL_INTERVAL) != Err(RecvTimeoutError::Timeout) {
            return Ok(());
        }
    }
}

fn print_progress(read: &IngestSummary, is_first: bool) -> std::io::Result<()> {
    let mut stderr = anstream::stderr();
    if is_first {
        writeln!(stderr, "read {} in {} files; watching", format_size(read.bytes), read.files)?;
    } else if read.bytes > 0 {
        writeln!(stderr, "read {} more in {} files", format_size(read.bytes), read.files)?;
    }
    read.problems.iter().try_for_each(|problem| writeln!(stderr, "warning: {problem}"))
}
