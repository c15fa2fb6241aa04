//! Paths through edges between tasks: replacements and blocking links must not form a circle.

use std::collections::{HashMap, VecDeque};

use crate::{Error, Id, kind::Task};

/// The shortest way from one task to another along directed edges, both ends included.
pub fn path(edges: &[(Id<Task>, Id<Task>)], from: Id<Task>, to: Id<Task>) -> Option<Vec<Id<Task>>> {
    let mut onward: HashMap<Id<Task>, Vec<Id<Task>>> = HashMap::new();
    for (start, end) in edges {
        onward.entry(*start).or_default().push(*end);
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
        for next in onward.get(&here).into_iter().flatten() {
            came_from.entry(*next).or_insert_with(|| {
                waiting.push_back(*next);
                here
            });
        }
    }
    None
}

/// The conflict that prints a circle, given the names along it.
pub fn cycle(verb: &str, names: &[String]) -> Error {
    Error::conflict(format!("that would make a circle: {}", names.join(&format!(" {verb} "))))
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
    fn finds_the_shortest_way() {
        let edges = [(1, 2), (2, 3), (3, 4), (1, 3)].map(|(a, b)| (id(a), id(b)));
        assert_eq!(path(&edges, id(1), id(4)), Some(vec![id(1), id(3), id(4)]));
        assert_eq!(path(&edges, id(4), id(1)), None);
        assert_eq!(path(&edges, id(2), id(2)), Some(vec![id(2)]));
    }

    proptest! {
        #[test]
        fn refusing_edges_whose_way_back_exists_keeps_the_graph_free_of_circles(wanted in proptest::collection::vec((0u8..8, 0u8..8), 0..40)) {
            let mut edges = Vec::new();
            for (a, b) in wanted {
                if path(&edges, id(b), id(a)).is_none() {
                    edges.push((id(a), id(b)));
                }
            }
            for (a, b) in &edges {
                prop_assert_eq!(path(&edges, *b, *a), None);
            }
        }
    }
}
