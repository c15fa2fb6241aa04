//! Property test of spawn matching. Hooks and transcripts report spawns, agents, prompts and matches in random order.
//! No spawn may match two agents, no agent may have two tentative matches, exact evidence must win, and every agent
//! must have a run.

use proptest::{prelude::*, test_runner::TestRunner};
use trackway_domain::{
    Time,
    enums::Evidence,
    observed::{Fact, Observation, ObservedFact, PromptKey, SessionFacts, Source, SpawnFacts, SubagentFacts},
    spawn::tagged_role,
};
use trackway_store::{params, row};
use trackway_testkit::{Engine, TestEnv};

const AGENTS: usize = 5;
const TYPES: [&str; 2] = ["general", "coder"];

/// A piece of evidence. Numbers identify spawns and agents: spawn N started agent N.
#[derive(Debug, Clone)]
enum EvidenceEvent {
    Spawn(usize),
    Start(usize),
    FirstPrompt(usize),
    Exact(usize, Evidence),
}

/// A random session: the prompt and type of each spawn, and the evidence in the order of its arrival.
#[derive(Debug, Clone)]
struct SessionScript {
    prompts: Vec<(String, &'static str)>,
    /// Whether the agent's first prompt differs from the prompt of its spawn. A hook of the client can cause this.
    reworded: Vec<bool>,
    events: Vec<EvidenceEvent>,
}

fn session_scripts() -> impl Strategy<Value = SessionScript> {
    let prompt = prop_oneof![Just("same"), Just("[ROLE:r] a"), Just("[ROLE:r] b"), Just("[ROLE:s] c"), Just("plain")];
    let prompts = prop::collection::vec((prompt.prop_map(str::to_owned), prop::sample::select(TYPES.to_vec())), AGENTS);
    let evidence = prop::sample::select(vec![Evidence::PostToolUse, Evidence::ToolResult, Evidence::AgentProgress]);
    let number = 0..AGENTS;
    let events = prop_oneof![
        3 => number.clone().prop_map(EvidenceEvent::Spawn),
        3 => number.clone().prop_map(EvidenceEvent::Start),
        3 => number.clone().prop_map(EvidenceEvent::FirstPrompt),
        1 => (number, evidence).prop_map(|(number, evidence)| EvidenceEvent::Exact(number, evidence)),
    ];
    (prompts, prop::collection::vec(any::<bool>(), AGENTS), prop::collection::vec(events, 1..25))
        .prop_map(|(prompts, reworded, events)| SessionScript { prompts, reworded, events })
}

impl SessionScript {
    fn fact(&self, event: &EvidenceEvent) -> (Option<usize>, Source, Fact) {
        match event {
            EvidenceEvent::Spawn(number) => {
                let (prompt, subagent_type) = &self.prompts[*number];
                let facts = SpawnFacts {
                    tool_use_id: format!("t{number}"),
                    subagent_type: Some((*subagent_type).to_owned()),
                    name: None,
                    prompt: prompt.clone(),
                    prompt_hash: prompt.clone(),
                    description: None,
                    background: false,
                    transcript_position: None,
                };
                (None, Source::Hook, Fact::Spawn(facts))
            }
            EvidenceEvent::Start(number) => {
                let agent_type = Some(self.prompts[*number].1.to_owned());
                (Some(*number), Source::Hook, Fact::SubagentStart { agent_type })
            }
            EvidenceEvent::FirstPrompt(number) => {
                let own = &self.prompts[*number].0;
                let text = if self.reworded[*number] { format!("{own} in other words") } else { own.clone() };
                let facts = SubagentFacts {
                    tagged_role: tagged_role(&text),
                    prompt_hash: Some(text),
                    ..SubagentFacts::default()
                };
                (Some(*number), Source::Transcript, Fact::Subagent(facts))
            }
            EvidenceEvent::Exact(number, evidence) => {
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
    pub struct MatchedSpawn {
        spawn: String,
        agent: Option<String>,
        tentative: bool,
    }
}

fn observe(env: &TestEnv, session: &str, at: Time, source: Source, agent: Option<usize>, fact: Fact) {
    let agent = agent.map(|number| format!("a{number}"));
    let facts = vec![ObservedFact::new(at, agent.as_deref(), &PromptKey::default(), fact)];
    let observation = Observation { client: "claude_code", session: session.to_owned(), source, facts, progress: None };
    env.core.observe(&env.ada, &observation).unwrap();
}

fn matched_spawns(env: &TestEnv, session: &str) -> Vec<MatchedSpawn> {
    env.read(|read| {
        Ok(read.query(
            "select t.tool_use_id, t.matched_agent_id, t.tentative from task_spawns t join sessions s on s.id = t.session_id
             where t.tenant_id = ?1 and s.session_id = ?2 order by t.tool_use_id",
            params![session],
        )?)
    })
}

fn check_script(env: &TestEnv, session: &str, script: &SessionScript) -> Result<(), TestCaseError> {
    let at = |second: usize| Time::from_micros(1_700_000_000_000_000 + i64::try_from(second).unwrap() * 1_000_000);
    let begin = SessionFacts { cwd: Some("/w".into()), source: Some("startup".into()), ..SessionFacts::default() };
    observe(env, session, at(0), Source::Hook, None, Fact::Session(Box::new(begin)));
    observe(
        env,
        session,
        at(0),
        Source::Hook,
        None,
        Fact::Prompt { text: "go".into(), hash: "go".into(), copies_get_new_ids: false },
    );
    let mut exact = Vec::new();
    let mut known_spawns = Vec::new();
    for (event, second) in script.events.iter().zip(1..) {
        let (agent, source, fact) = script.fact(event);
        observe(env, session, at(second), source, agent, fact);
        match event {
            EvidenceEvent::Spawn(number) => known_spawns.push(*number),
            EvidenceEvent::Exact(number, evidence)
                if known_spawns.contains(number) || *evidence == Evidence::AgentProgress =>
            {
                exact.push(*number);
            }
            _ => {}
        }
        let spawns = matched_spawns(env, session);
        for number in 0..AGENTS {
            let agent = format!("a{number}");
            let own: Vec<_> = spawns.iter().filter(|spawn| spawn.agent.as_ref() == Some(&agent)).collect();
            let tentative = own.iter().filter(|spawn| spawn.tentative).count();
            prop_assert!(tentative == 0 || own.len() == 1, "after {:?} {} holds {:?}", event, agent, own);
        }
        for number in exact.iter().filter(|number| known_spawns.contains(number)) {
            let wanted =
                MatchedSpawn { spawn: format!("t{number}"), agent: Some(format!("a{number}")), tentative: false };
            prop_assert!(spawns.contains(&wanted), "after {:?} {:?} is not in {:?}", event, wanted, spawns);
        }
        let empty = env.read(|read| {
            Ok(read.query::<(String,)>(
                "select handle from agents a where a.tenant_id = ?1 and a.deleted_at is null and a.handle like '%@w'
                 and not exists (select 1 from runs r where r.agent_id = a.id)",
                &[],
            )?)
        });
        prop_assert!(empty.is_empty(), "after {:?} nothing belongs to {:?}", event, empty);
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

fn matches_are_consistent_in_any_order(engine: Engine, cases: u32) {
    let env = TestEnv::new(engine);
    let session = std::cell::Cell::new(0);
    let config = ProptestConfig { cases, ..ProptestConfig::default() };
    let tried = TestRunner::new(config).run(&session_scripts(), |script| {
        session.set(session.get() + 1);
        check_script(&env, &format!("s{}", session.get()), &script)
    });
    tried.unwrap();
    assert_eq!(env.core.store().integrity_findings().unwrap(), Vec::<String>::new());
}

#[test]
fn matches_are_consistent_in_any_order_sqlite() {
    matches_are_consistent_in_any_order(Engine::Sqlite, 100);
}

#[test]
fn matches_are_consistent_in_any_order_postgres() {
    matches_are_consistent_in_any_order(Engine::Postgres, 20);
}
