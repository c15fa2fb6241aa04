//! Signals to stop: heard from the moment this is made.

use std::{future::poll_fn, io, task::Poll};

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};

/// Lets none of the signals end us that a terminal sends to all that runs in it. They are caught and not ignored: what is
/// ignored would be by what we start, too.
pub fn outlive() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()] {
        drop(signal(kind)?);
    }
    Ok(())
}

/// Somebody who hears them instead of being ended by them.
#[derive(Debug)]
pub struct Signals {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        drop(entered);
        Ok(Self { runtime, interrupt, terminate })
    }

    /// Waits for the next one.
    pub fn wait(&mut self) {
        let Self { runtime, interrupt, terminate } = self;
        runtime.block_on(poll_fn(|context| {
            let heard = interrupt.poll_recv(context).is_ready() || terminate.poll_recv(context).is_ready();
            if heard { Poll::Ready(()) } else { Poll::Pending }
        }));
    }
}
