//! The same work through the write path.

use trackway_actions::{
    Action, Context, Core,
    decision::{CastVote, CreateDecision},
    note::CreateNote,
};
use trackway_domain::Ref;

use super::{
    Shape, Work,
    bare_rows::{BODY, Ballot, STUDIO, TITLE},
};
use crate::{Outcome, bench_env::BenchEnv};

/// Decisions with enough options for one writer's round, each to be voted on once.
pub fn ballots(env: &BenchEnv, shape: Shape) -> Outcome<Vec<Ballot>> {
    let Work::Vote { options } = shape.work else { return Ok(Vec::new()) };
    let mut ballots = Vec::with_capacity(shape.actions);
    while ballots.len() < shape.actions {
        let create = CreateDecision {
            studio: Ref::new(STUDIO),
            question: "Which way?".to_owned(),
            options: (0..options).map(|number| format!("option {number}")).collect(),
            description: None,
            deadline: None,
        };
        let opened = env.core.execute(&env.person, &create)?;
        let ballot = |option: &trackway_store::tables::DecisionOption| Ballot {
            decision: opened.id,
            option: option.id,
            title: option.title.clone(),
        };
        ballots.extend(opened.options.iter().map(ballot));
    }
    ballots.truncate(shape.actions);
    Ok(ballots)
}

/// One writer's round.
pub fn write(core: &Core, context: &Context, shape: Shape, ballots: &[Ballot]) -> Outcome<()> {
    match shape.work {
        Work::Note => {
            let note =
                || CreateNote { studio: Ref::new(STUDIO), title: TITLE.to_owned(), body: BODY.to_owned(), about: None };
            execute(core, context, shape, (0..shape.actions).map(|_| note()))
        }
        Work::Vote { .. } => {
            let vote = |ballot: &Ballot| CastVote {
                decision: Ref::from(ballot.decision),
                option: ballot.title.clone(),
                accept: true,
                prefer: false,
            };
            execute(core, context, shape, ballots.iter().map(vote))
        }
    }
}

fn execute<A: Action>(
    core: &Core,
    context: &Context,
    shape: Shape,
    mut actions: impl Iterator<Item = A>,
) -> Outcome<()> {
    loop {
        let batch: Vec<A> = actions.by_ref().take(shape.per_transaction).collect();
        match batch.as_slice() {
            [] => return Ok(()),
            [action] => drop(core.execute(context, action)?),
            batch => drop(core.execute_all(context, batch)?),
        }
    }
}
