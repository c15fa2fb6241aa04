//! A process that takes queue items, for tests that start and kill many such processes.
//!
//!     queue-taker take URL          takes items one by one until the queue is empty, and prints their ids
//!     queue-taker done URL          like `take`, and completes each item when it takes the next one
//!     queue-taker work URL LEASE    takes items, writes a note in each run and completes the item, until it is killed

#![expect(clippy::unwrap_used, reason = "a panic in this process fails the test")]
#![expect(clippy::print_stdout, reason = "the test reads standard output")]

use std::{thread, time::Duration};

use trackway_actions::{
    Core, Credential, Error,
    context::Secret,
    note::CreateNote,
    queue::{CompleteItem, TakeItems, TakenItem},
};
use trackway_domain::{Ref, queue::FencedItem};
use trackway_store::{Store, Url};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["take", url] => take(url, false),
        ["done", url] => take(url, true),
        ["work", url, lease] => work(url, lease.parse().unwrap()),
        _ => panic!("usage: queue-taker take URL | done URL | work URL LEASE"),
    }
}

/// Retries on transient errors: the database may be restarting.
fn retry_while_transient<T>(mut operation: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match operation() {
            Err(error) if error.is_transient() => thread::sleep(Duration::from_millis(20)),
            outcome => return outcome,
        }
    }
}

fn open(url: &str) -> Core {
    Core::new(retry_while_transient(|| Ok(Store::open(Url::parse(url)?)?)).unwrap())
}

fn user() -> Credential {
    Credential::User { tenant: "local".into(), handle: "ada".into() }
}

fn take(url: &str, complete_with_next: bool) {
    let core = open(url);
    let context = retry_while_transient(|| core.authenticate(&user())).unwrap();
    let mut take = TakeItems::default();
    loop {
        let taken = retry_while_transient(|| core.execute(&context, &take)).unwrap();
        let Some(taken) = taken.first() else { return };
        println!("{}", taken.id);
        if complete_with_next {
            take.done = vec![FencedItem { id: taken.id.into(), fence: taken.fence }];
        }
    }
}

fn work(url: &str, lease: i64) {
    let core = open(url);
    let context = retry_while_transient(|| core.authenticate(&user())).unwrap();
    loop {
        let take = TakeItems { lease: Some(lease), ..TakeItems::default() };
        let taken = retry_while_transient(|| core.execute(&context, &take)).unwrap();
        match taken.first() {
            Some(taken) => finish(&core, taken),
            None => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Writes the note and completes the item. Trackway refuses both if the lease is lost; the process then takes the next
/// item.
fn finish(core: &Core, taken: &TakenItem) {
    let token = Credential::Token(Secret(taken.token.clone()));
    let Ok(run) = retry_while_transient(|| core.authenticate(&token)) else { return };
    let note = CreateNote { studio: Ref::new("main"), title: taken.id.to_string(), body: String::new(), about: None };
    if retry_while_transient(|| core.execute(&run, &note)).is_ok() {
        let complete = CompleteItem { id: taken.id.into(), fence: taken.fence, result: None };
        let _ = retry_while_transient(|| core.execute(&run, &complete));
    }
}
