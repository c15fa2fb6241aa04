//! Hooks and transcripts report spawns, agents, prompts and matches in any order: no two agents hold one spawn, no agent
//! holds two by a fallback, exact evidence wins, and no agent is left that nothing belongs to.

use proptest::{prelude::*, test_runner::TestRunner};
use trackway_domain::{
    Time,
    observed::{Fact, Observation, PromptKey, Seen, SessionFacts, Source, SpawnFacts, SubagentFacts},
    spawn::tagged_role,
    words::Evidence,
};
use trackway_store::{params, row};
use trackway_testkit::{Engine, TestEnv};

const AGENTS: usize = 5;
const TYPES: [&str; 2] = ["general", "coder"];

/// What the record may learn; numbers name spawns and agents. The spawn of a number started the agent of that number.
#[derive(Debug, Clone)]
enum Learned {
    Spawn(usize),
    Start(usize),
    FirstPrompt(usize),
    Exact(usize, Evidence),
}

/// A session: the prompt of each spawn, what its agent's transcript says, and what is learned in which order.
#[derive(Debug, Clone)]
struct Story {
    prompts: Vec<(String, &'static str)>,
    /// Whether the agent's first prompt is another one than its spawn's, as a hook may make it.
    reworded: Vec<bool>,
    learned: Vec<Learned>,
}

fn stories() -> impl Strategy<Value = Story> {
    let prompt = prop_oneof![Just("same"), Just("[ROLE:r] a"), Just("[ROLE:r] b"), Just("[ROLE:s] c"), Just("plain")];
    let prompts = prop::collection::vec((prompt.prop_map(str::to_owned), prop::sample::select(TYPES.to_vec())), AGENTS);
    let evidence = prop::sample::select(vec![Evidence::PostToolUse, Evidence::ToolResult, Evidence::AgentProgress]);
    let number = 0..AGENTS;
    let learned = prop_oneof![
        3 => number.clone().prop_map(Learned::Spawn),
        3 => number.clone().prop_map(Learned::Start),
        3 => number.clone().prop_map(Learned::FirstPrompt),
        1 => (number, evidence).prop_map(|(number, evidence)| Learned::Exact(number, evidence)),
    ];
    (prompts, prop::collection::vec(any::<bool>(), AGENTS), prop::collection::vec(learned, 1..25))
        .prop_map(|(prompts, reworded, learned)| Story { prompts, reworded, learned })
}

impl Story {
    fn fact(&self, learned: &Learned) -> (Option<usize>, Source, Fact) {
        match learned {
            Learned::Spawn(number) => {
                let (prompt, subagent_type) = &self.prompts[*number];
                let facts = SpawnFacts {
                    tool_use_id: format!("t{number}"),
                    subagent_type: Some((*subagent_type).to_owned()),
                    name: None,
                    prompt: prompt.clone(),
                    prompt_hash: prompt.clone(),
                    description: None,
                    background: false,
                    place: None,
                };
                (None, Source::Hook, Fact::Spawn(facts))
            }
            Learned::Start(number) => {
                let agent_type = Some(self.prompts[*number].1.to_owned());
                (Some(*number), Source::Hook, Fact::SubagentStart { agent_type })
            }
            Learned::FirstPrompt(number) => {
                let own = &self.prompts[*number].0;
                let said = if self.reworded[*number] { format!("{own} in other words") } else { own.clone() };
                let facts = SubagentFacts {
                    tagged_role: tagged_role(&said),
                    prompt_hash: Some(said),
                    ..SubagentFacts::default()
                };
                (Some(*number), Source::Transcript, Fact::Subagent(facts))
            }
            Learned::Exact(number, evidence) => {
                let fact = Fact::Match {
                    tool_use_id: format!("t{number}"),
                    agent_id: format!("a{number}"),
                    evidence: *evidence,
                };
                (None, Source::Hook, fact)
            }
        }
    }
}

row! {
    /// A spawn with its match.
    pub struct Held {
        spawn: String,
        agent: Option<String>,
        tentative: bool,
    }
}

fn tell(env: &TestEnv, session: &str, at: Time, source: Source, agent: Option<usize>, fact: Fact) {
    let agent = agent.map(|number| format!("a{number}"));
    let facts = vec![Seen::new(at, agent.as_deref(), &PromptKey::default(), fact)];
    let observation = Observation { client: "claude_code", session: session.to_owned(), source, facts, progress: None };
    env.core.observe(&env.ada, &observation).unwrap();
}

fn held(env: &TestEnv, session: &str) -> Vec<Held> {
    env.read(|read| {
        Ok(read.query(
            "select t.tool_use_id, t.matched_agent_id, t.tentative from task_spawns t join sessions s on s.id = t.session_id
             where t.tenant_id = ?1 and s.session_id = ?2 order by t.tool_use_id",
            params![session],
        )?)
    })
}

fn try_story(env: &TestEnv, session: &str, story: &Story) -> Result<(), TestCaseError> {
    let at = |second: usize| Time::from_micros(1_700_000_000_000_000 + i64::try_from(second).unwrap() * 1_000_000);
    let begin = SessionFacts { cwd: Some("/w".into()), source: Some("startup".into()), ..SessionFacts::default() };
    tell(env, session, at(0), Source::Hook, None, Fact::Session(Box::new(begin)));
    tell(
        env,
        session,
        at(0),
        Source::Hook,
        None,
        Fact::Prompt { text: "go".into(), hash: "go".into(), copies_get_new_ids: false },
    );
    let mut exact = Vec::new();
    let mut known = Vec::new();
    for (learned, second) in story.learned.iter().zip(1..) {
        let (agent, source, fact) = story.fact(learned);
        tell(env, session, at(second), source, agent, fact);
        match learned {
            Learned::Spawn(number) => known.push(*number),
            Learned::Exact(number, evidence) if known.contains(number) || *evidence == Evidence::AgentProgress => {
                exact.push(*number);
            }
            _ => {}
        }
        let spawns = held(env, session);
        for number in 0..AGENTS {
            let agent = format!("a{number}");
            let own: Vec<_> = spawns.iter().filter(|spawn| spawn.agent.as_ref() == Some(&agent)).collect();
            let tentative = own.iter().filter(|spawn| spawn.tentative).count();
            prop_assert!(tentative == 0 || own.len() == 1, "after {:?} {} holds {:?}", learned, agent, own);
        }
        for number in exact.iter().filter(|number| known.contains(number)) {
            let wanted = Held { spawn: format!("t{number}"), agent: Some(format!("a{number}")), tentative: false };
            prop_assert!(spawns.contains(&wanted), "after {:?} {:?} is not in {:?}", learned, wanted, spawns);
        }
        let empty = env.read(|read| {
            Ok(read.query::<(String,)>(
                "select handle from agents a where a.tenant_id = ?1 and a.deleted_at is null and a.handle like '%@w'
                 and not exists (select 1 from runs r where r.agent_id = a.id)",
                &[],
            )?)
        });
        prop_assert!(empty.is_empty(), "after {:?} nothing belongs to {:?}", learned, empty);
    }
    let orphans = env.read(|read| {
        Ok(read.query::<(String,)>(
            "select handle from agents a where a.tenant_id = ?1 and a.deleted_at is null and a.handle like '%@w' and a.handle <> 'main@w' and a.parent_id is null",
            &[],
        )?)
    });
    prop_assert!(orphans.is_empty(), "{:?} have no parent", orphans);
    Ok(())
}

fn any_order_is_consistent(engine: Engine, cases: u32) {
    let env = TestEnv::new(engine);
    let session = std::cell::Cell::new(0);
    let config = ProptestConfig { cases, ..ProptestConfig::default() };
    let tried = TestRunner::new(config).run(&stories(), |story| {
        session.set(session.get() + 1);
        try_story(&env, &format!("s{}", session.get()), &story)
    });
    tried.unwrap();
    assert_eq!(env.core.store().unsound().unwrap(), Vec::<String>::new());
}

#[test]
fn any_order_is_consistent_sqlite() {
    any_order_is_consistent(Engine::Sqlite, 100);
}

#[test]
fn any_order_is_consistent_postgres() {
    any_order_is_consistent(Engine::Postgres, 20);
}
