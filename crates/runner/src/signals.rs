//! Waits for SIGINT and SIGTERM.

use std::{future::poll_fn, io, task::Poll};

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};

/// Keeps this process alive when a terminal sends SIGHUP, SIGINT or SIGTERM to all its processes. The signals are
/// caught rather than ignored, because children inherit ignored signals.
pub fn catch_termination_signals() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()] {
        drop(signal(kind)?);
    }
    Ok(())
}

/// Catches SIGINT and SIGTERM, which would otherwise end the process.
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

    /// Blocks until the next signal.
    pub fn wait(&mut self) {
        let Self { runtime, interrupt, terminate } = self;
        runtime.block_on(poll_fn(|context| {
            let is_received = interrupt.poll_recv(context).is_ready() || terminate.poll_recv(context).is_ready();
            if is_received { Poll::Ready(()) } else { Poll::Pending }
        }));
    }
}
