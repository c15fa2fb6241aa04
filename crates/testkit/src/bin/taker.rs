//! A process that takes from a queue, for tests that race and kill such processes.
//!
//!     taker take URL          takes one item after the other until there are none, and prints their ids
//!     taker done URL          the same, and each is done when the next is taken
//!     taker work URL LEASE    takes, writes a note in the run, completes; until it is killed

#![expect(clippy::unwrap_used, reason = "only tests use this, and a panic is how a test fails")]
#![expect(clippy::print_stdout, reason = "this is how it answers")]

use std::{thread, time::Duration};

use trackway_actions::{
    Core, Credential, Error,
    context::Secret,
    note::CreateNote,
    queue::{CompleteItem, TakeItems, Taken},
};
use trackway_domain::{Ref, queue::Fenced};
use trackway_store::{Store, Url};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["take", url] => take(url, false),
        ["done", url] => take(url, true),
        ["work", url, lease] => work(url, lease.parse().unwrap()),
        _ => panic!("taker take URL | done URL | work URL LEASE"),
    }
}

/// Tries until the database answers: it may be restarting.
fn insist<T>(mut deed: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match deed() {
            Err(error) if error.is_passing() => thread::sleep(Duration::from_millis(20)),
            outcome => return outcome,
        }
    }
}

fn open(url: &str) -> Core {
    Core::new(insist(|| Ok(Store::open(Url::parse(url)?)?)).unwrap())
}

fn user() -> Credential {
    Credential::User { tenant: "local".into(), handle: "ada".into() }
}

fn take(url: &str, is_done: bool) {
    let core = open(url);
    let context = insist(|| core.enter(&user())).unwrap();
    let mut take = TakeItems::default();
    loop {
        let taken = insist(|| core.execute(&context, &take)).unwrap();
        let Some(taken) = taken.first() else { return };
        println!("{}", taken.id);
        if is_done {
            take.done = vec![Fenced { id: taken.id.into(), fence: taken.fence }];
        }
    }
}

fn work(url: &str, lease: i64) {
    let core = open(url);
    let context = insist(|| core.enter(&user())).unwrap();
    loop {
        let take = TakeItems { lease: Some(lease), ..TakeItems::default() };
        let taken = insist(|| core.execute(&context, &take)).unwrap();
        match taken.first() {
            Some(taken) => finish(&core, taken),
            None => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Whoever lost the lease is refused, and that is all there is to it.
fn finish(core: &Core, taken: &Taken) {
    let token = Credential::Token(Secret(taken.token.clone()));
    let Ok(run) = insist(|| core.enter(&token)) else { return };
    let note = CreateNote { studio: Ref::new("main"), title: taken.id.to_string(), body: String::new(), about: None };
    if insist(|| core.execute(&run, &note)).is_ok() {
        let complete = CompleteItem { id: taken.id.into(), fence: taken.fence, result: None };
        let _ = insist(|| core.execute(&run, &complete));
    }
}
