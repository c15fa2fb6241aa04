//! The lower rungs of the match ladder: which spawn started an agent, when no source names both together.
//!
//! Rungs 1 to 5 are facts that name the tool call and the agent together; they are recorded as they are seen. [`climb`]
//! decides the rest, from what is known of the agent and of the session's spawns:
//!
//! - Rung 6, `prompt_hash`. The agent's first prompt equals the prompt of exactly one spawn that has no exact match:
//!   that spawn started it. This match is exact, and takes the spawn from an agent that holds it by a fallback.
//! - Rung 6 among equals. Several such spawns have that prompt, which happens when one message starts several agents with
//!   equal prompts: the oldest free one, *tentative*.
//! - A prompt that some spawn of the session has, even one with an exact match, explains where the agent comes from: the
//!   rungs below do not fire. A prompt that no spawn has contradicts none of them, because a hook, a client version or
//!   a bad line may have changed or lost the prompt on one side: the rungs below fire as if it were unknown.
//! - Rung 7, `role`. The agent's own first prompt carries a role tag: the oldest free spawn of that role, tentative.
//! - Rung 8, `subagent_type`. The only free spawn of the agent's type, else the oldest free one that has a role,
//!   tentative. Spawns of another role than the agent's own tag names are left out.
//!
//! "Oldest" is the order in which the caller lists the spawns: by line of the transcript, then by first seen.
//!
//! Three rules keep tentative matches apart and let them be replaced:
//!
//! - An agent holds at most one spawn by a tentative match, and a spawn is held by at most one agent.
//! - An agent keeps the spawn it holds as long as the same rung would give it. A better rung may give it another one, and
//!   what it has learned since may contradict the match ([`is_contradicted`]), which is then withdrawn.
//! - A tentative match on a better rung takes a spawn from one on a worse rung ([`Match`] is ordered, the best first); the
//!   displaced agent climbs again. Exact evidence takes it from any tentative match, and is never displaced by one.

use crate::words::Evidence;

/// How a spawn and an agent were matched. The smallest is the best: exact before tentative, then by rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match {
    pub tentative: bool,
    pub evidence: Evidence,
}

impl Match {
    /// A match by this evidence alone: tentative if it is a fallback.
    pub fn by(evidence: Evidence) -> Self {
        Self { tentative: evidence.is_fallback(), evidence }
    }

    pub fn tentative(evidence: Evidence) -> Self {
        Self { tentative: true, evidence }
    }
}

/// The holder of a spawn, as seen by an agent that looks for its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    None,
    /// The agent itself, by a tentative match.
    Itself,
    /// Another agent.
    Other(Match),
}

/// A spawn of the agent's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate<Id> {
    pub id: Id,
    pub subagent_type: Option<String>,
    pub role: Option<String>,
    pub prompt_hash: Option<String>,
    pub holder: Holder,
    /// Whether the role and type rungs may choose it: a call that failed, or that came after the agent, did not start it
    /// unless the prompt says so.
    pub may_be_guessed: bool,
}

impl<Id> Candidate<Id> {
    fn is_settled(&self) -> bool {
        matches!(self.holder, Holder::Other(Match { tentative: false, .. }))
    }

    fn is_available(&self) -> bool {
        matches!(self.holder, Holder::None | Holder::Itself)
    }
}

/// What is known of an agent that looks for its spawn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seeker {
    pub agent_type: Option<String>,
    /// The role tag in its own first prompt.
    pub role: Option<String>,
    /// The hash of its first prompt.
    pub prompt_hash: Option<String>,
}

impl Seeker {
    fn names_another_role<Id>(&self, spawn: &Candidate<Id>) -> bool {
        matches!((&self.role, &spawn.role), (Some(own), Some(other)) if own != other)
    }
}

/// The spawn that started an agent, out of those of its session, oldest first.
pub fn climb<Id: Copy>(seeker: &Seeker, spawns: &[Candidate<Id>]) -> Option<(Id, Match)> {
    if let Some(hash) = &seeker.prompt_hash {
        let same = || spawns.iter().filter(|spawn| spawn.prompt_hash.as_ref() == Some(hash));
        if let Some(spawn) = only(same().filter(|spawn| !spawn.is_settled())) {
            return Some((spawn.id, Match::by(Evidence::PromptHash)));
        }
        if same().next().is_some() {
            return first(same(), Match::tentative(Evidence::PromptHash));
        }
    }
    let guessable = || spawns.iter().filter(|spawn| spawn.may_be_guessed || spawn.holder == Holder::Itself);
    if let Some(role) = &seeker.role
        && let Some(found) =
            first(guessable().filter(|spawn| spawn.role.as_ref() == Some(role)), Match::tentative(Evidence::Role))
    {
        return Some(found);
    }
    let agent_type = seeker.agent_type.as_ref().filter(|agent_type| !agent_type.is_empty())?;
    let same_type = || {
        guessable().filter(|spawn| {
            spawn.is_available()
                && spawn.subagent_type.as_ref() == Some(agent_type)
                && !seeker.names_another_role(spawn)
        })
    };
    same_type()
        .find(|spawn| spawn.holder == Holder::Itself)
        .or_else(|| only(same_type()))
        .or_else(|| same_type().find(|spawn| spawn.role.is_some()))
        .map(|spawn| (spawn.id, Match::tentative(Evidence::SubagentType)))
}

/// Whether what is known of an agent speaks against a tentative match with one of these spawns: its prompt is another spawn's,
/// or its own role tag names another role.
pub fn is_contradicted<Id: Copy + PartialEq>(seeker: &Seeker, held: Id, spawns: &[Candidate<Id>]) -> bool {
    let has_prompt = |spawn: &Candidate<Id>| seeker.prompt_hash.is_some() && spawn.prompt_hash == seeker.prompt_hash;
    let is_held = |spawn: &&Candidate<Id>| spawn.id == held;
    let prompt_is_elsewhere =
        spawns.iter().any(has_prompt) && !spawns.iter().any(|spawn| is_held(&spawn) && has_prompt(spawn));
    prompt_is_elsewhere || spawns.iter().find(is_held).is_some_and(|spawn| seeker.names_another_role(spawn))
}

/// The spawn that a tentative rung gives: the one the agent holds already, else the oldest free one, else the oldest that
/// another agent holds on a worse rung. Of equal prompts, a call that failed comes after all that did not.
fn first<'a, Id: Copy + 'a>(spawns: impl Iterator<Item = &'a Candidate<Id>>, by: Match) -> Option<(Id, Match)> {
    let comes_last = |spawn: &Candidate<Id>| by.evidence == Evidence::PromptHash && !spawn.may_be_guessed;
    let preference = |spawn: &Candidate<Id>| match spawn.holder {
        Holder::Itself => Some(if comes_last(spawn) { 2 } else { 0 }),
        Holder::None => Some(if comes_last(spawn) { 3 } else { 1 }),
        Holder::Other(held) => (by < held).then_some(4),
    };
    let preferred = spawns.filter_map(|spawn| Some((preference(spawn)?, spawn)));
    // `min_by_key` keeps the first of equals, which is the oldest.
    preferred.min_by_key(|(preference, _)| *preference).map(|(_, spawn)| (spawn.id, by))
}

fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn spawn(id: usize, subagent_type: &str, role: Option<&str>, hash: &str) -> Candidate<usize> {
        Candidate {
            id,
            subagent_type: Some(subagent_type.into()),
            role: role.map(Into::into),
            prompt_hash: Some(hash.into()),
            holder: Holder::None,
            may_be_guessed: true,
        }
    }

    fn held(holder: Holder, spawn: Candidate<usize>) -> Candidate<usize> {
        Candidate { holder, ..spawn }
    }

    fn typed(agent_type: &str) -> Seeker {
        Seeker { agent_type: Some(agent_type.into()), ..Seeker::default() }
    }

    fn other(evidence: Evidence) -> Holder {
        Holder::Other(Match::by(evidence))
    }

    const TYPE: Match = Match { tentative: true, evidence: Evidence::SubagentType };
    const ROLE: Match = Match { tentative: true, evidence: Evidence::Role };
    const PROMPT: Match = Match { tentative: false, evidence: Evidence::PromptHash };
    const EQUAL_PROMPT: Match = Match { tentative: true, evidence: Evidence::PromptHash };

    #[test]
    fn matches_are_ordered_by_certainty_then_by_rung() {
        assert!(Match::by(Evidence::PostToolUse) < Match::by(Evidence::AgentProgress));
        assert!(PROMPT < EQUAL_PROMPT && EQUAL_PROMPT < ROLE && ROLE < TYPE);
    }

    #[test]
    fn the_only_free_spawn_of_a_type_is_taken() {
        let spawns = [spawn(1, "coder", None, "a"), spawn(2, "reviewer", None, "b")];
        assert_eq!(climb(&typed("reviewer"), &spawns), Some((2, TYPE)));
        assert_eq!(climb(&typed("other"), &spawns), None);
        assert_eq!(climb(&typed(""), &spawns), None);
    }

    #[test]
    fn of_several_of_a_type_the_oldest_with_a_role_is_taken_and_without_roles_none() {
        let spawns =
            [spawn(1, "general", None, "a"), spawn(2, "general", Some("x"), "b"), spawn(3, "general", Some("y"), "c")];
        assert_eq!(climb(&typed("general"), &spawns), Some((2, TYPE)));
        assert_eq!(climb(&typed("general"), &[spawns[0].clone(), spawn(4, "general", None, "d")]), None);
    }

    #[test]
    fn of_equal_prompts_a_call_that_failed_comes_last() {
        let failed = |spawn| Candidate { may_be_guessed: false, ..spawn };
        let seeker = Seeker { prompt_hash: Some("p".into()), ..typed("general") };
        let retried = [failed(spawn(1, "general", None, "p")), spawn(2, "general", None, "p")];
        assert_eq!(climb(&seeker, &retried), Some((2, EQUAL_PROMPT)));
        let held_by_itself = [held(Holder::Itself, retried[0].clone()), retried[1].clone()];
        assert_eq!(climb(&seeker, &held_by_itself), Some((2, EQUAL_PROMPT)), "the call failed after the match");
        assert_eq!(climb(&seeker, &retried[..1]), Some((1, PROMPT)), "the only call with that prompt");
    }

    #[test]
    fn an_own_role_tag_comes_before_the_type() {
        let spawns = [spawn(1, "general", Some("a"), "1"), spawn(2, "general", Some("b"), "2")];
        let seeker = Seeker { role: Some("b".into()), ..typed("general") };
        assert_eq!(climb(&seeker, &spawns), Some((2, ROLE)));
    }

    #[test]
    fn a_known_prompt_that_no_spawn_has_leaves_role_and_type_to_decide() {
        let spawns =
            [spawn(1, "general", Some("a"), "1"), spawn(2, "general", Some("b"), "2"), spawn(3, "g", Some("b"), "3")];
        let seeker = Seeker { role: Some("b".into()), prompt_hash: Some("own".into()), ..typed("general") };
        assert_eq!(climb(&seeker, &spawns), Some((2, ROLE)));
        assert_eq!(climb(&Seeker { role: None, ..seeker.clone() }, &spawns), Some((1, TYPE)));
        // The own tag contradicts spawns of other roles, and a spawn without a role does not.
        let other = Seeker { role: Some("c".into()), ..seeker };
        assert_eq!(climb(&other, &spawns), None);
        assert_eq!(climb(&other, &[spawns[0].clone(), spawn(4, "general", None, "4")]), Some((4, TYPE)));
    }

    #[test]
    fn a_tentative_match_is_contradicted_by_the_prompt_or_the_own_role() {
        let spawns = [spawn(1, "general", Some("a"), "1"), spawn(2, "general", None, "2")];
        let seeker = |role: Option<&str>, hash: Option<&str>| Seeker {
            role: role.map(Into::into),
            prompt_hash: hash.map(Into::into),
            ..typed("general")
        };
        assert!(!is_contradicted(&seeker(None, None), 1, &spawns));
        assert!(!is_contradicted(&seeker(Some("a"), Some("1")), 1, &spawns));
        assert!(!is_contradicted(&seeker(Some("b"), Some("own")), 2, &spawns));
        assert!(is_contradicted(&seeker(Some("b"), Some("own")), 1, &spawns));
        assert!(is_contradicted(&seeker(Some("a"), Some("2")), 1, &spawns));
    }

    #[test]
    fn a_prompt_of_a_spawn_with_an_exact_match_leaves_nothing_to_the_fallbacks() {
        let spawns = [
            held(other(Evidence::ToolResult), spawn(1, "general", Some("a"), "same")),
            spawn(2, "general", Some("a"), "2"),
        ];
        let seeker = Seeker { role: Some("a".into()), prompt_hash: Some("same".into()), ..typed("general") };
        assert_eq!(climb(&seeker, &spawns), None);
    }

    #[test]
    fn equal_prompts_go_to_the_oldest_free_spawn_tentatively() {
        let mut spawns = [spawn(1, "general", Some("a"), "same"), spawn(2, "general", Some("b"), "same")];
        let seeker = Seeker { prompt_hash: Some("same".into()), ..typed("general") };
        assert_eq!(climb(&seeker, &spawns), Some((1, EQUAL_PROMPT)));
        spawns[0].holder = Holder::Other(EQUAL_PROMPT);
        assert_eq!(climb(&seeker, &spawns), Some((2, EQUAL_PROMPT)));
        spawns[1].holder = Holder::Other(EQUAL_PROMPT);
        assert_eq!(climb(&seeker, &spawns), None);
        // The exact match of one leaves one: nothing is tentative about it any more.
        spawns[1].holder = other(Evidence::ToolResult);
        assert_eq!(climb(&seeker, &spawns), Some((1, PROMPT)));
        assert_eq!(climb(&seeker, &spawns[..1]), Some((1, PROMPT)));
    }

    #[test]
    fn a_better_rung_takes_a_spawn_from_a_worse_one_only() {
        let by_type = [held(Holder::Other(TYPE), spawn(1, "general", Some("a"), "1"))];
        let by_role = [held(Holder::Other(ROLE), spawn(1, "general", Some("a"), "1"))];
        let seeker = Seeker { role: Some("a".into()), ..typed("general") };
        assert_eq!(climb(&seeker, &by_type), Some((1, ROLE)));
        assert_eq!(climb(&seeker, &by_role), None);
        assert_eq!(climb(&typed("general"), &by_type), None);
        let prompted = Seeker { prompt_hash: Some("1".into()), ..Seeker::default() };
        assert_eq!(climb(&prompted, &by_role), Some((1, PROMPT)));
    }

    #[test]
    fn an_agent_keeps_the_spawn_that_it_holds() {
        let spawns = [
            spawn(1, "general", Some("a"), "1"),
            held(Holder::Itself, Candidate { may_be_guessed: false, ..spawn(2, "general", Some("a"), "2") }),
        ];
        let seeker = Seeker { role: Some("a".into()), ..typed("general") };
        assert_eq!(climb(&seeker, &spawns), Some((2, ROLE)));
        assert_eq!(climb(&typed("general"), &spawns), Some((2, TYPE)));
    }

    #[test]
    fn what_may_not_be_guessed_is_taken_by_its_prompt_only() {
        let spawns = [Candidate { may_be_guessed: false, ..spawn(1, "general", Some("a"), "1") }];
        let seeker = Seeker { role: Some("a".into()), ..typed("general") };
        assert_eq!(climb(&seeker, &spawns), None);
        let prompted = Seeker { prompt_hash: Some("1".into()), ..seeker };
        assert_eq!(climb(&prompted, &spawns), Some((1, PROMPT)));
    }

    /// A session as a plain model: who holds which spawn, and the rules by which matches replace each other.
    #[derive(Debug)]
    struct Session {
        spawns: Vec<Candidate<usize>>,
        holders: Vec<Option<(usize, Match)>>,
        agents: Vec<Seeker>,
    }

    impl Session {
        fn new(spawns: Vec<Candidate<usize>>, agents: Vec<Seeker>) -> Self {
            Self { holders: vec![None; spawns.len()], spawns, agents }
        }

        fn is_exact(&self, agent: usize) -> bool {
            self.holders.iter().flatten().any(|(holder, by)| *holder == agent && !by.tentative)
        }

        /// Lets agents climb until nobody is displaced.
        fn settle(&mut self, first: impl IntoIterator<Item = usize>) {
            let mut seeking: BTreeSet<usize> = first.into_iter().collect();
            let mut steps = 0;
            while let Some(agent) = seeking.pop_first() {
                steps += 1;
                assert!(steps <= 10_000, "agents displace each other for ever: {self:#?}");
                if self.is_exact(agent) {
                    continue;
                }
                for (spawn, holder) in self.spawns.iter_mut().zip(&self.holders) {
                    spawn.holder = match holder {
                        None => Holder::None,
                        Some((holder, _)) if *holder == agent => Holder::Itself,
                        Some((_, by)) => Holder::Other(*by),
                    };
                }
                match climb(&self.agents[agent], &self.spawns) {
                    Some((spawn, by)) => seeking.extend(self.hold(spawn, agent, by)),
                    None => {
                        let (seeker, spawns) = (&self.agents[agent], &self.spawns);
                        for (spawn, holder) in self.holders.iter_mut().enumerate() {
                            if holder.is_some_and(|(holder, _)| holder == agent)
                                && is_contradicted(seeker, spawn, spawns)
                            {
                                *holder = None;
                            }
                        }
                    }
                }
            }
        }

        /// Lets a match stand, and says who lost a spawn by it.
        fn hold(&mut self, spawn: usize, agent: usize, by: Match) -> Option<usize> {
            for holder in &mut self.holders {
                if holder.is_some_and(|(holder, held)| holder == agent && held.tentative) {
                    *holder = None;
                }
            }
            let before = self.holders[spawn];
            if before.is_none_or(|(_, held)| by < held) {
                self.holders[spawn] = Some((agent, by));
            }
            before.map(|(holder, _)| holder).filter(|holder| *holder != agent)
        }

        fn check(&self) -> Result<(), TestCaseError> {
            for agent in 0..self.agents.len() {
                let held: Vec<bool> = self
                    .holders
                    .iter()
                    .flatten()
                    .filter(|(holder, _)| *holder == agent)
                    .map(|(_, by)| by.tentative)
                    .collect();
                let tentative = held.iter().filter(|tentative| **tentative).count();
                prop_assert!(tentative <= 1, "{} holds two spawns tentatively: {:#?}", agent, self);
                prop_assert!(tentative == 0 || held.len() == 1, "{} holds exact and tentative: {:#?}", agent, self);
            }
            Ok(())
        }
    }

    fn word(of: &'static str) -> impl Strategy<Value = Option<String>> {
        proptest::option::of(proptest::sample::select(of.split(' ').collect::<Vec<_>>()).prop_map(str::to_owned))
    }

    fn any_spawns() -> impl Strategy<Value = Vec<Candidate<usize>>> {
        vec((word("x y"), word("r s"), word("p q o"), any::<bool>()), 0..7).prop_map(|spawns| {
            let candidate = |(id, (subagent_type, role, prompt_hash, may_be_guessed))| Candidate {
                id,
                subagent_type,
                role,
                prompt_hash,
                holder: Holder::None,
                may_be_guessed,
            };
            spawns.into_iter().enumerate().map(candidate).collect()
        })
    }

    fn any_agents() -> impl Strategy<Value = Vec<Seeker>> {
        let seeker = |(agent_type, role, prompt_hash)| Seeker { agent_type, role, prompt_hash };
        vec((word("x y"), word("r s"), word("p q o n")).prop_map(seeker), 1..7)
    }

    const EXACT: [Evidence; 3] = [Evidence::PostToolUse, Evidence::ToolResult, Evidence::AgentProgress];

    proptest! {
        #[test]
        fn two_agents_never_share_a_spawn_and_no_agent_holds_two_by_fallback(
            spawns in any_spawns(),
            agents in any_agents(),
            order in vec((0..7_usize, word("p q"), word("r")), 0..30),
        ) {
            let known = agents.clone();
            let blank = agents.iter().map(|agent| Seeker { agent_type: agent.agent_type.clone(), ..Seeker::default() });
            let mut session = Session::new(spawns, blank.collect());
            for (agent, prompt, role) in order {
                let agent = agent % known.len();
                // Facts about an agent are added, and never change.
                if prompt.is_some() {
                    session.agents[agent].prompt_hash.clone_from(&known[agent].prompt_hash);
                }
                if role.is_some() {
                    session.agents[agent].role.clone_from(&known[agent].role);
                }
                session.settle([agent]);
                session.check()?;
            }
        }

        #[test]
        fn exact_evidence_wins_over_fallbacks_whatever_the_order(
            spawns in any_spawns(),
            agents in any_agents(),
            pairs in proptest::sample::subsequence((0..6_usize).collect::<Vec<_>>(), 0..6).prop_shuffle(),
            evidence in proptest::sample::select(EXACT.to_vec()),
            seeks in vec(vec(0..6_usize, 0..4), 7),
        ) {
            // Each agent of a pair was started by the spawn of the same number.
            let pairs: Vec<usize> = pairs.into_iter().filter(|pair| *pair < spawns.len().min(agents.len())).collect();
            let mut session = Session::new(spawns, agents);
            let count = session.agents.len();
            let seekers = |number: usize| seeks[number].iter().map(|agent| agent % count).collect::<Vec<_>>();
            for (number, pair) in pairs.iter().enumerate() {
                session.settle(seekers(number));
                session.check()?;
                // The prompt is evidence too: what it says exactly before is left as it is by worse evidence only.
                let displaced = session.hold(*pair, *pair, Match::by(evidence));
                session.settle(displaced);
                session.check()?;
            }
            session.settle(seekers(6));
            session.check()?;
            for pair in pairs {
                prop_assert_eq!(session.holders[pair], Some((pair, Match::by(evidence))));
            }
        }

        #[test]
        fn matches_settle(spawns in any_spawns(), agents in any_agents()) {
            let mut session = Session::new(spawns, agents);
            let rounds = session.agents.len() * 4;
            // One round may free a spawn for an agent that has climbed already.
            let is_stable = (0..rounds).any(|_| {
                let before = session.holders.clone();
                session.settle(0..session.agents.len());
                before == session.holders
            });
            prop_assert!(is_stable, "{:#?}", session);
        }
    }
}
