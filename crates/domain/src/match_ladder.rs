//! The lower rungs of the match ladder: which spawn made an agent, when nothing names both.
//!
//! The upper rungs are facts that name the call and the agent together; they are recorded as they are seen. Here is
//! what is left when none was seen: the prompt, which is still evidence, and two guesses that anything better replaces.

use crate::words::Evidence;

/// A spawn that no agent is matched to yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmatched<Id> {
    pub id: Id,
    pub subagent_type: Option<String>,
    pub role: Option<String>,
    pub prompt_hash: Option<String>,
}

/// What is known of an agent that looks for its spawn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seeker {
    pub agent_type: Option<String>,
    /// A role that was given, not derived.
    pub role: Option<String>,
    /// The hash of its first prompt.
    pub prompt_hash: Option<String>,
}

/// The spawn that made an agent, out of the unmatched ones of its session, oldest first.
pub fn climb<Id: Copy>(seeker: &Seeker, unmatched: &[Unmatched<Id>]) -> Option<(Id, Evidence)> {
    if let Some(hash) = &seeker.prompt_hash {
        // The first prompt is in hand: a spawn with another prompt did not make this agent, whatever its type.
        return only(unmatched.iter().filter(|spawn| spawn.prompt_hash.as_ref() == Some(hash)))
            .map(|spawn| (spawn.id, Evidence::PromptHash));
    }
    if let Some(role) = &seeker.role
        && let Some(spawn) = unmatched.iter().find(|spawn| spawn.role.as_ref() == Some(role))
    {
        return Some((spawn.id, Evidence::Role));
    }
    let agent_type = seeker.agent_type.as_ref().filter(|agent_type| !agent_type.is_empty())?;
    let same_type = || unmatched.iter().filter(|spawn| spawn.subagent_type.as_ref() == Some(agent_type));
    only(same_type())
        .or_else(|| same_type().find(|spawn| spawn.role.is_some()))
        .map(|spawn| (spawn.id, Evidence::SubagentType))
}

fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spawn(id: u32, subagent_type: &str, role: Option<&str>, hash: &str) -> Unmatched<u32> {
        Unmatched {
            id,
            subagent_type: Some(subagent_type.into()),
            role: role.map(Into::into),
            prompt_hash: Some(hash.into()),
        }
    }

    fn typed(agent_type: &str) -> Seeker {
        Seeker { agent_type: Some(agent_type.into()), ..Seeker::default() }
    }

    #[test]
    fn the_only_spawn_of_a_type_is_taken() {
        let spawns = [spawn(1, "coder", None, "a"), spawn(2, "reviewer", None, "b")];
        assert_eq!(climb(&typed("reviewer"), &spawns), Some((2, Evidence::SubagentType)));
        assert_eq!(climb(&typed("other"), &spawns), None);
        assert_eq!(climb(&typed(""), &spawns), None);
    }

    #[test]
    fn of_several_the_oldest_with_a_role_is_taken_and_without_roles_none() {
        let spawns =
            [spawn(1, "general", None, "a"), spawn(2, "general", Some("x"), "b"), spawn(3, "general", Some("y"), "c")];
        assert_eq!(climb(&typed("general"), &spawns), Some((2, Evidence::SubagentType)));
        assert_eq!(climb(&typed("general"), &[spawns[0].clone(), spawn(4, "general", None, "d")]), None);
    }

    #[test]
    fn an_exact_role_comes_before_the_type() {
        let spawns = [spawn(1, "general", Some("a"), "1"), spawn(2, "general", Some("b"), "2")];
        let seeker = Seeker { role: Some("b".into()), ..typed("general") };
        assert_eq!(climb(&seeker, &spawns), Some((2, Evidence::Role)));
    }

    #[test]
    fn equal_prompts_are_not_guessed_at() {
        let spawns = [spawn(1, "general", Some("a"), "same"), spawn(2, "general", Some("b"), "same")];
        let seeker = Seeker { prompt_hash: Some("same".into()), ..typed("general") };
        assert_eq!(climb(&seeker, &spawns), None);
        assert_eq!(climb(&seeker, &spawns[1..]), Some((2, Evidence::PromptHash)));
    }

    proptest! {
        #[test]
        fn a_known_prompt_never_matches_another_one(hashes in proptest::collection::vec("[ab]", 0..6), own in "[abc]") {
            let spawns: Vec<_> = hashes.iter().zip(0..).map(|(hash, id)| spawn(id, "general", Some("r"), hash)).collect();
            let seeker = Seeker { prompt_hash: Some(own.clone()), role: Some("r".into()), ..typed("general") };
            match climb(&seeker, &spawns) {
                Some((id, evidence)) => {
                    prop_assert_eq!(evidence, Evidence::PromptHash);
                    prop_assert_eq!(spawns.iter().filter(|spawn| spawn.prompt_hash.as_ref() == Some(&own)).count(), 1);
                    prop_assert_eq!(spawns[id as usize].prompt_hash.as_ref(), Some(&own));
                }
                None => prop_assert_ne!(hashes.iter().filter(|hash| **hash == own).count(), 1),
            }
        }
    }
}
