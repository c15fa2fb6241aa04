//! Writes through the actions.

use trackway_actions::{
    Action, Context, Core,
    decision::{CastVote, CreateDecision},
    note::CreateNote,
};
use trackway_domain::Ref;

use super::{
    ActionKind, ActionWorkload,
    bare_rows::{BODY, Ballot, STUDIO, TITLE},
};
use crate::{BenchResult, bench_env::BenchEnv};

/// Creates decisions with enough options for one writer's round. The round votes on each option once.
pub fn ballots(env: &BenchEnv, workload: ActionWorkload) -> BenchResult<Vec<Ballot>> {
    let ActionKind::Vote { options } = workload.kind else { return Ok(Vec::new()) };
    let mut ballots = Vec::with_capacity(workload.actions);
    while ballots.len() < workload.actions {
        let create = CreateDecision {
            studio: Ref::new(STUDIO),
            question: "Which way?".to_owned(),
            options: (0..options).map(|number| format!("option {number}")).collect(),
            description: None,
            deadline: None,
        };
        let decision = env.core.execute(&env.person, &create)?;
        let ballot = |option: &trackway_store::tables::DecisionOption| Ballot {
            decision: decision.id,
            option: option.id,
            title: option.title.clone(),
        };
        ballots.extend(decision.options.iter().map(ballot));
    }
    ballots.truncate(workload.actions);
    Ok(ballots)
}

/// Executes the actions of one round.
pub fn write(core: &Core, context: &Context, workload: ActionWorkload, ballots: &[Ballot]) -> BenchResult<()> {
    match workload.kind {
        ActionKind::Note => {
            let note =
                || CreateNote { studio: Ref::new(STUDIO), title: TITLE.to_owned(), body: BODY.to_owned(), about: None };
            execute(core, context, workload, (0..workload.actions).map(|_| note()))
        }
        ActionKind::Vote { .. } => {
            let vote = |ballot: &Ballot| CastVote {
                decision: Ref::from(ballot.decision),
                option: ballot.title.clone(),
                accept: true,
                prefer: false,
            };
            execute(core, context, workload, ballots.iter().map(vote))
        }
    }
}

fn execute<A: Action>(
    core: &Core,
    context: &Context,
    workload: ActionWorkload,
    mut actions: impl Iterator<Item = A>,
) -> BenchResult<()> {
    loop {
        let batch: Vec<A> = actions.by_ref().take(workload.per_transaction).collect();
        match batch.as_slice() {
            [] => return Ok(()),
            [action] => drop(core.execute(context, action)?),
            batch => drop(core.execute_all(context, batch)?),
        }
    }
}
