//! The graph of replacements between task versions: the current version, the generation of each version, and the
//! detection of cycles. Blocking links must not form cycles either, and use the same search.

use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use crate::{Error, Id, Time, kind::Task};

/// A task version of a lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub id: Id<Task>,
    /// Neither archived nor deleted.
    pub is_live: bool,
}

/// The edge from a newer version to the older version that it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replacement {
    pub new: Id<Task>,
    pub old: Id<Task>,
    pub created_at: Time,
}

/// Maps each version of a lineage to its current version. Omits versions from which no live version can be reached.
///
/// The search follows the newest replacement that leads to a live version. Of equally new replacements, it follows the
/// one by the version with the smallest id. A version without such a replacement is its own current version if it is
/// live.
pub fn current_versions(versions: &[Version], replacements: &[Replacement]) -> HashMap<Id<Task>, Id<Task>> {
    let mut successors: HashMap<Id<Task>, Vec<&Replacement>> = HashMap::new();
    let mut predecessors: HashMap<Id<Task>, Vec<Id<Task>>> = HashMap::new();
    for replacement in replacements {
        successors.entry(replacement.old).or_default().push(replacement);
        predecessors.entry(replacement.new).or_default().push(replacement.old);
    }
    for newer in successors.values_mut() {
        newer.sort_by_key(|replacement| (Reverse(replacement.created_at), replacement.new));
    }
    // The number of successors that the loop has not visited yet.
    let mut unvisited: HashMap<Id<Task>, usize> = successors.iter().map(|(old, newer)| (*old, newer.len())).collect();
    let live: HashMap<Id<Task>, bool> = versions.iter().map(|version| (version.id, version.is_live)).collect();
    // Newest versions first: the loop visits a version after all versions that replace it.
    let mut waiting: VecDeque<Id<Task>> =
        versions.iter().map(|version| version.id).filter(|id| !successors.contains_key(id)).collect();
    let mut current = HashMap::new();
    while let Some(id) = waiting.pop_front() {
        let newer = successors.get(&id).into_iter().flatten().find_map(|replacement| current.get(&replacement.new));
        let own = live.get(&id).copied().unwrap_or_default().then_some(id);
        if let Some(answer) = newer.copied().or(own) {
            current.insert(id, answer);
        }
        for old in predecessors.get(&id).into_iter().flatten() {
            if let Some(left) = unvisited.get_mut(old) {
                *left -= 1;
                if *left == 0 {
                    waiting.push_back(*old);
                }
            }
        }
    }
    current
}

/// The generation of each version of a lineage. A version that replaces nothing has generation 0; any other version has
/// one more than the highest generation among the versions it replaces. So a version always has a higher generation
/// than the versions before it, even if it was defined earlier than they were.
pub fn generations(versions: &[Version], replacements: &[Replacement]) -> HashMap<Id<Task>, i64> {
    let mut successors: HashMap<Id<Task>, Vec<Id<Task>>> = HashMap::new();
    // The number of replaced versions that the loop has not visited yet.
    let mut unvisited: HashMap<Id<Task>, usize> = versions.iter().map(|version| (version.id, 0)).collect();
    for replacement in replacements {
        successors.entry(replacement.old).or_default().push(replacement.new);
        *unvisited.entry(replacement.new).or_default() += 1;
    }
    // Oldest versions first: the loop visits a version after all versions that it replaces.
    let mut waiting: VecDeque<Id<Task>> =
        unvisited.iter().filter(|(_, replaced)| **replaced == 0).map(|(id, _)| *id).collect();
    let mut generations: HashMap<Id<Task>, i64> = waiting.iter().map(|id| (*id, 0)).collect();
    while let Some(id) = waiting.pop_front() {
        let next = generations.get(&id).copied().unwrap_or_default() + 1;
        for newer in successors.get(&id).into_iter().flatten() {
            let generation = generations.entry(*newer).or_default();
            *generation = next.max(*generation);
            if let Some(left) = unvisited.get_mut(newer) {
                *left -= 1;
                if *left == 0 {
                    waiting.push_back(*newer);
                }
            }
        }
    }
    generations
}

/// The shortest path from one node to another along directed edges. It includes both ends.
pub fn shortest_path<N: Copy + Eq + Hash>(edges: &[(N, N)], from: N, to: N) -> Option<Vec<N>> {
    let mut successors: HashMap<N, Vec<N>> = HashMap::new();
    for (start, end) in edges {
        successors.entry(*start).or_default().push(*end);
    }
    let mut came_from = HashMap::from([(from, from)]);
    let mut waiting = VecDeque::from([from]);
    while let Some(here) = waiting.pop_front() {
        if here == to {
            let mut path = vec![to];
            let mut step = to;
            while step != from {
                step = came_from[&step];
                path.push(step);
            }
            path.reverse();
            return Some(path);
        }
        for next in successors.get(&here).into_iter().flatten() {
            came_from.entry(*next).or_insert_with(|| {
                waiting.push_back(*next);
                here
            });
        }
    }
    None
}

/// The conflict error that prints the names along a cycle.
pub fn cycle_error(verb: &str, names: &[String]) -> Error {
    Error::conflict(format!("that would make a cycle: {}", names.join(&format!(" {verb} "))))
}

/// The conflict error for a replacement that would merge two lineages into one that blocks itself. `names` are the
/// names along the cycle.
pub fn merge_cycle_error(names: &[String], new: &str, old: &str) -> Error {
    let Error { message, .. } = cycle_error("blocks", names);
    Error::conflict(format!("{message}, where {new} and {old} would be versions of one task"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn id(number: u8) -> Id<Task> {
        Uuid::from_u128(number.into()).into()
    }

    #[test]
    fn current_version_follows_newest_replacement_to_a_live_version() {
        let at = |second: i64| Time::from_micros(second * 1_000_000);
        let replaces = |new, old, second| Replacement { new: id(new), old: id(old), created_at: at(second) };
        let versions =
            |live: [bool; 5]| (1..).zip(live).map(|(number, live)| Version { id: id(number), is_live: live }).collect();
        // 1 <- 2 <- 4 and 1 <- 3; 5 has no edges. The replacement of 1 by 3 is newer than that by 2.
        let edges = [replaces(2, 1, 1), replaces(3, 1, 2), replaces(4, 2, 3)];
        let current = |live: [bool; 5]| {
            let versions: Vec<Version> = versions(live);
            let current = current_versions(&versions, &edges);
            (1..=5).map(|number| current.get(&id(number)).map(|task| task.uuid().as_u128())).collect::<Vec<_>>()
        };
        assert_eq!(current([true; 5]), [Some(3), Some(4), Some(3), Some(4), Some(5)]);
        assert_eq!(current([true, true, false, true, false]), [Some(4), Some(4), None, Some(4), None]);
        assert_eq!(current([true, true, false, false, true]), [Some(2), Some(2), None, None, Some(5)]);
        assert_eq!(current([true, false, false, false, true]), [Some(1), None, None, None, Some(5)]);
        let equally_new = [replaces(3, 1, 1), replaces(2, 1, 1)];
        assert_eq!(current_versions(&versions([true; 5]), &equally_new).get(&id(1)), Some(&id(2)));
    }

    #[test]
    fn version_has_higher_generation_than_all_versions_before_it() {
        let replaces = |new, old| Replacement { new: id(new), old: id(old), created_at: Time::from_micros(0) };
        let versions: Vec<Version> = (1..=6).map(|number| Version { id: id(number), is_live: true }).collect();
        // 1 <- 2 <- 3 <- 5, and 5 also replaces 1 and 4 directly; 6 has no edges.
        let edges = [replaces(5, 1), replaces(5, 4), replaces(2, 1), replaces(3, 2), replaces(5, 3)];
        let generations = generations(&versions, &edges);
        assert_eq!([1, 2, 3, 4, 5, 6].map(|number| generations[&id(number)]), [0, 1, 2, 0, 3, 0]);
    }

    #[test]
    fn finds_the_shortest_path() {
        let edges = [(1, 2), (2, 3), (3, 4), (1, 3)].map(|(a, b)| (id(a), id(b)));
        assert_eq!(shortest_path(&edges, id(1), id(4)), Some(vec![id(1), id(3), id(4)]));
        assert_eq!(shortest_path(&edges, id(4), id(1)), None);
        assert_eq!(shortest_path(&edges, id(2), id(2)), Some(vec![id(2)]));
    }

    proptest! {
        #[test]
        fn rejecting_edges_with_a_path_back_keeps_the_graph_acyclic(wanted in proptest::collection::vec((0u8..8, 0u8..8), 0..40)) {
            let mut edges = Vec::new();
            for (a, b) in wanted {
                if shortest_path(&edges, id(b), id(a)).is_none() {
                    edges.push((id(a), id(b)));
                }
            }
            for (a, b) in &edges {
                prop_assert_eq!(shortest_path(&edges, *b, *a), None);
            }
        }
    }
}
