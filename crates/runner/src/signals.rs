//! Signals to stop: heard from the moment this is made.

use std::{future::poll_fn, io, task::Poll};

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};

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
