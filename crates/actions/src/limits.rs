//! Limits of a run. The queue item's limit applies, else the task's, else the agent's.

use trackway_domain::{
    Error as Rule, Patch,
    enums::Switch,
    field,
    queue::{MAX_STEPS_LIMIT, check_range},
    sentence,
};

use crate::error::Result;

pub(crate) fn check_max_steps(given: &Patch<i64>) -> Result<Patch<i64>> {
    Ok(given.clone().try_map(|steps| check_range(field!(max_steps), steps, 1, MAX_STEPS_LIMIT))?)
}

pub(crate) fn check_spend_limit(given: &Patch<f64>) -> Result<Patch<f64>> {
    given.clone().try_map(|limit| {
        if limit.is_finite() && limit >= 0.0 {
            // Turns -0 into 0.
            Ok(limit + 0.0)
        } else {
            Err(Rule::usage(sentence![field!(spend_limit), " must be 0 or more"]).into())
        }
    })
}

/// Converts the switch of the end-of-run prompt into its column value.
pub(crate) fn end_of_run_column(given: &Patch<Switch>) -> Patch<bool> {
    match given {
        Patch::Unset => Patch::Unset,
        Patch::Clear => Patch::Clear,
        Patch::Set(switch) => Patch::Set(switch.is_on()),
    }
}
