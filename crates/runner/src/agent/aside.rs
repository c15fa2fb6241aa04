//! Asking a model aside, in a thread of its own: nobody has to wait for one that hangs.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::model::{Answer, Model, Patience, Request, Trouble};

/// How often whoever waits looks whether that should stop.
const GLANCE: Duration = Duration::from_millis(20);

/// A model that is asked one thing after the other.
#[derive(Debug)]
pub struct Aside<'a> {
    model: &'a Arc<dyn Model>,
    /// Kept from one question to the next: beginning a thread takes as long as asking the database something.
    asking: Option<Asking>,
}

/// A thread that asks. It ends when nobody has questions any more.
#[derive(Debug)]
struct Asking {
    questions: mpsc::Sender<(Request, Patience)>,
    answers: mpsc::Receiver<Answer>,
}

impl Asking {
    fn begin(model: &Arc<dyn Model>) -> Self {
        let (questions, asked) = mpsc::channel::<(Request, Patience)>();
        let (answer, answers) = mpsc::channel();
        let model = Arc::clone(model);
        thread::spawn(move || {
            for (request, patience) in asked {
                // Nobody may be waiting any more.
                let _ = answer.send(model.ask(&request, &patience));
            }
        });
        Self { questions, answers }
    }
}

impl<'a> Aside<'a> {
    pub fn new(model: &'a Arc<dyn Model>) -> Self {
        Self { model, asking: None }
    }

    /// Asks. None when nobody waits any more.
    pub fn ask(&mut self, request: Request, until: Instant, mut waits: impl FnMut() -> bool) -> Option<Answer> {
        let patience = Patience::until(until);
        // Put back with its answer: the thread of a model that hangs, or failed, is left alone.
        let asking = self.asking.take().unwrap_or_else(|| Asking::begin(self.model));
        // A thread that is gone shows when the answer is waited for.
        let _ = asking.questions.send((request, patience.clone()));
        loop {
            match asking.answers.recv_timeout(GLANCE) {
                Ok(answer) => {
                    self.asking = Some(asking);
                    return Some(answer);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let outcome =
                        Err(Trouble::Failed("asking the model failed in a way that should not be".to_owned()));
                    return Some(Answer { outcome, used: Vec::new(), retried: Vec::new() });
                }
                Err(mpsc::RecvTimeoutError::Timeout) if waits() => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    patience.give_up();
                    return None;
                }
            }
        }
    }
}
