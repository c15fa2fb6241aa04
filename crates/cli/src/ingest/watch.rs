//! `trackway ingest --watch`: reading as transcripts grow, until told to stop.

use std::{
    io::Write,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use trackway_capture::ingest::{Ingest, Ingested};
use trackway_runner::signals::Signals;

use super::bar::{Bar, size};
use crate::failure::Failure;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);

/// Reads again and again. What passes by waiting is waited for.
pub fn until_stopped(ingesting: &mut Ingest<'_>) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        signals.wait();
        // Whoever waits for it may have failed meanwhile.
        let _ = tell.send(());
    });
    let (mut is_first, mut is_waiting) = (true, false);
    loop {
        match ingesting.pass(&mut Bar::default()) {
            Ok(read) => {
                say(&read, is_first)?;
                (is_first, is_waiting) = (false, false);
            }
            Err(failure) if failure.is_passing() => {
                if !std::mem::replace(&mut is_waiting, true) {
                    writeln!(anstream::stderr(), "warning: {failure}; trying again")?;
                }
            }
            Err(failure) => return Err(failure.into()),
        }
        if told.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            return Ok(());
        }
    }
}

fn say(read: &Ingested, is_first: bool) -> std::io::Result<()> {
    let mut stderr = anstream::stderr();
    if is_first {
        writeln!(stderr, "read {} in {} files; watching", size(read.bytes), read.files)?;
    } else if read.bytes > 0 {
        writeln!(stderr, "read {} more in {} files", size(read.bytes), read.files)?;
    }
    read.problems.iter().try_for_each(|problem| writeln!(stderr, "warning: {problem}"))
}
