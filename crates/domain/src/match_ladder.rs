//! The lower rungs of the match ladder. They find the spawn that started an agent if no source names both together.
//!
//! Rungs 1 to 5 are facts that name the tool call and the agent together. Trackway records such a fact when it observes
//! it. [`find_spawn`] implements the other rungs, from the known properties of the agent and of the session's spawns:
//!
//! - Rung 6, `prompt_hash`. If exactly one spawn without an exact match has the agent's first prompt, that spawn
//!   started the agent. This match is exact, and replaces a match of the spawn by a lower rung.
//! - Rung 6, if several such spawns have that prompt. This happens when one message starts several agents with equal
//!   prompts. The oldest free spawn is a *tentative* match.
//! - The rungs below rung 6 do not apply if any spawn of the session has the agent's prompt, even one with an exact
//!   match, because that prompt explains where the agent comes from. If no spawn has the prompt, these rungs apply as
//!   if the prompt were unknown: a hook, a client version or a bad line may have changed or lost the prompt of the
//!   agent or of the spawn.
//! - Rung 7, `role`. If the agent's first prompt has a role tag, the oldest free spawn of that role is a tentative
//!   match.
//! - Rung 8, `subagent_type`. The only free spawn of the agent's type is a tentative match. If there are several, the
//!   match is the oldest free one with a role. Spawns do not count if the agent's role tag names another role than
//!   theirs.
//!
//! The oldest spawn is the first in the caller's list, which is ordered by line of the transcript, then by the time at
//! which the spawn was first seen.
//!
//! Three rules apply to tentative matches:
//!
//! - An agent holds at most one spawn by a tentative match, and at most one agent holds a spawn.
//! - An agent keeps its spawn as long as the same rung would choose that spawn. A better rung may choose another one.
//!   Facts that arrive later may contradict the match ([`is_contradicted`]); the match is then withdrawn.
//! - A tentative match on a better rung displaces one on a worse rung ([`Match`] is ordered, the best first), and the
//!   displaced agent searches again. An exact match displaces every tentative match, and no tentative match displaces
//!   it.

use crate::enums::Evidence;

/// The quality of a match between a spawn and an agent. The smallest is the best: exact before tentative, then by rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match {
    pub is_tentative: bool,
    pub evidence: Evidence,
}

impl Match {
    /// A match by this evidence. It is tentative if the evidence is a fallback.
    pub fn by(evidence: Evidence) -> Self {
        Self { is_tentative: evidence.is_fallback(), evidence }
    }

    pub fn tentative(evidence: Evidence) -> Self {
        Self { is_tentative: true, evidence }
    }
}

/// The holder of a spawn, from the view of the agent that searches for its spawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    None,
    /// The agent itself, by a tentative match.
    Itself,
    /// Another agent.
    Other(Match),
}

/// A spawn of the session, which may have started the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate<Id> {
    pub id: Id,
    pub subagent_type: Option<String>,
    pub role: Option<String>,
    pub prompt_hash: Option<String>,
    pub holder: Holder,
    /// Whether the rungs for role and type may choose this spawn. They may not if the call failed or came after the
    /// agent: then only the prompt can show that this spawn started the agent.
    pub allows_fallback: bool,
}

impl<Id> Candidate<Id> {
    fn has_exact_match(&self) -> bool {
        matches!(self.holder, Holder::Other(Match { is_tentative: false, .. }))
    }

    fn is_available(&self) -> bool {
        matches!(self.holder, Holder::None | Holder::Itself)
    }
}

/// The known properties of an agent whose spawn is searched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnmatchedAgent {
    pub agent_type: Option<String>,
    /// The role tag in the agent's first prompt.
    pub role: Option<String>,
    /// The hash of the agent's first prompt.
    pub prompt_hash: Option<String>,
}

impl UnmatchedAgent {
    fn names_another_role<Id>(&self, spawn: &Candidate<Id>) -> bool {
        matches!((&self.role, &spawn.role), (Some(own), Some(other)) if own != other)
    }
}

/// Finds the spawn that started an agent, among the spawns of its session, oldest first.
pub fn find_spawn<Id: Copy>(agent: &UnmatchedAgent, spawns: &[Candidate<Id>]) -> Option<(Id, Match)> {
    if let Some(hash) = &agent.prompt_hash {
        let same = || spawns.iter().filter(|spawn| spawn.prompt_hash.as_ref() == Some(hash));
        if let Some(spawn) = only(same().filter(|spawn| !spawn.has_exact_match())) {
            return Some((spawn.id, Match::by(Evidence::PromptHash)));
        }
        if same().next().is_some() {
            return choose_tentative(same(), Match::tentative(Evidence::PromptHash));
        }
    }
    let fallbacks = || spawns.iter().filter(|spawn| spawn.allows_fallback || spawn.holder == Holder::Itself);
    if let Some(role) = &agent.role
        && let Some(found) = choose_tentative(
            fallbacks().filter(|spawn| spawn.role.as_ref() == Some(role)),
            Match::tentative(Evidence::Role),
        )
    {
        return Some(found);
    }
    let agent_type = agent.agent_type.as_ref().filter(|agent_type| !agent_type.is_empty())?;
    let same_type = || {
        fallbacks().filter(|spawn| {
            spawn.is_available() && spawn.subagent_type.as_ref() == Some(agent_type) && !agent.names_another_role(spawn)
        })
    };
    same_type()
        .find(|spawn| spawn.holder == Holder::Itself)
        .or_else(|| only(same_type()))
        .or_else(|| same_type().find(|spawn| spawn.role.is_some()))
        .map(|spawn| (spawn.id, Match::tentative(Evidence::SubagentType)))
}

/// Whether known facts contradict a tentative match of an agent with the spawn `held`: another spawn has the agent's
/// prompt, or the agent's role tag names another role than the spawn's.
pub fn is_contradicted<Id: Copy + PartialEq>(agent: &UnmatchedAgent, held: Id, spawns: &[Candidate<Id>]) -> bool {
    let has_prompt = |spawn: &Candidate<Id>| agent.prompt_hash.is_some() && spawn.prompt_hash == agent.prompt_hash;
    let is_held = |spawn: &&Candidate<Id>| spawn.id == held;
    let prompt_is_elsewhere =
        spawns.iter().any(has_prompt) && !spawns.iter().any(|spawn| is_held(&spawn) && has_prompt(spawn));
    prompt_is_elsewhere || spawns.iter().find(is_held).is_some_and(|spawn| agent.names_another_role(spawn))
}

/// Chooses a spawn on a tentative rung: the spawn that the agent already holds, or else the oldest free one, or else
/// the oldest that another agent holds on a worse rung. Among spawns with equal prompts, failed calls come last.
fn choose_tentative<'a, Id: Copy + 'a>(
    spawns: impl Iterator<Item = &'a Candidate<Id>>,
    by: Match,
) -> Option<(Id, Match)> {
    let comes_last = |spawn: &Candidate<Id>| by.evidence == Evidence::PromptHash && !spawn.allows_fallback;
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
            allows_fallback: true,
        }
    }

    fn held(holder: Holder, spawn: Candidate<usize>) -> Candidate<usize> {
        Candidate { holder, ..spawn }
    }

    fn typed(agent_type: &str) -> UnmatchedAgent {
        UnmatchedAgent { agent_type: Some(agent_type.into()), ..UnmatchedAgent::default() }
    }

    fn other(evidence: Evidence) -> Holder {
        Holder::Other(Match::by(evidence))
    }

    const TYPE: Match = Match { is_tentative: true, evidence: Evidence::SubagentType };
    const ROLE: Match = Match { is_tentative: true, evidence: Evidence::Role };
    const PROMPT: Match = Match { is_tentative: false, evidence: Evidence::PromptHash };
    const EQUAL_PROMPT: Match = Match { is_tentative: true, evidence: Evidence::PromptHash };

    #[test]
    fn matches_are_ordered_by_certainty_then_by_rung() {
        assert!(Match::by(Evidence::PostToolUse) < Match::by(Evidence::AgentProgress));
        assert!(PROMPT < EQUAL_PROMPT && EQUAL_PROMPT < ROLE && ROLE < TYPE);
    }

    #[test]
    fn only_free_spawn_of_the_type_matches() {
        let spawns = [spawn(1, "coder", None, "a"), spawn(2, "reviewer", None, "b")];
        assert_eq!(find_spawn(&typed("reviewer"), &spawns), Some((2, TYPE)));
        assert_eq!(find_spawn(&typed("other"), &spawns), None);
        assert_eq!(find_spawn(&typed(""), &spawns), None);
    }

    #[test]
    fn oldest_spawn_with_a_role_matches_among_several_of_the_type() {
        let spawns =
            [spawn(1, "general", None, "a"), spawn(2, "general", Some("x"), "b"), spawn(3, "general", Some("y"), "c")];
        assert_eq!(find_spawn(&typed("general"), &spawns), Some((2, TYPE)));
        assert_eq!(find_spawn(&typed("general"), &[spawns[0].clone(), spawn(4, "general", None, "d")]), None);
    }

    #[test]
    fn failed_call_comes_last_among_equal_prompts() {
        let failed = |spawn| Candidate { allows_fallback: false, ..spawn };
        let seeker = UnmatchedAgent { prompt_hash: Some("p".into()), ..typed("general") };
        let retried = [failed(spawn(1, "general", None, "p")), spawn(2, "general", None, "p")];
        assert_eq!(find_spawn(&seeker, &retried), Some((2, EQUAL_PROMPT)));
        let held_by_itself = [held(Holder::Itself, retried[0].clone()), retried[1].clone()];
        assert_eq!(find_spawn(&seeker, &held_by_itself), Some((2, EQUAL_PROMPT)), "the call failed after the match");
        assert_eq!(find_spawn(&seeker, &retried[..1]), Some((1, PROMPT)), "the only call with that prompt");
    }

    #[test]
    fn role_tag_of_the_agent_comes_before_the_type() {
        let spawns = [spawn(1, "general", Some("a"), "1"), spawn(2, "general", Some("b"), "2")];
        let seeker = UnmatchedAgent { role: Some("b".into()), ..typed("general") };
        assert_eq!(find_spawn(&seeker, &spawns), Some((2, ROLE)));
    }

    #[test]
    fn role_and_type_decide_if_no_spawn_has_the_prompt() {
        let spawns =
            [spawn(1, "general", Some("a"), "1"), spawn(2, "general", Some("b"), "2"), spawn(3, "g", Some("b"), "3")];
        let seeker = UnmatchedAgent { role: Some("b".into()), prompt_hash: Some("own".into()), ..typed("general") };
        assert_eq!(find_spawn(&seeker, &spawns), Some((2, ROLE)));
        assert_eq!(find_spawn(&UnmatchedAgent { role: None, ..seeker.clone() }, &spawns), Some((1, TYPE)));
        // The agent's role tag contradicts spawns of other roles, but not a spawn without a role.
        let other = UnmatchedAgent { role: Some("c".into()), ..seeker };
        assert_eq!(find_spawn(&other, &spawns), None);
        assert_eq!(find_spawn(&other, &[spawns[0].clone(), spawn(4, "general", None, "4")]), Some((4, TYPE)));
    }

    #[test]
    fn prompt_or_role_tag_contradicts_a_tentative_match() {
        let spawns = [spawn(1, "general", Some("a"), "1"), spawn(2, "general", None, "2")];
        let seeker = |role: Option<&str>, hash: Option<&str>| UnmatchedAgent {
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
    fn no_fallback_applies_if_an_exactly_matched_spawn_has_the_prompt() {
        let spawns = [
            held(other(Evidence::ToolResult), spawn(1, "general", Some("a"), "same")),
            spawn(2, "general", Some("a"), "2"),
        ];
        let seeker = UnmatchedAgent { role: Some("a".into()), prompt_hash: Some("same".into()), ..typed("general") };
        assert_eq!(find_spawn(&seeker, &spawns), None);
    }

    #[test]
    fn equal_prompts_match_the_oldest_free_spawn_tentatively() {
        let mut spawns = [spawn(1, "general", Some("a"), "same"), spawn(2, "general", Some("b"), "same")];
        let seeker = UnmatchedAgent { prompt_hash: Some("same".into()), ..typed("general") };
        assert_eq!(find_spawn(&seeker, &spawns), Some((1, EQUAL_PROMPT)));
        spawns[0].holder = Holder::Other(EQUAL_PROMPT);
        assert_eq!(find_spawn(&seeker, &spawns), Some((2, EQUAL_PROMPT)));
        spawns[1].holder = Holder::Other(EQUAL_PROMPT);
        assert_eq!(find_spawn(&seeker, &spawns), None);
        // One of the two spawns has an exact match, so the match with the other is exact too.
        spawns[1].holder = other(Evidence::ToolResult);
        assert_eq!(find_spawn(&seeker, &spawns), Some((1, PROMPT)));
        assert_eq!(find_spawn(&seeker, &spawns[..1]), Some((1, PROMPT)));
    }

    #[test]
    fn only_a_better_rung_displaces_a_match() {
        let by_type = [held(Holder::Other(TYPE), spawn(1, "general", Some("a"), "1"))];
        let by_role = [held(Holder::Other(ROLE), spawn(1, "general", Some("a"), "1"))];
        let seeker = UnmatchedAgent { role: Some("a".into()), ..typed("general") };
        assert_eq!(find_spawn(&seeker, &by_type), Some((1, ROLE)));
        assert_eq!(find_spawn(&seeker, &by_role), None);
        assert_eq!(find_spawn(&typed("general"), &by_type), None);
        let prompted = UnmatchedAgent { prompt_hash: Some("1".into()), ..UnmatchedAgent::default() };
        assert_eq!(find_spawn(&prompted, &by_role), Some((1, PROMPT)));
    }

    #[test]
    fn agent_keeps_the_spawn_that_it_holds() {
        let spawns = [
            spawn(1, "general", Some("a"), "1"),
            held(Holder::Itself, Candidate { allows_fallback: false, ..spawn(2, "general", Some("a"), "2") }),
        ];
        let seeker = UnmatchedAgent { role: Some("a".into()), ..typed("general") };
        assert_eq!(find_spawn(&seeker, &spawns), Some((2, ROLE)));
        assert_eq!(find_spawn(&typed("general"), &spawns), Some((2, TYPE)));
    }

    #[test]
    fn spawn_without_fallback_matches_only_by_its_prompt() {
        let spawns = [Candidate { allows_fallback: false, ..spawn(1, "general", Some("a"), "1") }];
        let seeker = UnmatchedAgent { role: Some("a".into()), ..typed("general") };
        assert_eq!(find_spawn(&seeker, &spawns), None);
        let prompted = UnmatchedAgent { prompt_hash: Some("1".into()), ..seeker };
        assert_eq!(find_spawn(&prompted, &spawns), Some((1, PROMPT)));
    }

    /// A model of a session: the holders of the spawns, and the rules by which matches replace each other.
    #[derive(Debug)]
    struct Session {
        spawns: Vec<Candidate<usize>>,
        holders: Vec<Option<(usize, Match)>>,
        agents: Vec<UnmatchedAgent>,
    }

    impl Session {
        fn new(spawns: Vec<Candidate<usize>>, agents: Vec<UnmatchedAgent>) -> Self {
            Self { holders: vec![None; spawns.len()], spawns, agents }
        }

        fn is_exact(&self, agent: usize) -> bool {
            self.holders.iter().flatten().any(|(holder, by)| *holder == agent && !by.is_tentative)
        }

        /// Searches for the spawn of each of these agents, and of all agents that they displace.
        fn settle(&mut self, agents: impl IntoIterator<Item = usize>) {
            let mut seeking: BTreeSet<usize> = agents.into_iter().collect();
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
                match find_spawn(&self.agents[agent], &self.spawns) {
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

        /// Applies a match, and returns the agent that it displaced.
        fn hold(&mut self, spawn: usize, agent: usize, by: Match) -> Option<usize> {
            for holder in &mut self.holders {
                if holder.is_some_and(|(holder, held)| holder == agent && held.is_tentative) {
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
                    .map(|(_, by)| by.is_tentative)
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
            let candidate = |(id, (subagent_type, role, prompt_hash, allows_fallback))| Candidate {
                id,
                subagent_type,
                role,
                prompt_hash,
                holder: Holder::None,
                allows_fallback,
            };
            spawns.into_iter().enumerate().map(candidate).collect()
        })
    }

    fn any_agents() -> impl Strategy<Value = Vec<UnmatchedAgent>> {
        let seeker = |(agent_type, role, prompt_hash)| UnmatchedAgent { agent_type, role, prompt_hash };
        vec((word("x y"), word("r s"), word("p q o n")).prop_map(seeker), 1..7)
    }

    const EXACT: [Evidence; 3] = [Evidence::PostToolUse, Evidence::ToolResult, Evidence::AgentProgress];

    proptest! {
        #[test]
        fn no_agent_holds_two_spawns_tentatively(
            spawns in any_spawns(),
            agents in any_agents(),
            order in vec((0..7_usize, word("p q"), word("r")), 0..30),
        ) {
            let known = agents.clone();
            let blank = agents.iter().map(|agent| UnmatchedAgent { agent_type: agent.agent_type.clone(), ..UnmatchedAgent::default() });
            let mut session = Session::new(spawns, blank.collect());
            for (agent, prompt, role) in order {
                let agent = agent % known.len();
                // Facts about an agent only accumulate; they never change.
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
        fn exact_evidence_wins_over_fallbacks_in_any_order(
            spawns in any_spawns(),
            agents in any_agents(),
            pairs in proptest::sample::subsequence((0..6_usize).collect::<Vec<_>>(), 0..6).prop_shuffle(),
            evidence in proptest::sample::select(EXACT.to_vec()),
            seeks in vec(vec(0..6_usize, 0..4), 7),
        ) {
            // In each pair, the spawn and the agent have the same number.
            let pairs: Vec<usize> = pairs.into_iter().filter(|pair| *pair < spawns.len().min(agents.len())).collect();
            let mut session = Session::new(spawns, agents);
            let count = session.agents.len();
            let seekers = |number: usize| seeks[number].iter().map(|agent| agent % count).collect::<Vec<_>>();
            for (number, pair) in pairs.iter().enumerate() {
                session.settle(seekers(number));
                session.check()?;
                // An earlier exact match by the prompt is replaced, because this evidence is better.
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
        fn matches_reach_a_stable_state(spawns in any_spawns(), agents in any_agents()) {
            let mut session = Session::new(spawns, agents);
            let rounds = session.agents.len() * 4;
            // One round may free a spawn for an agent that searched before.
            let is_stable = (0..rounds).any(|_| {
                let before = session.holders.clone();
                session.settle(0..session.agents.len());
                before == session.holders
            });
            prop_assert!(is_stable, "{:#?}", session);
        }
    }
}
