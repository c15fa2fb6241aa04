//! The results of a vote: the options in the order of their votes.

use crate::{Id, Time, kind::DecisionOption};

/// An option with the number of its votes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct OptionResult {
    pub option: String,
    pub accepted: i64,
    pub preferred: i64,
    pub id: Id<DecisionOption>,
    #[serde(skip)]
    pub created_at: Time,
}

/// Sorts options: most accepted first, then most preferred, then the oldest, then the smallest id.
pub fn rank_options(mut results: Vec<OptionResult>) -> Vec<OptionResult> {
    results.sort_by(|a, b| {
        (b.accepted, b.preferred).cmp(&(a.accepted, a.preferred)).then((a.created_at, a.id).cmp(&(b.created_at, b.id)))
    });
    results
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn tied_options_are_ordered_by_age_then_by_id() {
        let option = |name: &str, accepted, preferred, created, id: u128| OptionResult {
            option: name.into(),
            accepted,
            preferred,
            id: Uuid::from_u128(id).into(),
            created_at: Time::from_micros(created),
        };
        let ranked = rank_options(vec![
            option("late", 1, 1, 9, 1),
            option("unloved", 1, 0, 1, 2),
            option("twin b", 1, 1, 5, 4),
            option("twin a", 1, 1, 5, 3),
            option("winner", 2, 0, 9, 9),
        ]);
        let names: Vec<_> = ranked.iter().map(|result| result.option.as_str()).collect();
        assert_eq!(names, ["winner", "twin a", "twin b", "late", "unloved"]);
    }
}
