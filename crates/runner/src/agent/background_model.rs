//! Calls a model in a separate thread, so that a run can stop while the model hangs.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::model::{Deadline, Model, ModelError, ModelResponse, Request};

/// The interval at which a waiting run checks whether it must stop.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct BackgroundModel<'a> {
    model: &'a Arc<dyn Model>,
    /// Reused from call to call: starting a thread takes as long as a database call.
    thread: Option<ModelThread>,
}

/// A thread that calls the model. It ends when `requests` is dropped.
#[derive(Debug)]
struct ModelThread {
    requests: mpsc::Sender<(Request, Deadline)>,
    responses: mpsc::Receiver<ModelResponse>,
}

impl ModelThread {
    fn start(model: &Arc<dyn Model>) -> Self {
        let (requests, queue) = mpsc::channel::<(Request, Deadline)>();
        let (sender, responses) = mpsc::channel();
        let model = Arc::clone(model);
        thread::spawn(move || {
            for (request, deadline) in queue {
                // Fails when the run stopped waiting.
                let _ = sender.send(model.ask(&request, &deadline));
            }
        });
        Self { requests, responses }
    }
}

impl<'a> BackgroundModel<'a> {
    pub fn new(model: &'a Arc<dyn Model>) -> Self {
        Self { model, thread: None }
    }

    /// Sends a request and waits for the response. Returns None once `is_waiting` returns false.
    pub fn ask(
        &mut self,
        request: Request,
        deadline: Instant,
        mut is_waiting: impl FnMut() -> bool,
    ) -> Option<ModelResponse> {
        let deadline = Deadline::at(deadline);
        // Put the thread back only after a response, because a thread whose model hangs or panicked cannot be used
        // again.
        let thread = self.thread.take().unwrap_or_else(|| ModelThread::start(self.model));
        // Fails when the thread has ended; receiving then fails, too.
        let _ = thread.requests.send((request, deadline.clone()));
        loop {
            match thread.responses.recv_timeout(POLL_INTERVAL) {
                Ok(response) => {
                    self.thread = Some(thread);
                    return Some(response);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let error = ModelError::Failed("internal error: the model client panicked".to_owned());
                    return Some(ModelResponse { outcome: Err(error), usage: Vec::new(), retried: Vec::new() });
                }
                Err(mpsc::RecvTimeoutError::Timeout) if is_waiting() => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    deadline.cancel();
                    return None;
                }
            }
        }
    }
}
