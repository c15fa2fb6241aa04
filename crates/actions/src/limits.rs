//! Limits of a run as the agent, the task and the queue item set them. The nearest one counts: item, task, agent, default.

use trackway_domain::{
    Error as Rule, Patch, field,
    queue::{MAX_STEPS_MAX, within},
    sentence,
    words::Switch,
};

use crate::error::Result;

/// Checks the model turns that a run may take.
pub(crate) fn max_steps(given: &Patch<i64>) -> Result<Patch<i64>> {
    Ok(given.clone().try_map(|steps| within(field!(max_steps), steps, 1, MAX_STEPS_MAX))?)
}

/// Checks what an agent may spend in a day.
pub(crate) fn spend_limit(given: &Patch<f64>) -> Result<Patch<f64>> {
    given.clone().try_map(|limit| {
        if limit.is_finite() && limit >= 0.0 {
            // -0 is stored as 0.
            Ok(limit + 0.0)
        } else {
            Err(Rule::usage(sentence![field!(spend_limit), " is an amount of 0 or more"]).into())
        }
    })
}

/// Whether the end-of-run prompt is asked, as a column holds it.
pub(crate) fn end_of_run(given: &Patch<Switch>) -> Patch<bool> {
    match given {
        Patch::Unset => Patch::Unset,
        Patch::Clear => Patch::Clear,
        Patch::Set(switch) => Patch::Set(switch.is_on()),
    }
}
